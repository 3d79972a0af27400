"""Names that are unique in a graph and that Python can use as variables."""

from __future__ import annotations

import builtins
import keyword
import re

_NOT_IDENTIFIER = re.compile(r"\W", re.ASCII)
_NUMBERED = re.compile(r"(.+)_(\d+)\Z")
_RESERVED = frozenset({*keyword.kwlist, *dir(builtins), "self", "inf", "nan"})


def identifier(text: str) -> str:
    """``text`` with every character that a variable cannot hold replaced by ``_``."""
    name = _NOT_IDENTIFIER.sub("_", text)
    return f"_{name}" if not name or name[0].isdigit() else name


class Namespace:
    """Gives out names, each once: ``sum_1``, ``add``, ``add_1``, ``add_2``, ...

    reserved: names that are taken from the start; by default keywords and builtins of Python.
    """

    def __init__(self, reserved: frozenset[str] = _RESERVED) -> None:
        self._reserved = reserved
        self._used: set[str] = set()
        self._next: dict[str, int] = {}  # base -> number to try next

    def __contains__(self, name: str) -> bool:
        return name in self._used

    def take(self, wanted: str) -> str:
        """``wanted`` as an identifier if it is free, else with the next free number."""
        name = identifier(wanted)
        if name in self._used or name in self._reserved:
            numbered = _NUMBERED.match(name)
            base = numbered.group(1) if numbered else name
            number = self._next.get(base, 1)
            while (name := f"{base}_{number}") in self._used or name in self._reserved:
                number += 1
            self._next[base] = number + 1
        self._used.add(name)
        return name

    def drop(self, name: str) -> None:
        """Free ``name``; numbers are not given out again, so that names stay telling in a session."""
        self._used.discard(name)
