"""Finds tensors of a graph into which its nodes may write: copies would miss these writes."""

from __future__ import annotations

import operator

from ... import functional as F
from ... import module as M
from ...tensor import Tensor
from ..graph import Graph
from ..node import Node, attribute_at
from ._mkldnn_layers import called, mkldnn_supported

_NOT_IN_PLACE = {operator.iadd: operator.add, operator.imul: operator.mul}


def make_new_tensors(graph: Graph, modules: dict[str, M.Module]) -> None:
    """Replaces ``y += x`` by ``y + x`` if nothing else reads y."""
    for node in graph.nodes:
        if node.target in _NOT_IN_PLACE and isinstance(node.args[0], Node):
            written = node.args[0]
            if len(written.users) == 1 and _makes_new_tensor(written, modules):
                node.target = _NOT_IN_PLACE[node.target]


def may_be_written(graph: Graph, modules: dict[str, M.Module]) -> set[Node]:
    """Returns the nodes that must stay: they make tensors into which others may write, or call
    modules with such tensors. A laid out copy would miss the writes.
    """
    suspects = [value for node in graph.nodes for value in _written_by(node, modules)]
    found: set[Node] = set()
    while suspects:
        node = suspects.pop()
        if node in found:
            continue
        found.add(node)
        if not _makes_new_tensor(node, modules):  # it may return its argument
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
    """Returns the inputs into which a node may write; for code outside this package, all of its
    inputs.
    """
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
    function = called(node, modules)
    return function in mkldnn_supported or function in (operator.add, operator.mul, F.add, F.mul)
