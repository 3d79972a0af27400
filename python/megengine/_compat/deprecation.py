"""Keep old names and old defaults working, with one warning that says what to write instead."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any

from .._telling import warn_once


def deprecated_func(version: str, origin: str, name: str, tbd: bool) -> Callable[..., Any]:
    """A function that warns, then calls ``origin.name``.

    version: release in which the old name was given up. origin: module that has the function now.
    tbd: it will go without a successor; False: ``origin.name`` is the successor.
    """
    advice = "it will be removed" if tbd else f"use {origin}.{name} instead"

    def forward(*args: Any, **kwargs: Any) -> Any:
        warn_once(f"{name} is deprecated since version {version}: {advice}")
        return getattr(importlib.import_module(origin), name)(*args, **kwargs)

    forward.__name__ = forward.__qualname__ = name
    forward.__doc__ = f"Deprecated since version {version}: {advice}."
    return forward


def deprecated_kwargs_default(
    version: str, kwargs_name: str, kwargs_pos: int
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: warn when a call leaves out an argument whose default changes in ``version``.

    kwargs_pos: index of the argument among the positional ones.
    """

    def decorate(func: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(func)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            if len(args) <= kwargs_pos and kwargs_name not in kwargs:
                warn_once(
                    f"the default of {kwargs_name} in {func.__name__} changes in version {version}; "
                    f"pass {kwargs_name} to keep today's behaviour"
                )
            return func(*args, **kwargs)

        return wrapper

    return decorate
