"""Tables that functions enter by a decorator, and the error for a key that is in none."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any, TypeVar

_Function = TypeVar("_Function", bound=Callable[..., Any])


def enters(table: dict[Any, Any], keys: Iterable[Hashable]) -> Callable[[_Function], _Function]:
    """A decorator that puts a function into ``table`` under each of ``keys``, and gives it back."""

    def enter(function: _Function) -> _Function:
        table.update(dict.fromkeys(keys, function))
        return function

    return enter


class WrongKey(KeyError):
    """A KeyError that prints its message in lines: KeyError itself prints a repr in one line."""

    __module__, __qualname__ = "builtins", "KeyError"

    def __str__(self) -> str:
        return str(self.args[0])
