"""Turn a number or a sequence into a tuple of fixed length, for kernel sizes, strides and paddings."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any


def get_ndtuple(value: Any, *, n: int, allow_zero: bool = True) -> tuple[int, ...]:
    """Makes a tuple of fixed length.

    Parameters
    ----------
    value : int or sequence of int
        One number, which is repeated, or ``n`` of them.
    n : int
        Length of the tuple.
    allow_zero : bool
        Whether a number may be 0.

    Returns
    -------
    tuple of int
        The tuple, of length ``n``.

    Raises
    ------
    TypeError
        For a float or another non-integer.
    ValueError
        For a wrong length, a negative number, or a zero that is not allowed.

    Examples
    --------
    >>> get_ndtuple(3, n=2)
    (3, 3)
    """
    if isinstance(value, Iterable) and not isinstance(value, (str, bytes)):
        if getattr(value, "ndim", 1) == 0:  # a 0-d array or tensor is a number
            items = [value] * n
        else:
            items = list(value)
            if len(items) != n:
                raise ValueError(f"expected one number or {n} numbers, got {len(items)}: {value!r}")
    else:
        items = [value] * n
    result = tuple(_as_int(item, value) for item in items)
    least = 0 if allow_zero else 1
    if any(item < least for item in result):
        raise ValueError(f"every number must be at least {least}, got {value!r}")
    return result


def _as_int(item: Any, value: Any) -> int:
    try:
        return item.__index__()
    except (AttributeError, TypeError):
        raise TypeError(f"expected an int or a sequence of ints, got {value!r}") from None


_single = functools.partial(get_ndtuple, n=1, allow_zero=True)
_pair = functools.partial(get_ndtuple, n=2, allow_zero=True)
_triple = functools.partial(get_ndtuple, n=3, allow_zero=True)
_quadruple = functools.partial(get_ndtuple, n=4, allow_zero=True)
_single_nonzero = functools.partial(get_ndtuple, n=1, allow_zero=False)
_pair_nonzero = functools.partial(get_ndtuple, n=2, allow_zero=False)
_triple_nonzero = functools.partial(get_ndtuple, n=3, allow_zero=False)
_quadruple_nonzero = functools.partial(get_ndtuple, n=4, allow_zero=False)
