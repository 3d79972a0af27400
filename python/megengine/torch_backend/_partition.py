"""Finds the operations of an ATen graph that are left to torch, and cuts the graph into parts that
take turns: ours, torch's.
"""

from __future__ import annotations

import operator
import os
import re
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree

from ._aten import function_of
from ._devices import device_of, is_on, why_not
from ._linalg import BY_ORDER_OF_MEMORY
from ._names import layer_of
from ._pools import has_places
from ._private import free_unbacked_symbols
from ._reductions import WITHOUT_PLACES

# Sets of torch's dtypes.
DTYPES = {
    torch.float32: "float32", torch.float16: "float16", torch.bfloat16: "bfloat16", torch.float64: "float64", torch.int64: "int64",
    torch.int32: "int32", torch.int16: "int16", torch.int8: "int8", torch.uint8: "uint8", torch.bool: "bool",
}  # fmt: skip
SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)  # numbers that a call gives
# Operations that do not compute float64 here: they would round it.
_NOT_IN_DOUBLE = re.compile(r"(.*pool|upsample|grid_sampler)")
# Kernels of these for GPUs have elements of 32 bits at most.
_NARROW_ON_GPUS = {"sort", "argsort", "topk", "kthvalue", "median", "cumsum", "cumprod", "index_add", "scatter_add", "scatter_reduce", "index_reduce", "index_put", "mm", "bmm", "addmm", "baddbmm", "convolution", "convolution_backward", "_scaled_dot_product_efficient_attention", "_scaled_dot_product_efficient_attention_backward"}
_TORCHS = os.path.dirname(torch.__file__) + os.sep  # layers, which are not the user's lines


def name_of(node: fx.Node) -> str:
    """ "add.Tensor" of torch.ops.aten.add.Tensor, "other::name.default" of another namespace's
    operation that we have; "" of anything else.
    """
    if not isinstance(node.target, torch._ops.OpOverload):
        return ""
    namespace, _, name = str(node.target).partition(".")
    theirs = f"{namespace}::{name}"
    return name if namespace == "aten" else theirs if function_of(theirs) else ""


def line_of(node: fx.Node) -> str:
    """Returns the line of the program that calls an operation, such as 'File "net.py", line 3, in
    forward'; "" if torch has not noted it.
    """
    lines = [line.strip() for line in (node.meta.get("stack_trace") or "").splitlines() if line.strip().startswith("File")]
    return next((line for line in reversed(lines) if _TORCHS not in line), lines[-1] if lines else "")


def place_of(node: fx.Node) -> str:
    """Returns the operation, and the line and the layer of the program that call it."""
    line = line_of(node)
    return f"{node.target}, {line}{_in_layer(node)}" if line else str(node.target)


def short_line_of(node: fx.Node) -> str:
    """Returns the line as our errors and plans show it: "net.py:3 in forward"."""
    found = re.match(r'File "(.*)", line (\d+), in (.*)', line_of(node))
    return f"{found[1]}:{found[2]} in {found[3]}" if found else str(node.target)


def user_line_of(node: fx.Node) -> str:
    """Returns the line and the layer: "net.py:3 in forward (layers.0)"."""
    return short_line_of(node) + _in_layer(node)


def _in_layer(node: fx.Node) -> str:
    layer = layer_of(node)
    return f" ({layer})" if layer else ""


def tensors_in(value: Any) -> Iterable[torch.Tensor]:
    return (each for each in _pytree.tree_leaves(value) if isinstance(each, torch.Tensor))


def values_with_sizes(value: Any) -> list[Any]:
    """Tensors, and numbers that are symbols."""
    return [each for each in _pytree.tree_leaves(value) if isinstance(each, (torch.Tensor, *SYMBOLIC))]


def tensors_of(node: fx.Node) -> Iterable[torch.Tensor]:
    """Returns the tensors that a node reads and makes."""
    return (tensor for each in (node, *node.all_input_nodes) for tensor in tensors_in(each.meta.get("val")))


# -- what is left to torch


def reasons_against(graph: fx.GraphModule) -> dict[fx.Node, str]:
    """The operations that torch is to run, and why."""
    left: dict[fx.Node, str] = {}
    device = device_of(graph.graph)
    calls = [node for node in graph.graph.nodes if node.op in ("call_function", "call_method", "call_module")]
    for node in calls:
        if isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable:
            return dict.fromkeys(calls, "an operation that writes to what it is given")  # nothing may move past it
    for node in calls:
        if why := _by_data(node) or _reason(node, left, graph, device):
            left[node] = why
    return left


def _by_data(node: fx.Node) -> str:
    """Returns the reason against a size or number that tensors' values decide: only a run knows it,
    and each would need its own program.
    """
    if any(free_unbacked_symbols(value) for each in (node, *node.all_input_nodes) for value in values_with_sizes(each.meta.get("val"))):
        return "a size that data decides"
    return ""


def is_check(node: fx.Node) -> bool:
    """Whether it raises if a tensor holds 0."""
    return name_of(node).startswith("_assert_async")


def is_random(node: fx.Node) -> bool:
    """Whether it draws from a generator, so that it gives other values when it is computed again.
    """
    if not isinstance(node.target, torch._ops.OpOverload) or torch.Tag.nondeterministic_seeded not in node.target.tags:
        return False
    names = [each.name for each in node.target._schema.arguments]
    if "dropout_p" not in names:
        return True
    given = {**dict(zip(names, node.args, strict=False)), **node.kwargs}
    return given.get("dropout_p", 0) != 0  # without dropout attention draws nothing


def _reason(node: fx.Node, left: dict[fx.Node, str], graph: fx.GraphModule, device: torch.device) -> str:
    if node.target is operator.getitem:  # a part of a result goes with its call
        return left.get(node.all_input_nodes[0], "")
    for each in (node, *node.all_input_nodes):
        value = each.meta.get("val", getattr(graph, str(each.target), None) if each.op == "get_attr" else None)
        if each.op == "get_attr" and not isinstance(value, torch.Tensor):
            return "no ATen operation"
        for tensor in tensors_in(value):
            if why := why_not(tensor.device):
                return why
            if tensor.dtype not in DTYPES:
                return f"a tensor of {tensor.dtype}"
            if tensor.layout is not torch.strided or type(tensor) not in (torch.Tensor, torch.nn.Parameter, torch._subclasses.FakeTensor):
                return f"a tensor of {tensor.layout} or of a class of its own"
            if not is_on(device, tensor):
                return f"a tensor on {tensor.device} in a graph on {device}: megjit computes on one device"
    name = name_of(node)
    if not name:
        is_number = isinstance(node.meta.get("val"), (int, float, torch.SymInt, torch.SymFloat, torch.SymBool))
        is_pythons = getattr(node.target, "__module__", "") in ("_operator", "math") or (is_number and not any(tensors_of(node)))
        return "" if is_pythons else "no ATen operation"
    if function_of(name) is None:
        return "an operation that megjit does not have"
    if "val" not in node.meta and not is_check(node):
        return "a check of numbers"
    if name.startswith(("pow.", "float_power.")) and not node.meta["val"].is_floating_point():
        return "powers of integers, which megjit computes as floats"
    if _NOT_IN_DOUBLE.match(name) and any(tensor.dtype is torch.float64 for tensor in tensors_of(node)):
        return "float64, for which megjit has no such kernel"
    if device.type == "cuda" and "grouped_mm" in name:
        return "products of groups, which megjit has on the host alone"
    if device.type == "cuda" and name.partition(".")[0] in _NARROW_ON_GPUS and _is_wide(node):
        return "64 bits, for which megjit has no such kernel on GPUs"
    if name in WITHOUT_PLACES and _places_are_read(node):
        return "with places, which equal elements leave open"
    if name.startswith("max_pool") and name.endswith("_with_indices.default") and _places_are_read(node) and not _has_places(node):
        return "with the places of the maxima"
    if _reads_by_strides(node):
        return "elements of memory that is not row-major"
    return ""


def _is_wide(node: fx.Node) -> bool:
    values = [each.meta.get("val") for each in (node, *node.all_input_nodes[:1])]
    return any(isinstance(each, torch.Tensor) and each.dtype in (torch.int64, torch.float64) for each in values)


def _places_are_read(node: fx.Node) -> bool:
    return any(user.args[1] == 1 and user.users for user in parts_of_result(node))


def _has_places(node: fx.Node) -> bool:
    value, rank = node.args[0].meta["val"], len(node.args[1])
    extents = value.shape[-rank:]
    dilation: Any = node.args[4] if len(node.args) > 4 else 1
    return all(isinstance(each, int) for each in extents) and has_places(DTYPES[value.dtype], extents, dilation)


def _reads_by_strides(node: fx.Node) -> bool:
    """Whether it addresses elements by strides, in memory whose order is not ours. (Others that
    read memory are refused when they are recorded.)
    """
    if not name_of(node).startswith("as_strided"):
        return False
    value = node.args[0].meta["val"]
    # the offset counts from the start of the memory
    has_offset = not isinstance(node.args[-1], (list, tuple, type(None)))
    return not value.is_contiguous() or (has_offset and value.storage_offset() != 0)


def parts_of_result(node: fx.Node) -> list[fx.Node]:
    """Returns the nodes that take one result out of several; they go with the call."""
    return [user for user in node.users if user.target is operator.getitem]


def with_strides(graph: fx.Graph, seen: Sequence[Any]) -> set[fx.Node]:
    """Returns the values that need torch's strides: those that the user's program sees, or all if
    an operation reads memory by strides.
    """
    reads_memory = any(_reads_by_strides(node) or name_of(node).partition(".")[0] in BY_ORDER_OF_MEMORY for node in graph.nodes)
    return {node for node in (graph.nodes if reads_memory else seen) if isinstance(node, fx.Node)}


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


def parts_of(whole: fx.GraphModule, left: dict[fx.Node, str], first: set[fx.Node]) -> list[tuple[Part, bool]]:
    """Returns the parts in the order in which they run, each with whether it is torch's. Ours have
    even levels, torch's odd ones, ``first`` of them -1; a node's level is at least that of its
    inputs, so that nodes of one level can run together.
    """
    levels: dict[fx.Node, int] = {}
    for node in whole.graph.nodes:
        if node.op not in ("placeholder", "get_attr", "output"):
            least = max((levels[each] for each in node.all_input_nodes if each in levels), default=-1 if node in first else 0)
            levels[node] = least + (least % 2 != (node in left))
    given_away = set(whole.graph.output_node().all_input_nodes)
    by_level: dict[int, list[fx.Node]] = {}
    for node, level in levels.items():
        by_level.setdefault(level, []).append(node)
    return [(Part(whole, nodes, given_away), level % 2 == 1) for level, nodes in sorted(by_level.items())]
