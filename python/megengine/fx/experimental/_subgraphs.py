"""Parts of graphs: exchanging a module, running some nodes alone, sets of nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ... import module as M
from ..graph import Graph
from ..graph_module import GraphModule
from ..node import Node


def replace_node_module(node: Node, modules: dict[str, M.Module], new_module: M.Module) -> None:
    """Let ``node`` call ``new_module``: put it at the node's path, and into ``modules`` (path -> module)."""
    parent, _, name = node.target.rpartition(".")
    modules[node.target] = new_module
    setattr(modules[parent], name, new_module)


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
        root: Any = v
        while self.parent[root] != root:
            if self.parent[root] is None:
                raise KeyError(f"{v} is in no set\n  fix: make_set({v})")
            root = self.parent[root]
        while self.parent[v] != root:
            above: Any = self.parent[v]
            self.parent[v], v = root, above
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
