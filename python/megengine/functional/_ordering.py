"""Functions that sort: distinct values, and places in a sorted sequence."""

from .. import core
from ..core import ops
from ..core.tensor.array_method import as_tensor, require_tensors
from ..core.tensor.shapes import cut, full_like
from ..tensor import Tensor
from ._docs import Operand

__all__ = ["searchsorted", "unique"]


def _differ(x: Tensor, y: Tensor) -> Tensor:
    """Whether two neighbours in sorted order are distinct; all NaN are one value, as NumPy has it."""
    differ = ops.not_equal(x, y)
    return ops.logical_and(differ, ops.logical_not(ops.isnan(x))) if x.dtype.kind == "f" else differ


def unique(
    inp: Tensor, return_index: bool = False, return_inverse: bool = False, return_counts: bool = False
) -> Tensor | tuple[Tensor, ...]:
    """Finds the distinct elements of a tensor, in rising order, as NumPy does.

    Parameters
    ----------
    inp : Tensor
        Tensor of any shape, searched as a whole. All NaN count as one value, the last one.
    return_index : bool
        Whether to return also where each value occurs first.
    return_inverse : bool
        Whether to return also the index of each element's value in the result.
    return_counts : bool
        Whether to return also how often each value occurs.

    Returns
    -------
    Tensor or tuple of Tensor
        The values, [found], in the dtype of ``inp``. Then, if asked for, int32 tensors: the places
        in the flattened tensor, [found]; the indices of the elements' values, in the shape of
        ``inp``; the counts, [found].

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.unique(Tensor([3, 1, 3])).numpy()
    array([1, 3], dtype=int32)
    >>> values, inverse, counts = F.unique(Tensor([3, 1, 3]), return_inverse=True, return_counts=True)
    >>> values[inverse].numpy(), counts.numpy()
    (array([3, 1, 3], dtype=int32), array([1, 2], dtype=int32))
    """
    require_tensors("unique", inp)
    size = inp.size
    values, places = ops.sort(ops.reshape(inp, shape=(size,)), axis=0, descending=False)
    first = ops.full(shape=(min(size, 1),), value=1.0, dtype="bool", device=inp)
    if size > 1:
        first = ops.concat(first, _differ(cut(values, 0, 0, size - 1), cut(values, 0, 1, size)), axis=0)
    found = [ops.mask_select(values, first)[0]]
    if return_index:
        found.append(ops.mask_select(places, first)[0])
    if return_inverse or return_counts:
        rank = ops.sub(ops.cumsum(first, axis=0, exclusive=False, reverse=False), 1)
        zeros = ops.full(shape=(size,), value=0.0, dtype="int32", device=inp)
    if return_inverse:
        found.append(ops.reshape(ops.scatter(zeros, places, rank, axis=0), shape=inp._tuple_shape))
    if return_counts:
        ones = ops.full(shape=(size,), value=1.0, dtype="int32", device=inp)
        counts = ops.index_add(zeros, ones, rank, axes=(0,))
        found.append(ops.mask_select(ops.index_get(counts, rank, axes=(0,)), first)[0])
    return found[0] if len(found) == 1 else tuple(found)


def _is_before(x: Tensor, y: Tensor) -> Tensor:
    """Computes x < y, where NaN is the largest number."""
    before = ops.less(x, y)
    if x.dtype.kind != "f":
        return before
    return ops.logical_or(before, ops.logical_and(ops.isnan(y), ops.logical_not(ops.isnan(x))))


def searchsorted(sorted_sequence: Tensor, values: Operand, side: str = "left") -> Tensor:
    """Finds where values would have to be put into a sorted sequence to keep its order.

    Parameters
    ----------
    sorted_sequence : Tensor
        Sorted sequence [n], or one for each row of ``values``, [..., n]: rising, with NaN last, as
        `sort` returns it.
    values : Tensor or number
        Values of any shape for a sequence of one axis, else [..., m] with the same axes in front.
    side : str
        Among equal elements: "left" of the first, or "right" of the last one.

    Returns
    -------
    Tensor
        The shape of ``values``, int32: from 0 to n.

    Raises
    ------
    ValueError
        For another side, and for shapes that do not fit.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> bounds = Tensor([1.0, 3.0, 3.0, 7.0])
    >>> F.searchsorted(bounds, Tensor([0.0, 3.0, 9.0])).numpy()
    array([0, 1, 4], dtype=int32)
    >>> F.searchsorted(bounds, 3.0, side="right").numpy()
    array(3, dtype=int32)
    """
    require_tensors("searchsorted", sorted_sequence)
    if side not in ("left", "right"):
        raise ValueError(f"searchsorted: side {side!r} is neither 'left' nor 'right'")
    sequence, values = core.convert_inputs(sorted_sequence, as_tensor(values))
    outer, n = sequence._tuple_shape[:-1], (sequence._tuple_shape or (0,))[-1]
    if not sequence.ndim or (outer and values._tuple_shape[:-1] != outer):
        raise ValueError(
            f"searchsorted: a sequence of shape {list(sequence._tuple_shape)} for values {list(values._tuple_shape)}\n"
            "  fix: give one sequence, or as many as the values have rows"
        )
    found = full_like(values, 0.0, "int32")
    # number of elements before, from the highest bit on
    for bit in reversed(range(n.bit_length())):
        further = ops.add(found, 1 << bit)
        last = ops.sub(ops.minimum(further, n), 1)
        seen = ops.gather(sequence, last, axis=len(outer)) if outer else ops.index_get(sequence, last, axes=(0,))
        passed = _is_before(seen, values) if side == "left" else ops.logical_not(_is_before(values, seen))
        found = ops.where(ops.logical_and(passed, ops.less_equal(further, n)), further, found)
    return found
