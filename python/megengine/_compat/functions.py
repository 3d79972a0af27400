"""Small functions of tensors that `megengine.functional` once had: constants that are made once, a check of values, an update in place."""

from functools import lru_cache
from typing import Any

import numpy as np

from ..logger import get_logger
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


def _assert_equal(
    expect: Tensor, actual: Tensor, *, maxerr: float = 0.0001, verbose: bool = False
) -> Tensor:
    """Compares two tensors and returns ``actual``. RuntimeError if they differ by more than
    ``maxerr`` of the larger, or of 1.

    verbose: log the largest difference in any case.
    """
    wanted, found = (x.numpy().astype(np.float64) for x in (expect, actual))
    scale = np.maximum(np.maximum(abs(wanted), abs(found)), 1)
    worst = float((abs(wanted - found) / scale).max(initial=0))
    if verbose:
        get_logger("megengine.functional.utils").info("_assert_equal: largest difference %g", worst)
    if not worst <= maxerr:
        raise RuntimeError(f"_assert_equal: values differ by {worst:g}, more than {maxerr:g}")
    return actual


def _inplace_add_(
    dest: Tensor, delta: Tensor, alpha: float | Tensor, beta: float | Tensor
) -> Tensor:
    """``dest = alpha * dest + beta * delta``; returns ``dest``."""
    dest._reset(dest * alpha + delta * beta)
    return dest
