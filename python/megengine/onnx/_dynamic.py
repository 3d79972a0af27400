"""Open extents in an export. The model is recorded at several sizes; numbers that differ between
the recordings depend on them.

An attribute or an extent follows the sizes as coefficient * (product of some of them) + offset. That is fitted to recordings in
each of which one size is another, and checked on one in which all are. Where it does not hold, the model cannot be
exported with these axes open: a loop over one of them, say, is a different graph at each size.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from ._proto import OnnxError
from ._recorded import Node, Recording


@dataclass(frozen=True)
class Dim:
    """An extent: coefficient * product of symbols + offset. It is no number: ops that need one
    cannot be exported with open axes.
    """

    symbols: tuple[str, ...]
    coefficient: int = 1
    offset: int = 0
    recorded: int = field(default=0, compare=False)

    def __ge__(self, other: int) -> bool:
        return self.recorded >= other

    def __str__(self) -> str:
        text = "*".join([*([str(self.coefficient)] if self.coefficient != 1 else []), *self.symbols])
        return f"{text}{self.offset:+d}" if self.offset else text

    def at(self, sizes: Mapping[str, int]) -> int:
        """Returns its value for sizes of the symbols."""
        return self.coefficient * prod(sizes[symbol] for symbol in self.symbols) + self.offset


OpenAxes = dict[str, dict[int, str]]  # input -> axis -> symbol


def open_axes(given: Mapping[str, Any] | None, names: Sequence[str], shapes: Sequence[tuple[int, ...]]) -> OpenAxes:
    """``dynamic_axes`` with a symbol for each axis. ValueError for an input or axis that is not there."""
    found: OpenAxes = {}
    for name, axes in (given or {}).items():
        if name not in names:
            raise ValueError(f"export: dynamic_axes names {name!r}, the inputs are {', '.join(names)}")
        rank = len(shapes[names.index(name)])
        rows = axes.items() if isinstance(axes, Mapping) else ((axis, f"{name}_{axis}") for axis in axes)
        found[name] = {}
        for axis, symbol in rows:
            if not -rank <= axis < rank:
                raise ValueError(f"export: dynamic_axes: {name!r} has {rank} axes, and no axis {axis}")
            found[name][axis % rank] = str(symbol)
    return found


def record_open(record_at: Callable[[list[tuple[int, ...]]], Recording], base: Recording, axes: OpenAxes) -> None:
    """Makes Dims of the extents that depend on the open axes in ``base``. record_at: shapes of the
    inputs -> a recording.
    """
    shapes = [base.types[value][1] for value in base.inputs]
    sizes: dict[str, int] = {}
    for name, shape in zip(base.input_names, shapes, strict=True):
        for axis, symbol in axes.get(name, {}).items():
            if sizes.setdefault(symbol, shape[axis]) != shape[axis]:
                raise ValueError(f"export: dynamic_axes: {symbol!r} is {sizes[symbol]} in one input and {shape[axis]} in {name!r}")

    def at(changed: Mapping[str, int]) -> Recording:
        now = {**sizes, **changed}
        resized = [
            tuple(now[axes[name][axis]] if axis in axes.get(name, {}) else extent for axis, extent in enumerate(shape))
            for name, shape in zip(base.input_names, shapes, strict=True)
        ]
        return record_at(resized)

    # Smaller ones where possible: a table of places may have as many rows as the recorded size.
    shifted = {symbol: size - 1 if size > 3 else size + 1 for symbol, size in sizes.items()}
    others = {symbol: at({symbol: shifted[symbol]}) for symbol in sizes}
    last = {symbol: size - 2 if size > 3 else 2 * size + 1 for symbol, size in sizes.items()}
    _Merge(base, sizes, shifted, others, at(last), last).run()


class _Merge:
    def __init__(
        self, base: Recording, sizes: dict[str, int], shifted: dict[str, int], others: dict[str, Recording],
        judge: Recording, judged_at: dict[str, int],
    ) -> None:  # fmt: skip
        self.base, self.sizes, self.shifted, self.others = base, sizes, shifted, others
        self.judge, self.judged_at = judge, judged_at
        self.problems: dict[str, None] = {}

    def run(self) -> None:
        self._merge(self.base, self.others, self.judge)
        if self.problems:
            raise OnnxError("export: with these axes open the following depend on them in no way that can be written\n  " + "\n  ".join(self.problems))

    def _merge(self, base: Recording, others: Mapping[str, Recording], judge: Recording) -> None:
        every = [*others.values(), judge]
        ops = [node.op for node in base.nodes]
        if any([node.op for node in other.nodes] != ops for other in every):
            raise OnnxError("export: with these axes open the model calls other operations at other sizes\n  why: a loop or a condition depends on them")
        for place, node in enumerate(base.nodes):
            for name, value in node.attrs.items():
                rows = {symbol: other.nodes[place].attrs[name] for symbol, other in others.items()}
                judged = judge.nodes[place].attrs[name]
                if isinstance(value, Recording):
                    self._merge(value, rows, judged)
                else:
                    node.attrs[name] = self._merged(value, rows, judged, f"{node.op}: {node.line}")
        for value, (dtype, shape) in enumerate(base.types):
            shapes = {symbol: other.types[value][1] for symbol, other in others.items()}
            base.types[value] = dtype, self._merged(shape, shapes, judge.types[value][1], f"a value of shape {shape}")
        for value, tensor in base.constants.items():
            same = all(np.array_equal(other.constants[value].numpy(), tensor.numpy()) for other in every)
            if not same:
                reader = next((node for node in base.nodes if value in node.inputs), Node("result", {}, (), ()))
                self.problems[f"a constant of shape {tensor._tuple_shape}, read by {reader.op}: {reader.line}"] = None

    def _merged(self, value: Any, rows: dict[str, Any], judged: Any, where: str) -> Any:
        if isinstance(value, tuple) and all(isinstance(row, tuple) and len(row) == len(value) for row in [*rows.values(), judged]):
            parts = ({symbol: row[k] for symbol, row in rows.items()} for k in range(len(value)))
            return tuple(self._merged(v, part, j, where) for v, part, j in zip(value, parts, judged, strict=True))
        if all(row == value for row in [*rows.values(), judged]):
            return value
        dim = self._dim(value, rows) if isinstance(value, int) else None
        if dim is None or dim.at(self.judged_at) != judged:
            self.problems[where] = None
            return value
        return dim

    def _dim(self, value: int, rows: dict[str, int]) -> Dim | None:
        moved = [symbol for symbol, row in rows.items() if row != value]
        if len(moved) == 1:  # a line through two points
            (symbol,) = moved
            slope = (rows[symbol] - value) // (self.shifted[symbol] - self.sizes[symbol])
            return Dim((symbol,), slope, value - slope * self.sizes[symbol], value)
        whole = prod(self.sizes[symbol] for symbol in moved)
        return Dim(tuple(moved), value // whole, 0, value) if moved and whole else None
