"""Draws graphs as HTML: one graph with its modules folded, or two side by side."""

from __future__ import annotations

import linecache
from collections.abc import Sequence
from typing import Any

from ..reports.page import escaped, page, search_field
from .alignment import Pair, aligned, each_pair
from .rows import COLOURS, Row, each_row

_INPUTS_SHOWN = 4  # the most inputs in a row; more are folded
_OPEN_AT_FIRST = 80  # rows; graphs with more are folded when the page opens
_LONGEST = 160  # characters of a call in its row; the box shows more
_LONGEST_IN_BOX = 2000

_HINT = "Point at a row: its line of the program, what it reads and who uses it stand here. A click keeps it."


def time_text(seconds: float | None) -> str:
    """ "1.24 ms"; "" for None."""
    if seconds is None:
        return ""
    for unit, factor in (("µs", 1e6), ("ms", 1e3)):
        if seconds * factor < 999.5:  # otherwise three digits would show 1e+03
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds:.3g} s"


def _program_line(source: str) -> str:
    """ Returns "file:line" and the text of that line, if the file is at hand."""
    file, _, line = source.rpartition(":")
    # A graph from a file may name any other file here: only programs are opened.
    is_program = file.endswith(".py") and line.isdecimal()
    return f"{source}  {linecache.getline(file, int(line)).strip() if is_program else ''}".rstrip()


def _short(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[:length]}..."


class _Side:
    """One graph of a page: numbers its rows, and gathers facts about them for the script."""

    def __init__(self, letter: str, rows: Sequence[Row]) -> None:
        self._letter = letter
        self._every = every = [row for _, row in each_row(rows)]
        self._number = {id(row): number for number, row in enumerate(every)}
        self.facts = [self._facts(row) for row in every]
        leaves = [row.seconds for row in every if row.seconds and not row.children]
        self._longest = max(leaves, default=1.0)
        timed = [row.seconds for row in rows if row.seconds is not None]
        self.seconds = sum(timed) if timed else None
        self.calls = sum(
            row.is_call and row.kind in ("module", "function", "method") for row in every
        )
        self.modules = sum(bool(row.children) for row in every)
        self.rows = rows

    def _facts(self, row: Row) -> dict[str, Any]:
        text = f"{row.name} = {row.call}" if row.is_call and row.kind != "output" else row.call
        parts = (row.about, row.types, time_text(row.seconds))
        facts = " \u00b7 ".join(_short(part, _LONGEST_IN_BOX) for part in parts if part)
        return {
            "name": row.name,
            "text": f"{_short(text or row.callee, _LONGEST_IN_BOX)}\n{facts}".rstrip(),
            "source": _program_line(row.source),
            "reads": [self._number[id(other)] for other in row.inputs],
            "users": [self._number[id(other)] for other in row.users],
        }

    def line(
        self, row: Row | None, depth: int, other: Row | None = None, start: str = 'div class="line"'
    ) -> str:
        """Returns the cells of a row, with marks where it differs from ``other``; for None an empty
        line.
        """
        if row is None:
            return '<div class="line"></div>'

        def shown(field: str) -> str:
            text = getattr(row, field)
            differs = " differs" if other and text != getattr(other, field) else ""
            return f'<span class="{field}{differs}">{escaped(_short(text, _LONGEST))}</span>'

        dot = f'<i style="background:{COLOURS[row.kind]}" title="{row.kind}"></i>'
        part = row.seconds / self._longest if row.seconds and not row.children else 0
        bar = f' style="--t:{part:.0%}"' if part else ""
        tag = start.partition(" ")[0]
        return (
            f'<{start} id="{self._letter}{self._number[id(row)]}" style="--d:{depth}">'
            f'<span class="name">{dot}<span><bdi>{escaped(row.name)}</bdi></span></span>'
            f"<span>{shown('call')}{shown('about')}</span><span>{shown('types')}</span>"
            f'<span class="time"{bar}>{time_text(row.seconds)}</span></{tag}>'
        )

    def tell_was(self, row: Row, before: _Side, old: Row) -> None:
        """Adds to the facts of ``row`` what it was before an edit."""
        facts = self.facts[self._number[id(row)]]
        facts["was"] = before.facts[before._number[id(old)]]["text"].replace("\n", " \u00b7 ")

    def summary(self, note: str = "") -> str:
        """Returns the graph's inputs and results, its size, and its time. note: how that was
        measured.
        """
        takes = ", ".join(row.types for row in self.rows if row.kind == "input" and row.types)
        gives = next((row.types for row in reversed(self._every) if row.kind == "output"), "")
        parts = [f"<b>{self.calls}</b> calls"]
        if self.modules:
            parts.append(f"<b>{self.modules}</b> modules with calls inside")
        if takes:
            parts.append(escaped(f"{_short(takes, _LONGEST)} \u2192 {_short(gives, _LONGEST)}"))
        if self.seconds is not None:
            parts.append(f"<b>{time_text(self.seconds)}</b>, {escaped(note)}")
        return " \u00b7 ".join(parts)


def _tools(*boxes: tuple[str, str]) -> str:
    key = "".join(
        f'<span><i style="background:{COLOURS[kind]}"></i>{words}</span>'
        for kind, words in (("input", "input"), ("module", "module"), ("function", "function or method"),
                            ("attribute", "attribute or constant"), ("output", "result"))
    )  # fmt: skip
    checks = "".join(
        f'<label><input type="checkbox" id="{name}"> {words}</label>' for name, words in boxes
    )
    search = search_field("name, call, type or file:line")
    return f'<div class="tools">{key}<a id="fold">fold all</a><a id="unfold">unfold all</a>{checks}{search}</div>'


_HEAD = '<div class="line head"><span class="name" style="--d:0">value</span><span>call</span><span>type</span><span class="time">{}</span></div>'
_STATUSES = {
    "removed": "removed", "added": "added", "changed": "changed", "rewired": "read other values", "same": "the same"
}  # fmt: skip
_READS = ("reads", "reads of attributes")


def _inputs_folded(rows: Sequence[Row], lines: Sequence[str]) -> str:
    """The lines of a page's rows, those of many inputs at its head folded into one."""
    count = next((place for place, row in enumerate(rows) if row.kind != "input"), len(rows))
    if count <= _INPUTS_SHOWN:
        return "\n".join(lines)
    head = f'<summary class="line"><span class="name" style="--d:0">{count} inputs</span></summary>'
    inputs = "\n".join(lines[:count])
    return "\n".join([f"<details>{head}{inputs}</details>", *lines[count:]])


def graph_page(title: str, rows: Sequence[Row], note: str = "") -> str:
    """The page of one graph. note: how times were measured."""
    side = _Side("n", rows)
    unfolded = len(side.facts) <= _OPEN_AT_FIRST

    def drawn(row: Row, depth: int) -> str:
        if not row.children:
            hidden = " attribute" if row.kind == "attribute" else ""
            return side.line(row, depth, start=f'div class="line{hidden}"')
        inside = "".join(drawn(child, depth + 1) for child in row.children)
        opened = " open" if unfolded else ""
        head = side.line(row, depth, start='summary class="line"')
        return f"<details{opened}>{head}{inside}</details>"

    head = _HEAD.format("time" if side.seconds is not None else "")
    body = _inputs_folded(rows, [drawn(row, 0) for row in rows])
    body = f'<p>{side.summary(note)}</p>{_tools(_READS)}<div class="graph">{head}{body}</div>'
    return page(title, body, kind="graph", data={"n": side.facts}, hint=_HINT)


def diff_page(title: str, before: Sequence[Row], after: Sequence[Row], note: str = "") -> str:
    """The page of two graphs side by side: what an edit removed, added and changed."""
    old, new = _Side("a", before), _Side("b", after)
    pairs = aligned(before, after)

    def drawn(pair: Pair, depth: int) -> str:
        status = pair.status
        both = old.line(pair.before, depth) + new.line(pair.after, depth, pair.before)
        is_read = status == "same" and pair.before is not None and pair.before.kind == "attribute"
        reads = " attribute" if is_read else ""
        if not pair.children:
            return f'<div class="pair {status}{reads}">{both}</div>'
        inside = "".join(drawn(child, depth + 1) for child in pair.children)
        changes = pair.has_changes
        return (
            f'<details class="{"" if changes else "same"}"{" open" if changes else ""}>'
            f'<summary class="pair {status if status != "same" else ""}">{both}</summary>{inside}</details>'
        )

    counts = dict.fromkeys(_STATUSES, 0)
    for pair in each_pair(pairs):
        counts[pair.status] += 1
        if (
            pair.before is not None
            and pair.after is not None
            and pair.status in ("changed", "rewired")
        ):
            new.tell_was(pair.after, old, pair.before)
    told = "".join(
        f'<span class="{status}"><b>{counts[status]}</b> {words}</span>'
        for status, words in _STATUSES.items()
    )
    times = [_HEAD.format("time" if side.seconds is not None else "") for side in (old, new)]
    body = "\n".join(drawn(pair, 0) for pair in pairs)
    body = (
        f"<p>{told}</p><p>before: {old.summary(note)}</p><p>after: {new.summary(note)}</p>"
        f"{_tools(_READS, ('changes', 'only what changed'))}"
        f'<div class="graph"><div class="pair">{"".join(times)}</div>{body}</div>'
    )
    return page(title, body, kind="graph", data={"a": old.facts, "b": new.facts}, hint=_HINT)
