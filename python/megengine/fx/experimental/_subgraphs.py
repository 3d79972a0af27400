"""Parts of graphs: exchanging a module, running some nodes alone, sets of nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ... import module as M
from ...core._registry import WrongKey
from ..graph import Graph
from ..graph_module import GraphModule
from ..node import Node


def replace_node_module(node: Node, modules: dict[str, M.Module], new_module: M.Module) -> None:
    """Makes a node call another module, which is put at the node's path.

    Parameters
    ----------
    node : Node
        Node with the opcode call_module.
    modules : dict of str to Module
        Dotted path to module, of the model that holds them; kept up to date.
    new_module : Module
        Module that the node calls from now on.

    Examples
    --------
    >>> import megengine.module as M
    >>> from megengine import fx
    >>> from megengine.fx.experimental import optimization
    >>> gm = fx.symbolic_trace(M.Sequential(M.Linear(3, 2), M.ReLU()))
    >>> node = gm.graph.output_node.prev
    >>> optimization.replace_node_module(node, dict(gm.named_modules()), M.Sigmoid())
    >>> type(getattr(gm, "1")).__name__
    'Sigmoid'
    """
    parent, _, name = node.target.rpartition(".")
    modules[node.target] = new_module
    setattr(modules[parent], name, new_module)


def extract_subgraph(
    orig_module: M.Module,
    nodes: Sequence[Node],
    inputs: Sequence[Node],
    outputs: Sequence[Node],
) -> GraphModule:
    """Makes a module that runs some nodes alone.

    Parameters
    ----------
    orig_module : Module
        Module whose submodules the new one shares.
    nodes : sequence of Node
        Nodes to run, in order, from the graph of ``orig_module``.
    inputs : sequence of Node
        Nodes whose values are the inputs.
    outputs : sequence of Node
        Nodes whose values are returned, as a list.

    Returns
    -------
    GraphModule
        The new module.

    Raises
    ------
    ValueError
        When a node reads another one that is neither an input nor among the nodes before it.

    Examples
    --------
    >>> import megengine.functional as F, megengine as mge
    >>> from megengine import fx
    >>> from megengine.fx.experimental import optimization
    >>> gm = fx.symbolic_trace(lambda x: F.relu(x * 2) + 1)
    >>> x, mul, relu, add, output = gm.graph.nodes
    >>> part = optimization.extract_subgraph(gm, [relu, add], inputs=[mul], outputs=[add])
    >>> part(mge.tensor(3.0))[0].item()
    4.0
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
    """Disjoint sets of numbers, which can be united.

    Parameters
    ----------
    n : int
        Number of numbers, which begin at 0.

    References
    ----------
    Tarjan, 1975, "Efficiency of a good but not linear set union algorithm".

    Examples
    --------
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
        """Makes a set that holds one number.

        Parameters
        ----------
        v : int
            The number, below ``n``.
        """
        self.parent[v], self.size[v] = v, 1

    def find(self, v: int) -> int:
        """Gives the number that stands for a set.

        Parameters
        ----------
        v : int
            Any number in the set.

        Returns
        -------
        int
            The number of the set, the same for all its members.

        Raises
        ------
        KeyError
            For a number that is in no set.
        """
        root: Any = v
        while self.parent[root] != root:
            if self.parent[root] is None:
                raise WrongKey(f"{v} is in no set\n  fix: make_set({v})")
            root = self.parent[root]
        while self.parent[v] != root:
            above: Any = self.parent[v]
            self.parent[v], v = root, above
        return root

    def join(self, a: int, b: int) -> int:
        """Unites two sets.

        Parameters
        ----------
        a : int
            Any number in the first set.
        b : int
            Any number in the second set.

        Returns
        -------
        int
            The number that stands for both.
        """
        a, b = self.find(a), self.find(b)
        if a == b:
            return a
        if self.size[a] < self.size[b]:
            a, b = b, a
        self.parent[b] = a
        self.size[a] += self.size[b]
        return a
