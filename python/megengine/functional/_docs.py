"""Sections that docstrings of functions of one op have in common."""

from collections.abc import Callable
from typing import TypeVar

from ..tensor import Tensor

Operand = Tensor | int | float | bool
_Function = TypeVar("_Function", bound=Callable[..., Tensor])

# Endings of docstrings, for ops whose result is float, has x's dtype or the promoted one, or is bool; and for ops on integers and on bool.
FLOAT = """
    Parameters
    ----------
    x : Tensor or number
        Any shape, float dtype; integers compute in float32.

    Returns
    -------
    Tensor
        The shape of ``x`` and its dtype, float32 for integers.
    """
SAME = """
    Parameters
    ----------
    x : Tensor or number
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
        Tensors or numbers whose shapes broadcast.

    Returns
    -------
    Tensor
        The broadcast shape and the promoted dtype.
    """
BOOL = """
    Parameters
    ----------
    x, y : Tensor or number
        Tensors or numbers whose shapes broadcast.

    Returns
    -------
    Tensor
        The broadcast shape, dtype bool.
    """
BITS = """
    Parameters
    ----------
    x, y : Tensor or number
        Tensors or numbers of integer dtypes whose shapes broadcast; or bool, for which it is logic.

    Returns
    -------
    Tensor
        The broadcast shape and the promoted dtype.

    Raises
    ------
    TypeError
        For another dtype.
    """
LOGICAL = """
    Parameters
    ----------
    x, y : Tensor or number
        Tensors or numbers of dtype bool whose shapes broadcast.

    Returns
    -------
    Tensor
        The broadcast shape, dtype bool.

    Raises
    ------
    TypeError
        For another dtype.
    """


def tells(section: str) -> Callable[[_Function], _Function]:
    """Decorator: ``section`` stands behind the summary of the docstring."""

    def told(function: _Function) -> _Function:
        if function.__doc__ is not None:  # python -OO has none
            summary, _, rest = function.__doc__.partition("\n\n")
            function.__doc__ = f"{summary}\n{section}\n{rest}"
        return function

    return told
