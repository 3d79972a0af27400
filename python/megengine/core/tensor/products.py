"""Matrix products and variances, which both `functional` and the methods of tensors compute by
several ops.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .. import ops
from . import shapes
from .amp import state, to_low

if TYPE_CHECKING:
    from ...tensor import Tensor


def matmul(a: "Tensor", b: "Tensor", transpose_a: bool = False, transpose_b: bool = False) -> "Tensor":
    """Multiplies matrices of the last two axes, in the low precision under `amp`; 1-d operands are
    a row and a column. Products of int8 are int32.
    """
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


def as_reals(x: "Tensor") -> "Tensor":
    """Casts integers and bools to a float dtype that holds them all, so that differences are exact
    and squares do not wrap.
    """
    if x.dtype.kind not in "iub":
        return x
    return ops.cast(x, dtype="float64" if x.dtype.itemsize > 2 else "float32")


def of_reals(y: "Tensor", *of: "Tensor") -> "Tensor":
    """Casts a result of operands from `as_reals` to float32, unless one of ``of`` was float64."""
    is_wide = any(each.dtype.name == "float64" for each in of)
    return y if is_wide or y.dtype.name != "float64" else ops.cast(y, dtype="float32")


def var(x: "Tensor", axis: int | Sequence[int] | None, keepdims: bool) -> "Tensor":
    """Biased variance over ``axis``: mean of the squared distance to the mean."""
    axes = tuple(range(x.ndim)) if axis is None else shapes.normalize_axes(axis, x.ndim, "var")
    reals = as_reals(x)
    distance = ops.sub(reals, ops.reduce_mean(reals, axes=axes, keepdims=True))
    return of_reals(shapes.reduce(ops.square(distance), ops.reduce_mean, axis, keepdims, "var"), x)
