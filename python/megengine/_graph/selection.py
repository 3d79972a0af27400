"""Lazy selections of what graphs hold, which look at the graph when they are iterated."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar

_T = TypeVar("_T")


class Selection(Generic[_T]):
    """Something to iterate, or a function that gives it anew each time; iterate it before changing the graph, with ``as_list``."""

    _not_one: type[Exception] = AssertionError  # the error of `as_unique`

    def __init__(self, iter: Iterable[Any] | Callable[[], Iterable[Any]]) -> None:  # noqa: A002
        self._iter = iter

    def __iter__(self) -> Iterator[_T]:
        return filter(self._selects, self._iter() if callable(self._iter) else self._iter)

    def _selects(self, item: Any) -> bool:
        return True

    def as_list(self) -> list[_T]:
        """Returns all of it as a list."""
        return list(self)

    def as_unique(self) -> _T:
        """Returns the only one. It raises an error when there is none, or several."""
        found = self.as_list()
        if len(found) != 1:
            raise self._not_one(f"there are {len(found)} of these, not one" + "".join(f"\n  {item!r}" for item in found[:5]))
        return found[0]

    def as_count(self) -> int:
        """Returns how many there are."""
        return sum(1 for _ in self)


def name_pattern(pattern: str | re.Pattern[str] | None, ignorecase: bool = True) -> re.Pattern[str]:
    """A pattern with * and ? as a regular expression for whole names; None matches all, an expression stays as it is."""
    if isinstance(pattern, re.Pattern):
        return pattern
    return re.compile(fnmatch.translate("*" if pattern is None else pattern), re.IGNORECASE if ignorecase else 0)
