"""Results that are views of an argument, or of another result, and lie in its memory.

Most of them torch makes again from the tensors that they view, by the strides and the offset of
ours. Others it takes as they are: views that give several tensors
(unbind, split), and all views of a call without gradients.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Sequence
from typing import Any

import torch
from torch import fx


class Views:
    """The results of one graph: nodes and numbers, each once. The user's program sees those in
    ``seen``.
    """

    def __init__(self, graph: fx.GraphModule, results: Sequence[Any], seen: Collection[fx.Node]) -> None:
        self._inputs = {node: place for place, node in enumerate(graph.graph.find_nodes(op="placeholder"))}
        self._results = {node: place for place, node in enumerate(results) if isinstance(node, fx.Node)}
        shown = {node: source_of(node) for node in self._results if node in seen}
        self._views = {node: whole for node, whole in shown.items() if whole is not node and (whole in self._inputs or whole in self._results)}

    def __bool__(self) -> bool:
        return bool(self._views)

    def place(self, arguments: Sequence[Any], theirs: list[Any]) -> None:
        """Puts the views in the place of results that have memory of their own."""
        known: dict[fx.Node, Any] = {}
        for node, whole in self._views.items():
            known[whole] = (arguments[self._inputs[whole]] if whole in self._inputs else theirs[self._results[whole]]).detach()
        with torch.no_grad():
            for node in self._views:
                place = self._results[node]
                theirs[place] = self._value(node, arguments, known)

    def _value(self, node: fx.Node, arguments: Sequence[Any], known: dict[fx.Node, Any]) -> Any:
        if node in known:
            return known[node]
        if node in self._inputs:
            return arguments[self._inputs[node]]
        args, kwargs = fx.map_arg((node.args, node.kwargs), lambda each: self._value(each, arguments, known))
        return node.target(*args, **kwargs)  # a view, or what counts its sizes


def source_of(node: fx.Node) -> fx.Node:
    """Returns the value that a chain of views starts from."""
    while node.op == "call_function" and (node.target is operator.getitem or getattr(node.target, "is_view", False)):
        source = node.all_input_nodes[0]
        if node.target is operator.getitem and not getattr(source.target, "is_view", False):
            return node
        node = source
    return node


def read_memory_of_owners(graph: fx.Graph) -> None:
    """Lets what reads memory by strides take the tensor that owns it, in place of one that shows a part of it or its axes in another order. In place."""
    for node in graph.find_nodes(op="call_function", target=torch.ops.aten.as_strided.default):
        shown: Any = node.args[0]
        owner = source_of(shown)
        if owner is not shown and _is_whole(owner.meta.get("val")):
            offset = node.args[3] if len(node.args) > 3 and node.args[3] is not None else shown.meta["val"].storage_offset()
            if isinstance(offset, (int, fx.Node)):
                node.args = (owner, *node.args[1:3], offset)


def _is_whole(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_contiguous() and value.storage_offset() == 0
