"""Shapes as programs write them (ints, tensors, both mixed) made plain tuples of ints."""

import operator
from collections.abc import Callable, Sequence
from math import prod
from typing import TYPE_CHECKING, Any, SupportsIndex, TypeAlias

import numpy as np

from ..._core import (
    OperandError,
    note_extent_read,
    note_given,
    records_for_dump,
    set_gives_extents,
    symbolic_shape_active,
)
from ..._core import Tensor as _Tensor
from .. import ops

if TYPE_CHECKING:
    from ...tensor import Tensor

IntLike: TypeAlias = SupportsIndex | _Tensor | np.ndarray
IntsLike: TypeAlias = IntLike | Sequence[IntLike]
Shape: TypeAlias = tuple[int, ...]


def as_ints(values: IntsLike, what: str = "shape") -> Shape:
    """Ints (or whole floats), 0-d and 1-d tensors or arrays, or a sequence that mixes them, as one tuple of ints."""
    if type(values) is tuple:
        for value in values:
            if type(value) is not int:
                break
        else:
            return values
    if isinstance(values, (_Tensor, np.ndarray)):
        return tuple(int(v) for v in _read(values))
    if not isinstance(values, (tuple, list)):
        return (_as_int(values, what),)
    out: list[int] = []
    for value in values:
        if isinstance(value, (_Tensor, np.ndarray)):
            out.extend(int(v) for v in _read(value))
        else:
            out.append(_as_int(value, what))
    return tuple(out)


# Origins of an extent of a recorded call (`_core.note_given`): the operands, the program, the remaining elements.
DERIVED, WRITTEN, SOLVED = range(3)


def as_target(values: IntsLike, kept: Sequence[int] = ()) -> Shape:
    """Returns ``as_ints`` of a shape that the next op keeps as its result's; a record notes the
    origin of its extents. kept: places of the operand's own extents.
    """
    if not records_for_dump():
        return as_ints(values)
    ints: list[int] = []
    given: list[int | tuple[_Tensor, int]] = []
    set_gives_extents(True)
    try:
        for value in values if isinstance(values, (tuple, list)) else (values,):
            read = as_ints(value)
            ints += read
            given += [(value, i) if isinstance(value, _Tensor) else WRITTEN for i in range(len(read))]
    finally:
        set_gives_extents(False)
    note_given([
        DERIVED if i in kept else SOLVED if n == -1 else each
        for i, (n, each) in enumerate(zip(ints, given, strict=True))
    ])
    return tuple(ints)


def note_new_axes(ndim: int, axes: Sequence[int]) -> None:
    """Notes that the next op, of ``ndim`` extents, gets those at ``axes`` from the program; the others are its operand's."""
    if records_for_dump():
        note_given([WRITTEN if axis in axes else DERIVED for axis in range(ndim)])


def with_new_axis(x: _Tensor, axis: int) -> "Tensor":
    """``x`` with another axis of one element, at ``axis`` of the result."""
    shape = x._tuple_shape
    note_new_axes(len(shape) + 1, (axis,))
    return ops.reshape(x, shape=shape[:axis] + (1,) + shape[axis:])


def as_int(value: object, what: str) -> int:
    """One int, from a number or a one-element tensor."""
    if type(value) is int:
        return value
    if isinstance(value, (_Tensor, np.ndarray)):
        return int(value.item())  # type: ignore[union-attr]  # every tensor is a megengine.Tensor
    return _as_int(value, what)


def _as_int(value: Any, what: str) -> int:
    # size / 2 gives a float
    if isinstance(value, (float, np.floating)) and float(value).is_integer():
        return int(value)
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{what}: {value!r} ({type(value).__name__}) is not an integer") from None


def _read(values: _Tensor | np.ndarray) -> list[Any]:
    array = values.numpy() if isinstance(values, _Tensor) else values
    return np.reshape(array, -1).tolist()


def as_pair(value: IntsLike, what: str, n: int = 2) -> Shape:
    """Returns one int for each of ``n`` spatial axes, from one int for all of them or one each.

    value: an int, or a sequence of 1 or ``n``. what: begins the message of an error. Raises
    ValueError for another number of values.

    >>> from megengine.core.tensor.shapes import as_pair
    >>> as_pair(3, "kernel_size"), as_pair((1, 2), "stride")
    ((3, 3), (1, 2))
    """
    if type(value) is int:
        return (value,) * n
    ints = as_ints(value, what)
    if len(ints) == 1:
        return ints * n
    if len(ints) != n:
        raise ValueError(f"{what}: {value!r} has {len(ints)} values; give one, or {n}")
    return ints


def normalize_axis(axis: object, ndim: int, op: str) -> int:
    """A non-negative axis. OperandError outside ``[-ndim, ndim)``."""
    if type(axis) is not int:
        axis = as_int(axis, f"{op}: axis")
    if not -ndim <= axis < ndim:
        way_out = f"why: valid are {-ndim} to {ndim - 1}" if ndim else "fix: leave the axis out"
        raise OperandError(f"{op}: axis {axis} of a tensor with {ndim} axes\n  {way_out}")
    return axis + ndim if axis < 0 else axis


def normalize_axes(axis: IntsLike, ndim: int, op: str) -> Shape:
    """Sorted, non-negative, distinct axes of an int or a sequence of ints. AssertionError for one that is named twice."""
    if type(axis) is int and 0 <= axis < ndim:
        return (axis,)
    axes = sorted(normalize_axis(a, ndim, op) for a in as_ints(axis, f"{op}: axis"))
    if len(set(axes)) != len(axes):
        raise AssertionError(f"axis {axis!r} contains duplicated indices\n  why: {op} takes each axis once")
    return tuple(axes)


def solve_reshape(shape: Shape, old: Shape) -> Shape:
    """``shape`` with its -1 filled in for a tensor of shape ``old``. OperandError when it cannot be."""
    unknown = -1
    known = 1
    for i, extent in enumerate(shape):
        if extent == -1 and unknown < 0:
            unknown = i
        elif extent < 0:
            why = "only one axis may be -1" if extent == -1 else "an extent is negative"
            raise OperandError(f"reshape: cannot reshape {list(old)} to {list(shape)}\n  why: {why}")
        else:
            known *= extent
    total = prod(old)
    if unknown < 0:
        if known == total:
            return shape
    elif known and total % known == 0:
        return shape[:unknown] + (total // known,) + shape[unknown + 1 :]
    raise OperandError(
        f"reshape: cannot reshape {list(old)} to {list(shape)}\n"
        f"  why: {total} elements do not fill {known if unknown < 0 else f'a multiple of {known}'}\n"
        "  fix: write -1 for the extent that follows from the others, and x.shape[0] for that of the batch"
    )


def reshape(x: _Tensor, shape: IntsLike) -> "Tensor":
    """``x`` in another shape; one extent may be -1."""
    shape = as_target(shape)
    old = x._tuple_shape
    y = ops.reshape(x, shape=solve_reshape(shape, old))
    return in_order_of(x, y) if len(shape) == len(old) > 3 else y


def default_gradient(y: "Tensor") -> "Tensor":
    """Returns the gradient that a backward pass begins with if no dy is given: ones like ``y``."""
    return full_like(y, 1.0)


def full_like(x: _Tensor, value: float, dtype: str | None = None) -> "Tensor":
    """Makes a tensor of x's shape, which records keep as numbers."""
    note_extent_read(x)
    return ops.full(shape=x._tuple_shape, value=value, dtype=dtype or x._dtype_name, device=x)


def in_order_of(x: _Tensor, y: "Tensor") -> "Tensor":
    """Returns ``y`` in the memory order of ``x``; programs know channels-last as ``format="nhwc"``.
    """
    return y.to_mkldnn() if x.is_mkldnn else y


def permutation_of(pattern: Sequence[Any], shape: Shape) -> tuple[Shape, Shape]:
    """Splits a transpose pattern, where "x" makes a new axis, into (axes in their new order, output positions
    of "x"). Axes of extent 1 may be left out. ValueError for others that are, or for an axis named twice.
    """
    ndim = len(shape)
    new_axes = tuple(i for i, p in enumerate(pattern) if isinstance(p, str) and p == "x")
    axes = [as_int(p, "transpose") for p in pattern if not (isinstance(p, str) and p == "x")]
    perm = tuple(a + ndim if a < 0 else a for a in axes)
    left_out = set(range(ndim)).difference(perm)
    if len(perm) + len(left_out) != ndim or any(shape[axis] != 1 for axis in left_out):
        raise OperandError(
            f"transpose: pattern {list(pattern)} does not name each of {ndim} axes once\n"
            "  fix: write the order of all axes, or F.swapaxes(x, a, b) for two that change places"
        )
    return perm, new_axes


def transpose(x: _Tensor, pattern: Any) -> "Tensor":
    """Axes of ``x`` in the order of ``pattern``; the string "x" stands for a new axis, an axis of extent 1 may be left out."""
    shape = x._tuple_shape
    if not isinstance(pattern, (tuple, list)):
        pattern = as_ints(pattern, "transpose")
    if all(type(p) is int and p >= 0 for p in pattern):
        if sorted(pattern) == list(range(len(shape))):
            return ops.transpose(x, perm=pattern)
    perm, new_axes = permutation_of(pattern, shape)
    left_out = tuple(axis for axis in range(len(shape)) if axis not in perm)
    y = ops.transpose(x, perm=perm + left_out)
    if not new_axes and not left_out:
        return y
    out = [shape[p] for p in perm]
    for position in new_axes:
        out.insert(position, 1)
    note_new_axes(len(out), new_axes)
    return ops.reshape(y, shape=tuple(out))


def broadcasts(old: Shape, new: Shape) -> bool:
    """Whether a tensor of shape ``old`` can be repeated to ``new``."""
    offset = len(new) - len(old)
    return offset >= 0 and all(a in (b, 1) for a, b in zip(old, new[offset:], strict=True))


def broadcast_to(x: _Tensor, shape: Any) -> "Tensor":
    """``x`` repeated along new and size-1 axes; None keeps the size of an axis of ``x``."""
    old = x._tuple_shape
    kept = [i for i, s in enumerate(shape) if s is None] if isinstance(shape, (tuple, list)) else []
    if kept:
        offset = len(shape) - len(old)
        if any(s is None and i < offset for i, s in enumerate(shape)):
            raise ValueError(f"broadcast_to: {shape} has None for an axis that {list(old)} lacks")
        shape = tuple(old[i - offset] if s is None else s for i, s in enumerate(shape))
    shape = as_target(shape, kept)
    if shape == old and not records_for_dump():
        return ops.identity(x)
    if any(s < 0 for s in shape):
        raise OperandError(f"broadcast_to: {list(shape)} has a negative extent")
    if not broadcasts(old, shape):
        raise OperandError(
            f"broadcast_to: {list(old)} does not broadcast to {list(shape)}\n"
            "  fix: trailing axes must be equal, or 1 in the tensor"
        )
    y = ops.broadcast_to(x, shape=shape)
    return in_order_of(x, y) if len(shape) == len(old) == 4 else y


def flatten(x: _Tensor, start_axis: int = 0, end_axis: int = -1) -> "Tensor":
    """Joins the axes from ``start_axis`` to ``end_axis``, both included."""
    shape = x._tuple_shape
    ndim = len(shape)
    if ndim == 0:
        return ops.reshape(x, shape=(1,))
    start = normalize_axis(start_axis, ndim, "flatten")
    end = normalize_axis(end_axis, ndim, "flatten")
    if end < start:
        raise OperandError(f"flatten: end_axis {end_axis} lies before start_axis {start_axis}")
    joined = prod(shape[start : end + 1])
    return ops.reshape(x, shape=shape[:start] + (joined,) + shape[end + 1 :])


def cut(x: _Tensor, axis: int, begin: int, end: int) -> "Tensor":
    """x[..., begin:end, ...] on one axis."""
    shape = x._tuple_shape
    behind = len(shape) - axis - 1
    note_new_axes(len(shape), (axis,))
    return ops.slice(
        x,
        begin=(0,) * axis + (begin,) + (0,) * behind,
        end=shape[:axis] + (end,) + shape[axis + 1 :],
        step=(1,) * len(shape),
    )


def taken(x: _Tensor, axis: int, index: int) -> "Tensor":
    """x[..., index, ...]: one element of an axis, which is left out."""
    shape = x._tuple_shape
    return ops.reshape(cut(x, axis, index, index + 1), shape=shape[:axis] + shape[axis + 1 :])


def reduce(
    x: _Tensor, op: Callable[..., "Tensor"], axis: IntsLike | None, keepdims: bool, name: str
) -> "Tensor":
    """Applies the reduction op over ``axis``; None reduces all axes and then takes no keepdims.

    A 0-d tensor has one element to reduce, along axis 0 as NumPy has it.
    """
    ndim = x.ndim
    if axis is None:
        if keepdims:
            raise AssertionError(f"{name}: keepdims needs an axis; give axis=list(range(x.ndim))")
        return op(x, axes=tuple(range(ndim)), keepdims=False)
    if ndim == 0 and as_ints(axis, f"{name}: axis") in ((0,), (-1,)):
        x, ndim = ops.reshape(x, shape=(1,)), 1
    return op(x, axes=normalize_axes(axis, ndim, name), keepdims=bool(keepdims))


_always = False


def use_symbolic_shape() -> bool:
    """Whether ``x.shape`` is a Tensor here: in a trace with symbolic_shape, or after ``set_symbolic_shape(True)``."""
    return _always or symbolic_shape_active()


def set_symbolic_shape(option: bool) -> bool:
    """Sets whether ``x.shape`` is a Tensor outside of traces, too. Returns the former setting.

    >>> from megengine import functional as F
    >>> before = set_symbolic_shape(True)
    >>> F.ones((2, 3)).shape.numpy().tolist()
    [2, 3]
    >>> set_symbolic_shape(before)
    True
    """
    global _always
    before, _always = _always, bool(option)
    return before
