"""Keep old names and old defaults working, with one warning that says what to write instead."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any

from ..core._telling import warn_once


def deprecated_func(version: str, origin: str, name: str, tbd: bool) -> Callable[..., Any]:
    """Makes a function that warns, then calls another one.

    Parameters
    ----------
    version : str
        Release in which the old name was given up.
    origin : str
        Module that has the function now.
    name : str
        Name of the function in both modules.
    tbd : bool
        Whether the function goes away without a successor; False names ``origin.name`` as the
        successor.

    Returns
    -------
    callable
        The function under its old name.
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
    """Makes a decorator that warns when a call leaves out an argument whose default changes.

    Parameters
    ----------
    version : str
        Release in which it changes.
    kwargs_name : str
        Name of the argument.
    kwargs_pos : int
        Its index among the positional ones.

    Returns
    -------
    callable
        The decorator.
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
