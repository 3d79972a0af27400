"""Matches the rows of a graph before and after a pass, and tells which it kept, changed, removed
and added.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any

from .rows import Row

# the most pairs that are compared between two kept rows; more are removed and added
_COMPARED = 400_000


@dataclass(slots=True)
class Pair:
    """A row and its counterpart in the other graph; one of them may be None. status: "same",
    "rewired" (does the same to other values), "changed", "removed", "added".
    """

    before: Row | None
    after: Row | None
    children: list[Pair]

    @property
    def status(self) -> str:
        if self.before is None:
            return "added"
        if self.after is None:
            return "removed"
        if _does(self.before) != _does(self.after):
            return "changed"
        if self.before.call == self.after.call:
            return "same"
        return "rewired" if _wiring(self.before) == _wiring(self.after) else "changed"

    @property
    def has_changes(self) -> bool:
        """Whether this pair or one inside differs."""
        return self.status != "same" or any(child.has_changes for child in self.children)


def _does(row: Row) -> tuple[str, ...]:
    return row.kind, row.name, row.callee, row.about, row.types


def _wiring(row: Row) -> str:
    """Returns the text of a call with numbers in the places of the values that it reads."""
    text = row.call
    for number, source in enumerate(row.inputs):
        text = re.sub(rf"(?<!\w){re.escape(source.name)}(?!\w)", f"\0{number}", text)
    return text


def each_pair(pairs: Sequence[Pair]) -> Iterator[Pair]:
    """All pairs, a module before its children."""
    for pair in pairs:
        yield pair
        yield from each_pair(pair.children)


_KEYS = (
    lambda row: (row.kind, row.name, row.callee),
    lambda row: row.name,
)  # kept rows, in the first and in the second graph


def aligned(before: Sequence[Row], after: Sequence[Row]) -> list[Pair]:
    """Returns pairs in an order that both graphs share. Modules are compared with their
    counterparts, inside as well.
    """
    return _aligned(before, after, _KEYS)


def _aligned(
    before: Sequence[Row], after: Sequence[Row], keys: Sequence[Callable[..., Any]]
) -> list[Pair]:
    if not keys:
        return _between(before, after)
    pairs: list[Pair] = []
    i = j = 0
    for at_before, at_after in (*_kept(before, after, keys[0]), (len(before), len(after))):
        pairs += _aligned(before[i:at_before], after[j:at_after], keys[1:])
        if at_before < len(before):
            pairs.append(_pair(before[at_before], after[at_after]))
        i, j = at_before + 1, at_after + 1
    return pairs


def _pair(before: Row | None, after: Row | None) -> Pair:
    inside = aligned(before.children if before else (), after.children if after else ())
    return Pair(before, after, inside)


def _kept(
    before: Sequence[Row], after: Sequence[Row], key: Callable[..., Any]
) -> list[tuple[int, int]]:
    """Places of rows of one key in both: the longest list that both orders have.

    Keys are as good as unique, so this is a longest increasing subsequence: n log n steps, where a comparison of
    all with all takes n². Fredman 1975, "On computing the length of longest increasing subsequences".
    """
    places = {key(row): place for place, row in enumerate(after)}
    common = [
        (i, place)
        for i, row in enumerate(before)
        if (place := places.pop(key(row), None)) is not None
    ]
    ends: list[int] = []  # ends[n]: the least place at which a list of n + 1 ends
    last: list[int] = []  # the last entry of `common` in that list
    previous: list[int] = []  # entry -> the entry before it in its list
    for entry, (_, place) in enumerate(common):
        length = bisect_left(ends, place)
        previous.append(last[length - 1] if length else -1)
        ends[length : length + 1] = [place]
        last[length : length + 1] = [entry]
    found: list[tuple[int, int]] = []
    entry = last[-1] if last else -1
    while entry >= 0:
        found.append(common[entry])
        entry = previous[entry]
    return found[::-1]


def _between(before: Sequence[Row], after: Sequence[Row]) -> list[Pair]:
    """Pairs rows between two that stayed: first by their callees, then by their places."""
    if not before or not after or len(before) * len(after) > _COMPARED:
        return [_pair(row, None) for row in before] + [_pair(None, row) for row in after]
    blocks = SequenceMatcher(None, _callees(before), _callees(after), autojunk=False).get_opcodes()
    pairs: list[Pair] = []
    for what, i, i_end, j, j_end in blocks:
        olds, news = before[i:i_end], after[j:j_end]
        if what == "equal" or len(olds) == len(news):
            pairs += [_pair(old, new) for old, new in zip(olds, news, strict=True)]
        else:
            pairs += [_pair(row, None) for row in olds] + [_pair(None, row) for row in news]
    return pairs


def _callees(rows: Sequence[Row]) -> list[tuple[str, str]]:
    return [(row.kind, row.callee) for row in rows]
