"""Results that show an argument, or another result. Torch makes them again of what they show, by the strides and the offset that ours have."""

from __future__ import annotations

import operator
from collections.abc import Collection, Sequence
from typing import Any

import torch
from torch import fx

from ._layouts import has_fixed_sizes


class Views:
    """One graph's results are its nodes and numbers, each once; a program of the user's sees those in ``seen``."""

    def __init__(self, graph: fx.GraphModule, results: Sequence[Any], seen: Collection[fx.Node]) -> None:
        self._inputs = {node: place for place, node in enumerate(graph.graph.find_nodes(op="placeholder"))}
        self._results = {node: place for place, node in enumerate(results) if isinstance(node, fx.Node)}
        shown = {node: _shown(node) for node in self._results if node in seen}
        self._views = {node: whole for node, whole in shown.items() if whole is not node and (whole in self._inputs or whole in self._results)}

    def __bool__(self) -> bool:
        return bool(self._views)

    def bytes_of_copies(self) -> int:
        """The most that results take where they leave room for what they do not show."""
        values = [(node.meta["val"], whole.meta["val"]) for node, whole in self._views.items()]
        fixed = [each for each in values if all(map(has_fixed_sizes, each))]
        return sum(whole.numel() * whole.element_size() for view, whole in fixed if not view.is_contiguous() or view.numel() < whole.numel())

    def place(self, arguments: Sequence[Any], theirs: list[Any]) -> None:
        """In place: the same values in memory of their own, where their views have them."""
        known: dict[fx.Node, Any] = {}
        for node, whole in self._views.items():
            known[whole] = (arguments[self._inputs[whole]] if whole in self._inputs else theirs[self._results[whole]]).detach()
        with torch.no_grad():
            for node in self._views:
                place = self._results[node]
                theirs[place] = _like(theirs[place], self._value(node, arguments, known))

    def _value(self, node: fx.Node, arguments: Sequence[Any], known: dict[fx.Node, Any]) -> Any:
        if node in known:
            return known[node]
        if node in self._inputs:
            return arguments[self._inputs[node]]
        args, kwargs = fx.map_arg((node.args, node.kwargs), lambda each: self._value(each, arguments, known))
        return node.target(*args, **kwargs)  # a view, or what counts its sizes


def _shown(node: fx.Node) -> fx.Node:
    """What a chain of views starts from."""
    while node.op == "call_function" and (node.target is operator.getitem or getattr(node.target, "is_view", False)):
        source = node.all_input_nodes[0]
        if node.target is operator.getitem and not getattr(source.target, "is_view", False):
            return node
        node = source
    return node


def _like(value: torch.Tensor, view: torch.Tensor) -> torch.Tensor:
    if value.stride() == view.stride() and value.storage_offset() == view.storage_offset():
        return value
    last = sum((extent - 1) * step for extent, step in zip(view.shape, view.stride(), strict=True)) if value.numel() else -1
    made = value.new_empty(view.storage_offset() + last + 1).as_strided(view.shape, view.stride(), view.storage_offset())
    once = [0 if step == 0 else slice(None) for step in view.stride()]  # elements in many places
    made[tuple(once)] = value[tuple(once)]
    return made
