"""The part of `optimize_for_inference` that lets values between layers lie as oneDNN's kernels read them.

Regions of layers that know these layouts get `Tensor.to_mkldnn` on the way in and `Tensor.to_dense` on the way out, layers
with packed weights (`megengine.utils.mkldnn`), and products that add and rectify what they store. A heuristic decides
which regions stay so. Wherever another layout comes in, results are the same: functions copy what they cannot read.
"""

from __future__ import annotations

import copy
import logging
import math
import operator
import time
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any

import numpy as np

from ... import functional as F
from ... import module as M
from ..._graph import map_leaves
from ...tensor import Tensor
from ...utils import mkldnn
from ..graph import Graph, attribute_at
from ..graph_module import GraphModule
from ..interpreter import Interpreter
from ..node import Node, map_arg
from ..tracer import Tracer
from ..verify import computes
from ._subgraphs import UnionFind, extract_subgraph, replace_node_module

__all__ = [
    "MklSubgraph",
    "gen_mkl_autotuner",
    "lay_out",
    "mkldnn_map",
    "mkldnn_supported",
    "mkldnn_supported_unknown",
    "modules_to_mkldnn",
    "reset_modules",
    "use_mkl_length",
]

logger = logging.getLogger(__name__)

mkldnn_supported = [
    M.Conv1d, M.Conv2d, M.Conv3d, M.Linear, M.BatchNorm1d, M.BatchNorm2d, M.BatchNorm3d, M.ReLU, M.Sigmoid,
    M.MaxPool2d, M.AvgPool2d, M.AdaptiveAvgPool2d,
    F.relu, F.nn.relu, F.sigmoid, F.max_pool2d, F.avg_pool2d, F.adaptive_avg_pool2d,
]  # fmt: skip
# These stay as they lie: they are taken in where a value that they read is laid out already.
mkldnn_supported_unknown = [operator.add, operator.mul, F.add, F.mul, M.Identity]

mkldnn_map: dict[type, Callable[..., M.Module]] = {
    M.Conv1d: mkldnn.MkldnnConv1d,
    M.Conv2d: mkldnn.MkldnnConv2d,
    M.Conv3d: mkldnn.MkldnnConv3d,
    M.Linear: mkldnn.MkldnnLinear,
    M.BatchNorm1d: mkldnn.MkldnnBatchNorm,
    M.BatchNorm2d: mkldnn.MkldnnBatchNorm,
    M.BatchNorm3d: mkldnn.MkldnnBatchNorm,
}

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


class MklSubgraph:
    """A region of laid out values, as heuristics see it.

    fx_graph: the whole graph. nodes: those of the region, in order. start_nodes: the calls of ``to_mkldnn`` before it.
    end_nodes: the calls of ``to_dense`` behind it.
    """

    def __init__(self, fx_graph: Graph) -> None:
        self.fx_graph = fx_graph
        self.nodes: list[Node] = []
        self.start_nodes: list[Node] = []
        self.end_nodes: list[Node] = []


def use_mkl_length(graph: MklSubgraph) -> bool:
    """A heuristic: whether the region has more than two nodes, so that it is worth two conversions."""
    return len(graph.nodes) > 2


def gen_mkl_autotuner(
    example_inputs: Any, iters: int = 10, warmup: int = 1
) -> Callable[[MklSubgraph], bool]:
    """A heuristic that runs each region both ways and keeps the layouts where they are faster.

    example_inputs: a tensor or tuple of arguments of the model, from which the region's inputs are computed.
    iters, warmup: runs of each way that are measured, of which the fastest counts, and runs before them.

    >>> from megengine.fx.experimental import optimization
    >>> import megengine.functional as F, megengine.module as M
    >>> net = M.Sequential(M.Conv2d(3, 4, 3), M.ReLU(), M.Conv2d(4, 4, 3)).eval()
    >>> tuner = optimization.gen_mkl_autotuner(F.zeros((1, 3, 8, 8)), iters=1)
    >>> fast = optimization.optimize_for_inference(net, {"mkldnn_layout_optimize": {"heuristic": tuner}})
    """
    args = example_inputs if isinstance(example_inputs, tuple) else (example_inputs,)
    known: dict[Graph, dict[str, Any]] = {}  # of the graph at hand: values of its nodes, by name

    def use_mkl_heuristic(graph: MklSubgraph) -> bool:
        whole = graph.fx_graph
        if whole not in known:
            known.clear()
            known[whole] = _values(whole.owning_module, args)
        laid_out, dense = _seconds(graph, known[whole], max(iters, 1), max(warmup, 0))
        return laid_out < dense

    return use_mkl_heuristic


def _values(gm: GraphModule, args: tuple) -> dict[str, Any]:
    """Values of all nodes. Runs a copy, for the model may write into its tensors and inputs."""
    runner = _Values(copy.deepcopy(gm))
    runner.run(*_own(args))
    return runner.values


def _own(tree: Any) -> Any:
    """The same with handles of its own, which later writes do not change."""
    return map_leaves(tree, lambda leaf: Tensor(leaf) if isinstance(leaf, Tensor) else leaf)


class _Values(Interpreter):
    def __init__(self, gm: GraphModule) -> None:
        super().__init__(gm)
        self.values: dict[str, Any] = {}

    def run_node(self, n: Node) -> Any:
        value = super().run_node(n)
        self.values[n.name] = _own(value)
        return value


def _seconds(
    graph: MklSubgraph, values: dict[str, Any], iters: int, warmup: int
) -> tuple[float, float]:
    """Best time of the region with its layouts, conversions included, and without."""
    inside = set(graph.nodes)
    read = dict.fromkeys(value for node in graph.nodes for value in node.all_input_nodes)
    inputs = [node for node in read if node not in inside]
    starts = {node for node in inputs if node in set(graph.start_nodes)}
    outputs = list(dict.fromkeys(node.args[0] for node in graph.end_nodes))
    sample = [values[(node.args[0] if node in starts else node).name] for node in inputs]
    laid_out = extract_subgraph(graph.fx_graph.owning_module, graph.nodes, inputs, outputs)
    dense = extract_subgraph(graph.fx_graph.owning_module, graph.nodes, inputs, outputs)
    reset_modules(dense.graph.nodes, dict(dense.named_modules()), graph.fx_graph.old_modules)
    dense.recompile()

    def with_layouts() -> None:
        given = [
            value.to_mkldnn() if node in starts else value
            for node, value in zip(inputs, sample, strict=True)
        ]
        for result in laid_out(*given):
            result.to_dense()

    def without() -> None:
        dense(*sample)

    best = [float("inf"), float("inf")]
    for turn in range(warmup + iters):
        for which, run in enumerate((with_layouts, without)):
            begin = time.perf_counter()
            run()
            if turn >= warmup:
                best[which] = min(best[which], time.perf_counter() - begin)
    return best[0], best[1]


# -- modules -----------------------------------------------------------------------------------------


def modules_to_mkldnn(
    nodes: Sequence[Node], modules: dict[str, M.Module]
) -> dict[M.Module, M.Module]:
    """Exchange the modules that ``nodes`` call for those with packed weights; returns new module -> former one.

    modules: path -> module, of the model that holds them; it is kept up to date.
    """
    old_modules: dict[M.Module, M.Module] = {}
    for node in nodes:
        if node.op != "call_module":
            continue
        former = modules[node.target]
        if type(former) in mkldnn_map:
            new = mkldnn_map[type(former)](former, np.float32)
            old_modules[new] = former
            replace_node_module(node, modules, new)
    return old_modules


def reset_modules(
    nodes: Sequence[Node], modules: dict[str, M.Module], old_modules: dict[M.Module, M.Module]
) -> None:
    """Undo `modules_to_mkldnn` for the modules that ``nodes`` call."""
    for node in nodes:
        if node.op == "call_module" and modules[node.target] in old_modules:
            replace_node_module(node, modules, old_modules[modules[node.target]])


# -- the pass ----------------------------------------------------------------------------------------


def lay_out(
    model: M.Module, heuristic: Callable[[MklSubgraph], bool], tracer: type[Tracer]
) -> GraphModule:
    """``model``, which is the caller's own, with the regions laid out that ``heuristic`` chooses.

    AssertionError where a layer that could be laid out does not compute in float32 on the CPU.
    """
    at_work = tracer()
    graph = at_work.trace(model)
    name = getattr(model, "_class_name", type(model).__name__)
    laid_out = GraphModule(at_work.root, graph, name)
    modules = dict(laid_out.named_modules())
    taken = _surround_with_conversions(graph, modules)
    graph.old_modules = modules_to_mkldnn(taken, modules)
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
        reset_modules(region.nodes, modules, graph.old_modules)
    _join_into_products(kept, modules)
    conversions = sum(_is_conversion(node) for node in graph.nodes)
    logger.info("mkldnn conversions: %d", conversions)
    graph.lint()
    return GraphModule(laid_out, graph, name)


def _is_conversion(node: Node, *targets: str) -> bool:
    return node.op == "call_method" and node.target in (targets or ("to_mkldnn", "to_dense"))


def _surround_with_conversions(graph: Graph, modules: dict[str, M.Module]) -> list[Node]:
    """Lets each node that can take laid out values do so; returns these nodes."""
    refused = _may_be_written(graph, modules)
    taken = []
    for node in list(graph.nodes):
        support = _Support.NO if node in refused else _support_of(node, modules)
        laid = [value for value in node.all_input_nodes if _is_conversion(value, "to_dense")]
        if support is _Support.NO or (support is _Support.UNKNOWN and not laid):
            continue
        converted = set(laid if support is _Support.UNKNOWN else [node.args[0]])
        with graph.inserting_before(node):
            new = {value: graph.call_method("to_mkldnn", (value,)) for value in converted}
        node.args = map_arg(node.args, lambda value, new=new: new.get(value, value))
        with graph.inserting_after(node):
            dense = graph.call_method("to_dense", (node,))
        node.replace_all_uses_with(dense, lambda user, dense=dense: user is not dense)
        taken.append(node)
    return taken


def _called(node: Node, modules: dict[str, M.Module]) -> Any:
    """The function, or the class of the module, that a node calls; the target of other nodes."""
    return type(modules[node.target]) if node.op == "call_module" else node.target


def _support_of(node: Node, modules: dict[str, M.Module]) -> _Support:
    if not node.args or not isinstance(node.args[0], Node):
        return _Support.NO
    called = _called(node, modules)
    if node.op == "call_module":
        module = modules[node.target]
        if called in mkldnn_supported:
            _check_parameters(module)
        if getattr(module, "padding_mode", "zeros") != "zeros" or _lacks_statistics(module):
            return _Support.NO
        if called in mkldnn_map and (len(node.args) > 1 or node.kwargs):
            return _Support.NO
    elif node.op != "call_function":
        return _Support.NO
    if called in mkldnn_supported:
        return _Support.YES
    return _Support.UNKNOWN if called in mkldnn_supported_unknown else _Support.NO


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


def _cancel_conversions(graph: Graph) -> None:
    """Takes out pairs of conversions between laid out values."""
    for node in list(graph.nodes):
        if not _is_conversion(node, "to_dense"):
            continue
        for user in list(node.users):
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
    """The nodes that are laid out, in sets that hand values to each other without conversion."""
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


# -- what products do besides ------------------------------------------------------------------------


def _join_into_products(nodes: Sequence[Node], modules: dict[str, M.Module]) -> None:
    """Layers with packed weights add what is added to their results, and rectify them, where nobody else reads those."""

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
            # That of the larger window: it has the most to do while the addend comes from memory.
            product = max(
                free,
                key=lambda value: (math.prod(modules[value.target].weight.shape[2:]), place[value]),
            )
            addend = node.args[0] if product is node.args[1] else node.args[1]
            if isinstance(addend, Node):
                product.args = (*product.args, addend)
                node.prepend(product)  # behind what makes the addend
                _put_in_place_of(product, node)
        elif _called(node, modules) in (F.relu, F.nn.relu, M.ReLU) and is_free_product(
            node.args[0]
        ):
            product = node.args[0]
            product.kwargs = {"relu": True}
            _put_in_place_of(product, node)


def _put_in_place_of(product: Node, node: Node) -> None:
    node.replace_all_uses_with(product)
    computes(product, node)
    node.graph.erase_node(node)


# -- what could be written into ----------------------------------------------------------------------


def _may_be_written(graph: Graph, modules: dict[str, M.Module]) -> set[Node]:
    """Nodes that stay as they are, because they make tensors into which others may write, or call modules
    of whose tensors that holds: a laid out copy would not see it."""
    suspects = [value for node in graph.nodes for value in _written_by(node, modules)]
    found: set[Node] = set()
    while suspects:
        node = suspects.pop()
        if node in found:
            continue
        found.add(node)
        if not _makes_new_tensor(node, modules):  # it may hand on what it gets
            suspects += node.all_input_nodes
    shared = {
        id(attribute_at(graph.owning_module, node.target))
        for node in graph.nodes
        if node.op == "get_attr"
    }
    for node in graph.nodes:
        if node.op == "call_module":
            module = modules[node.target]
            tensors = (*module.parameters(), *module.buffers())
            if any(id(tensor) in shared for tensor in tensors):
                found.add(node)
    return found


def _written_by(node: Node, modules: dict[str, M.Module]) -> list[Node]:
    """Inputs of a node into which it may write; those of code that is not of this package all count."""
    if node.op == "call_function":
        home = getattr(node.target, "__module__", None) or ""
        known = home.startswith(("megengine.", "_operator", "math")) or node.target is getattr
    elif node.op == "call_method":
        known = hasattr(Tensor, node.target)
    elif node.op == "call_module":
        known = type(modules[node.target]).__module__.startswith("megengine.")
    else:
        return []
    if not known:
        return node.all_input_nodes
    return node.all_input_nodes[:1] if node.is_impure() else []


def _makes_new_tensor(node: Node, modules: dict[str, M.Module]) -> bool:
    called = _called(node, modules)
    return called in mkldnn_supported or called in (operator.add, operator.mul, F.add, F.mul)
