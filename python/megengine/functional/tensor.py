"""Functions on the arrangement of elements: shapes, joining, splitting, selecting."""

from collections.abc import Iterable, Sequence

import numpy as np

from ..core import apply_const, ops
from ..core.tensor import shapes
from ..core.tensor.array_method import as_tensor, require_tensors
from ..core.tensor.quantized import keeps_quantized_dtype
from ..core.tensor.shapes import as_int, as_ints, normalize_axes, normalize_axis
from ..tensor import Tensor
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
from ._select import cond_take, diag, gather, non_zero, scatter, where

__all__ = [
    "arange", "broadcast_to", "concat", "cond_take", "non_zero", "copy", "cumsum", "diag",
    "expand_dims", "eye", "flatten", "full", "full_like", "gather", "imag", "linspace", "meshgrid",
    "ones", "ones_like", "polar", "repeat", "reshape", "roll", "scatter", "split", "squeeze",
    "stack", "swapaxes", "tile", "transpose", "complex", "real", "where", "zeros", "zeros_like",
]  # fmt: skip


def broadcast_to(inp: Tensor, shape: shapes.IntLike | Sequence[shapes.IntLike | None]) -> Tensor:
    """Repeats ``inp`` along new and size-1 axes; None in the shape keeps a size.

    ValueError for a negative size, RuntimeError when the shapes do not go together.
    """
    return shapes.broadcast_to(as_tensor(inp), shape)


def concat(inps: Iterable[Tensor], axis: int = 0, device: str | None = None) -> Tensor:
    """Joins tensors along an existing axis, promoting their dtypes; scalars count as vectors of one element.

    >>> concat([ones((1, 2)), zeros((1, 2))], axis=0).numpy()
    array([[1., 1.],
           [0., 0.]], dtype=float32)
    """
    inps = list(inps)
    if not inps:
        raise ValueError("concat: no tensors")
    if any(np.ndim(x) == 0 for x in inps):
        inps = [ops.reshape(x, shape=(1,)) if x.ndim == 0 else x for x in map(as_tensor, inps)]
    if axis < 0:
        axis = normalize_axis(axis, as_tensor(inps[0]).ndim, "concat")
    return on(device, ops.concat(*inps, axis=axis))


def stack(inps: Sequence[Tensor], axis: int = 0, device: str | None = None) -> Tensor:
    """Joins tensors of one shape along a new axis. ValueError for different shapes."""
    inps = [as_tensor(x) for x in inps]
    if not inps:
        raise ValueError("stack: no tensors")
    shape = inps[0]._tuple_shape
    if any(x._tuple_shape != shape for x in inps):
        raise ValueError(
            f"stack: shapes differ: {', '.join(str(list(x._tuple_shape)) for x in inps)}"
        )
    axis = normalize_axis(axis, len(shape) + 1, "stack")
    widened = shape[:axis] + (1,) + shape[axis:]
    return on(device, ops.concat(*(ops.reshape(x, shape=widened) for x in inps), axis=axis))


def split(inp: Tensor, nsplits_or_sections: int | Sequence[int], axis: int = 0) -> list[Tensor]:
    """Pieces along ``axis``: a count (sizes differ by at most one, larger first), or cut points.

    ValueError for a count or cut points that do not fit the axis.
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
                    f"split: cut points {list(cuts)} do not rise within an axis of {extent} elements"
                )
            previous = cut
    else:
        n = as_int(nsplits_or_sections, "split")
        if not 0 < n <= extent:
            raise ValueError(f"split: {n} pieces of an axis of {extent} elements")
        sizes = [extent // n + (i < extent % n) for i in range(n)]
        cuts = tuple(np.cumsum(sizes)[:-1].tolist())
    bounds = (0,) + cuts + (extent,)
    return [shapes.cut(inp, axis, a, b) for a, b in zip(bounds, bounds[1:], strict=False)]


def transpose(inp: Tensor, pattern: Iterable[int]) -> Tensor:
    """Axes in the order of ``pattern``; the string "x" makes a new axis."""
    return inp.transpose(pattern if isinstance(pattern, Tensor) else list(pattern))


def swapaxes(inp: Tensor, axis1: int, axis2: int) -> Tensor:
    """Exchanges two axes."""
    require_tensors("swapaxes", inp)
    ndim = inp.ndim
    a, b = normalize_axis(axis1, ndim, "swapaxes"), normalize_axis(axis2, ndim, "swapaxes")
    perm = list(range(ndim))
    perm[a], perm[b] = b, a
    return ops.transpose(inp, perm=tuple(perm))


@keeps_quantized_dtype
def reshape(inp: Tensor, target_shape: shapes.IntsLike) -> Tensor:
    """The same elements in another shape; one extent may be -1. ValueError when the counts differ."""
    require_tensors("reshape", inp)
    return shapes.reshape(inp, target_shape)


@keeps_quantized_dtype
def flatten(inp: Tensor, start_axis: int = 0, end_axis: int = -1) -> Tensor:
    """Joins the axes from ``start_axis`` to ``end_axis``, both included."""
    require_tensors("flatten", inp)
    return shapes.flatten(inp, start_axis, end_axis)


def expand_dims(inp: Tensor, axis: int | Sequence[int]) -> Tensor:
    """New axes of size 1 at the given places of the result."""
    require_tensors("expand_dims", inp)
    shape = list(inp._tuple_shape)
    places = as_ints(axis, "expand_dims: axis")
    for place in sorted(normalize_axis(a, len(shape) + len(places), "expand_dims") for a in places):
        shape.insert(place, 1)
    return ops.reshape(inp, shape=tuple(shape))


def squeeze(inp: Tensor, axis: int | Sequence[int] | None = None) -> Tensor:
    """Removes axes of size 1: all, or those named. ValueError for a named axis of another size."""
    require_tensors("squeeze", inp)
    shape = inp._tuple_shape
    if axis is None:
        return ops.reshape(inp, shape=tuple(n for n in shape if n != 1))
    axes = normalize_axes(axis, len(shape), "squeeze")
    for a in axes:
        if shape[a] != 1:
            raise ValueError(f"squeeze: axis {a} of {list(shape)} is not 1 long")
    return ops.reshape(inp, shape=tuple(n for a, n in enumerate(shape) if a not in axes))


def copy(inp: Tensor, device: str | None = None) -> Tensor:
    """The value in a new tensor, on ``device`` when given."""
    return ops.identity(inp) if device is None else inp.to(device)


def cumsum(inp: Tensor, axis: int) -> Tensor:
    """Running sum along ``axis``."""
    assert isinstance(inp, Tensor), f"cumsum: {inp!r} is not a Tensor"
    return ops.cumsum(
        inp, axis=normalize_axis(axis, inp.ndim, "cumsum"), exclusive=False, reverse=False
    )


def meshgrid(*inputs: Tensor, indexing: str = "xy") -> list[Tensor]:
    """Coordinate grids of 1-d tensors: indexing "xy" (first two axes exchanged) or "ij"."""
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
    return out


def repeat(inp: Tensor, repeats: shapes.IntsLike, axis: int | None = None) -> Tensor:
    """Each element ``repeats`` times (a count, or one per element) along ``axis``; flattened when
    None.
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
        widened = ops.reshape(inp, shape=shape[: axis + 1] + (1,) + shape[axis + 1 :])
        grown = shapes.broadcast_to(widened, shape[: axis + 1] + counts + shape[axis + 1 :])
        return ops.reshape(
            grown, shape=shape[:axis] + (shape[axis] * counts[0],) + shape[axis + 1 :]
        )
    if len(counts) != shape[axis]:
        raise ValueError(f"repeat: {len(counts)} counts for an axis of {shape[axis]} elements")
    index = apply_const(np.repeat(np.arange(shape[axis], dtype=np.int32), counts))
    return ops.index_get(inp, index, axes=(axis,))


def tile(inp: Tensor, reps: shapes.IntsLike) -> Tensor:
    """The whole tensor repeated ``reps`` times along each axis, trailing axes first."""
    require_tensors("tile", inp)
    reps = as_ints(reps, "tile: reps")
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
            block = ops.reshape(out, shape=outer + (1,) + inner)
            grown = shapes.broadcast_to(block, outer + (reps[axis],) + inner)
            out = ops.reshape(grown, shape=outer + (reps[axis] * inner[0],) + inner[1:])
    return ops.identity(out) if out is inp else out


def roll(
    inp: Tensor, shift: int | Sequence[int], axis: int | Sequence[int] | None = None
) -> Tensor:
    """Moves elements by ``shift`` along ``axis``, those pushed out come in at the front; flattened
    when axis is None.
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
        return ops.identity(x)
    return ops.concat(
        shapes.cut(x, axis, extent - by, extent), shapes.cut(x, axis, 0, extent - by), axis=axis
    )
