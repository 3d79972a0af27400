"""Helpers of the rows in the tables of ATen operators."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ..tensor import Tensor


class Unsupported(Exception):
    """Raised for a form of an operator that is left to torch; ``node``: its node in a graph."""

    def __init__(self, why: str, node: Any = None) -> None:
        super().__init__(why)
        self.node = node


def refuse_halves(x: Tensor) -> None:
    """Refuses float16 and bfloat16 operands of sums of many elements, which torch keeps in float32.
    """
    if x.dtype.name in ("float16", "bfloat16"):
        raise Unsupported(f"of {x.dtype}, whose sums are in float32")


def along_axis(function: Callable[..., Any]) -> Callable[..., Any]:
    """Makes a function along an axis take tensors without axes, too: to torch these have one element along axis 0."""

    @functools.wraps(function)
    def apply(x: Tensor, *given: Any, **options: Any) -> Any:
        if x.ndim:
            return function(x, *given, **options)
        widened = [each.reshape(1) if isinstance(each, Tensor) and not each.ndim else each for each in (x, *given)]
        return _without_axis(function(*widened, **options))

    return apply


def _without_axis(value: Any) -> Any:
    return value.reshape(()) if isinstance(value, Tensor) else [each.reshape(()) for each in value]
