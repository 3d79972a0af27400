"""Rows, which pictures show of a graph: a tree of them, made from calls; plain tables and Graphviz
text of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import numpy as np

# Kind of a row -> its colour in every picture.
COLOURS = {
    "input": "#d5e8d4", "attribute": "#fff2cc", "constant": "#fff2cc", "function": "#dae8fc",
    "method": "#dae8fc", "module": "#e1d5e7", "output": "#f8cecc",
}  # fmt: skip

# The kind of row for each op of a call.
KINDS = {
    "placeholder": "input", "get_attr": "attribute", "constant": "constant", "call_function": "function", "apply": "function",
    "call_method": "method", "call_module": "module", "output": "output",
}  # fmt: skip


@dataclass(slots=True, eq=False)
class Row:
    """One call, or one module with the calls inside of it.

    kind: a key of `COLOURS`. name: the name of the value that the call makes.
    callee: what is called, by its full name; calls of one callee do the same for the same arguments.
    call: the call as text. about: the class and settings of the module that is called.
    types: dtype and shape of the result, "" where not known. source: "file:line" or "".
    inputs, users: rows whose values this one reads, and that read its value.
    children: the calls inside; results: those of them that give the value of this row.
    is_call: False for a module that stands in no call, only around those of its children.
    seconds: median time of one run; of a module with its children.
    """

    kind: str
    name: str
    callee: str = ""
    call: str = ""
    about: str = ""
    types: str = ""
    source: str = ""
    inputs: list[Row] = field(default_factory=list)
    users: list[Row] = field(default_factory=list)
    children: list[Row] = field(default_factory=list)
    results: list[Row] = field(default_factory=list)
    is_call: bool = True
    seconds: float | None = None


def each_row(rows: Iterable[Row], depth: int = 0) -> Iterator[tuple[int, Row]]:
    """Iterates over (depth, row) of all rows, a module before its children."""
    for row in rows:
        yield depth, row
        yield from each_row(row.children, depth + 1)


def link(row: Row, inputs: Iterable[Row]) -> None:
    """Let ``row`` read the values of ``inputs``."""
    for source in inputs:
        row.inputs.append(source)
        source.users.append(row)


def type_text(dtype: Any, shape: Sequence[int]) -> str:
    """ "float32[8, 3]"."""
    return f"{dtype}{list(shape)}"


def nested(
    rows: Sequence[tuple[tuple[str, ...], Row]], classes: dict[tuple[str, ...], str]
) -> list[Row]:
    """A tree from rows in order, each with the modules that it stands in, the outermost first.

    Neighbours that stand in one module are its children. classes: modules that a row is in -> class of the last.
    """
    return _nested(rows, classes, 0)


def _nested(
    rows: Sequence[tuple[tuple[str, ...], Row]], classes: dict[tuple[str, ...], str], depth: int
) -> list[Row]:
    made: list[Row] = []
    for inside, group in groupby(rows, lambda entry: entry[0][: depth + 1]):
        entries = list(group)
        if len(inside) <= depth:
            made += [row for _, row in entries]
            continue
        children = _nested(entries, classes, depth + 1)
        times = [row.seconds for row in children if row.seconds is not None]
        made.append(Row(
            "module", inside[-1], ".".join(inside), about=classes.get(inside, ""), children=children,
            types=children[-1].types, seconds=sum(times) if times else None, is_call=False,
        ))  # fmt: skip
    return made


class Measured:
    """Measurements of the calls of a graph: types of the results, and seconds."""

    def __init__(self) -> None:
        self._types: dict[Any, str] = {}
        self._seconds: dict[Any, list[float]] = {}

    def add(self, call: Any, tensors: Iterable[Any], seconds: float) -> None:
        """Note one run of ``call``, which gave ``tensors``."""
        self._types[call] = ", ".join(type_text(x.dtype, x._tuple_shape) for x in tensors)
        self._seconds.setdefault(call, []).append(seconds)

    def types(self, call: Any) -> str:
        """Types in the last run; "" unless there was one."""
        return self._types.get(call, "")

    def seconds(self, call: Any) -> float | None:
        """The median of all runs; None when there was none."""
        found = self._seconds.get(call)
        return float(np.median(found)) if found else None


def rows_of(graph: Any, measured: Measured, path: tuple[Any, ...] = (), given: Sequence[Row] = ()) -> tuple[list[Row], dict[Any, Row]]:
    """Returns (a row for each call, which holds the rows of a graph that it calls, except the
    output; value -> the row that makes it).

    path: the calls around ``graph``, the outermost first. given: where its inputs come from.
    """
    rows: list[Row] = []
    made: dict[Any, Row] = {}
    sources = iter(given)
    calls = [call for call in graph if call.op != "output" or not path]
    for call in calls:
        row = call.row()
        row.types = measured.types((path, call)) or call.noted_types()
        if row.kind in ("function", "method", "module"):
            row.seconds = measured.seconds((path, call))
        if row.kind == "input":
            _take(row, next(sources, None))
        inner = called_by(call)
        if inner is not None:
            handed = [made[value] for value in call.handed()]
            row.children, inside = rows_of(inner, measured, (*path, call), handed)
            row.results = [inside[value] for value in inner.output_node.inputs if value in inside]
            for result in row.results:
                result.users.append(row)
        made.update(dict.fromkeys(call.outputs, row))
        rows.append(row)
    # after all rows are made, as a graph may have a cycle
    for row, call in zip(rows, calls, strict=True):
        link(row, [made[value] for value in call.inputs if value in made])
        if row.kind == "output":
            row.types = row.types or ", ".join(each.types for each in row.inputs if each.types)
    return rows, made


def called_by(call: Any) -> Any:
    """Returns `Call.called`; None if the called module is gone, as broken graphs are shown, too."""
    try:
        return call.called
    except (AttributeError, LookupError):
        return None


def _take(row: Row, source: Row | None) -> None:
    """Returns the row of an input: one of the calling graph, or one from outside, of which only the
    type is known.
    """
    if source is not None:
        row.types = source.types or row.types
        if source.name:
            link(row, [source])


# -- text ----------------------------------------------------------------------------------------


def table(headers: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Left-aligned columns under ``headers`` and a dashed line; no blanks at the ends of lines."""
    cells = [[str(cell).replace("\n", "\\n") for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(headers, *cells, strict=True)]
    lines = [list(headers), ["-" * width for width in widths], *cells]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def _quoted(text: object) -> str:
    escaped = str(text).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def dot(name: str, rows: Iterable[Row], without: str = "") -> str:
    """A directed graph as Graphviz text, a box for each call; modules with calls inside are frames.

    without: kind of rows to leave out.
    """
    keys: dict[Row, str] = {}
    lines = [f"digraph {_quoted(name)} {{", "  rankdir=TB;", "  node [shape=box, style=filled];"]
    lines += _boxes(rows, without, keys, set())
    for row, key in keys.items():
        for source in row.results or row.inputs:
            if source in keys:
                lines.append(f"  {_quoted(keys[source])} -> {_quoted(key)};")
    return "\n".join([*lines, "}"]) + "\n"


def _boxes(
    rows: Iterable[Row], without: str, keys: dict[Row, str], taken: set[str]
) -> Iterator[str]:
    """Iterates over lines for rows and their children; adds their names in the text to ``keys``."""
    for row in rows:
        key = row.name
        while key in taken:  # names are unique in one graph, not in those that it calls
            key += "'"
        taken.add(key)
        if row.is_call and row.kind != without:
            keys[row] = key
            label = "\n".join(filter(None, (row.name, f"{row.kind} {row.callee}", row.types)))
            yield f"  {_quoted(key)} [label={_quoted(label)}, fillcolor={_quoted(COLOURS[row.kind])}];"
        if row.children:
            yield f"  subgraph {_quoted(f'cluster_{key}')} {{"
            yield f"  label={_quoted(f'{row.name} {row.about}'.rstrip())};"
            yield from _boxes(row.children, without, keys, taken)
            yield "  }"
