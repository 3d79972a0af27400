"""Tables that functions enter by a decorator."""

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
