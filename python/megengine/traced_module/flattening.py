"""Makes one graph of a graph that calls others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .._graph.tree import map_values
from .expr import CallMethod, Expr, GetAttr, Input
from .internal_graph import InternalGraph
from .node import ModuleNode, Node
from .packing import unpack
from .pytree import tree_flatten

if TYPE_CHECKING:
    from .traced_module import TracedModule


class _Flattener:
    def __init__(self, graph: InternalGraph, module: TracedModule) -> None:
        self._new = InternalGraph(graph.name, graph.qualname, module)
        self._paths: dict[Node, str] = {}  # called module -> its path in the top module
        self._env: dict[Node, Node] = {}

    def run(self, graph: InternalGraph) -> InternalGraph:
        for expr in graph:
            if isinstance(expr, Input):
                self._copy(expr, "")
        self._paths[graph.inputs[0]] = ""
        self._new._result = self._inlined(graph, "")
        self._new.compile()
        return self._new

    def _inlined(self, graph: InternalGraph, prefix: str) -> Any:
        """Copy the exprs; returns the graph's result in new nodes."""
        for expr in graph:
            if isinstance(expr, Input):
                continue
            if isinstance(expr, GetAttr):
                self._read(expr, prefix)
            elif isinstance(expr, CallMethod) and expr.args[0] in self._paths and expr.graph:
                self._inline(expr, prefix)
            else:
                self._copy(expr, prefix)
        return map_values(graph._result, self._env.__getitem__)

    def _copy(self, expr: Expr, prefix: str) -> Expr:
        def copy_node(node: Node) -> Node:
            kind: Any = type(node)
            copied: Node = kind(None)
            self._env[node] = copied
            copied.__setstate__(node.__getstate__())
            copied._name = prefix + node._name
            return copied

        args, kwargs = map_values((expr.args, expr.kwargs), self._env.__getitem__)
        new = expr._clone(args, kwargs, copy_node)
        self._new._add(new)
        return new

    def _read(self, expr: GetAttr, prefix: str) -> None:
        """Copies a read by its whole path; modules that are inlined are not read."""
        path = self._paths[expr.args[0]]
        path = f"{path}.{expr.attr_name}" if path else expr.attr_name
        node = expr.outputs[0]
        if isinstance(node, ModuleNode) and not getattr(node.owner, "is_qat", True):
            self._paths[node] = path
            return
        read = self._copy(expr, prefix)
        read.name = read.target = path

    def _inline(self, expr: CallMethod, prefix: str) -> None:
        inner: Any = expr.graph
        module, *inputs = inner.inputs
        args, kwargs = unpack(expr.args[1:]), unpack(dict(expr.kwargs))
        leaves, _ = tree_flatten(expr.args[0].owner._canonical(args, kwargs))
        self._paths[module] = self._paths[expr.args[0]]
        self._env[module] = self._new.inputs[0]
        self._env.update(zip(inputs, map(self._env.__getitem__, leaves), strict=True))
        outer_prefix = prefix + expr.args[0]._name + "_"
        before = set(self._env.values())
        results = tree_flatten(unpack(self._inlined(inner, outer_prefix)))[0]
        for outer, node in zip(tree_flatten(expr.return_val)[0], results, strict=True):
            self._env[outer] = node
            if node not in before:  # made inside: it gets the name that it had outside
                before.add(node)
                self._new._names.drop(node._name)
                node._name = self._new._names.take(prefix + outer._name)


def flattened(graph: InternalGraph, module: TracedModule) -> InternalGraph:
    """Returns ``graph`` for ``module``, with each call of a graph replaced by that graph."""
    return _Flattener(graph, module).run(graph)
