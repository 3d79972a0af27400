"""What both `functional` and the methods of a tensor compute by several ops: matrix products and variances."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .. import ops
from . import shapes
from .amp import state, to_low

if TYPE_CHECKING:
    from ...tensor import Tensor


def matmul(a: "Tensor", b: "Tensor", transpose_a: bool = False, transpose_b: bool = False) -> "Tensor":
    """Product of the last two axes, in the low precision under `amp`; 1-d operands are a row and a column. Products of int8 are int32."""
    if state.get().enabled:
        a, b = to_low(a, b)
    if a.ndim >= 2 and b.ndim >= 2:
        return ops.matmul(a, b, transpose_a=transpose_a, transpose_b=transpose_b)
    return _vector_matmul(a, b, transpose_a, transpose_b)


def _vector_matmul(a: "Tensor", b: "Tensor", transpose_a: bool, transpose_b: bool) -> "Tensor":
    if not a.ndim or not b.ndim:
        raise ValueError(
            f"matmul: a 0-d operand ({list(a._tuple_shape)} by {list(b._tuple_shape)}); use *"
        )
    drop = []
    if a.ndim == 1:
        a, transpose_a = ops.reshape(a, shape=(1,) + a._tuple_shape), False
        drop.append(-2)
    if b.ndim == 1:
        b, transpose_b = ops.reshape(b, shape=b._tuple_shape + (1,)), False
        drop.append(-1)
    y = ops.matmul(a, b, transpose_a=transpose_a, transpose_b=transpose_b)
    shape = y._tuple_shape
    kept = shape[:-2] + tuple(shape[i] for i in (-2, -1) if i not in drop)
    return ops.reshape(y, shape=kept)


def var(x: "Tensor", axis: int | Sequence[int] | None, keepdims: bool) -> "Tensor":
    """Biased variance over ``axis``: mean of the squared distance to the mean."""
    axes = tuple(range(x.ndim)) if axis is None else shapes.normalize_axes(axis, x.ndim, "var")
    distance = ops.sub(x, ops.reduce_mean(x, axes=axes, keepdims=True))
    return shapes.reduce(ops.square(distance), ops.reduce_mean, axis, keepdims, "var")
