"""The part of `optimize_for_inference` that keeps values between layers in the layouts of oneDNN's
kernels.

Regions of layers that know these layouts get `Tensor.to_mkldnn` on the way in and `Tensor.to_dense` on the way out, layers
with packed weights (`megengine.utils.mkldnn`), and products that add and rectify what they store. A heuristic decides
which regions stay so. Wherever another layout comes in, results are the same: functions copy what they cannot read.
"""

from __future__ import annotations

import logging
import math
import operator
from collections.abc import Callable, Sequence
from enum import Enum
from functools import partial
from typing import Any

import numpy as np

from ... import functional as F
from ... import module as M
from ...utils import mkldnn
from ..graph import Graph
from ..graph_module import GraphModule
from ..node import Node, map_arg
from ..tracer import Tracer
from ..verify import computes
from ._aliases import make_new_tensors, may_be_written
from ._heuristics import MklSubgraph
from ._mkldnn_layers import (
    called,
    mkldnn_map,
    mkldnn_supported,
    mkldnn_supported_unknown,
    modules_to_mkldnn,
    reset_modules,
)
from ._subgraphs import UnionFind

logger = logging.getLogger(__name__)

_PRODUCTS = (
    mkldnn.MkldnnConv1d,
    mkldnn.MkldnnConv2d,
    mkldnn.MkldnnConv3d,
    mkldnn.MkldnnLinear,
)
_PROPERTIES = ("shape", "ndim", "dtype", "device")  # the same in every layout


class _Support(Enum):
    NO = 1
    YES = 2
    UNKNOWN = 3


def lay_out(
    model: M.Module, heuristic: Callable[[MklSubgraph], bool], tracer: type[Tracer]
) -> GraphModule:
    """Lays out the regions of ``model``, a copy of the caller's, that ``heuristic`` chooses.
    AssertionError if a layer that could be laid out does not compute in float32 on the CPU.
    """
    at_work = tracer()
    graph = at_work.trace(model)
    name = getattr(model, "_class_name", type(model).__name__)
    laid_out = GraphModule(at_work.root, graph, name)
    modules = dict(laid_out.named_modules())
    make_new_tensors(graph, modules)
    taken = _surround_with_conversions(graph, modules)
    old_modules = modules_to_mkldnn(taken, modules)
    graph.old_modules = old_modules  # type: ignore[attr-defined]  # for heuristics
    _cancel_conversions(graph)
    laid_out.recompile()
    kept: list[Node] = []
    for region in _regions(graph, taken):
        if heuristic(region):
            kept += region.nodes
            continue
        for node in region.start_nodes + region.end_nodes:
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)
        reset_modules(region.nodes, modules, old_modules)
    _join_into_products(kept, modules)
    conversions = sum(_is_conversion(node) for node in graph.nodes)
    logger.info("mkldnn conversions: %d", conversions)
    graph.lint()
    return GraphModule(laid_out, graph, name)


def _is_conversion(node: Node, *targets: str) -> bool:
    return node.op == "call_method" and node.target in (targets or ("to_mkldnn", "to_dense"))


def _surround_with_conversions(graph: Graph, modules: dict[str, M.Module]) -> list[Node]:
    """Lets each node that can take laid out values do so; returns these nodes."""
    refused = may_be_written(graph, modules)
    taken = []
    for node in list(graph.nodes):
        support = _Support.NO if node in refused else _support_of(node, modules)
        laid = [value for value in node.all_input_nodes if _is_conversion(value, "to_dense")]
        if support is _Support.NO or (support is _Support.UNKNOWN and not laid):
            continue
        converted = set(laid if support is _Support.UNKNOWN else [node.args[0]])
        with graph.inserting_before(node):
            new = {value: graph.call_method("to_mkldnn", (value,)) for value in converted}
        node.args = map_arg(node.args, partial(_replaced, new))
        with graph.inserting_after(node):
            dense = graph.call_method("to_dense", (node,))
        node.replace_all_uses_with(dense, partial(operator.is_not, dense))
        taken.append(node)
    return taken


def _support_of(node: Node, modules: dict[str, M.Module]) -> _Support:
    function = called(node, modules)
    if not node.args or not isinstance(node.args[0], (Node, list, tuple) if function is F.concat else Node):
        return _Support.NO
    if node.op == "call_module":
        module = modules[node.target]
        if function in mkldnn_supported:
            _check_parameters(module)
        if getattr(module, "padding_mode", "zeros") != "zeros" or _lacks_statistics(module):
            return _Support.NO
        if function in mkldnn_map and (len(node.args) > 1 or node.kwargs):
            return _Support.NO
    elif node.op != "call_function":
        return _Support.NO
    if function in mkldnn_supported:
        return _Support.YES
    return _Support.UNKNOWN if function in mkldnn_supported_unknown else _Support.NO


def _lacks_statistics(module: M.Module) -> bool:
    return (
        isinstance(module, (M.BatchNorm1d, M.BatchNorm2d, M.BatchNorm3d))
        and module.running_mean is None
    )


def _check_parameters(module: M.Module) -> None:
    for parameter in module.parameters():
        if parameter.dtype != np.float32:
            raise AssertionError(
                f"this pass is only for float32 modules, and a {type(module).__name__} has a parameter of {parameter.dtype}"
                '\n  fix: model.float(), or pass_config={"mkldnn_layout_optimize": False}'
            )
        if not parameter.device.physical_name.startswith("cpu"):
            raise AssertionError(
                f"this pass is only for CPU modules, and a {type(module).__name__} has a parameter on {parameter.device}"
                '\n  fix: pass_config={"mkldnn_layout_optimize": False}'
            )


def _replaced(new: dict[Any, Any], value: Any) -> Any:
    return new.get(value, value)


def _cancel_conversions(graph: Graph) -> None:
    """Takes out pairs of conversions between laid out values."""
    for node in list(graph.nodes):
        if not _is_conversion(node, "to_dense"):
            continue
        users: list[Any] = list(node.users)
        for user in users:
            if _is_conversion(user, "to_mkldnn"):
                user.replace_all_uses_with(node.args[0])
                graph.erase_node(user)
            elif (
                user.op == "call_function"
                and user.target is getattr
                and user.args[1] in _PROPERTIES
            ):
                user.args = (node.args[0], *user.args[1:])
        if not node.users:
            graph.erase_node(node)


def _regions(graph: Graph, taken: Sequence[Node]) -> list[MklSubgraph]:
    """Returns the nodes that are laid out, in sets that exchange values without conversion."""
    places = {node: place for place, node in enumerate(graph.nodes)}
    starts = [node for node in places if _is_conversion(node, "to_mkldnn")]
    sets = UnionFind(len(places))
    for node in (*starts, *taken):
        sets.make_set(places[node])
    members = {*starts, *taken}
    for node in taken:
        for value in node.all_input_nodes:
            if value in members:
                sets.join(places[value], places[node])
    regions: dict[int, MklSubgraph] = {}

    def region_of(node: Node) -> MklSubgraph:
        return regions.setdefault(sets.find(places[node]), MklSubgraph(graph))

    for node in places:
        if node in members:
            region = region_of(node)
            (region.start_nodes if node.target == "to_mkldnn" else region.nodes).append(node)
        elif _is_conversion(node, "to_dense") and node.args[0] in members:
            region_of(node.args[0]).end_nodes.append(node)
    return list(regions.values())


def _join_into_products(nodes: Sequence[Node], modules: dict[str, M.Module]) -> None:
    """Lets layers with packed weights compute a following sum and relu, if nothing else reads their
    results.
    """

    def is_free_product(value: Any) -> bool:
        return (
            isinstance(value, Node)
            and value.op == "call_module"
            and isinstance(modules[value.target], _PRODUCTS)
            and len(value.users) == 1
            and "relu" not in value.kwargs
        )

    place = {node: number for number, node in enumerate(nodes)}
    for node in nodes:
        if node.target in (operator.add, F.add) and node.args[0] is not node.args[1]:
            free = [value for value in node.args if is_free_product(value) and len(value.args) == 1]
            if not free:
                continue
            # Takes the one with the larger window, which has the most to compute while the addend comes from memory.
            product = max(
                free,
                key=lambda value: (_window(modules[value.target]), place[value]),
            )
            addend = node.args[0] if product is node.args[1] else node.args[1]
            if isinstance(addend, Node):
                product.args = (*product.args, addend)
                node.prepend(product)  # after the node that makes the addend
                _put_in_place_of(product, node)
        elif called(node, modules) in (F.relu, F.nn.relu, M.ReLU) and is_free_product(node.args[0]):
            product = node.args[0]
            product.kwargs = {"relu": True}
            _put_in_place_of(product, node)


def _window(layer: Any) -> int:
    """Places of the window of a layer with packed weights."""
    return math.prod(layer.weight._tuple_shape[2:])


def _put_in_place_of(product: Node, node: Node) -> None:
    node.replace_all_uses_with(product)
    computes(product, node)
    node._maker.erase_node(node)
