"""Functions of one image, an array (H, W, C) or (H, W). The first one that needs OpenCV imports it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ....utils._opencv import opencv as _opencv

# The numbers that OpenCV gives to its interpolations: signatures need them before it is loaded.
INTER_NEAREST, INTER_LINEAR, INTER_CUBIC, INTER_AREA, INTER_LANCZOS4 = range(5)


def wrap_keepdims(func: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
    """Decorator: a result keeps the number of axes of the input (OpenCV drops a channel axis of 1)."""

    @functools.wraps(func)
    def wrapper(image: np.ndarray, *args: Any, **kwargs: Any) -> np.ndarray:
        if image.ndim not in (2, 3):
            raise ValueError(f"an image has shape (H, W, C) or (H, W), got {image.shape}")
        result = func(image, *args, **kwargs)
        return result[..., np.newaxis] if image.ndim == 3 and result.ndim == 2 else result

    return wrapper


@wrap_keepdims
def to_gray(image: np.ndarray) -> np.ndarray:
    """Converts a BGR image to gray, (H, W, 3) -> (H, W, 1), same dtype (uint8, uint16 or float32)."""
    return _opencv().cvtColor(image, _opencv().COLOR_BGR2GRAY)


@wrap_keepdims
def to_bgr(image: np.ndarray) -> np.ndarray:
    """Repeats a gray image in three channels, (H, W, 1) -> (H, W, 3), same dtype."""
    return _opencv().cvtColor(image, _opencv().COLOR_GRAY2BGR)


@wrap_keepdims
def pad(input: np.ndarray, size: int | Sequence[int], value: float | Sequence[float]) -> np.ndarray:
    """Adds a border.

    size: pixels on every side; or (bottom, right); or (top, bottom, left, right). value: one number or one
    per channel; if one is a float, the result is float32. Raises ValueError for another number of sizes or negative ones.
    """
    top, bottom, left, right = _pad_sides(size)
    height, width = input.shape[:2]
    filling = np.asarray(value)
    dtype = np.float32 if filling.dtype.kind == "f" else input.dtype
    result = np.empty((height + top + bottom, width + left + right, *input.shape[2:]), dtype)
    result[...] = filling.astype(dtype)
    result[top : top + height, left : left + width] = input
    return result


def _pad_sides(size: int | Sequence[int]) -> tuple[int, int, int, int]:
    sizes = (size,) * 4 if isinstance(size, (int, np.integer)) else tuple(size)
    if len(sizes) == 2:
        sizes = (0, sizes[0], 0, sizes[1])
    if len(sizes) != 4 or any(side < 0 for side in sizes):
        raise ValueError(
            "pad size is one number, (bottom, right) or (top, bottom, left, right), none negative; "
            f"got {size!r}"
        )
    top, bottom, left, right = (int(side) for side in sizes)
    return top, bottom, left, right


@wrap_keepdims
def flip(image: np.ndarray, flipCode: int) -> np.ndarray:
    """Mirrors an image: ``flipCode`` 0 upside down, positive left to right, negative both. Returns a contiguous copy."""
    if flipCode == 0:
        return np.ascontiguousarray(image[::-1])
    if flipCode > 0:
        return np.ascontiguousarray(image[:, ::-1])
    return np.ascontiguousarray(image[::-1, ::-1])


@wrap_keepdims
def resize(
    input: np.ndarray, size: int | Sequence[int], interpolation: int = INTER_LINEAR
) -> np.ndarray:
    """Resizes an image to ``size`` = (height, width), or one number for both; same dtype.

    interpolation: a constant of OpenCV. Raises ValueError for sizes below 1.
    """
    height, width = (size, size) if isinstance(size, (int, np.integer)) else size
    if height < 1 or width < 1:
        raise ValueError(f"an image must have at least one pixel, got size {size!r}")
    if input.shape[:2] == (height, width):
        return input.copy()
    dtype = input.dtype
    if dtype in (np.bool_, np.int32, np.int64, np.float16):  # OpenCV does not resize these
        exact = interpolation == INTER_NEAREST
        input = input.astype(np.float64 if exact or dtype == np.int64 else np.float32)
    result = _opencv().resize(input, (int(width), int(height)), interpolation=interpolation)
    if result.dtype == dtype:
        return result
    return result.astype(dtype) if dtype.kind == "f" else np.rint(result).astype(dtype)
