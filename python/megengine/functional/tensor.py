"""Functions on the arrangement of elements: shapes, joining, splitting, selecting."""

from collections.abc import Iterable, Sequence

import numpy as np

from .._core import note_extent_read
from ..core import OperandError, apply_const, ops
from ..core.tensor import shapes
from ..core.tensor.array_method import as_tensor, require_tensors
from ..core.tensor.quantized import keeps_quantized_dtype
from ..core.tensor.shapes import as_int, as_ints, normalize_axes, normalize_axis
from ..tensor import Tensor
from ._adding import bincount, index_add, scatter_add, scatter_reduce
from ._creation import (
    arange,
    complex,
    eye,
    full,
    full_like,
    imag,
    linspace,
    on,
    ones,
    ones_like,
    polar,
    real,
    zeros,
    zeros_like,
)  # fmt: skip
from ._ordering import searchsorted, unique
from ._select import cond_take, diag, gather, non_zero, scatter, tril, triu, where

__all__ = [
    "arange", "bincount", "broadcast_to", "concat", "cond_take", "non_zero", "copy", "cumprod", "cumsum", "diag",
    "expand_dims", "eye", "flatten", "full", "full_like", "gather", "imag", "index_add", "linspace", "meshgrid",
    "ones", "ones_like", "polar", "repeat", "reshape", "roll", "scatter", "scatter_add", "scatter_reduce", "searchsorted", "split",
    "squeeze", "stack", "swapaxes", "tile", "transpose", "tril", "triu", "unbind", "unique", "complex", "real",
    "where", "zeros", "zeros_like",
]  # fmt: skip


def broadcast_to(inp: Tensor, shape: shapes.IntLike | Sequence[shapes.IntLike | None]) -> Tensor:
    """Repeats ``inp`` along new axes and axes of size 1.

    Parameters
    ----------
    inp : Tensor
        Tensor whose shape broadcasts to ``shape``.
    shape : int, Tensor or sequence of int, Tensor or None
        The new shape: an int, or a sequence of ints and integer tensors; None keeps the size of
        that axis.

    Returns
    -------
    Tensor
        Tensor of the given shape, in the dtype of ``inp``.

    Raises
    ------
    ValueError
        For a negative size.
    RuntimeError
        For a shape that inp does not broadcast to.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.broadcast_to(Tensor([1, 2]), (3, None)).numpy()
    array([[1, 2],
           [1, 2],
           [1, 2]], dtype=int32)
    """
    return shapes.broadcast_to(as_tensor(inp), shape)


def concat(inps: Iterable[Tensor], axis: int = 0, device: str | None = None) -> Tensor:
    """Joins tensors along an existing axis, ``axis``.

    Parameters
    ----------
    inps : iterable of Tensor
        Tensors whose other axes are equal; their dtypes are promoted, scalars count as vectors of
        one element.
    axis : int
        The axis that they are joined along.
    device : str or None
        Device of the result; None leaves it where the tensors are.

    Returns
    -------
    Tensor
        The shape of the inputs, except along ``axis``, where the extents add up.

    Raises
    ------
    ValueError
        For no tensors, or shapes that do not fit.
    TypeError
        For a Tensor as the axis.

    See Also
    --------
    stack : Joins along a new axis.
    split : Cuts a tensor into pieces.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.concat([Tensor([[1, 2]]), Tensor([[3, 4]])], axis=1).numpy()
    array([[1, 2, 3, 4]], dtype=int32)
    """
    inps = list(inps)
    if not inps:
        raise ValueError("concat: no tensors\n  fix: pass a list with at least one")
    if isinstance(axis, Tensor):
        raise TypeError(f"concat: axis is a Tensor of shape {list(axis._tuple_shape)}\n  fix: pass the tensors as one list, as in F.concat([a, b], axis=0)")
    if any(np.ndim(x) == 0 for x in inps):
        inps = [ops.reshape(x, shape=(1,)) if x.ndim == 0 else x for x in map(as_tensor, inps)]
    if axis < 0:
        axis = normalize_axis(axis, as_tensor(inps[0]).ndim, "concat")
    return on(device, ops.concat(*inps, axis=axis))


def stack(inps: Sequence[Tensor], axis: int = 0, device: str | None = None) -> Tensor:
    """Joins tensors of equal shape along a new axis.

    Parameters
    ----------
    inps : sequence of Tensor
        Tensors of equal shape; their dtypes are promoted.
    axis : int
        Place of the new axis in the result.
    device : str or None
        Device of the result; None leaves it where the tensors are.

    Returns
    -------
    Tensor
        The shape of the inputs with one more axis, whose extent is the number of inputs.

    Raises
    ------
    ValueError
        For no tensors or different shapes.

    See Also
    --------
    concat : Joins along an axis that exists.
    unbind : Undoes it.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.stack([Tensor([1, 2]), Tensor([3, 4])], axis=1).numpy()
    array([[1, 3],
           [2, 4]], dtype=int32)
    """
    inps = [as_tensor(x) for x in inps]
    if not inps:
        raise ValueError("stack: no tensors\n  fix: pass a list with at least one")
    shape = inps[0]._tuple_shape
    if any(x._tuple_shape != shape for x in inps):
        raise OperandError(
            f"stack: shapes differ: {', '.join(str(list(x._tuple_shape)) for x in inps)}\n"
            "  fix: F.concat joins along an axis that is there; F.pad makes shapes equal"
        )
    axis = normalize_axis(axis, len(shape) + 1, "stack")
    return on(device, ops.concat(*(shapes.with_new_axis(x, axis) for x in inps), axis=axis))


def split(inp: Tensor, nsplits_or_sections: int | Sequence[int], axis: int = 0) -> tuple[Tensor, ...]:
    """Cuts ``inp`` into pieces along ``axis``.

    Parameters
    ----------
    inp : Tensor
        Tensor of any shape and dtype.
    nsplits_or_sections : int or sequence of int
        Number of pieces, whose sizes differ by one at most, the larger ones first; or a sequence of
        the indices at which to cut.
    axis : int
        Axis of ``inp``; negative numbers count from the end.

    Returns
    -------
    tuple of Tensor
        The pieces, in order.

    Raises
    ------
    ValueError
        For a count or places that do not fit the axis.

    See Also
    --------
    concat : Undoes it.
    unbind : Cuts into slices without the axis.

    Examples
    --------
    >>> from megengine import functional as F
    >>> [x.numpy().tolist() for x in F.split(F.arange(5), 2)]
    [[0.0, 1.0, 2.0], [3.0, 4.0]]
    >>> [x.shape for x in F.split(F.ones((2, 6)), [1, 3], axis=1)]
    [(2, 1), (2, 2), (2, 3)]
    """
    require_tensors("split", inp)
    shape = inp._tuple_shape
    axis = normalize_axis(axis, len(shape), "split")
    extent = shape[axis]
    if (
        isinstance(nsplits_or_sections, (list, tuple))
        or getattr(nsplits_or_sections, "ndim", 0) == 1
    ):
        cuts = as_ints(nsplits_or_sections, "split")
        previous = 0
        for cut in cuts:
            if not previous <= cut <= extent:
                raise ValueError(
                    f"Invalid nsplits_or_secions: {list(cuts)}\n  why: cut points must rise within an axis of {extent} elements"
                )
            previous = cut
    else:
        n = as_int(nsplits_or_sections, "split")
        if n <= 0:
            raise ValueError(f"Number sections must be larger than 0, got {n}")
        if n > extent:
            raise ValueError(f"The size {extent} at dim {axis} cannot be split into {n} sections")
        sizes = [extent // n + (i < extent % n) for i in range(n)]
        cuts = tuple(np.cumsum(sizes)[:-1].tolist())
    bounds = (0,) + cuts + (extent,)
    return tuple(shapes.cut(inp, axis, a, b) for a, b in zip(bounds, bounds[1:], strict=False))


def unbind(inp: Tensor, axis: int = 0) -> tuple[Tensor, ...]:
    """Returns the slices along ``axis``, without it.

    Parameters
    ----------
    inp : Tensor
        Any shape but [].
    axis : int
        Axis of ``inp``; negative numbers count from the end.

    Returns
    -------
    tuple of Tensor
        ``inp.shape[axis]`` tensors of the other axes.

    Raises
    ------
    ValueError
        For an axis that ``inp`` does not have.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> [row.tolist() for row in F.unbind(Tensor([[1, 2], [3, 4]]))]
    [[1, 2], [3, 4]]
    """
    require_tensors("unbind", inp)
    axis = normalize_axis(axis, inp.ndim, "unbind")
    return tuple(shapes.taken(inp, axis, k) for k in range(inp._tuple_shape[axis]))


def transpose(inp: Tensor, pattern: Iterable[int | str]) -> Tensor:
    """Puts the axes of ``inp`` in another order.

    Parameters
    ----------
    inp : Tensor
        Tensor of any shape and dtype.
    pattern : iterable of int or str
        Each axis once, negative ones count from the end; the string "x" makes a new axis of size 1;
        an axis of size 1 may be left out, and is removed.

    Returns
    -------
    Tensor
        The elements of ``inp``, with the axes in that order.

    Raises
    ------
    ValueError
        For a pattern that lacks another axis or repeats one.

    See Also
    --------
    swapaxes : Exchanges two axes.
    reshape : Keeps the order of the elements.

    Examples
    --------
    >>> from megengine import functional as F
    >>> x = F.ones((2, 3, 5))
    >>> F.transpose(x, (2, 0, 1)).shape, F.transpose(x, (0, "x", 1, 2)).shape
    ((5, 2, 3), (2, 1, 3, 5))
    """
    return inp.transpose(pattern if isinstance(pattern, Tensor) else list(pattern))


def swapaxes(inp: Tensor, axis1: int, axis2: int) -> Tensor:
    """Exchanges two axes.

    Parameters
    ----------
    inp : Tensor
        Tensor of any shape and dtype.
    axis1, axis2 : int
        Negative ones count from the end.

    Returns
    -------
    Tensor
        The elements of ``inp``, with the two axes exchanged.

    Raises
    ------
    ValueError
        For an axis that ``inp`` does not have.

    Examples
    --------
    >>> from megengine import functional as F
    >>> F.swapaxes(F.ones((2, 3, 5)), 0, -1).shape
    (5, 3, 2)
    """
    require_tensors("swapaxes", inp)
    ndim = inp.ndim
    a, b = normalize_axis(axis1, ndim, "swapaxes"), normalize_axis(axis2, ndim, "swapaxes")
    perm = list(range(ndim))
    perm[a], perm[b] = b, a
    return ops.transpose(inp, perm=tuple(perm))


@keeps_quantized_dtype
def reshape(inp: Tensor, target_shape: shapes.IntsLike) -> Tensor:
    """Returns the elements of ``inp``, in row-major order, in another shape.

    Parameters
    ----------
    inp : Tensor
        Tensor of any shape and dtype.
    target_shape : int, Tensor or sequence of int or Tensor
        The new shape, as ints and integer tensors; one extent may be -1, which is computed from the
        number of elements.

    Returns
    -------
    Tensor
        The elements and the dtype of ``inp``, of the given shape.

    Raises
    ------
    ValueError
        When the numbers of elements differ.

    See Also
    --------
    flatten : Joins axes into one.
    expand_dims : Inserts axes of size 1.
    transpose : Exchanges axes, which moves elements.

    Examples
    --------
    >>> from megengine import functional as F
    >>> F.reshape(F.arange(6), (2, -1)).numpy()
    array([[0., 1., 2.],
           [3., 4., 5.]], dtype=float32)
    """
    require_tensors("reshape", inp)
    return shapes.reshape(inp, target_shape)


@keeps_quantized_dtype
def flatten(inp: Tensor, start_axis: int = 0, end_axis: int = -1) -> Tensor:
    """Joins the axes of ``inp`` from ``start_axis`` to ``end_axis``, both included, into one.

    Parameters
    ----------
    inp : Tensor
        Tensor of any shape and dtype.
    start_axis, end_axis : int
        The first and the last axis that are joined; negative ones count from the end.

    Returns
    -------
    Tensor
        The elements of ``inp``; a 0-d tensor becomes a vector of one element.

    Examples
    --------
    >>> from megengine import functional as F
    >>> F.flatten(F.ones((2, 3, 5)), start_axis=1).shape
    (2, 15)
    """
    require_tensors("flatten", inp)
    return shapes.flatten(inp, start_axis, end_axis)


def expand_dims(inp: Tensor, axis: int | Sequence[int]) -> Tensor:
    """Inserts axes of size 1.

    Parameters
    ----------
    inp : Tensor
        Tensor of any shape and dtype.
    axis : int or sequence of int
        One or several places of the new axes in the result; negative ones count from its end.

    Returns
    -------
    Tensor
        The elements of ``inp``, with the new axes.

    Examples
    --------
    >>> from megengine import functional as F
    >>> F.expand_dims(F.ones((2, 3)), (0, -1)).shape
    (1, 2, 3, 1)
    """
    require_tensors("expand_dims", inp)
    shape = list(inp._tuple_shape)
    places = as_ints(axis, "expand_dims: axis")
    new_axes = sorted(normalize_axis(a, len(shape) + len(places), "expand_dims") for a in places)
    for place in new_axes:
        shape.insert(place, 1)
    shapes.note_new_axes(len(shape), new_axes)
    return ops.reshape(inp, shape=tuple(shape))


def squeeze(inp: Tensor, axis: int | Sequence[int] | None = None) -> Tensor:
    """Removes axes of size 1.

    Parameters
    ----------
    inp : Tensor
        Tensor of any shape and dtype.
    axis : int, sequence of int or None
        One or several; None removes all of size 1.

    Returns
    -------
    Tensor
        The elements of ``inp``, without the axes.

    Raises
    ------
    ValueError
        For an axis of another size.

    Examples
    --------
    >>> from megengine import functional as F
    >>> x = F.ones((1, 2, 1))
    >>> F.squeeze(x).shape, F.squeeze(x, -1).shape
    ((2,), (1, 2))
    """
    require_tensors("squeeze", inp)
    shape = inp._tuple_shape
    if axis is None:
        note_extent_read(inp)
        return ops.reshape(inp, shape=tuple(n for n in shape if n != 1))
    axes = normalize_axes(axis, len(shape), "squeeze")
    for a in axes:
        if shape[a] != 1:
            raise OperandError(f"squeeze: axis {a} of {list(shape)} is not 1 long\n  fix: name axes of extent 1, or none for all of them; F.flatten and reshape join axes")
    return ops.reshape(inp, shape=tuple(n for a, n in enumerate(shape) if a not in axes))


def copy(inp: Tensor, device: str | None = None) -> Tensor:
    """Copies the value to a new tensor, which later in-place writes to ``inp`` do not change.

    Parameters
    ----------
    inp : Tensor
        Any shape and dtype.
    device : str or None
        Where the copy goes; None leaves it on inp's device.

    Returns
    -------
    Tensor
        The shape and dtype of ``inp``.

    Notes
    -----
    Gradients flow through.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> x = Tensor([1.0, 2.0])
    >>> y = F.copy(x)
    >>> x[0] = 9.0
    >>> y.numpy()
    array([1., 2.], dtype=float32)
    """
    return ops.identity(inp) if device is None else inp.to(device)


def cumsum(inp: Tensor, axis: int) -> Tensor:
    """Computes the running sum along ``axis``, each element included.

    Parameters
    ----------
    inp : Tensor
        Tensor of any shape and dtype.
    axis : int
        Axis of ``inp``; negative numbers count from the end.

    Returns
    -------
    Tensor
        The shape of ``inp``; bool sums to int32, other dtypes stay.

    Raises
    ------
    AssertionError
        Unless ``inp`` is a Tensor.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.cumsum(Tensor([[1, 2, 3], [4, 5, 6]]), axis=1).numpy()
    array([[ 1,  3,  6],
           [ 4,  9, 15]], dtype=int32)
    """
    if not isinstance(inp, Tensor):
        raise AssertionError(f"cumsum: {inp!r} is not a Tensor")
    return ops.cumsum(
        inp, axis=normalize_axis(axis, inp.ndim, "cumsum"), exclusive=False, reverse=False
    )


def cumprod(inp: Tensor, axis: int) -> Tensor:
    """Computes the running product along ``axis``, each element included.

    Parameters
    ----------
    inp : Tensor
        Any shape but [].
    axis : int
        Axis of ``inp``; negative numbers count from the end.

    Returns
    -------
    Tensor
        The shape of ``inp``; bool becomes int32, other dtypes stay.

    Notes
    -----
    Products of neighbours are computed first, so floats may differ from NumPy's in the last digits.
    The gradient is right for zeros, too.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.cumprod(Tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]), axis=1).numpy()
    array([[  1.,   2.,   6.],
           [  4.,  20., 120.]], dtype=float32)
    """
    require_tensors("cumprod", inp)
    axis = normalize_axis(axis, inp.ndim, "cumprod")
    y = ops.cast(inp, dtype="int32") if inp.dtype == np.bool_ else ops.identity(inp)
    extent, by = inp._tuple_shape[axis], 1
    while by < extent:  # each element is a product of `by` elements, or of all before it
        further = ops.mul(shapes.cut(y, axis, by, extent), shapes.cut(y, axis, 0, extent - by))
        y = ops.concat(shapes.cut(y, axis, 0, by), further, axis=axis)
        by *= 2
    return y


def meshgrid(*inputs: Tensor, indexing: str = "xy") -> tuple[Tensor, ...]:
    """Makes grids of coordinates from vectors.

    Parameters
    ----------
    *inputs : Tensor
        Vectors, one for each axis of the grid.
    indexing : str
        "ij" gives grids of shape [len(first), len(second), ...], "xy" with the first two axes
        exchanged.

    Returns
    -------
    tuple of Tensor
        One grid for each input.

    Raises
    ------
    ValueError
        For another indexing.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> x, y = F.meshgrid(Tensor([1, 2, 3]), Tensor([10, 20]))
    >>> x.numpy().tolist(), y.numpy().tolist()
    ([[1, 2, 3], [1, 2, 3]], [[10, 10, 10], [20, 20, 20]])
    """
    if indexing not in ("xy", "ij"):
        raise ValueError(f"meshgrid: indexing {indexing!r} is neither 'xy' nor 'ij'")
    n = len(inputs)
    order = list(range(n))
    if indexing == "xy" and n > 1:
        order[0], order[1] = 1, 0
    extents = [1] * n
    for x, place in zip(inputs, order, strict=False):
        extents[place] = x.size
    out = []
    for x, place in zip(inputs, order, strict=False):
        line = ops.reshape(x, shape=tuple(x.size if i == place else 1 for i in range(n)))
        out.append(shapes.broadcast_to(line, tuple(extents)))
    return tuple(out)


def repeat(inp: Tensor, repeats: shapes.IntsLike, axis: int | None = None) -> Tensor:
    """Repeats each element of ``inp`` along ``axis``.

    Parameters
    ----------
    inp : Tensor
        Tensor of any shape and dtype.
    repeats : int, Tensor or sequence of int or Tensor
        Number of repetitions, or one number for each element of the axis.
    axis : int or None
        Axis along which to repeat; None repeats the flattened tensor.

    Returns
    -------
    Tensor
        The shape of ``inp``, except along ``axis``, whose extent is the sum of the counts.

    Raises
    ------
    ValueError
        For negative counts, or not as many as the axis has elements.

    See Also
    --------
    tile : Repeats the whole tensor.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.repeat(Tensor([7, 8]), 2).numpy(), F.repeat(Tensor([7, 8]), [1, 3]).numpy()
    (array([7, 7, 8, 8], dtype=int32), array([7, 8, 8, 8], dtype=int32))
    """
    require_tensors("repeat", inp)
    if axis is None:
        inp, axis = ops.reshape(inp, shape=(inp.size,)), 0
    shape = inp._tuple_shape
    axis = normalize_axis(axis, len(shape), "repeat")
    counts = as_ints(repeats, "repeat: repeats")
    if any(c < 0 for c in counts):
        raise ValueError(f"repeat: repeats {list(counts)} has a negative count")
    if len(counts) == 1:
        widened = shapes.with_new_axis(inp, axis + 1)
        grown = ops.broadcast_to(widened, shape=shape[: axis + 1] + counts + shape[axis + 1 :])
        return ops.reshape(
            grown, shape=shape[:axis] + (shape[axis] * counts[0],) + shape[axis + 1 :]
        )
    if len(counts) != shape[axis]:
        raise ValueError(f"repeat: {len(counts)} counts for an axis of {shape[axis]} elements")
    index = apply_const(np.repeat(np.arange(shape[axis], dtype=np.int32), counts))
    return ops.index_get(inp, index, axes=(axis,))


def tile(inp: Tensor, reps: shapes.IntsLike) -> Tensor:
    """Repeats the whole tensor along each axis.

    Parameters
    ----------
    inp : Tensor
        Tensor of any shape and dtype.
    reps : int, Tensor or sequence of int or Tensor
        Number of repetitions for each axis. Fewer ints than axes are for the last axes; for more
        ints the tensor gets new axes in front.

    Returns
    -------
    Tensor
        Each extent times its count, the dtype of ``inp``.

    Raises
    ------
    ValueError
        For a negative count.

    See Also
    --------
    repeat : Repeats each element.
    broadcast_to : Repeats along axes of size 1 only.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.tile(Tensor([7, 8]), (2, 2)).numpy()
    array([[7, 8, 7, 8],
           [7, 8, 7, 8]], dtype=int32)
    """
    require_tensors("tile", inp)
    reps = as_ints(reps, "tile: reps")
    if any(count < 0 for count in reps):
        raise ValueError(f"tile: reps {list(reps)} has a negative count")
    shape = inp._tuple_shape
    ndim = max(len(reps), len(shape))
    shape = (1,) * (ndim - len(shape)) + shape
    reps = (1,) * (ndim - len(reps)) + reps
    out = inp
    for axis in range(ndim - 1, -1, -1):  # one axis at a time, so that ranks stay low
        if reps[axis] != 1 or out.ndim != ndim:
            inner = (
                shape[axis:]
                if axis == ndim - 1
                else (shape[axis],)
                + tuple(s * r for s, r in zip(shape[axis + 1 :], reps[axis + 1 :], strict=False))
            )
            outer = shape[:axis]
            block = shapes.with_new_axis(ops.reshape(out, shape=outer + inner), axis)
            grown = ops.broadcast_to(block, shape=outer + (reps[axis],) + inner)
            out = ops.reshape(grown, shape=outer + (reps[axis] * inner[0],) + inner[1:])
    return ops.identity(out) if out is inp else out


def roll(
    inp: Tensor, shift: int | Sequence[int], axis: int | Sequence[int] | None = None
) -> Tensor:
    """Moves the elements of ``inp`` along ``axis``; those pushed out at one end come in at the
    other.

    Parameters
    ----------
    inp : Tensor
        Tensor of any shape and dtype.
    shift : int or sequence of int
        Places to move by, towards the end if positive; one int, or one for each axis.
    axis : int, sequence of int or None
        Axes that elements move along; None moves the flattened tensor and restores its shape.

    Returns
    -------
    Tensor
        The shape of ``inp``.

    Raises
    ------
    ValueError
        Unless there are as many shifts as axes.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.roll(Tensor([[1, 2], [3, 4]]), 1).numpy()
    array([[4, 1],
           [2, 3]], dtype=int32)
    >>> F.roll(Tensor([[1, 2, 3], [4, 5, 6]]), -1, axis=1).numpy()
    array([[2, 3, 1],
           [5, 6, 4]], dtype=int32)
    """
    require_tensors("roll", inp)
    shape = inp._tuple_shape
    if axis is None:
        flat = ops.reshape(inp, shape=(inp.size,))
        return ops.reshape(_roll_axis(flat, as_int(shift, "roll: shift"), 0), shape=shape)
    moves = as_ints(shift, "roll: shift")
    axes = as_ints(axis, "roll: axis")
    if len(moves) == 1:
        moves *= len(axes)
    if len(moves) != len(axes):
        raise ValueError(f"roll: {len(moves)} shifts for {len(axes)} axes")
    for by, a in zip(moves, axes, strict=False):
        inp = _roll_axis(inp, by, normalize_axis(a, len(shape), "roll"))
    return inp


def _roll_axis(x: Tensor, by: int, axis: int) -> Tensor:
    extent = x._tuple_shape[axis]
    by = by % extent if extent else 0
    if not by:
        note_extent_read(x, axis)
        return ops.identity(x)
    return ops.concat(
        shapes.cut(x, axis, extent - by, extent), shapes.cut(x, axis, 0, extent - by), axis=axis
    )
