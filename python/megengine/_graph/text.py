"""Plain tables and Graphviz text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


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


def dot(
    name: str,
    nodes: Iterable[tuple[str, dict[str, object]]],
    edges: Iterable[tuple[str, str]],
) -> str:
    """A directed graph as Graphviz text: ``nodes`` are (id, attributes), ``edges`` (from, to) ids."""
    lines = [f"digraph {_quoted(name)} {{", "  rankdir=TB;", "  node [shape=box];"]
    for key, attributes in nodes:
        listed = ", ".join(f"{word}={_quoted(value)}" for word, value in attributes.items())
        lines.append(f"  {_quoted(key)} [{listed}];")
    lines += [f"  {_quoted(source)} -> {_quoted(target)};" for source, target in edges]
    return "\n".join([*lines, "}"]) + "\n"
