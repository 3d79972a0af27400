"""One ATen graph as a program of ours: which graphs are, what their values become, and the calls."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree

from .. import _core
from ..jit.replay import Replay
from ..random import seed as seed_ours
from ..tensor import Tensor
from ._aten import RANDOM, Unsupported, function_of

# By torch's dtypes. Of int64 the values are checked in each call: they are places, labels and counters.
DTYPES = {
    torch.float32: "float32", torch.float16: "float16", torch.bfloat16: "bfloat16", torch.int64: "int32", torch.int32: "int32",
    torch.int16: "int16", torch.int8: "int8", torch.uint8: "uint8", torch.bool: "bool",
}  # fmt: skip
# int64 from outside stays below this, so that sums of some of them fit 32 bits.
_LARGEST = 1 << 24
# What may make int64 results of such values: they stay small.
_SMALL = {
    "arange", "add", "sub", "clone", "alias", "detach", "view", "reshape", "_unsafe_view", "expand", "slice", "select", "unsqueeze", "squeeze", "permute", "transpose",
    "t", "cat", "stack", "where", "clamp", "remainder", "full", "full_like", "zeros", "zeros_like", "ones", "ones_like", "empty", "scalar_tensor", "argmax", "argmin", "_to_copy",
    "index", "gather", "copy", "lift_fresh_copy", "repeat", "neg", "abs", "flip", "maximum", "minimum", "select_scatter", "slice_scatter", "max_pool2d_with_indices",
}  # fmt: skip


def _name_of(node: fx.Node) -> str:
    """ "add.Tensor" of torch.ops.aten.add.Tensor; "" of anything else."""
    namespace, _, name = str(node.target).partition(".")
    return name if isinstance(node.target, torch._ops.OpOverload) and namespace == "aten" else ""


def _tensors(value: Any) -> Iterable[torch.Tensor]:
    return (each for each in _pytree.tree_leaves(value) if isinstance(each, torch.Tensor))


def reason_against(graph: fx.GraphModule) -> str:
    """Why torch is to run that graph: the operation, and the line of the program; "" if ours can."""
    return next((f"{why} ({_place(node)})" for node in graph.graph.nodes if (why := _reason(node)) and node.op != "output"), "")


def _place(node: fx.Node) -> str:
    """The operation, and the line of the program that asks for it."""
    lines = [line.strip() for line in (node.meta.get("stack_trace") or "").splitlines() if line.strip().startswith("File")]
    return f"{node.target}, {lines[-1]}" if lines else str(node.target)


def _reason(node: fx.Node) -> str:
    values = list(_tensors(node.meta.get("val")))
    for value in values:
        if value.dtype not in DTYPES:
            return f"a tensor of {value.dtype}"
        if value.device.type != "cpu" or value.layout is not torch.strided or type(value) not in (torch.Tensor, torch._subclasses.FakeTensor):
            return f"a tensor on {value.device}, of {value.layout} or of a class of its own"
    if node.op != "call_function":
        return "" if node.op in ("placeholder", "output", "get_attr") else f"a {node.op}"
    name = _name_of(node)
    if not name:
        return "" if getattr(node.target, "__module__", "") in ("_operator", "math") else "no ATen operation"
    if function_of(name) is None:
        return "an operation that it does not have"
    if any(value.dtype is torch.int64 for value in values) and name.partition(".")[0] not in _SMALL:
        return "arithmetic in int64"
    return ""


class Program:
    """Calls of one graph. ``options`` are those of `jit.trace`."""

    def __init__(self, graph: fx.GraphModule, options: dict[str, Any]) -> None:
        self._graph, self._options = graph, options
        results = list(graph.graph.output_node().args[0])
        self._expected = [node.meta.get("val") if isinstance(node, fx.Node) else node for node in results]
        places = {node: place for place, node in enumerate(graph.graph.find_nodes(op="placeholder"))}
        self._passed_on = [places.get(node) for node in results]  # of each result the argument that it is, if any
        self._draws = any(_name_of(node).partition(".")[0] in RANDOM for node in graph.graph.nodes)
        self._replays: dict[tuple[Any, ...], tuple[Replay, list[Any]]] = {}
        self._constants: dict[str, Tensor] = {}

    def __call__(self, arguments: list[Any]) -> list[Any]:
        given = [_ours(value) for value in arguments]
        if any(value is None and isinstance(theirs, torch.Tensor) for value, theirs in zip(given, arguments, strict=True)):
            return list(self._graph(*arguments))  # an int64 beyond 32 bits
        if self._draws:
            seed_ours(int(torch.randint(2**31 - 1, ())))
        results = self._run(given)
        same = [None if place is None else arguments[place] for place in self._passed_on]
        return [
            theirs if theirs is not None else _theirs(value, expected)
            for value, expected, theirs in zip(results, self._expected, same, strict=True)
        ]

    def _run(self, given: list[Any]) -> list[Any]:
        """Results, tensors or not. Sizes that are arguments are numbers of the program: there is one for each of their values."""
        sizes = tuple(value for value in given if not isinstance(value, Tensor))
        tensors = [value for value in given if isinstance(value, Tensor)]
        if sizes not in self._replays:
            form: list[Any] = []
            pattern = [Tensor if isinstance(value, Tensor) else value for value in given]

            def body(*values: Tensor) -> list[Tensor]:
                rest = iter(values)
                results = self._interpret([next(rest) if each is Tensor else each for each in pattern])
                form[:] = [Tensor if isinstance(each, Tensor) else each for each in results]
                return [each for each in results if isinstance(each, Tensor)]

            self._replays[sizes] = Replay(body, **self._options), form
        replay, form = self._replays[sizes]
        found = iter(replay(tensors))
        return [next(found) if each is Tensor else each for each in form]

    def _interpret(self, arguments: list[Any]) -> list[Any]:
        known: dict[fx.Node, Any] = {}
        rest = iter(arguments)
        for node in self._graph.graph.nodes:
            if node.op == "placeholder":
                known[node] = next(rest)
            elif node.op == "get_attr":
                known[node] = self._constant(node.target)
            elif node.op == "output":
                return [known[each] if isinstance(each, fx.Node) else each for each in node.args[0]]
            else:
                try:
                    known[node] = _settled(self._apply(node, known), node.meta.get("val"))
                except MemoryError:
                    raise
                except Exception as error:
                    raise Unsupported(f"{error} ({_place(node)})") from error
        raise AssertionError("a graph without an output")

    def _apply(self, node: fx.Node, known: dict[fx.Node, Any]) -> Any:
        def ours(value: Any) -> Any:
            return DTYPES[value] if isinstance(value, torch.dtype) else value

        args, kwargs = _pytree.tree_map(ours, fx.map_arg((node.args, node.kwargs), known.__getitem__))
        without = ("device", "layout", "pin_memory", "memory_format", "generator")
        kwargs = {name: value for name, value in kwargs.items() if name not in without and value is not None}
        name = _name_of(node)
        return (function_of(name) if name else node.target)(*args, **kwargs)  # type: ignore[misc]  # it was looked for before

    def _constant(self, name: str) -> Tensor:
        if name not in self._constants:
            self._constants[name] = Tensor(getattr(self._graph, name).detach().numpy())
        return self._constants[name]


def _ours(value: Any) -> Any:
    """A tensor over torch's memory, where that is as ours lies; None for an int64 that does not fit."""
    if not isinstance(value, torch.Tensor):
        return value
    value = value.detach()
    if value.dtype is torch.int64:
        if value.numel() and (value.max() > _LARGEST or value.min() < -_LARGEST):
            return None
        value = value.to(torch.int32)
    return _core.borrow(value.contiguous())


def _theirs(value: Any, expected: Any) -> Any:
    """A copy in the dtype and with the strides that torch has planned for it."""
    if not isinstance(value, Tensor):
        return value
    lent = torch.from_dlpack(_core.lend(value))
    steps = expected.stride()
    if all(isinstance(step, int) and step for step in (*expected.shape, *steps)):
        made = torch.empty_strided(expected.shape, steps, dtype=expected.dtype)
    else:  # sizes that only this call knows, or one element in many places
        made = torch.empty(lent.shape, dtype=expected.dtype)
    return made.copy_(lent)


def _settled(value: Any, expected: Any) -> Any:
    """In the dtype that torch has for it. Unsupported where a part is missing, or the shape is another one."""
    if isinstance(expected, (tuple, list)):
        if not isinstance(value, (tuple, list)) or len(value) != len(expected):
            raise Unsupported("with other results")
        return [_settled(part, each) for part, each in zip(value, expected, strict=True)]
    if not isinstance(expected, torch.Tensor):
        return value
    shape: Sequence[Any] = expected.shape
    if value is None and 0 in shape:
        value = Tensor([]).reshape(*shape)
    if not isinstance(value, Tensor) or (all(isinstance(n, int) for n in shape) and value._tuple_shape != tuple(shape)):
        if isinstance(value, Tensor) and not shape and value.size == 1:
            return value.reshape(()).astype(DTYPES[expected.dtype])
        raise Unsupported(f"with a result of shape {tuple(shape)}")
    wanted = DTYPES[expected.dtype]
    return value if value.dtype.name == wanted else value.astype(wanted)
