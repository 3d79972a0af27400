"""NumPy indexing on ops that know no views.

An index is read once into an `Access`: a strided region, then the shape of that region with new
axes put in, then advanced indices on some of its axes. Reading applies the three in order, writing
in reverse.  x[1:, None, [0, 2]] on [4, 5, 6]: region [3, 5, 6], shape [3, 1, 5, 6], index [0, 2] on
axis 2.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np

from ... import _core
from ..._core import Tensor as _Tensor
from ..._core import apply_const, is_tracing, note_extent_read, note_rows_read, records_for_dump
from .. import ops
from .shapes import Shape, note_new_axes, taken

if TYPE_CHECKING:
    from ...tensor import Tensor

_FULL = slice(None)
_GAP = object()  # an ellipsis that stands for no axes


@dataclass
class Access:
    begin: list[int] = field(default_factory=list)
    end: list[int] = field(default_factory=list)
    step: list[int] = field(default_factory=list)
    region: list[int] = field(default_factory=list)  # extents that begin, end and step select
    shape: list[int] = field(default_factory=list)  # the region without ints and with new axes
    axes: list[int] = field(default_factory=list)  # axes of `shape` that `indices` address
    indices: list["Tensor"] = field(default_factory=list)  # int32 tensors
    whole: bool = True  # the region is all of x
    counted: list[int] = field(default_factory=list)  # axes that ints and bounds count along
    made: list[int] = field(default_factory=list)  # axes of `shape` that are new
    # An ellipsis of no axes between index arrays: their axes come first, as if they were apart.
    gap: bool = False

    def take(self, extent: int, item: slice) -> int:
        """Adds the slice of one axis; returns how many elements it selects."""
        begin, end, step = _bounds(item, extent)
        if item.start is not None or item.stop is not None:
            self.counted.append(len(self.begin))
            # a recording for dump must note the count
            self.whole = self.whole and not records_for_dump()
        count = max(0, -((begin - end) // step))
        if count == 0:
            begin = end = 0
            step = 1
        self.begin.append(begin)
        self.end.append(end)
        self.step.append(step)
        self.region.append(count)
        if count != extent or step != 1:
            self.whole = False
        return count


def _bounds(item: slice, extent: int) -> tuple[int, int, int]:
    parts = [_bound(p) for p in (item.start, item.stop, item.step)]
    if parts[2] == 0:
        raise ValueError("index: the step of a slice is 0")
    return slice(*parts).indices(extent)


def _bound(value: Any) -> int | None:
    if value is None or type(value) is int:
        return value
    if isinstance(value, (_Tensor, np.ndarray)):
        return int(value.item())  # type: ignore[union-attr]  # every tensor is a megengine.Tensor
    return value.__index__()


def _is_bool_array(item: object) -> "TypeGuard[Tensor | np.ndarray]":
    return isinstance(item, (_Tensor, np.ndarray)) and item.dtype == np.bool_


def _classify(item: Any) -> Any:
    """An index item in one of the forms int, slice, None, Ellipsis, bool array, int array."""
    if item is None or item is Ellipsis or type(item) in (int, slice):
        return item
    if isinstance(item, (bool, np.bool_)):
        return np.asarray(item)
    if isinstance(item, (_Tensor, np.ndarray)):
        if item.dtype.kind not in "iub":
            raise IndexError(f"index: an array of {item.dtype} cannot index; cast it to int32")
        return item
    if isinstance(item, np.integer):
        return int(item)
    if isinstance(item, (list, tuple, range)):
        return _sequence(item)
    if hasattr(item, "__index__"):
        return item.__index__()
    if isinstance(item, float):
        raise IndexError(f"index: {item!r} is a float; use an int")
    raise IndexError(f"index: {item!r} ({type(item).__name__}) cannot index a tensor")


def _sequence(item: Sequence[Any]) -> "Tensor | np.ndarray":
    if any(isinstance(v, _Tensor) for v in item):
        parts = [
            v if isinstance(v, _Tensor) else apply_const(np.asarray(v, np.int32)) for v in item
        ]
        width = np.broadcast_shapes(*(p._tuple_shape for p in parts))
        return ops.concat(*(ops.reshape(p, shape=(1,) + width) for p in parts), axis=0)
    array = np.asarray(item) if len(item) else np.zeros(0, np.int32)
    if array.dtype.kind not in "iub":
        raise ValueError(f"index: {item!r} holds values that are not integers")
    return array


def _split(index: Any) -> list[Any]:
    """The items of ``x[index]``. A list of anything but numbers is a tuple of items."""
    if type(index) is tuple or (isinstance(index, list) and any(map(_is_item, index))):
        return [_classify(i) for i in index]
    return [_classify(index)]


def _is_item(part: Any) -> bool:
    """Whether a list that holds ``part`` is no list of numbers."""
    if part is None or part is Ellipsis or isinstance(part, (slice, list, tuple, range)):
        return True
    return isinstance(part, (_Tensor, np.ndarray)) and part.ndim > 0


def _expand_ellipsis(items: list[Any], ndim: int) -> list[Any]:
    used = 0
    at = -1
    for i, item in enumerate(items):
        if item is Ellipsis:
            if at >= 0:
                raise IndexError("only one ellipsis is allowed.")
            at = i
        elif _is_bool_array(item):
            used += item.ndim
        elif item is not None:
            used += 1
    if used > ndim:
        raise IndexError(f"index: {used} indices for a tensor with {ndim} axes")
    fill: list[Any] = [_FULL] * (ndim - used)
    if at >= 0 and not fill:
        fill = [_GAP]
    return items + fill if at < 0 else items[:at] + fill + items[at + 1 :]


def parse(shape: Shape, index: object) -> Access:
    """Reads ``x[index]`` for a tensor of ``shape``. IndexError, ValueError as NumPy has them."""
    items = _expand_ellipsis(_split(index), len(shape))
    advanced = any(isinstance(i, (_Tensor, np.ndarray)) for i in items)
    access = Access()
    axis = 0
    for i, item in enumerate(items):
        if item is None:
            access.made.append(len(access.shape))
            access.shape.append(1)
        elif item is _GAP:
            access.gap = bool(access.indices) and _addresses(items[i + 1 :])
        elif _is_bool_array(item):
            _add_mask(access, item, shape, axis)
            axis += item.ndim
        else:
            _add_axis(access, item, shape, axis, advanced)
            axis += 1
    return access


def _addresses(items: list[Any]) -> bool:
    """Whether one of the items becomes an index array, next to others that are."""
    return any(isinstance(i, (_Tensor, np.ndarray, int)) for i in items)


def _add_axis(access: Access, item: Any, shape: Shape, axis: int, advanced: bool) -> None:
    extent = shape[axis]
    if type(item) is slice:
        access.shape.append(access.take(extent, item))
    elif type(item) is int:
        if not -extent <= item < extent:
            raise IndexError(f"index: {item} is out of range for axis {axis} of {list(shape)}")
        item %= extent
        if (
            advanced
        ):  # an int beside arrays broadcasts with them, and counts for the place of their axes
            _add_index(access, np.asarray(item, np.int32), extent)
        else:
            access.take(extent, slice(item, item + 1))
    else:
        if isinstance(item, np.ndarray) and item.size:
            low, high = int(item.min()), int(item.max())
            if low < -extent or high >= extent:
                bad = low if low < -extent else high
                raise IndexError(f"index: {bad} is out of range for axis {axis} of {list(shape)}")
        _add_index(access, item, extent)


def _add_index(access: Access, item: "Tensor | np.ndarray", extent: int) -> None:
    access.take(extent, _FULL)
    access.axes.append(len(access.shape))
    access.indices.append(_index_tensor(item))
    access.shape.append(extent)


def _index_tensor(item: "Tensor | np.ndarray") -> "Tensor":
    if isinstance(item, np.ndarray):
        return apply_const(np.ascontiguousarray(item, np.int32).reshape(item.shape))
    return as_places(item)


def as_places(index: "Tensor") -> "Tensor":
    """Casts places to int32, as ops read them. Numbers that do not fit stay outside of every axis.
    """
    if index.dtype == np.int64:
        index = ops.minimum(ops.maximum(index, -(2**31)), 2**31 - 1)
    return index if index.dtype == np.int32 else ops.cast(index, dtype="int32")


def _add_mask(access: Access, mask: "Tensor | np.ndarray", shape: Shape, axis: int) -> None:
    rank = mask.ndim
    covered = shape[axis : axis + rank]
    if rank == 0:  # a bool scalar adds an axis of extent 1 (True) or selects nothing of it
        access.axes.append(len(access.shape))
        access.indices.append(_index_tensor(_place_if(mask)))
        access.shape.append(1)
        return
    own = mask._tuple_shape if isinstance(mask, _Tensor) else mask.shape
    if tuple(own) != tuple(covered):
        raise IndexError(
            f"index: a mask of {list(own)} does not fit the axes {list(covered)} it covers"
        )
    if isinstance(mask, _Tensor):
        found = ops.nonzero(mask)
        columns: Sequence[Tensor | np.ndarray] = [taken(found, 1, k) for k in range(rank)]
    else:
        columns = np.nonzero(mask)
    for extent, column in zip(covered, columns, strict=False):
        _add_index(access, column, extent)


def _place_if(mask: "Tensor | np.ndarray") -> "Tensor | np.ndarray":
    """Returns the place [0] if a bool scalar is True, else no place; a tensor's value is not read.
    """
    if isinstance(mask, _Tensor):
        return taken(ops.nonzero(ops.reshape(mask, shape=(1,))), 1, 0)
    return np.zeros(int(mask), np.int32)


def _basic(shape: Shape, index: Any) -> tuple[Shape, Shape, Shape, Shape, Shape] | None:
    """Returns (begin, end, step, region, result shape) of an index of ints and slices, None for any
    other.

    The common case, without an Access.
    """
    items = index if type(index) is tuple else (index,)
    if len(items) > len(shape):
        return None
    begin, end, step, region, result = [], [], [], [], []
    for axis, item in enumerate(items):
        extent = shape[axis]
        if type(item) is int:
            if not -extent <= item < extent:
                return None
            item %= extent
            first, last, stride, count = item, item + 1, 1, 1
        elif type(item) is slice:
            try:
                first, last, stride = item.indices(extent)
            except (TypeError, ValueError):
                return None
            count = (last - first + stride - (1 if stride > 0 else -1)) // stride
            if count <= 0:
                return None
            result.append(count)
        else:
            return None
        begin.append(first)
        end.append(last)
        step.append(stride)
        region.append(count)
    rest = shape[len(items) :]
    n = len(rest)
    return (
        (*begin, *(0,) * n),
        (*end, *rest),
        (*step, *(1,) * n),
        (*region, *rest),
        (*result, *rest),
    )


def _names_rows(index: object) -> bool:
    """Whether an index selects along the first axis: [3], [:5] and [3, 1] do, [:, 1] does not."""
    first = index[0] if type(index) is tuple and index else index
    return first.start is not None or first.stop is not None if type(first) is slice else type(first) is int


def _note_counted(ndim: int, index: Any) -> None:
    """Notes the axes along which ints and slices of the next op select; along other axes they take
    all.
    """
    items = index if type(index) is tuple else (index,)
    counted = [
        axis
        for axis, item in enumerate(items)
        if type(item) is not slice or item.start is not None or item.stop is not None
    ]
    note_new_axes(ndim, counted)


def getitem(x: _Tensor, index: object) -> "Tensor":
    """``x[index]``."""
    shape = x._tuple_shape
    if is_tracing() and _names_rows(index):
        note_rows_read(x)
    basic = _basic(shape, index)
    if basic is not None and shape:
        begin, end, step, region, result = basic
        if is_tracing():
            _note_counted(len(shape), index)
        y = ops.slice(x, begin=begin, end=end, step=step)
        return y if result == region else ops.reshape(y, shape=result)
    if (
        isinstance(index, _Tensor)
        and shape
        and index.dtype == np.bool_
        and index._tuple_shape == shape
    ):
        return ops.mask_select(x, index)[0]
    access = parse(shape, index)
    y = _region_of(x, access)
    if access.indices:
        y = ops.index_get(y, *access.indices, axes=tuple(access.axes))
        forth, _ = _gap_permutations(access, y.ndim)
        if forth:
            y = ops.transpose(y, perm=forth)
    return y


def _gap_permutations(access: Access, ndim: int) -> tuple[Shape, Shape] | tuple[None, None]:
    """Moves the axes of adjacent index arrays to the front, and back; (None, None) where they stay."""
    first, count = access.axes[0], len(access.axes)
    if not access.gap or first == 0 or access.axes[-1] - first != count - 1:
        return None, None
    width = ndim - (len(access.shape) - count)  # axes that the index arrays give
    forth = (*range(first, first + width), *range(first), *range(first + width, ndim))
    return forth, tuple(forth.index(a) for a in range(ndim))


def _region_of(x: _Tensor, access: Access) -> "Tensor":
    y = x
    if not access.whole:
        note_new_axes(len(access.begin), access.counted)
        y = ops.slice(x, begin=tuple(access.begin), end=tuple(access.end), step=tuple(access.step))
    if access.shape != access.region:
        note_new_axes(len(access.shape), access.made)
        y = ops.reshape(y, shape=tuple(access.shape))
    if y is x and not access.indices:
        return ops.identity(x)
    return y  # type: ignore[return-value]  # every tensor is a megengine.Tensor


def setitem(x: _Tensor, index: object, value: object) -> "Tensor":
    """Returns ``x`` after ``x[index] = value``: a new tensor of x's dtype."""
    shape = x._tuple_shape
    basic = _basic(shape, index)
    if basic is not None and shape:
        begin, end, step, region, result = basic
        value = _fit(as_operand(value, x), result)
        if result != region:
            value = ops.reshape(value, shape=region)
        if is_tracing():
            _note_counted(len(shape), index)
        return ops.slice_set(x, value, begin=begin, end=end, step=step)
    mask = index[0] if type(index) is tuple and (len(index) == 1 or (len(index) == 2 and index[1] is Ellipsis)) else index
    if _is_bool_array(mask):
        filled = _masked_fill(x, mask, value, shape)
        if filled is not None:
            return filled
    access = parse(shape, index)
    value = as_operand(value, x)
    region = tuple(access.region)
    if access.indices:
        value = _write_indices(_region_of(x, access), access, value)
    else:
        value = _fit(value, tuple(access.shape))
    if value._tuple_shape != region:
        value = ops.reshape(value, shape=region)
    if access.whole:
        return ops.identity(value)
    note_new_axes(len(access.begin), access.counted)
    return ops.slice_set(
        x, value, begin=tuple(access.begin), end=tuple(access.end), step=tuple(access.step)
    )


def _write_indices(target: "Tensor", access: Access, value: "Tensor") -> "Tensor":
    selected = ops.index_get(target, *access.indices, axes=tuple(access.axes))._tuple_shape
    forth, back = _gap_permutations(access, len(selected))
    value = _fit(value, tuple(selected[a] for a in forth) if forth else selected)
    if 0 in selected:
        return target
    if back:
        value = ops.transpose(value, perm=back)
    return ops.index_set(target, value, *access.indices, axes=tuple(access.axes))


def _masked_fill(x: _Tensor, mask: Any, value: Any, shape: Shape) -> "Tensor | None":
    """Computes x[mask] = scalar as one selection, so that a trace needs no data-dependent shape."""
    own = mask._tuple_shape if isinstance(mask, _Tensor) else mask.shape
    if own != shape[: len(own)]:
        raise IndexError(
            f"index: a mask of {list(own)} does not fit the axes {list(shape[: len(own)])} it covers"
        )
    value = as_operand(value, x)
    # selects all of x or nothing
    if not own and isinstance(mask, _Tensor) and 0 not in value._tuple_shape[:-len(shape) or None]:
        note_extent_read(x)
        return ops.where(mask, ops.reshape(_fit(value, (1, *shape)), shape=shape), x)
    if not own or any(extent != 1 for extent in value._tuple_shape):
        return None
    if not isinstance(mask, _Tensor):
        mask = apply_const(mask)
    if len(own) != len(shape):
        mask = ops.reshape(mask, shape=own + (1,) * (len(shape) - len(own)))
    value = ops.reshape(value, shape=()) if value.ndim else value
    return ops.where(mask, value, x)


def as_operand(value: Any, x: _Tensor) -> "Tensor":
    """``value`` as a tensor of x's dtype, to be written into x."""
    if not isinstance(value, _Tensor):
        if type(value) in (int, float, bool):
            _core.check_number(value, x.dtype)
            return ops.full(shape=(), value=value, dtype=x.dtype.name, device=x)
        value = apply_const(value, x.dtype)
    elif value.dtype != x.dtype:
        value = ops.cast(value, dtype=x.dtype.name)
    return value


def _fit(value: "Tensor", shape: Shape) -> "Tensor":
    own = value._tuple_shape
    if own == shape:
        return value
    while len(own) > len(shape) and own[0] == 1:
        own = own[1:]
    if len(own) > len(shape) or any(
        a != b and a != 1 for a, b in zip(own[::-1], shape[::-1], strict=False)
    ):
        raise ValueError(
            f"cannot copy tensor with shape {value._tuple_shape} to subtensor with shape {shape}"
        )
    if own != value._tuple_shape:
        value = ops.reshape(value, shape=own)
    return value if own == shape else ops.broadcast_to(value, shape=shape)
