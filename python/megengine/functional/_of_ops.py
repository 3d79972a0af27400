"""Functions that are one registered op: name and documentation are the op's, the signature is one of two."""

import sys
from collections.abc import Callable
from types import FunctionType
from typing import Protocol, cast

from ..core.tensor.amp import state as _amp
from ..core.tensor.amp import to_high as _to_high
from ..tensor import Tensor

Operand = Tensor | int | float | bool
Op = Callable[..., Tensor]

# What docstrings tell alike, to stand behind the summary: of results in a float dtype, of x's, of the promoted one, of bool; and of operands of bool.
FLOAT = """
    Parameters
    ----------
    x : Tensor
        Any shape, float dtype; integers compute in float32.

    Returns
    -------
    Tensor
        The shape of ``x`` and its dtype, float32 for integers.
    """
SAME = """
    Parameters
    ----------
    x : Tensor
        Any shape and dtype.

    Returns
    -------
    Tensor
        The shape and dtype of ``x``.
    """
PROMOTED = """
    Parameters
    ----------
    x, y : Tensor or number
        Shapes that broadcast.

    Returns
    -------
    Tensor
        The broadcast shape and the promoted dtype.
    """
BOOL = """
    Parameters
    ----------
    x, y : Tensor or number
        Shapes that broadcast.

    Returns
    -------
    Tensor
        The broadcast shape, dtype bool.
    """
LOGICAL = """
    Parameters
    ----------
    x, y : Tensor or number
        Shapes that broadcast, dtype bool.

    Returns
    -------
    Tensor
        The broadcast shape, dtype bool.

    Raises
    ------
    TypeError
        For another dtype.
    """


class Unary(Protocol):
    def __call__(self, x: Tensor) -> Tensor: ...


class Binary(Protocol):
    def __call__(self, x: Operand, y: Operand) -> Tensor: ...


def unary(op: Op, doc: str | None = None, *, high: bool = False) -> Unary:
    """``op(x)``. doc: instead of the op's. high: under `amp` in the high precision."""
    if high:

        def function(x: Tensor) -> Tensor:
            if _amp.get().enabled:
                x = _to_high(x)
            return op(x)
    else:

        def function(x: Tensor) -> Tensor:
            return op(x)

    return cast(Unary, _published(function, op.__name__, doc or op.__doc__))


def binary(op: Op, doc: str | None = None, *, name: str | None = None, high: bool = False) -> Binary:
    """``op(x, y)``; as `unary`. name: instead of the op's."""
    if high:

        def function(x: Operand, y: Operand) -> Tensor:
            if _amp.get().enabled:
                x, y = _to_high(x), _to_high(y)
            return op(x, y)
    else:

        def function(x: Operand, y: Operand) -> Tensor:
            return op(x, y)

    return cast(Binary, _published(function, name or op.__name__, doc or op.__doc__))


def _published(function: Op, name: str, doc: str | None) -> Op:
    """``function`` as if written out where `unary` or `binary` is called: found there by pickle and files of graphs."""
    made = cast(FunctionType, function)
    made.__module__ = sys._getframe(2).f_globals["__name__"]
    made.__name__ = made.__qualname__ = name
    made.__code__ = made.__code__.replace(co_name=name, co_qualname=name)
    made.__doc__ = doc
    return function
