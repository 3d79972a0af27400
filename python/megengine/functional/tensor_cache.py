"""Scalar constants that are made once."""

from functools import lru_cache
from typing import Any

from ..tensor import Tensor


@lru_cache(maxsize=64)
def _scalar(value: float, dtype: Any, device: str | None) -> Tensor:
    return Tensor(value, dtype=dtype or "float32", device=device, is_const=True)


def get_scalar_zero(dtype: Any = None, device: str | None = None) -> Tensor:
    """0 as a 0-d tensor."""
    return _scalar(0.0, dtype, device)


def get_scalar_zero_point_five(dtype: Any = None, device: str | None = None) -> Tensor:
    """0.5 as a 0-d tensor."""
    return _scalar(0.5, dtype, device)


def get_scalar_one(dtype: Any = None, device: str | None = None) -> Tensor:
    """1 as a 0-d tensor."""
    return _scalar(1.0, dtype, device)


def get_scalar_two(dtype: Any = None, device: str | None = None) -> Tensor:
    """2 as a 0-d tensor."""
    return _scalar(2.0, dtype, device)
