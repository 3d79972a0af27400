"""Class indices: embedding, one-hot, picking along an axis."""

import numpy as np

from ..core import ops
from ..core.tensor.array_method import as_tensor
from ..core.tensor.shapes import normalize_axis
from ..tensor import Tensor


def one_hot(inp: Tensor, num_classes: int) -> Tensor:
    """Writes each class index as a vector that is 1 at the index and 0 elsewhere, on a new last
    axis.

    inp: any shape, integer dtype, which the result keeps. Returns [*inp.shape, num_classes].
    IndexError for an index outside of the classes, ValueError for another dtype, TypeError for what
    is not a Tensor.

    >>> from megengine import Tensor, functional as F
    >>> F.one_hot(Tensor([0, 2]), 3).numpy()
    array([[1, 0, 0],
           [0, 0, 1]], dtype=int32)
    """
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
    """Looks up rows of ``weight`` by their indices.

    inp: any shape, integer dtype. weight: [num, dim]. Returns [*inp.shape, dim]; gradients of rows
    that are read more than once add up. IndexError for an index outside of [-num, num). ValueError
    for padding_idx, max_norm or norm_type, which are not supported.

    >>> from megengine import Tensor, functional as F
    >>> table = Tensor([[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]])
    >>> F.embedding(Tensor([2, 0]), table).numpy()
    array([[4., 5.],
           [0., 1.]], dtype=float32)
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
    """Picks one element of ``src`` along ``axis`` at each position of the other axes.

    src: any shape. index: integers, of src's shape without axis. keepdims: leaves axis in the
    result with size 1. IndexError for an index that the axis does not have, TypeError for what is
    not a Tensor.

    >>> from megengine import Tensor, functional as F
    >>> scores = Tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    >>> F.indexing_one_hot(scores, Tensor([2, 0])).numpy()  # the score of each row's class
    array([3., 4.], dtype=float32)
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
