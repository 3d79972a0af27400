"""Interpreter functions that published programs import."""

import threading
from contextlib import AbstractContextManager

from ..._core import Tensor
from .._config import get_option, options, set_option
from ..ops.builtin import apply
from ..tensor.utils import dtype_promotion, get_device

__all__ = [
    "Tensor", "apply", "close", "config_async_level", "dtype_promotion", "full_sync", "get_device", "get_option", "pop_scope",
    "push_scope", "set_option", "sync",
]  # fmt: skip


def config_async_level(level: int) -> None:
    """Sets ``megengine.config.async_level``."""
    if level not in (0, 1, 2):
        raise AssertionError(f"async_level: {level!r} is not 0, 1 or 2")
    options.async_level = int(level)


def full_sync() -> None:
    """Waits for all work of all devices; raises what it threw, if nobody was told of it yet."""
    from ... import _core

    _core.synchronize()


sync = full_sync
close = full_sync  # what a program calls before it ends


class _Open(threading.local):
    def __init__(self) -> None:
        self.scopes: list[tuple[str, AbstractContextManager[None]]] = []


_open = _Open()


def push_scope(name: str) -> None:
    """Begins a ``megengine.utils.profiler.scope`` of this thread."""
    from ...utils.profiler import scope

    opened = scope(name)
    opened.__enter__()
    _open.scopes.append((name, opened))


def pop_scope(name: str) -> None:
    """Ends what `push_scope` began last. RuntimeError where that has another name."""
    last = _open.scopes[-1][0] if _open.scopes else None
    if last != name:
        raise RuntimeError(f"pop_scope: {name!r} is not the scope that push_scope began last, which is {last!r}")
    _open.scopes.pop()[1].__exit__(None, None, None)
