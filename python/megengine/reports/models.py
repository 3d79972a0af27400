"""``python -m megengine run MODEL``: runs a model file, and prints results, times, memory, the
slowest steps, and differences from another runtime.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from .. import _core, device
from .._files import modules
from .._files.kinds import first_bytes, is_model_file, kind_of
from ..core._sizes import to_bytes
from ..fx import GraphModule, from_torch
from ..jit.tracing import trace
from ..module import Module
from ..onnx import load as load_onnx
from ..onnx._proto import held_as, onnx
from ..onnx._read import read as read_onnx
from ..tensor import Tensor
from ..traced_module import TracedModule
from ..utils.comp_graph_tools import GraphInference, load_file
from . import package

_SLOWEST = 10
_LARGEST_INTEGER = 8  # drawn integers (of words, classes, places) are below this


@dataclass(frozen=True)
class Input:
    """extents: numbers, and names of those that are open; None if the file does not say them."""

    name: str
    dtype: str = "float32"
    extents: Sequence[int | str] | None = None

    def __str__(self) -> str:
        return f"{self.name} {self.dtype}[{', '.join(map(str, self.extents))}]" if self.extents is not None else self.name


@dataclass
class Model:
    """A file that has been read. file: the file that trace.dump wrote, which runs as it is. peers:
    name -> another runtime, which takes and gives arrays.
    """

    kind: str
    inputs: list[Input]
    call: Callable[..., Any]
    weights: int = 0  # bytes
    outputs: list[str] = field(default_factory=list)
    file: str | None = None
    peers: dict[str, Callable[[list[np.ndarray]], list[np.ndarray]]] = field(default_factory=dict)


def run(arguments: argparse.Namespace) -> int:
    """Returns the exit status: 1 where results differ by more than the tolerance."""
    if arguments.threads:
        device.set_num_threads(arguments.threads)
    model = read(arguments.file)
    arrays = given_to(model, arguments.input, arguments.size, arguments.seed)
    print(f"{Path(arguments.file).name}: {model.kind}" + (f", {_core.size_text(model.weights)} of weights" if model.weights else ""))
    for each, array in zip(model.inputs, arrays, strict=True):
        print(f"  {each.name}: {array.dtype.name}{list(array.shape)}")
    called = _called(model, arrays, arguments)
    for name, result in zip(called.names, called.results, strict=True):
        print(f"  -> {name}: {result.dtype.name}{list(result.shape)}")
    print(called.times(arguments.repeat))
    print(called.memory())
    if arguments.profile:
        print("\n".join(called.slowest()))
    if arguments.package:
        called.package(arguments.package)
    return check(called, model, arrays, arguments.check, arguments.tolerance) if arguments.check else 0


def _called(model: Model, arrays: list[np.ndarray], arguments: argparse.Namespace) -> Call:
    """Runs the first call. ValueError, which names the node, if nothing can compute it."""
    try:
        return Call(model, arrays, arguments.memory_limit, arguments.profile)
    except (ArithmeticError, AssertionError, LookupError, TypeError) as error:
        refusal = ValueError(f"run: {arguments.file} cannot be computed: {error}")
        for note in getattr(error, "__notes__", ()):
            refusal.add_note(note)
        raise refusal from error


# ---- files


def read(path: str) -> Model:
    """Reads a file. ValueError or OSError, with the reason, for a file that cannot be run."""
    with open(path, "rb") as file:
        begin = first_bytes(file)
    if begin.startswith(b"MEGJITGF"):
        return _dump(path)
    if is_model_file(begin):
        return _module(path)
    if path.endswith(".onnx"):
        return _onnx(path)
    if path.endswith(".pt2"):
        return _exported(path)
    what, fix = kind_of(begin) or ("of no kind that is known", "give an .onnx, a .pt2, or what trace.dump or save wrote")
    raise ValueError(f"run: {path} is {what}\n  fix: {fix}")


def _weights(module: Module) -> int:
    return sum(math.prod(tensor._tuple_shape) * tensor.dtype.itemsize for _, tensor in module.named_tensors())


def _dump(path: str) -> Model:
    graph = load_file(path).function("")
    loaded = GraphInference(path, optimize_for_inference=True)
    inputs = [Input(name, np.dtype(dtype).name, list(shape)) for name, (dtype, shape) in zip(graph.inputs, graph.input_types, strict=True)]

    def call(*tensors: Tensor) -> tuple[Tensor, ...]:
        return tuple(loaded._program.run(list(tensors)))

    return Model("a function that trace.dump wrote", inputs, call, graph.constant_bytes, list(graph.outputs), path)


def _module(path: str) -> Model:
    module = modules.load(path, Module).eval()
    if isinstance(module, GraphModule):
        names = [node.name for node in module.graph.nodes if node.op == "placeholder"]
    elif isinstance(module, TracedModule):
        names = module._input_names()
    else:
        raise ValueError(f"run: {path} holds a {type(module).__name__}, whose inputs are not known\n  fix: save what fx.symbolic_trace or trace_module makes of it")
    return Model(f"a module, {type(module).__name__}", list(map(Input, names)), module, _weights(module))


def _onnx(path: str) -> Model:
    module = load_onnx(path).eval()
    proto, large = read_onnx(path)
    stored = {tensor.name for tensor in (*proto.graph.initializer, *large.values())}
    inputs = []
    for info in proto.graph.input:
        if info.name not in stored:
            kind = info.type.tensor_type
            extents = [dim.dim_value if dim.HasField("dim_value") else dim.dim_param or f"{info.name}/{axis}" for axis, dim in enumerate(kind.shape.dim)]
            inputs.append(Input(info.name, held_as(onnx().TensorProto.DataType.Name(kind.elem_type).lower()), extents if kind.HasField("shape") else None))

    def onnxruntime(arrays: list[np.ndarray]) -> list[np.ndarray]:
        import onnxruntime as runtime

        options = runtime.SessionOptions()
        options.intra_op_num_threads = _core.thread_count()
        session = runtime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        dtypes = {each.name: each.type for each in session.get_inputs()}
        feeds = {each.name: array.astype(np.int64) if "int64" in dtypes[each.name] else array for each, array in zip(inputs, arrays, strict=True)}
        found: list[np.ndarray] = session.run(None, feeds)
        return found

    outputs = [info.name for info in proto.graph.output]
    return Model(f"ONNX, {len(proto.graph.node)} nodes", inputs, module, _weights(module), outputs, peers={"onnxruntime": onnxruntime})


def _exported(path: str) -> Model:
    try:
        import torch
    except ImportError:
        raise ValueError(f"run: {path} is a program of torch.export, which torch reads\n  fix: pip install torch") from None
    program = torch.export.load(path)
    module = from_torch(program).eval()
    names = program.graph_signature.user_inputs
    values = {node.name: node.meta["val"] for node in program.graph.nodes if node.op == "placeholder"}
    inputs = [
        Input(name, str(values[name].dtype).removeprefix("torch."), [extent if isinstance(extent, int) else str(extent) for extent in values[name].shape])
        for name in names
    ]

    def run_torch(arrays: list[np.ndarray]) -> list[np.ndarray]:
        with torch.no_grad():
            found = program.module()(*(torch.from_numpy(array.astype(each.dtype)) for each, array in zip(inputs, arrays, strict=True)))
        return [each.numpy() for each in (found if isinstance(found, (tuple, list)) else [found])]

    return Model("a program of torch.export", inputs, module, _weights(module), peers={"torch": run_torch})


# ---- inputs


def given_to(model: Model, texts: Sequence[str], sizes: Sequence[str], seed: int) -> list[np.ndarray]:
    """Arrays for the inputs: from files, or drawn. ValueError that asks for what is missing, by name."""
    named, free = dict[str, str](), list[str]()
    for text in texts:
        name, is_named, value = text.partition("=")
        if is_named:
            named[name] = value
        else:
            free.append(text)
    names = [each.name for each in model.inputs]
    if unknown := [name for name in named if name not in names]:
        raise ValueError(f"run: there is no input {unknown[0]!r}\n  fix: name one of {', '.join(map(str, model.inputs))}")
    texts_of = {**named, **dict(zip([name for name in names if name not in named], free, strict=False))}
    known = dict(_size(text) for text in sizes)
    lacking = dict[str, None]()
    random = np.random.RandomState(seed)
    arrays = [_array(each, texts_of.get(each.name), known, lacking, random) for each in model.inputs]
    if lacking:
        raise ValueError(f"run: {', '.join(map(str, model.inputs))}: these extents are open\n  fix: {' '.join(lacking)}")
    return arrays


def _size(text: str) -> tuple[str, int]:
    name, _, extent = text.rpartition("=")
    if not name or not extent.isdecimal():
        raise ValueError(f"run: --size {text!r} is no extent\n  fix: write it like --size batch=2")
    return name, int(extent)


def _array(each: Input, text: str | None, known: Mapping[str, int], lacking: dict[str, None], random: np.random.RandomState) -> np.ndarray:
    if text and text.endswith(".npy"):
        return np.load(text, allow_pickle=False)
    shape, dtype = [], each.dtype
    if text is not None:
        words, _, given = text.partition(":")
        try:
            shape, dtype = [int(extent) for extent in words.replace("x", ",").split(",") if extent], np.dtype(given or dtype).name
        except (ValueError, TypeError):
            raise ValueError(f"run: {text!r} is no shape\n  fix: write --input {each.name}=1x3x224x224, or the name of an .npy file") from None
    elif each.extents is None:
        lacking[f"--input {each.name}=SHAPE"] = None
    else:
        for extent in each.extents:
            if isinstance(extent, str) and extent not in known:
                lacking[f"--size {extent}=N"] = None
            shape.append(extent if isinstance(extent, int) else known.get(extent, 1))
    try:
        if dtype.startswith(("int", "uint", "bool")):
            return random.randint(0, 2 if dtype == "bool" else _LARGEST_INTEGER, shape).astype(dtype)
        return random.uniform(0, 1, shape).astype(dtype)
    except (ValueError, MemoryError):
        raise ValueError(f"run: no array is {Input(each.name, dtype, shape)}\n  fix: give {each.name} other extents, as --input {each.name}=SHAPE") from None


# ---- calls


class Call:
    """Calls the model in a trace, once. If it reads values that a symbolic trace lacks, it is
    recorded by value.
    """

    def __init__(self, model: Model, arrays: list[np.ndarray], memory_limit: str | None, profiles: bool) -> None:
        self._model = model
        self._traced: trace[..., Any] | None = None
        self._tensors = [Tensor(array) for array in arrays]
        options: dict[str, Any] = {"opt_level": 3, "profiling": profiles, "capture_as_const": True}
        if memory_limit:
            options["memory_limit"] = to_bytes(memory_limit, "--memory-limit")
        self.note = ""
        begin = time.perf_counter()
        try:
            if model.file is None:
                self._traced = trace(lambda *given: model.call(*given), symbolic=True, **options)
            self.results = self._run()
        except ValueError as error:
            if memory_limit or "is read inside a function traced" not in str(error):
                raise
            self.note = f"; recorded by value: {str(error).splitlines()[-1].strip()}"
            self._traced = trace(lambda *given: model.call(*given), symbolic=False, **options)
            self.results = self._run()
        self._first = time.perf_counter() - begin
        self.names = model.outputs if len(model.outputs) == len(self.results) else [f"result {place}" for place in range(len(self.results))]

    def _run(self) -> list[np.ndarray]:
        found = (self._traced or self._model.call)(*self._tensors)
        return [np.array(each.numpy()) for each in (found if isinstance(found, (tuple, list)) else [found])]

    def times(self, repeats: int) -> str:
        taken = []
        for _ in range(repeats):
            begin = time.perf_counter()
            self._run()
            taken.append(1e3 * (time.perf_counter() - begin))
        ninth = sorted(taken)[min(len(taken) - 1, math.ceil(0.9 * len(taken)) - 1)]
        return (
            f"first call {1e3 * self._first:.0f} ms; {repeats} more: median {statistics.median(taken):.3f} ms, "
            f"90 % within {ninth:.3f} ms; threads: {_core.thread_count()}{self.note}"
        )

    def memory(self) -> str:
        """Returns the bytes of a call by its plan, and the bytes of all tensors, with weights in
        the file's form.
        """
        device.reset_max_memory_stats("cpux")
        self._run()
        planned = f"{_core.size_text(self._traced.memory_plan().planned_bytes)} a call by its plan; " if self._traced and not self.note else ""
        return f"memory: {planned}all tensors at most {_core.size_text(device.get_max_allocated_memory('cpux'))}"

    def slowest(self) -> list[str]:
        if self._traced is None:
            return ["profile: a dumped function has none; profile what it was dumped from"]
        profile = self._traced.get_profile()["profiler"]
        steps = sorted(profile["steps"], key=lambda step: -step["seconds"])[:_SLOWEST]
        whole = sum(step["seconds"] for step in profile["steps"]) or 1.0
        return ["slowest steps:"] + [
            f"  {100 * step['seconds'] / whole:5.1f} %  {1e3 * step['seconds'] / max(profile['runs'], 1):9.3f} ms  {' '.join(step['ops'])[:60]}" for step in steps
        ]

    def package(self, folder: str) -> None:
        """Writes C for the model."""
        with TemporaryDirectory() as work:
            file = self._model.file or str(Path(work) / "model.mge")
            if self._traced:
                self._traced.dump(file, arg_names=[each.name for each in self._model.inputs], output_names=self.names)
            package.run_static(file, folder, list(package.LEVELS[:1]), "", "net", False)


def check(called: Call, model: Model, arrays: list[np.ndarray], against: str, tolerance: float) -> int:
    """Prints how far the results are from those of another runtime, or of a file. Returns 1 where they are too far."""
    if against.endswith(".npz"):
        with np.load(against, allow_pickle=False) as held:
            wanted = [held[name] if name in held else held[held.files[place]] for place, name in enumerate(called.names)]
    elif against in model.peers:
        wanted = model.peers[against](arrays)
    else:
        known = ", ".join([*model.peers, "FILE.npz"])
        raise ValueError(f"run: --check {against!r} is nothing that {model.kind} can be compared with\n  fix: {known}")
    status = 0
    for name, found, want in zip(called.names, called.results, wanted, strict=False):
        if found.shape != want.shape:
            print(f"check: {name}: {list(found.shape)}, and {against} gives {list(want.shape)}")
            status = 1
            continue
        scale = max(float(np.abs(want.astype(np.float64)).max(initial=0)), 1e-30)
        difference = float(np.abs(found.astype(np.float64) - want.astype(np.float64)).max(initial=0))
        is_near = bool(difference <= tolerance * scale) or np.array_equal(found, want, equal_nan=found.dtype.kind == "f")
        status |= not is_near
        print(f"check: {name}: differs from {against} by at most {difference:.3g}, {difference / scale:.3g} of the largest" + ("" if is_near else ": too far"))
    return int(status)
