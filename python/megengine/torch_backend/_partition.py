"""Which operations of an ATen graph are left to torch, and the graph as parts that take turns: ours, torch's."""

from __future__ import annotations

import math
import operator
import os
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree

from ._aten import function_of

# By torch's dtypes. Of int64 the values are checked in each call: they are places, labels and counters.
DTYPES = {
    torch.float32: "float32", torch.float16: "float16", torch.bfloat16: "bfloat16", torch.int64: "int32", torch.int32: "int32",
    torch.int16: "int16", torch.int8: "int8", torch.uint8: "uint8", torch.bool: "bool",
}  # fmt: skip
# int64 from outside stays below this in magnitude, or the call is torch's.
LARGEST = 1 << 24
_TORCHS = os.path.dirname(torch.__file__) + os.sep  # layers, which are not the user's lines
_LAST = 2**63 - 1  # of slices: the end


def name_of(node: fx.Node) -> str:
    """ "add.Tensor" of torch.ops.aten.add.Tensor; "" of anything else."""
    namespace, _, name = str(node.target).partition(".")
    return name if isinstance(node.target, torch._ops.OpOverload) and namespace == "aten" else ""


def line_of(node: fx.Node) -> str:
    """The line of the program that asks for it, such as 'File "net.py", line 3, in forward'; "" if torch has not noted it."""
    lines = [line.strip() for line in (node.meta.get("stack_trace") or "").splitlines() if line.strip().startswith("File")]
    return next((line for line in reversed(lines) if _TORCHS not in line), lines[-1] if lines else "")


def place_of(node: fx.Node) -> str:
    """The operation, and the line of the program that asks for it."""
    line = line_of(node)
    return f"{node.target}, {line}" if line else str(node.target)


def user_line_of(node: fx.Node) -> str:
    """The same, as errors and plans of ours show lines: "net.py:3 in forward"."""
    found = re.match(r'File "(.*)", line (\d+), in (.*)', line_of(node))
    return f"{found[1]}:{found[2]} in {found[3]}" if found else str(node.target)


def tensors_in(value: Any) -> Iterable[torch.Tensor]:
    return (each for each in _pytree.tree_leaves(value) if isinstance(each, torch.Tensor))


# -- what is left to torch


def reasons_against(graph: fx.GraphModule) -> dict[fx.Node, str]:
    """The operations that torch is to run, and why."""
    left: dict[fx.Node, str] = {}
    calls = [node for node in graph.graph.nodes if node.op in ("call_function", "call_method", "call_module")]
    for node in calls:
        if isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable:
            return dict.fromkeys(calls, "an operation that writes to what it is given")  # nothing may move past it
    bounds: dict[fx.Node, float] = {}
    for node in graph.graph.nodes:
        if node in calls and (why := _reason(node, left, graph)):
            left[node] = why
        bounds[node] = LARGEST if node in left else _bound(node, bounds)
        if node in calls and node not in left and bounds[node] >= 2**31 and any(t.dtype is torch.int64 for t in tensors_in(node.meta.get("val"))):
            left[node], bounds[node] = "arithmetic in int64", LARGEST
    return left


def _reason(node: fx.Node, left: dict[fx.Node, str], graph: fx.GraphModule) -> str:
    if node.target is operator.getitem:  # what a call gives goes with the call
        return left.get(node.all_input_nodes[0], "")
    for each in (node, *node.all_input_nodes):
        value = each.meta.get("val", getattr(graph, str(each.target), None) if each.op == "get_attr" else None)
        if each.op == "get_attr" and not isinstance(value, torch.Tensor):
            return "no ATen operation"
        for tensor in tensors_in(value):
            if tensor.dtype not in DTYPES:
                return f"a tensor of {tensor.dtype}"
            if tensor.device.type != "cpu" or tensor.layout is not torch.strided or type(tensor) not in (torch.Tensor, torch.nn.Parameter, torch._subclasses.FakeTensor):
                return f"a tensor on {tensor.device}, of {tensor.layout} or of a class of its own"
    name = name_of(node)
    if not name:
        return "" if getattr(node.target, "__module__", "") in ("_operator", "math") else "no ATen operation"
    if function_of(name) is None:
        return "an operation that megjit does not have, or that torch does better"
    if name == "max_pool2d_with_indices.default" and any(user.args[1] == 1 and user.users for user in node.users):
        return "with the places of the maxima"
    if name == "max_pool2d_with_indices_backward.default" and not is_found_again(node):
        return "with places of maxima from elsewhere"
    if _reads_by_strides(node):
        return "elements of memory that is not row-major"
    numbers = (each for each in _pytree.tree_leaves((node.args, node.kwargs)) if isinstance(each, int))
    if any(abs(number) >= 2**31 and number != _LAST for number in numbers):
        return "a number beyond 32 bits"
    return ""


def _reads_by_strides(node: fx.Node) -> bool:
    """Does it name elements by where they lie, in memory that does not lie as ours? (Others that read memory are refused when they are recorded.)"""
    return name_of(node).startswith("as_strided") and not node.args[0].meta["val"].is_contiguous()


def parts_of_result(node: fx.Node) -> list[fx.Node]:
    """What takes one result of several out of a call; it goes with the call."""
    return [user for user in node.users if user.target is operator.getitem]


def is_found_again(node: fx.Node) -> bool:
    """Are the places that this gradient of max pooling is given none, as `_joint` leaves them where ours finds them in the operand?"""
    places = node.args[-1]
    return isinstance(places, fx.Node) and places.target is torch.ops.aten.full.default


def with_strides(graph: fx.Graph, seen: Sequence[Any]) -> set[fx.Node]:
    """The values that need torch's strides: what the user's program sees, and all where an operation reads memory by strides."""
    reads_memory = any(_reads_by_strides(node) for node in graph.nodes)
    return {node for node in (graph.nodes if reads_memory else seen) if isinstance(node, fx.Node)}


# -- how large integers can be


def _size(node: fx.Node) -> float:
    """Elements of the largest operand."""
    tensors = [tensor for each in node.all_input_nodes for tensor in tensors_in(each.meta.get("val"))]
    return max((float(each.numel()) if all(isinstance(n, int) for n in each.shape) else math.inf for each in tensors), default=0.0)


_Rule = Callable[[fx.Node, list[float]], float]


def _sum(node: fx.Node, bounds: list[float]) -> float:
    factor: Any = node.kwargs.get("alpha", 1)
    return sum(bounds) * max(1.0, float(abs(factor)))


def _added(node: fx.Node, bounds: list[float]) -> float:
    """Of an operation that may add all of its last operand to one element."""
    return bounds[0] + max(bounds[1:]) * _size(node)


# What gives integers, and their largest magnitude by those of its tensors and numbers.
_BOUNDS: dict[str, _Rule] = {
    **dict.fromkeys((
        "clone", "alias", "detach", "view", "reshape", "_unsafe_view", "expand", "slice", "select", "unsqueeze", "squeeze", "permute",
        "transpose", "t", "cat", "stack", "where", "clamp", "clamp_min", "clamp_max", "remainder", "fmod", "full", "full_like", "fill",
        "scalar_tensor", "index", "_unsafe_index", "index_select", "gather", "copy", "lift_fresh_copy", "repeat", "new_full",
        "neg", "abs", "sign", "flip", "roll", "maximum", "minimum", "amax", "amin", "select_scatter", "slice_scatter", "scatter",
        "masked_fill", "arange", "tril", "triu", "split", "split_with_sizes", "unbind", "constant_pad_nd", "_to_copy", "relu",
    ), lambda node, bounds: max(bounds, default=0.0)),
    **dict.fromkeys(("zeros", "zeros_like", "ones", "ones_like", "empty", "new_zeros", "new_ones"), lambda node, bounds: 1.0),
    **dict.fromkeys(("add", "sub", "rsub"), _sum),
    **dict.fromkeys(("scatter_add", "index_put", "_unsafe_index_put"), _added),
    "mul": lambda node, bounds: math.prod(bounds),
    **dict.fromkeys(("sum", "cumsum"), lambda node, bounds: bounds[0] * _size(node)),
    **dict.fromkeys(("argmax", "argmin", "argsort"), lambda node, bounds: _size(node)),
    # Values, which may be of another dtype, and places.
    **dict.fromkeys(("sort", "topk", "max", "min"), lambda node, bounds: max(bounds[0] if bounds[0] < math.inf else 0.0, _size(node))),
    "max_pool2d_with_indices": lambda node, bounds: 0.0,
}  # fmt: skip
_OF_DTYPE = {torch.bool: 1.0, torch.uint8: 255.0, torch.int8: 128.0, torch.int16: 2.0**15, torch.int32: 2.0**31 - 1}
# Their numbers are values; those of others are axes and places.
_WITH_NUMBERS = {
    "add", "sub", "rsub", "mul", "where", "clamp", "clamp_min", "clamp_max", "remainder", "fmod", "full", "full_like", "fill", "new_full", "scalar_tensor",
    "scatter", "masked_fill", "arange", "constant_pad_nd",
}  # fmt: skip


def _bound(node: fx.Node, bounds: dict[fx.Node, float]) -> float:
    """The largest magnitude that an integer result can have; infinite where that is not known."""
    value = node.meta.get("val")
    dtypes = {tensor.dtype for tensor in tensors_in(value)}
    if torch.int64 not in dtypes:
        if isinstance(value, torch.SymInt):
            return float(LARGEST)
        return max((_OF_DTYPE.get(dtype, math.inf) for dtype in dtypes), default=math.inf)
    if node.op != "call_function":
        return LARGEST
    if node.target is operator.getitem:
        return bounds[node.all_input_nodes[0]]
    packet = name_of(node).partition(".")[0]
    if packet not in _BOUNDS:
        return math.inf
    leaves = _pytree.tree_leaves((node.args, node.kwargs))
    tensors = [bounds[each] for each in leaves if isinstance(each, fx.Node)]
    numbers = [float(abs(each)) for each in leaves if isinstance(each, (int, float))]
    return _BOUNDS[packet](node, tensors + numbers * (packet in _WITH_NUMBERS))


# -- parts


class Part:
    """Operations of one side, as a graph of their own. reads, gives: values of the whole graph."""

    def __init__(self, whole: fx.GraphModule, nodes: Sequence[fx.Node], given_away: set[fx.Node]) -> None:
        inside = set(nodes)
        self.reads = list(dict.fromkeys(e for node in nodes for e in node.all_input_nodes if e not in inside and e.op != "get_attr"))
        self.gives = [node for node in nodes if node in given_away or not inside.issuperset(node.users)]
        graph, copies = fx.Graph(), dict[fx.Node, fx.Node]()
        for node in self.reads:
            copies[node] = graph.placeholder(node.name)
            copies[node].meta = node.meta
        for node in nodes:
            for each in node.all_input_nodes:
                if each not in copies:
                    copies[each] = graph.node_copy(each)
            copies[node] = graph.node_copy(node, copies.__getitem__)
        graph.output([copies[node] for node in self.gives])
        self.graph = fx.GraphModule(whole, graph)
        self.originals = {copy: node for node, copy in copies.items()}


def parts_of(whole: fx.GraphModule, left: dict[fx.Node, str]) -> list[tuple[Part, bool]]:
    """Parts in the order in which they run, and of each whether it is torch's.

    Ours have even levels, torch's odd ones, and none is below what it reads: so what has one level can run together.
    """
    levels: dict[fx.Node, int] = {}
    for node in whole.graph.nodes:
        if node.op not in ("placeholder", "get_attr", "output"):
            least = max((levels[each] for each in node.all_input_nodes if each in levels), default=0)
            levels[node] = least + (least % 2 != (node in left))
    given_away = set(whole.graph.output_node().all_input_nodes)
    by_level: dict[int, list[fx.Node]] = {}
    for node, level in levels.items():
        by_level.setdefault(level, []).append(node)
    return [(Part(whole, nodes, given_away), level % 2 == 1) for level, nodes in sorted(by_level.items())]
