"""Passes that make a model cheaper to run when it is not trained any more."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from typing import Any

from ... import functional as F
from ... import module as M
from ...utils.fusion import fuse_conv_bn_eval
from ..graph import Graph, attribute_at
from ..graph_module import GraphModule
from ..interpreter import Transformer
from ..node import Node, Target
from ..tracer import symbolic_trace
from ..verify import computes, verify_same

__all__ = [
    "UnionFind",
    "extract_subgraph",
    "fuse",
    "matches_module_pattern",
    "remove_dropout",
    "replace_node_module",
]

_FOLDED = [
    (M.Conv1d, M.BatchNorm1d),
    (M.Conv2d, M.BatchNorm2d),
    (M.Conv3d, M.BatchNorm3d),
    (M.Conv1d, M.SyncBatchNorm),
    (M.Conv2d, M.SyncBatchNorm),
    (M.Conv3d, M.SyncBatchNorm),
]


def matches_module_pattern(
    pattern: Iterable[type], node: Node, modules: dict[str, M.Module]
) -> bool:
    """Whether ``node`` calls a module of the pattern's second class on what calls one of its first class."""
    if not node.args:
        return False
    for expected, current in zip(pattern, (node.args[0], node), strict=True):
        if not isinstance(current, Node) or current.op != "call_module":
            return False
        if type(modules.get(current.target)) is not expected:
            return False
    return True


def replace_node_module(node: Node, modules: dict[str, M.Module], new_module: M.Module) -> None:
    """Let ``node`` call ``new_module``: put it at the node's path, and into ``modules`` (path -> module)."""
    parent, _, name = node.target.rpartition(".")
    modules[node.target] = new_module
    setattr(modules[parent], name, new_module)


def fuse(model: M.Module, inplace: bool = False, *, verify: Any = None) -> GraphModule:
    """``model`` with batch normalizations folded into the convolutions before them, for inference.

    inplace: share the tensors of the other modules with ``model`` instead of copying the model first.
    A pair stays as it is when others read the convolution's result, or the normalization has no running statistics.
    A convolution that is called, or whose tensors are read, elsewhere too stays there; the pair gets one of its own.
    verify: a tensor or tuple of arguments for which results before and after are compared (`verify_same`).
    AssertionError for a pair in training mode.
    """
    traced = symbolic_trace(model if inplace else copy.deepcopy(model))
    before = symbolic_trace(model) if verify is not None else None
    graph, modules = traced.graph, dict(traced.named_modules())
    for node in graph.nodes:
        if not any(matches_module_pattern(pair, node, modules) for pair in _FOLDED):
            continue
        conv_node, bn = node.args[0], modules[node.target]
        if len(conv_node.users) > 1 or len(node.args) > 1 or node.kwargs or bn.running_mean is None:
            continue
        fused = fuse_conv_bn_eval(modules[conv_node.target], bn)
        if _is_named_elsewhere(conv_node):
            conv_node.target = _free_path(traced, conv_node.target + "_fused")
        replace_node_module(conv_node, modules, fused)
        node.replace_all_uses_with(conv_node)
        computes(conv_node, node)
        graph.erase_node(node)
    fused_model = GraphModule(traced, graph, traced._class_name)
    if before is not None:
        verify_same(before, fused_model, verify)
    return fused_model


def _is_named_elsewhere(node: Node) -> bool:
    """Whether another node calls the same module or reads one of its tensors."""
    return any(
        other is not node
        and other.op in ("call_module", "get_attr")
        and (other.target == node.target or other.target.startswith(f"{node.target}."))
        for other in node.graph
    )


def _free_path(root: M.Module, path: str) -> str:
    free, number = path, 1
    while attribute_at(root, free, default=None) is not None:
        free, number = f"{path}_{number}", number + 1
    return free


class _DropoutRemover(Transformer):
    def call_module(self, target: Target, args: tuple, kwargs: dict[str, Any]) -> Any:
        if isinstance(self.submodules[target], M.Dropout):
            return args[0] if args else next(iter(kwargs.values()))
        return super().call_module(target, args, kwargs)

    def call_function(self, target: Target, args: tuple, kwargs: dict[str, Any]) -> Any:
        if target is F.dropout:
            return args[0] if args else kwargs["inp"]
        return super().call_function(target, args, kwargs)


def remove_dropout(model: M.Module, *, verify: Any = None) -> GraphModule:
    """``model`` without its dropout, be it modules or calls of the function.

    verify: a tensor or tuple of arguments for which results before and after are compared (`verify_same`).
    """
    traced = symbolic_trace(model)
    removed = _DropoutRemover(traced).transform()
    if verify is not None:
        verify_same(traced, removed, verify)
    return removed


def extract_subgraph(
    orig_module: M.Module,
    nodes: Sequence[Node],
    inputs: Sequence[Node],
    outputs: Sequence[Node],
) -> GraphModule:
    """A module that runs ``nodes`` alone: takes the values of ``inputs``, returns a list with those of ``outputs``.

    nodes: in order, from the graph of ``orig_module``, whose submodules the new one shares.
    ValueError when a node reads another one that is neither an input nor among the nodes before it.
    """
    graph = Graph()
    env: dict[Node, Node] = {node: graph.placeholder(node.name) for node in inputs}

    def new(node: Node) -> Node:
        if node not in env:
            raise ValueError(
                f"{node.describe()} is read, but is neither an input nor among the nodes before its reader"
            )
        return env[node]

    for node in nodes:
        env[node] = graph.node_copy(node, new)
    graph.output([new(node) for node in outputs])
    graph.lint()
    return GraphModule(orig_module, graph)


class UnionFind:
    """Disjoint sets of the numbers below ``n``. Tarjan 1975, "Efficiency of a good but not linear set union algorithm".

    >>> sets = UnionFind(3)
    >>> for number in range(3):
    ...     sets.make_set(number)
    >>> _ = sets.join(0, 2)
    >>> sets.find(0) == sets.find(2), sets.find(0) == sets.find(1)
    (True, False)
    """

    def __init__(self, n: int) -> None:
        self.parent: list[int | None] = [None] * n
        self.size = [0] * n

    def make_set(self, v: int) -> None:
        """A set that holds ``v`` alone."""
        self.parent[v], self.size[v] = v, 1

    def find(self, v: int) -> int:
        """The number that stands for the set of ``v``. KeyError when there is none."""
        root = v
        while self.parent[root] != root:
            if self.parent[root] is None:
                raise KeyError(f"{v} is in no set\n  fix: make_set({v})")
            root = self.parent[root]
        while self.parent[v] != root:
            self.parent[v], v = root, self.parent[v]
        return root

    def join(self, a: int, b: int) -> int:
        """Unite the sets of ``a`` and ``b``; returns the number that stands for them."""
        a, b = self.find(a), self.find(b)
        if a == b:
            return a
        if self.size[a] < self.size[b]:
            a, b = b, a
        self.parent[b] = a
        self.size[a] += self.size[b]
        return a
