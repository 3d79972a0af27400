"""Plain tables and Graphviz text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from .rows import COLOURS, Row


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
    """Lines for rows and what is in them; ``keys`` learns their names in the text."""
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
