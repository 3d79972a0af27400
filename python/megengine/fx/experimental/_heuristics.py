"""Rules that decide whether a region of layers is laid out: by its length, or by its time."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from typing import Any

from ..graph import Graph
from ..graph_module import GraphModule
from ..node import Node
from ..verify import values_of
from ._mkldnn_layers import reset_modules
from ._subgraphs import extract_subgraph


class MklSubgraph:
    """Describes a region of values in oneDNN's layouts to a heuristic of `optimize_for_inference`.

    ``nodes`` lists the nodes of the region, in order; ``start_nodes`` are the calls of
    ``to_mkldnn`` before it, ``end_nodes`` the calls of ``to_dense`` behind it.

    Parameters
    ----------
    fx_graph : Graph
        Graph that the region is part of.

    Examples
    --------
    >>> import megengine.module as M
    >>> from megengine.fx.experimental import optimization
    >>> def show(region):
    ...     print(region.start_nodes, region.nodes, region.end_nodes)
    ...     return True
    >>> net = M.Sequential(M.Conv2d(3, 8, 3), M.MaxPool2d(2)).eval()
    >>> config = {"mkldnn_layout_optimize": {"heuristic": show}}
    >>> fast = optimization.optimize_for_inference(net, config)
    [to_mkldnn] [_0, _1] [to_dense_1]
    """

    def __init__(self, fx_graph: Graph) -> None:
        self.fx_graph = fx_graph
        self.nodes: list[Node] = []
        self.start_nodes: list[Node] = []
        self.end_nodes: list[Node] = []


def use_mkl_length(graph: MklSubgraph) -> bool:
    """Tells whether a region has more than two nodes, so that it is worth two conversions.

    The default heuristic of `optimize_for_inference`.

    Parameters
    ----------
    graph : MklSubgraph
        Region that is asked about.

    Returns
    -------
    bool
        Whether it has.

    Examples
    --------
    >>> from megengine import fx
    >>> from megengine.fx.experimental import optimization
    >>> region = optimization.MklSubgraph(fx.symbolic_trace(lambda x: -abs(x) + 1).graph)
    >>> region.nodes = list(region.fx_graph.nodes)[1:-1]
    >>> optimization.use_mkl_length(region)
    True
    """
    return len(graph.nodes) > 2


def gen_mkl_autotuner(
    example_inputs: object, iters: int = 10, warmup: int = 1
) -> Callable[[MklSubgraph], bool]:
    """Makes a heuristic that runs each region in both layouts and keeps oneDNN's if they are
    faster.

    Parameters
    ----------
    example_inputs : Tensor or tuple
        A tensor or tuple of arguments of the model, from which the region's inputs are computed.
    iters : int
        Measured runs in each layout; the fastest counts.
    warmup : int
        Runs in each layout before the measured ones.

    Returns
    -------
    callable
        The heuristic, for the pass_config of `optimize_for_inference`.

    Examples
    --------
    >>> from megengine.fx.experimental import optimization
    >>> import megengine.functional as F, megengine.module as M
    >>> net = M.Sequential(M.Conv2d(3, 4, 3), M.ReLU(), M.Conv2d(4, 4, 3)).eval()
    >>> tuner = optimization.gen_mkl_autotuner(F.zeros((1, 3, 8, 8)), iters=1)
    >>> config = {"mkldnn_layout_optimize": {"heuristic": tuner}}
    >>> fast = optimization.optimize_for_inference(net, config)
    """
    args = example_inputs if isinstance(example_inputs, tuple) else (example_inputs,)
    known: dict[Graph, dict[str, Any]] = {}  # graph -> values of its nodes, by name

    def use_mkl_heuristic(graph: MklSubgraph) -> bool:
        whole = graph.fx_graph
        if whole not in known:
            known.clear()
            known[whole] = _values(whole.owning_module, args)
        laid_out, dense = _seconds(graph, known[whole], max(iters, 1), max(warmup, 0))
        return laid_out < dense

    return use_mkl_heuristic


def _values(gm: GraphModule, args: tuple[Any, ...]) -> dict[str, Any]:
    """Returns the values of all nodes by name. It runs a copy, as the model may write into its
    tensors and inputs.
    """
    return {node.name: value for node, value in values_of(copy.deepcopy(gm), args)}


def _seconds(
    graph: MklSubgraph, values: dict[str, Any], iters: int, warmup: int
) -> tuple[float, float]:
    """Returns the best times of the region with its layouts, conversions included, and without."""
    inside = set(graph.nodes)
    read = dict.fromkeys(value for node in graph.nodes for value in node.all_input_nodes)
    inputs = [node for node in read if node not in inside]
    starts = {node for node in inputs if node in set(graph.start_nodes)}
    outputs = list(dict.fromkeys(node.args[0] for node in graph.end_nodes))
    sample = [values[(node.args[0] if node in starts else node).name] for node in inputs]
    laid_out = extract_subgraph(graph.fx_graph.owning_module, graph.nodes, inputs, outputs)
    dense = extract_subgraph(graph.fx_graph.owning_module, graph.nodes, inputs, outputs)
    whole: Any = graph.fx_graph  # lay_out has set its old_modules
    reset_modules(list(dense.graph.nodes), dict(dense.named_modules()), whole.old_modules)
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
