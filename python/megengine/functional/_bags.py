"""Bags of rows of a table: sums, means and maxima of an embedding's rows."""

import numpy as np

from .._core import note_extent_read
from ..autodiff._lookups import looked_up
from ..core import ops
from ..core.tensor.array_method import as_tensor, require_tensors
from ..core.tensor.indexing import as_places
from ..core.tensor.shapes import cut
from ..tensor import Tensor
from ._index import row_of_padding

_MODES = ("sum", "mean", "max")


def embedding_bag(
    inp: Tensor,
    weight: Tensor,
    offsets: Tensor | None = None,
    mode: str = "mean",
    per_sample_weights: Tensor | None = None,
    padding_idx: int | None = None,
    sparse: bool = False,
) -> Tensor:
    """Looks up rows of ``weight`` and reduces the rows of each bag to one, without a tensor of all
    rows.

    Parameters
    ----------
    inp : Tensor
        Integers: [bags, size], or [count] with ``offsets``.
    weight : Tensor
        The table, [num, dim].
    offsets : Tensor or None
        Where each bag begins: [bags] integers that never decrease, the first one 0. Bag i has the
        indices from offsets[i] to offsets[i + 1], the last bag all that are left.
    mode : str
        "sum", "mean" or "max"; a bag without indices gives 0.
    per_sample_weights : Tensor or None
        Factor of each row, of the shape of ``inp``; only for "sum".
    padding_idx : int or None
        Index that bags leave out, such as that of padding; its row gets no gradient.
    sparse : bool
        Whether to keep the gradient of an attached ``weight`` as the rows that were looked up, as
        an `autodiff.RowGradient`.

    Returns
    -------
    Tensor
        [bags, dim].

    Raises
    ------
    IndexError
        For an index outside of [-num, num).
    ValueError
        For another mode, for shapes that do not fit, for per_sample_weights with another mode than
        "sum", and for offsets with "max". With ``sparse``, for a weight that is computed from
        attached tensors.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> table = Tensor([[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]])
    >>> F.embedding_bag(Tensor([[0, 2], [1, 1]]), table).numpy()
    array([[2., 3.],
           [2., 3.]], dtype=float32)
    >>> F.embedding_bag(Tensor([0, 2, 1]), table, Tensor([0, 2, 2]), mode="sum").numpy()
    array([[4., 6.],
           [0., 0.],
           [2., 3.]], dtype=float32)
    """
    require_tensors("embedding_bag", weight)
    places = as_places(as_tensor(inp))
    _check(places, offsets, mode, per_sample_weights)
    rows = looked_up(weight, places) if sparse else ops.index_get(weight, places, axes=(0,))
    counts = None  # None: every index counts
    if padding_idx is not None:
        num = weight._tuple_shape[0]
        first = row_of_padding(padding_idx, num, "embedding_bag")
        counts = ops.logical_and(ops.not_equal(places, first), ops.not_equal(places, first - num))
    if per_sample_weights is not None:
        rows = ops.mul(rows, _behind(per_sample_weights))
    if mode == "max":
        return _largest(rows, counts)
    if counts is not None:
        rows = ops.where(_behind(counts), rows, ops.full(shape=(), value=0.0, dtype=rows.dtype.name, device=rows))
    total, number = _sums(rows, counts) if offsets is None else _sums_by_offsets(rows, counts, as_places(as_tensor(offsets)))
    if mode == "sum":
        return total
    mean = ops.true_div(total, number if isinstance(number, float) else _behind(ops.maximum(number, 1.0)))
    return mean if mean.dtype == total.dtype else ops.cast(mean, dtype=total.dtype.name)


def _check(places: Tensor, offsets: Tensor | None, mode: str, per_sample_weights: Tensor | None) -> None:
    if mode not in _MODES:
        raise ValueError(f"embedding_bag: mode {mode!r} is not one of {', '.join(_MODES)}")
    if places.ndim != (2 if offsets is None else 1):
        raise ValueError(
            f"embedding_bag: inp has shape {list(places._tuple_shape)} {'without' if offsets is None else 'with'} offsets\n"
            "  fix: give [bags, size], or [count] and the offset of each bag"
        )
    if mode == "max" and offsets is not None:
        raise ValueError("embedding_bag: mode 'max' takes no offsets\n  fix: give bags of one size, with padding_idx for what they lack")
    if per_sample_weights is None:
        return
    if mode != "sum":
        raise ValueError(f"embedding_bag: per_sample_weights are for mode 'sum', not {mode!r}")
    if per_sample_weights._tuple_shape != places._tuple_shape:
        raise ValueError(f"embedding_bag: per_sample_weights have shape {list(per_sample_weights._tuple_shape)}, inp {list(places._tuple_shape)}")


def _behind(x: Tensor) -> Tensor:
    """Adds an axis for the elements of a row."""
    return ops.reshape(x, shape=(*x._tuple_shape, 1))


def _largest(rows: Tensor, counts: Tensor | None) -> Tensor:
    """Returns the largest rows of each bag. If a bag has a row twice, the first one alone has the
    gradient.
    """

    def first(x: Tensor) -> Tensor:
        y = ops.gather(x, ops.argmax(x, axis=1, keepdims=True), axis=1)
        return ops.reshape(y, shape=(y._tuple_shape[0], y._tuple_shape[2]))

    if counts is None:
        return first(rows)
    low, zero = (ops.full(shape=(), value=value, dtype=rows.dtype.name, device=rows) for value in (-np.inf, 0.0))
    found = first(ops.where(_behind(counts), rows, low))
    some = ops.reduce_max(ops.cast(counts, dtype="int32"), axes=(1,), keepdims=False)
    return ops.where(_behind(ops.not_equal(some, 0)), found, zero)


def _sums(rows: Tensor, counts: Tensor | None) -> tuple[Tensor, Tensor | float]:
    """The sums of bags of one size, and how many indices count in each."""
    total = ops.reduce_sum(rows, axes=(1,), keepdims=False)
    if counts is None:
        note_extent_read(rows, 1)
        return total, float(max(rows._tuple_shape[1], 1))
    return total, ops.reduce_sum(ops.cast(counts, dtype="float32"), axes=(1,), keepdims=False)


def bag_of_each(count: int, offsets: Tensor) -> Tensor:
    """The bag of each of ``count`` indices: the last one that begins at the index or before."""
    none = ops.full(shape=(count + 1,), value=0.0, dtype="int32", device=offsets)
    begun = ops.index_add(none, ops.full(shape=offsets._tuple_shape, value=1.0, dtype="int32", device=offsets), offsets, axes=(0,))
    return ops.sub(cut(ops.cumsum(begun, axis=0, exclusive=False, reverse=False), 0, 0, count), 1)


def _sums_by_offsets(rows: Tensor, counts: Tensor | None, offsets: Tensor) -> tuple[Tensor, Tensor | float]:
    note_extent_read(rows, 0)
    note_extent_read(offsets, 0)
    count, dim = rows._tuple_shape
    bags = offsets._tuple_shape[0]
    own = ops.full(shape=(count,), value=1.0, dtype="float32", device=rows) if counts is None else ops.cast(counts, dtype="float32")
    bag = bag_of_each(count, offsets)
    zeros = (ops.full(shape=shape, value=0.0, dtype=x.dtype.name, device=x) for shape, x in (((bags, dim), rows), ((bags,), own)))
    total, number = (ops.index_add(zero, x, bag, axes=(0,)) for zero, x in zip(zeros, (rows, own), strict=True))
    return total, number
