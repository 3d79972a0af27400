"""Warnings that a program gets once: deprecations, from one table, and arguments without effect
here.
"""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple, ParamSpec, TypeVar

from ._origin import users_level

_P = ParamSpec("_P")
_R = TypeVar("_R")


class Deprecation(NamedTuple):
    """until: the first release of megjit without it. instead: what to write, as an imperative."""

    until: str
    instead: str


DEPRECATED = {
    "data.DataLoader(divide=True)": Deprecation("1.0", "leave it out: every worker makes whole batches"),
    "distributed.helper.get_device_count_by_fork": Deprecation("1.0", "use device.get_device_count"),
    "functional.debug_param.get_conv_execution_strategy": Deprecation("1.0", "use get_execution_strategy"),
    "functional.pad(pad_witdth=)": Deprecation("1.0", "write pad_width="),
    "functional.debug_param.set_conv_execution_strategy": Deprecation("1.0", "use set_execution_strategy"),
    "Module.replace_param": Deprecation("1.0", "assign the parameters to their modules"),
    "Module.zero_grad": Deprecation("1.0", "use Optimizer.clear_grad"),
    "Optimizer.zero_grad": Deprecation("1.0", "use Optimizer.clear_grad"),
    "Tensor.reset_zero": Deprecation("1.0", "write x[...] = 0"),
    "Tensor.set_value": Deprecation("1.0", "write x[...] = value"),
}

_told: set[Hashable] = set()


def is_first(key: Hashable) -> bool:
    """Whether this is the first call in the process with ``key``, which stands for a warning."""
    if key in _told:
        return False
    _told.add(key)
    return True


def no_effect(where: str, why: str, /, **given: Any) -> None:
    """Warns once for each argument of ``where`` in ``given`` that is not None, False or 0: it has
    no effect.

    For a parameter with another default, give a comparison: ``version=version != 2``.
    """
    for name, value in given.items():
        if value is not None and value is not False and value != 0 and is_first((where, name)):
            warnings.warn(f"{where}: {name} has no effect here: {why}", stacklevel=users_level())


def warn_once(message: str, stacklevel: int = 2) -> None:
    """Gives a DeprecationWarning at the first call with this message. stacklevel: that of
    `warnings.warn`, counted from the caller.
    """
    if is_first(message):
        warnings.warn(message, DeprecationWarning, stacklevel + 1)


def warn_of(name: str, stacklevel: int = 2) -> None:
    """Warns once about a name of the table."""
    until, instead = DEPRECATED[name]
    warn_once(f"{name} is deprecated and goes with megjit {until}: {instead}", stacklevel + 1)


def deprecated(name: str) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Decorator: calls of the function warn as the table's row ``name`` says, and its docstring says that behind the summary."""
    until, instead = DEPRECATED[name]

    def decorate(function: Callable[_P, _R]) -> Callable[_P, _R]:
        @functools.wraps(function)
        def warns(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            warn_of(name)
            return function(*args, **kwargs)

        summary, _, rest = inspect.cleandoc(function.__doc__ or "").partition("\n\n")
        warns.__doc__ = f"{summary}\n\nDeprecated, until megjit {until}: {instead}.\n\n{rest}".rstrip() + "\n"
        return warns

    return decorate
