"""The scope of a module's call while it is recorded."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from .. import _core
from ..core import scopes

if TYPE_CHECKING:
    from .module import Module


@contextlib.contextmanager
def of_module(module: Module) -> Iterator[None]:
    """The scope of one module call: its own name, or the attribute path that its parent holds it by.

    The top module counts only if it was named. Operations issued inside and the module's tensors
    get the scope's path before their names.
    """
    scopes.push(module.name or module._short_name)
    try:
        start = scopes.path()
        _core.set_scope(start)
        # The outermost module also names the tensors of modules that are never called, such as a tied table.
        for name, value in module.named_tensors(recursive=len(scopes.current()) == 1):
            holder, _, own = name.rpartition(".")
            scopes.note_name(value, ".".join(filter(None, (start, holder, value.name or own))))
        yield
    finally:
        scopes.pop()
        _core.set_scope(scopes.path())
