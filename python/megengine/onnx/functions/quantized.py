"""Operators of quantized integers. Integer products are computed in int32."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ... import functional as F
from ...core import ops
from ...fx import wrap
from ...tensor import Tensor
from ._table import axis_of, counterpart, dtype_of
from .elementwise import round_half_even
from .narrow import INTEGERS, clamped, name_of, rounded
from .windows import conv

_LAST_WITH_HALVES = 1.5 * 2.0**23  # numbers of float32 near it are whole: a sum with it is rounded, halves to even
_RANGES = {"int8": (-128, 127), "uint8": (0, 255), "int16": (-32768, 32767), "uint16": (0, 65535)}


def _spread(part: Tensor, x: Tensor, axis: int, block_size: int) -> Tensor:
    """Spreads a scale or zero point over the elements: one for all, one for each place of the axis,
    or one for each block.
    """
    part = part.astype("float32") if part.dtype.name != "float32" else part
    if block_size:
        axis = axis_of(axis, x.ndim)
        wide = F.repeat(part, block_size, axis=axis)
        return wide[(slice(None),) * axis + (slice(0, x.shape[axis]),)]
    if part.ndim != 1 or part.shape[0] == 1:
        return F.reshape(part, ()) if part.size == 1 else part
    return F.reshape(part, [-1 if a == axis_of(axis, x.ndim) else 1 for a in range(x.ndim)])


def _to_even(x: Tensor) -> Tensor:
    """Rounds to whole numbers. Beyond 2^20 either way, what no dtype of bytes holds, the result is any such number."""
    return (F.clip(x, -(2.0**20), 2.0**20) + _LAST_WITH_HALVES) - _LAST_WITH_HALVES


@counterpart("QuantizeLinear")
def quantize_linear(
    x: Tensor, scale: Tensor, zero_point: Tensor | None = None, *, axis: int = 1, block_size: int = 0, output_dtype: int = 0,
    precision: int = 0, saturate: int = 1,
) -> Tensor:  # fmt: skip
    """Quantizes x. output_dtype: the dtype of the result, or of a zero point of narrow numbers."""
    narrow = name_of(output_dtype)
    dtype = dtype_of(output_dtype) if output_dtype else zero_point.dtype.name if zero_point is not None else "uint8"
    levels = x.astype("float32") / _spread(scale, x, axis, block_size)
    levels = levels if dtype == "float32" else _to_even(levels)
    if zero_point is not None:
        levels = levels + _spread(zero_point, x, axis, block_size)
    if narrow:
        return clamped(levels, narrow) if narrow in INTEGERS else rounded(levels, narrow, bool(saturate))
    return F.clip(levels, *_RANGES[dtype]).astype(dtype)


@counterpart("DequantizeLinear")
def dequantize_linear(
    x: Tensor, scale: Tensor, zero_point: Tensor | None = None, *, axis: int = 1, block_size: int = 0, output_dtype: int = 0
) -> Tensor:
    real = x.astype("float32")
    if zero_point is not None:
        real = real - _spread(zero_point, x, axis, block_size)
    real = real * _spread(scale, x, axis, block_size)
    return real.astype(dtype_of(output_dtype) if output_dtype else scale.dtype)


@counterpart("DynamicQuantizeLinear")
def dynamic_quantize_linear(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    low, high = F.minimum(F.min(x), 0), F.maximum(F.max(x), 0)
    scale = (high - low) / 255
    scale = F.where(F.equal(scale, 0), F.ones_like(scale), scale)
    zero_point = round_half_even(F.clip(0 - low / scale, 0, 255)).astype("uint8")
    return quantize_linear(x, scale, zero_point), scale, zero_point


def _centred(x: Tensor, zero_point: Tensor | None, axis: int) -> Tensor:
    x = x.astype("int32")
    if zero_point is None:
        return x
    zero = zero_point.astype("int32")
    if zero.size == 1:
        return x - F.reshape(zero, ())
    return x - (F.reshape(zero, [-1 if a == axis_of(axis, x.ndim) else 1 for a in range(x.ndim)]) if zero.ndim == 1 else zero)


def _signed(x: Tensor, zero_point: Tensor | None, axis: int) -> tuple[Tensor, Tensor | int]:
    """Bytes as int8, and their zero point among these, in int32."""
    shift = 128 if x.dtype.name == "uint8" else 0
    zero: Tensor | int = 0 - shift
    if zero_point is not None:
        spread = zero_point.astype("int32") - shift
        wide = [-1 if a == axis_of(axis, x.ndim) else 1 for a in range(x.ndim)]
        zero = F.reshape(spread, ()) if spread.size == 1 else F.reshape(spread, wide) if spread.ndim == 1 else spread
    return (x.astype("int32") - shift).astype("int8") if shift else x, zero


def signed_factor(b: np.ndarray, zero_point: np.ndarray | None) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Returns a right factor [..., k, n] of bytes as int8 [..., n, k], the sums of its columns, and its zero points, None
    for zeros.
    """
    shift = 128 if b.dtype == np.uint8 else 0
    zero = np.asarray(0 if zero_point is None else zero_point, np.int32) - np.int32(shift)
    moved = b.astype("int32") - shift
    turned = np.ascontiguousarray(moved.astype("int8").swapaxes(-1, -2))
    return turned, np.asarray(moved.sum(-2, keepdims=True, dtype="int32")), np.asarray(zero) if zero.any() else None


@wrap
def times_bytes(
    a: Tensor, b: Tensor, columns: Tensor, of_b: Tensor | int | None = None, a_zero: Tensor | None = None, *, turned: bool = True
) -> Tensor:
    """Multiplies matrices of bytes, as int8, and subtracts the sums that zero points stand for: exact, as int32 wraps.

    b, columns, of_b: as `signed_factor` gives them. turned: whether b is [..., n, k].
    """
    a, of_a = _signed(a, a_zero, -2)
    product = F.matmul(a, b, transpose_b=turned) - of_a * columns
    return product if of_b is None else product - of_b * F.sum(a.astype("int32") - of_a, axis=-1, keepdims=True)


@counterpart("MatMulInteger")
def matmul_integer(a: Tensor, b: Tensor, a_zero: Tensor | None = None, b_zero: Tensor | None = None) -> Tensor:
    if a.ndim < 2 or b.ndim < 2:
        return F.matmul(_centred(a, a_zero, -2), _centred(b, b_zero, -1))
    b, of_b = _signed(b, b_zero, -1)
    return times_bytes(a, b, F.sum(b.astype("int32"), axis=-2, keepdims=True), of_b, a_zero, turned=False)


def _sums(x: Tensor, w: Tensor, shift: Tensor, **window: Any) -> Tensor:
    """Returns the sums of products of bytes plus ``shift`` of each channel, in float32: whole numbers below 2^24 are exact."""
    one = ops.full(shape=(1,), value=1.0, dtype="float32", device=x)
    return ops.quantized_conv(x, w, one, shift, dtype="float32", **window)


def _in_steps(sums: Tensor, scale: Tensor, zero: int, dtype: str) -> Tensor:
    """Returns real numbers, or bytes: rounded to even before the zero point is added."""
    real = sums * scale
    return real if dtype == "float32" else F.clip(_to_even(real) + zero, *_RANGES[dtype]).astype(dtype)


@wrap
def conv_of_bytes(
    x: Tensor, w: Tensor, shift: Tensor, scale: Tensor, *, zero: int = 0, dtype: str, x_zero: int = 0, pads: Sequence[int],
    stride: Sequence[int], dilation: Sequence[int], groups: int = 1,
) -> Tensor:  # fmt: skip
    """Convolves bytes. shift: added to the sums of a channel. scale: [channels, 1...], what 1 in a sum stands for.
    dtype: of the result, that of bytes with ``zero``.
    """
    dims = len(stride)
    before, after = tuple(pads[:dims]), tuple(pads[dims:])
    if before != after or (x_zero and any(pads)):
        x = ops.pad(x, before=(0, 0, *before), after=(0, 0, *after), mode="constant", value=x_zero)
        before = (0,) * dims
    sums = _sums(x, w, shift, stride=tuple(stride), padding=before, dilation=tuple(dilation), groups=groups)
    return _in_steps(sums, scale, zero, dtype)


@wrap
def product_of_bytes(x: Tensor, w: Tensor, shift: Tensor, scale: Tensor, *, zero: int = 0, dtype: str) -> Tensor:
    """Multiplies rows of bytes by those of w. shift: added to the sums of a row of w. scale: what 1 in these stands for.
    dtype: of the result, that of bytes with ``zero``.
    """
    rows = F.expand_dims(x if x.ndim == 2 else F.flatten(x, 0, -2), -1)
    y = _in_steps(F.squeeze(_sums(rows, F.expand_dims(w, -1), shift), -1), scale, zero, dtype)
    return y if x.ndim == 2 else F.reshape(y, (-1, *x._tuple_shape[1:-1], w._tuple_shape[0]))


@counterpart("QLinearMatMul")
def qlinear_matmul(
    a: Tensor, a_scale: Tensor, a_zero: Tensor, b: Tensor, b_scale: Tensor, b_zero: Tensor, y_scale: Tensor, y_zero: Tensor
) -> Tensor:
    product = matmul_integer(a, b, a_zero, b_zero).astype("float32")
    factor = a_scale.astype("float32") * b_scale.astype("float32")
    return quantize_linear(product * factor, y_scale.astype("float32"), y_zero)


@counterpart("ConvInteger")
def conv_integer(x: Tensor, w: Tensor, x_zero: Tensor | None = None, w_zero: Tensor | None = None, **window: Any) -> Tensor:
    """Sums of at most 2^24 / 2^16 products are exact in float32; longer ones are added from parts that are."""
    x, w = (_centred(part, zero, 0).astype("float32") for part, zero in ((x, x_zero), (w, w_zero)))
    step = max(1, 256 // math.prod(w._tuple_shape[2:])) if window.get("group", 1) == 1 else w.shape[1]
    parts = [conv(x[:, k : k + step] if step < w.shape[1] else x, w[:, k : k + step], **window) for k in range(0, w.shape[1], step)]
    total = parts[0].astype("int32")
    for part in parts[1:]:
        total = total + part.astype("int32")
    return total


@counterpart("QLinearConv")
def qlinear_conv(
    x: Tensor, x_scale: Tensor, x_zero: Tensor, w: Tensor, w_scale: Tensor, w_zero: Tensor, y_scale: Tensor, y_zero: Tensor,
    b: Tensor | None = None, **window: Any,
) -> Tensor:  # fmt: skip
    product = conv_integer(x, w, x_zero, w_zero, **window)
    across = (1, -1) + (1,) * (x.ndim - 2)
    if b is not None:
        product = product + F.reshape(b, across)
    factor = F.reshape(x_scale * w_scale, across if w_scale.size > 1 else (1,) * x.ndim)
    return quantize_linear(product.astype("float32") * factor, y_scale, y_zero)
