"""Interpreter functions that published programs import."""

from ..._core import Tensor
from .._config import get_option, options, set_option
from ..ops.builtin import apply

__all__ = ["Tensor", "apply", "close", "config_async_level", "full_sync", "get_option", "set_option", "sync"]


def config_async_level(level: int) -> None:
    """Sets ``megengine.config.async_level``."""
    assert level in (0, 1, 2), f"async_level: {level!r} is not 0, 1 or 2"
    options.async_level = int(level)


def full_sync() -> None:
    """Waits for all work of all devices; raises what it threw, if nobody was told of it yet."""
    from ... import _core

    _core.synchronize()


sync = full_sync
close = full_sync  # what a program calls before it ends
