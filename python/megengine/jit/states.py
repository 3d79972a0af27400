"""What dumped functions keep from run to run: which Python objects hold it, and what it is called in a file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from .. import _core
from ..tensor import Tensor


class Outside(NamedTuple):
    """What a recording took from outside: `_core.TraceFunction.outside`.

    kind: "captured" and "state": holder is a Tensor, or the one whose gradient it is (is_grad); "option": holder gives
    a Tensor when called; "key": it is a generator.
    value, becomes: numbers of the values that stand for it and that take its place, or None.
    """

    kind: str
    is_grad: bool
    holder: Any
    name: str
    value: int | None
    becomes: int | None

    @property
    def key(self) -> tuple[bool, int]:
        """Equal for what is one state in all functions."""
        return self.is_grad, id(self.holder)

    def present(self) -> Tensor | _core.RandomState:
        """The value that it has now, or the generator."""
        if self.is_grad:
            return self.holder.grad
        return self.holder() if self.kind == "option" else self.holder


class States:
    """The states of the functions of one file: what one of them rebinds or draws from, and options that change from call to call.

    recordings: of each function, what it took from outside. ValueError for two tensors that were one value, one of which is a state.
    """

    def __init__(self, recordings: Sequence[Sequence[Outside]]) -> None:
        self._held: dict[tuple[bool, int], Outside] = {}
        for recording in recordings:
            for each in recording:
                if each.kind != "captured":
                    self._held.setdefault(each.key, each)
        self._places = {key: place for place, key in enumerate(self._held)}
        for recording in recordings:
            self._check(recording)

    def _check(self, recording: Sequence[Outside]) -> None:
        """ValueError where a function takes a state and another tensor that were one value when it was recorded."""
        states = {each.value for each in recording if each.value is not None and each.key in self._places}
        taken = Counter(value for value, _ in {(each.value, each.key) for each in recording})
        for each in recording:
            if each.value in states and taken[each.value] > 1:
                raise ValueError(
                    f"dump: the functions update {each.name or 'a tensor'} or another one, which were one value\n"
                    "  why: a file has one input for what is one value when a function is recorded\n"
                    "  fix: give each its own, such as Parameter(value.numpy())"
                )

    def of(self, recording: Sequence[Outside]) -> list[tuple[int, int | None, int | None]]:
        """What `Version.export_model` needs: rows of (state, value, becomes)."""
        return [(self._places[each.key], each.value, each.becomes) for each in recording if each.key in self._places]

    def rows(self) -> list[tuple[str, Tensor | _core.RandomState]]:
        """Names and present values."""
        names: Counter[str] = Counter()
        rows = []
        for place, each in enumerate(self._held.values()):
            name = each.name or ("random" if each.kind == "key" else f"state_{place}")
            names[name] += 1
            rows.append((name if names[name] == 1 else f"{name}[{names[name] - 1}]", each.present()))
        return rows
