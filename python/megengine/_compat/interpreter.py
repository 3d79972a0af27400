"""The interpreter that older programs call: when errors are raised, waiting, scopes of profiles,
the level of its log.
"""

import enum
import logging
import threading
from contextlib import AbstractContextManager
from typing import Any

from ..core._config import options
from ..core._telling import no_effect
from ..utils.profiler import scope
from .megbrain_graph import Graph


def config_async_level(level: int) -> None:
    """Sets ``megengine.config.async_level``."""
    if level not in (0, 1, 2):
        raise AssertionError(f"async_level: {level!r} is not 0, 1 or 2")
    options.async_level = int(level)


class _Open(threading.local):
    def __init__(self) -> None:
        self.scopes: list[tuple[str, AbstractContextManager[None]]] = []


_open = _Open()


def push_scope(name: str) -> None:
    """Begins a ``megengine.utils.profiler.scope`` of this thread."""
    opened = scope(name)
    opened.__enter__()
    _open.scopes.append((name, opened))


def pop_scope(name: str) -> None:
    """Ends what `push_scope` began last. RuntimeError where that has another name."""
    last = _open.scopes[-1][0] if _open.scopes else None
    if last != name:
        raise RuntimeError(f"pop_scope: {name!r} is not the scope that push_scope began last, which is {last!r}")
    _open.scopes.pop()[1].__exit__(None, None, None)


def make_h2d(graph: Any, comp_node: Any, dtype: Any, shape: Any = None, name: str | None = None) -> Any:
    """A new input of the graph that a variable has as its ``graph``. ValueError without a shape."""
    return Graph.of(graph).make_h2d(dtype=dtype, device=comp_node, shape=shape, name=name)


class Logger:
    """Sets how much is logged."""

    class LogLevel(enum.IntEnum):
        Debug = logging.DEBUG
        Info = logging.INFO
        Warn = logging.WARNING
        Error = logging.ERROR

    @staticmethod
    def set_log_level(level: int) -> "Logger.LogLevel":
        """Sets the level; returns the one before."""
        log = logging.getLogger("megengine")
        before = Logger.LogLevel(min(max(log.getEffectiveLevel() // 10 * 10, 10), 40))
        log.setLevel(int(level))
        return before


def _set_defrag(enable: bool) -> None:
    """Warns that there is nothing to defragment."""
    no_effect("_set_defrag", "arenas are planned, and free blocks of the allocator are joined", enable=bool(enable))
