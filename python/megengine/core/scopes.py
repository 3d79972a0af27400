"""Scopes of names while a call is recorded: the place of an op, and of what it reads, in the tree
of modules.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

from .. import _core

recording: ContextVar[bool] = ContextVar("recording", default=False)  # modules enter their scopes
# A recording for dump notes what looks a tensor up, and the tensor that it has found.
lookups: ContextVar[list[tuple[Callable[[], object], object]] | None] = ContextVar("lookups", default=None)
_scopes: ContextVar[list[str] | None] = ContextVar("scopes", default=None)


def current() -> list[str]:
    """The scopes that this thread, or context, is in; outermost first."""
    if (found := _scopes.get()) is None:
        _scopes.set(found := [])
    return found


def note_lookup(look: Callable[[], object]) -> None:
    """Notes a look-up in a recording for dump, which is valid as long as ``look`` returns the same.

    Parameters
    ----------
    look : callable
        Gives a tensor that the body has looked up.
    """
    if (found := lookups.get()) is not None:
        found.append((look, look()))


def push(scope: str | None) -> None:
    """Enters a scope; an empty one is allowed and leaves names as they are.

    Parameters
    ----------
    scope : str or None
        Name of the scope, which a dot joins to the scopes around it.
    """
    _scopes.set([*current(), scope or ""])


def pop() -> None:
    """Leaves the innermost scope.

    Raises
    ------
    RuntimeError
        When there is none.
    """
    if not current():
        raise RuntimeError("pop_scope without a push_scope before it")
    _scopes.set(current()[:-1])


def path() -> str:
    """The scopes joined by dots; "" outside of all.

    Returns
    -------
    str
        The scopes, the outermost first.
    """
    return ".".join(scope for scope in current() if scope)


def note_name(tensor: Any, name: str) -> None:
    """Notes the names that the recorded call gives to a tensor and to its gradient."""
    _core.set_name(tensor, name)
    if tensor.grad is not None:
        # a gradient by rows is named by its values
        _core.set_name(getattr(tensor.grad, "values", tensor.grad), f"{name}.grad")
