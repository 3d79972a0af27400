"""Class indices: embedding, one-hot, picking along an axis."""

import numpy as np

from ..core import ops
from ..core.tensor.array_method import as_tensor
from ..core.tensor.shapes import normalize_axis
from ..tensor import Tensor


def one_hot(inp: Tensor, num_classes: int) -> Tensor:
    """1 at the class of each element on a new last axis, 0 elsewhere; keeps the (integer) dtype."""
    if not isinstance(inp, Tensor):
        raise TypeError(f"one_hot: {type(inp).__name__} is not a Tensor")
    return ops.one_hot(inp, num_classes=int(num_classes), dtype=inp.dtype.name)


def embedding(
    inp: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float | None = None,
) -> Tensor:
    """Rows of ``weight`` [num, dim] at the indices of ``inp``: shape inp.shape + (dim,).

    ValueError for padding_idx, max_norm or norm_type, which are not supported.
    """
    for name, given in (
        ("padding_idx", padding_idx),
        ("max_norm", max_norm),
        ("norm_type", norm_type),
    ):
        if given is not None:
            raise ValueError(f"embedding: {name} is not supported; leave it None")
    index = as_tensor(inp)
    if index.dtype != np.int32:
        index = ops.cast(index, dtype="int32")
    return ops.index_get(weight, index, axes=(0,))


def indexing_one_hot(src: Tensor, index: Tensor, axis: int = 1, keepdims: bool = False) -> Tensor:
    """``src`` at ``index`` along ``axis``, which is dropped unless keepdims. index: src's shape
    without axis.
    """
    if not isinstance(src, Tensor):
        raise TypeError(f"indexing_one_hot: {type(src).__name__} is not a Tensor")
    shape = src._tuple_shape
    axis = normalize_axis(axis, len(shape), "indexing_one_hot")
    outer = shape[:axis] + (1,) + shape[axis + 1 :]
    index = as_tensor(index)
    if index.dtype != np.int32:
        index = ops.cast(index, dtype="int32")
    picked = ops.gather(src, ops.reshape(index, shape=outer), axis=axis)
    return picked if keepdims else ops.reshape(picked, shape=shape[:axis] + shape[axis + 1 :])
