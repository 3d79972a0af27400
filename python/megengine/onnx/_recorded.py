"""A recording as plain Python: nodes, values, names. In: a function and its arguments."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .. import _core
from .. import functional as F
from ..core.tensor.dtype import get_scale, is_quantize
from ..jit import trace
from ..jit.dump import input_names
from ..module import Module
from ..tensor import Tensor
from ._proto import OnnxError, need_no_recording


@dataclass
class Node:
    """One application of an op to values, which are numbers. Graphs that it holds are Recordings among its attributes."""

    op: str
    attrs: dict[str, Any]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    line: str = ""

    @property
    def graphs(self) -> list[Recording]:
        """The graphs that it holds."""
        return [value for value in self.attrs.values() if isinstance(value, Recording)]

    @property
    def own_inputs(self) -> int:
        """The number of inputs before those that its graphs read from outside."""
        if self.op == "scan":
            return int(self.attrs["carries"] + self.attrs["slices"])
        return len(self.outputs) if self.op == "while_loop" else 1


@dataclass
class Recording:
    """nodes: in order, ops only. types: dtype and shape by value; names: by value, "" for none."""

    nodes: list[Node]
    types: list[tuple[np.dtype, tuple[int, ...]]]
    names: list[str]
    inputs: list[int]
    input_names: list[str]
    outputs: list[int]
    output_names: list[str]
    constants: dict[int, Tensor]
    scales: dict[int, float] = field(default_factory=dict)  # scales of quantized constants

    def as_vector(self, value: int) -> int:
        """Returns a constant as a 1-d one, which takes over its name."""
        dtype, shape = self.types[value]
        if len(shape) == 1:
            return value
        tensor = self.constants[value]
        name, self.names[value] = self.names[value], ""
        self.constants[len(self.types)] = tensor.reshape(-1)
        self.types.append((dtype, (tensor.size,)))
        self.names.append(name)
        return len(self.types) - 1


def record(
    model: Callable[..., Any], args: object, input_names_given: Sequence[str] | None, output_names: Sequence[str] | None
) -> Recording:
    """Runs ``model`` on placeholders like ``args`` (Tensors are inputs, all else is fixed) and notes what it calls.

    Tensors and modules that it refers to keep their values when it writes into them.
    """
    need_no_recording("export")
    if not callable(model):
        raise TypeError(f"export: the first argument is of type {type(model).__name__}, neither a module nor a function\n  fix: export(net, inputs, path)")
    function = model.__wrapped__ if isinstance(model, trace) else model
    args = tuple(args) if isinstance(args, (list, tuple)) else (args,)
    args = tuple(Tensor(arg) if isinstance(arg, np.ndarray) else arg for arg in args)
    places = [place for place, arg in enumerate(args) if isinstance(arg, Tensor)]
    if not places:
        raise TypeError(f"export: among the inputs {args!r} is no Tensor and no array\n  fix: export(net, inputs, path), whose inputs are those of a call of the net")
    named = list(model.named_tensors()) if isinstance(model, Module) else []

    def body(*tensors: Tensor) -> Any:
        for name, tensor in named:
            _core.set_name(tensor, name)
        given = list(args)
        for place, tensor in zip(places, tensors, strict=True):
            given[place] = tensor
        return function(*given)

    recorder = trace(body, record_only=True, symbolic_shape=False)
    tensors = [Tensor(args[place]) for place in places]
    held = [(tensor, Tensor(tensor)) for tensor in _tensors_of(function)]
    try:
        recorder(*tensors)
    finally:
        for tensor, value in held:
            tensor._reset(value)
    version = recorder._version_to_dump()
    results: Any = recorder._results  # there is a version, so it is not None
    parameters = [("", name) for name in _parameter_names(function, places)]
    made = version.export_model(
        input_names(parameters, input_names_given), results.names(output_names), False, False, 2, True, True
    )
    recording = _from_model(made)
    _name_outputs(recording, output_names is not None)
    _name_reshaped(recording, named)
    quantized = {name: get_scale(tensor.dtype) for name, tensor in named if is_quantize(tensor.dtype)}
    for constant in recording.constants:
        if recording.names[constant] in quantized:
            recording.scales[constant] = quantized[recording.names[constant]]
    _restore_scalars(recording, tensors, results.tensors)
    return recording


def _tensors_of(function: Callable[..., Any]) -> list[Tensor]:
    """The tensors that a module holds, or that a function refers to by globals and closures, in modules or without."""
    if isinstance(function, Module):
        return [tensor for _, tensor in function.named_tensors()]
    called = inspect.unwrap(getattr(function, "__func__", function))
    try:
        seen = inspect.getclosurevars(called)
    except (TypeError, ValueError):  # no function of Python, or one that is not complete yet
        return []
    found = [*seen.nonlocals.values(), *seen.globals.values(), getattr(function, "__self__", None)]
    modules = [thing for thing in found if isinstance(thing, Module)]
    tensors = [thing for thing in found if isinstance(thing, Tensor)]
    return tensors + [tensor for module in modules for _, tensor in module.named_tensors()]


def _name_outputs(recording: Recording, are_given: bool) -> None:
    """Gives a result that is an unchanged argument a name of its own: in an ONNX file a name is one
    value.
    """
    taken = {*recording.input_names, *recording.output_names}
    for place, name in enumerate(recording.output_names):
        if name not in recording.input_names:
            continue
        if are_given:
            raise ValueError(f"export: {name!r} is the name of an input and of an output\n  fix: give output_names others than input_names")
        free = next(free for number in itertools.count(1) if (free := f"{name}_{number}") not in taken)
        taken.add(free)
        recording.output_names[place] = free


def _name_reshaped(recording: Recording, named: list[tuple[str, Tensor]]) -> None:
    """Constants that are a parameter in another shape (weights with groups) get its name, if no other constant has it."""
    taken = {recording.names[value] for value in recording.constants}
    free: dict[tuple[Any, ...], list[tuple[str, Tensor]]] = {}
    for name, tensor in named:
        if name not in taken and tensor.size > 1:
            free.setdefault((tensor.size, tensor.dtype.itemsize), []).append((name, tensor))
    for value, constant in recording.constants.items():
        key = constant.size, constant.dtype.itemsize
        if recording.names[value] or key not in free:
            continue
        held = constant.numpy()
        if held.min() == held.max():  # fresh biases and the like, which may have any name
            continue
        match = next((row for row in free[key] if row[1].numpy().tobytes() == held.tobytes()), None)
        if match is not None:
            recording.names[value] = match[0]
            free[key].remove(match)


def resized(args: object, shapes: Sequence[tuple[int, ...]]) -> tuple[Any, ...]:
    """The arguments, with zeros of other shapes in the place of Tensors."""
    args = tuple(args) if isinstance(args, (list, tuple)) else (args,)
    sizes = iter(shapes)
    args = tuple(Tensor(arg) if isinstance(arg, np.ndarray) else arg for arg in args)
    return tuple(F.zeros(next(sizes), dtype=arg.dtype) if isinstance(arg, Tensor) else arg for arg in args)


def _parameter_names(function: Callable[..., Any], places: list[int]) -> list[str]:
    """Returns the names of the positional parameters at ``places``; "" if unknown."""
    of_graph = getattr(function, "_input_names", None)  # a traced module, whose forward takes anything
    if of_graph is not None:
        return [of_graph()[place] for place in places]
    try:
        called = function.forward if isinstance(function, Module) else function
        parameters = list(inspect.signature(called).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    names = [parameter.name for parameter in parameters if parameter.kind in kinds]
    return [names[place] if place < len(names) else "" for place in places]


def _from_model(model: _core.Model, line: str = "") -> Recording:
    """line: the line given to nodes that have none."""
    nodes, inputs, constants = [], {}, {}
    for row in model.nodes:
        if row["op"] == "input":
            inputs[row["slot"]] = row["outputs"][0]
        elif row["op"] == "constant":
            constants[row["outputs"][0]] = row["constant"]
        else:
            own = row["line"] or line
            held = {name: _from_model(value, own) for name, value in row["attrs"].items() if isinstance(value, _core.Model)}
            nodes.append(Node(row["op"], row["attrs"] | held, row["inputs"], row["outputs"], own))
    types = [(dtype, shape) for dtype, shape in model.value_types]
    ordered = [inputs[slot] for slot in range(len(model.inputs))]
    return Recording(
        nodes, types, model.value_names, ordered, model.inputs, list(model.output_values), model.outputs, constants
    )


def _restore_scalars(recording: Recording, tensors: list[Tensor], results: list[Tensor]) -> None:
    """Restores 0-d inputs and results, which are vectors of one element in dumped models."""
    scalars = [value for value, tensor in zip(recording.inputs, tensors, strict=True) if tensor.ndim == 0]
    if not scalars:
        return
    for value in scalars:
        recording.types[value] = (recording.types[value][0], ())
    makers = {node.outputs[0]: node for node in recording.nodes}
    for place, (value, result) in enumerate(zip(recording.outputs, results, strict=True)):
        maker = makers.get(value)
        if result.ndim == 0 and maker and maker.op == "reshape" and recording.types[maker.inputs[0]][1] == ():
            recording.outputs[place] = maker.inputs[0]


def refuse(problems: dict[str, list[str]]) -> None:
    """Raises OnnxError that lists every op that has no form in ONNX, with the lines that use it."""
    if not problems:
        return
    text = "export: these operations cannot be written as ONNX"
    for what, lines in problems.items():
        text += f"\n  {what}: {', '.join(dict.fromkeys(lines))}"
    if "dropout_mask" in problems:
        fix = "call eval() on the model first, so that dropout does nothing"
    else:
        fix = "write them with other operations (docs/onnx.md), or export what comes before, and compute the rest outside"
    raise OnnxError(f"{text}\n  fix: {fix}")
