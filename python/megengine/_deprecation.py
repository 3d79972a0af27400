"""What goes away: one table, and one warning for each entry that a program uses."""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable
from typing import NamedTuple, ParamSpec, TypeVar

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

_told: set[str] = set()  # messages


def warn_once(message: str, stacklevel: int = 2) -> None:
    """A DeprecationWarning at the first call with this message. stacklevel: as of `warnings.warn`, from the caller."""
    if message not in _told:
        _told.add(message)
        warnings.warn(message, DeprecationWarning, stacklevel + 1)


def warn_of(name: str, stacklevel: int = 2) -> None:
    """`warn_once` about a name of the table."""
    until, instead = DEPRECATED[name]
    warn_once(f"{name} is deprecated and goes with megjit {until}: {instead}", stacklevel + 1)


def deprecated(name: str) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Decorator: calls of the function warn as the table's row ``name`` says, and its docstring ends with that."""
    until, instead = DEPRECATED[name]

    def decorate(function: Callable[_P, _R]) -> Callable[_P, _R]:
        @functools.wraps(function)
        def warns(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            warn_of(name)
            return function(*args, **kwargs)

        warns.__doc__ = f"{inspect.cleandoc(function.__doc__ or '')}\n\nDeprecated, until megjit {until}: {instead}."
        return warns

    return decorate
