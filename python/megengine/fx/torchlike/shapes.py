"""Shapes, pieces, dtypes and new tensors, with the arguments of torch's functions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from ... import functional as F
from ...core import ops
from ...core.tensor.dtype import dtype_name
from ...core.tensor.shapes import normalize_axis
from ...tensor import Tensor
from .._intercept import wrap
from ..node import _IMPURE

_LAST = 2**63 - 1  # "to the end" in exported programs


def _sizes(sizes: tuple[Any, ...]) -> Any:
    """Returns the sizes of both ``f(2, 3)`` and ``f((2, 3))``."""
    return sizes[0] if len(sizes) == 1 and isinstance(sizes[0], (tuple, list)) else sizes


def same(input, *ignored, **options):
    """Returns ``input``, for functions that change neither values nor dtype: memory formats,
    copies, devices, gradients.
    """
    return input


# -- shapes ------------------------------------------------------------------------------------------


def view(input, *shape):
    shape = _sizes(shape)
    if len(shape) == 1 and isinstance(shape[0], str):
        raise TypeError("a view as another dtype: values would be reinterpreted")
    return F.reshape(input, shape)


def flatten(input, start_dim=0, end_dim=-1):
    return F.flatten(input, start_dim, end_dim)


@wrap
def unflatten(input: Tensor, dim: int, sizes: Sequence[int]) -> Tensor:
    """An axis as several axes of these sizes; one size may be -1."""
    dim, shape = normalize_axis(dim, input.ndim, "unflatten"), input._tuple_shape
    known = math.prod(extent for extent in sizes if extent != -1)
    parts = [shape[dim] // known if extent == -1 else extent for extent in sizes]
    return input.reshape(*shape[:dim], *parts, *shape[dim + 1 :])


@wrap
def movedim(input: Tensor, source: int | Sequence[int], destination: int | Sequence[int]) -> Tensor:
    """Axes at ``source`` moved to ``destination``."""
    moved = [normalize_axis(axis, input.ndim, "movedim") for axis in _axes(source)]
    places = [normalize_axis(axis, input.ndim, "movedim") for axis in _axes(destination)]
    order = [axis for axis in range(input.ndim) if axis not in moved]
    for place, axis in sorted(zip(places, moved, strict=True)):
        order.insert(place, axis)
    return F.transpose(input, order)


def _axes(dims: Any) -> Any:
    return dims if isinstance(dims, (tuple, list)) else (dims,)


@wrap
def squeeze(input: Tensor, *dims: Any) -> Tensor:
    """Removes the named axes, or all axes, whose extent is 1."""
    shape, named = input._tuple_shape, _sizes(dims) or range(input.ndim)
    named = {normalize_axis(dim, input.ndim, "squeeze") for dim in named}
    return input.reshape(
        tuple(n for axis, n in enumerate(shape) if n != 1 or axis not in named)
    )


@wrap
def expand(input: Tensor, *sizes: Any) -> Tensor:
    """Axes of extent 1 repeated up to these sizes, more axes in front; -1 keeps an extent."""
    sizes = _sizes(sizes)
    old = (1,) * (len(sizes) - input.ndim) + input._tuple_shape
    wanted = (o if n == -1 else n for n, o in zip(sizes, old, strict=True))
    return F.broadcast_to(input, tuple(wanted))


@wrap
def broadcast_tensors(*tensors: Any) -> tuple[Tensor, ...]:
    """Tensors repeated up to one shape."""
    tensors = _sizes(tensors)
    shape = np.broadcast_shapes(*(each._tuple_shape for each in tensors))
    return tuple(F.broadcast_to(each, shape) for each in tensors)


@wrap
def flip(input: Tensor, *dims: Any) -> Tensor:
    """Axes in reverse order."""
    index = [slice(None)] * input.ndim
    for dim in _sizes(dims):
        index[dim] = slice(None, None, -1)
    return input[tuple(index)]


def _check_whole(input: Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None) -> None:
    """Raises ValueError, unless these say where all of ``input`` lies, one element after the other:
    tensors have no other layout here.
    """
    wanted = 1
    is_whole = not storage_offset
    for extent, step in zip(reversed(size), reversed(stride), strict=True):
        is_whole, wanted = is_whole and (extent == 1 or step == wanted), wanted * extent
    if not is_whole or wanted != input.size:
        raise ValueError(f"as_strided: {list(size)} by strides {list(stride)} of a tensor {list(input._tuple_shape)}")


@wrap
def as_strided(
    input: Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> Tensor:
    """Returns all of ``input`` in another shape, if the strides mean that. ValueError otherwise."""
    _check_whole(input, size, stride, storage_offset)
    return input.reshape(tuple(size))


@wrap
def as_strided_scatter(
    input: Tensor, src: Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> Tensor:
    """Returns ``src`` in place of all of ``input``, if the strides mean that. ValueError otherwise.
    """
    _check_whole(input, size, stride, storage_offset)
    return src.reshape(input._tuple_shape)


# -- pieces ------------------------------------------------------------------------------------------


def _along(dim: int, index: Any) -> tuple[Any, ...]:
    """An index of one axis."""
    if dim >= 0:
        return (*(slice(None),) * dim, index)
    return (Ellipsis, index, *(slice(None),) * (-1 - dim))


def _end(end: Any) -> Any:
    return None if isinstance(end, int) and end == _LAST else end


@wrap
def cat(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """Joins tensors along an axis; a tensor of shape (0,) beside others of any shape adds nothing.
    """
    return F.concat([each for each in tensors if each._tuple_shape != (0,)] or list(tensors), axis=dim)


@wrap
def index_put(input: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False) -> Tensor:
    """``input`` with ``values`` at the indices, or with these added, so that a place that occurs twice gets both."""
    if not accumulate:
        return _written(input, tuple(slice(None) if i is None else i for i in indices), values)
    axes = [axis for axis, places in enumerate(indices) if places is not None]
    shape = np.broadcast_shapes(*(places._tuple_shape for places in indices if places is not None))
    extents, first, last = input._tuple_shape, axes[0], axes[-1] + 1
    if axes == [*range(first, last)]:  # otherwise the axes of the places stand in front
        region = (*extents[:first], *shape, *extents[last:])
    else:
        region = (*shape, *(extent for axis, extent in enumerate(extents) if axis not in axes))
    given = [F.broadcast_to(places, shape) for places in indices if places is not None]
    return ops.index_add(input, F.broadcast_to(values, region), *given, axes=tuple(axes))


def _written(input: Tensor, place: Any, values: Any) -> Tensor:
    out = F.copy(input)
    out[place] = values
    return out


@wrap
def select_scatter(input: Tensor, src: Tensor, dim: int, index: int) -> Tensor:
    """``input`` with ``src`` at one place of an axis."""
    return _written(input, _along(dim, index), src)


@wrap
def slice_scatter(
    input: Tensor, src: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Tensor:
    """``input`` with ``src`` in a slice of an axis."""
    return _written(input, _along(dim, slice(start, _end(end), step)), src)


@wrap
def split(input: Tensor, split_size: int | list[int] | tuple[int, ...], dim: int = 0) -> tuple[Tensor, ...]:
    """Splits an axis into pieces of this size, the last one possibly smaller, or of these sizes."""
    extent = input._tuple_shape[dim]
    if isinstance(split_size, (tuple, list)):
        ends = np.cumsum(split_size).tolist()
    else:
        ends = [*range(split_size, extent, split_size), extent]
    starts = [0, *ends[:-1]]
    return tuple(input[_along(dim, slice(a, b))] for a, b in zip(starts, ends, strict=True))


@wrap
def chunk(input: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """Splits into at most this number of equal pieces; the last one may be smaller."""
    return split(input, -(-input._tuple_shape[dim] // chunks), dim)


def index_add(input, dim, index, source, *, alpha=1):
    return F.index_add(input, dim, index, source if alpha == 1 else source * alpha)


_MODES = {"amax": "max", "amin": "min", "prod": "prod"}


def scatter_reduce(input, dim, index, src, reduce, *, include_self=True):
    """Sums, means, extrema and products of what goes to a place, with what is there or without."""
    if not index.size:
        return input
    src = src[tuple(map(slice, index._tuple_shape))]
    if reduce in _MODES:
        start = input if include_self else F.scatter(F.copy(input), dim, index, F.full(index.shape, _neutral(reduce, input.dtype), dtype=input.dtype))
        return F.scatter_reduce(start, dim, index, src, _MODES[reduce])
    is_narrow = input.dtype.itemsize < 4 and input.dtype.kind not in "iu"
    total, src = (each.astype("float32") if is_narrow else each for each in (input, src))
    if not include_self:
        total = F.scatter(F.copy(total), dim, index, F.zeros_like(src))
    total = F.scatter_add(total, dim, index, src)
    if reduce == "sum":
        return total.astype(input.dtype)
    counts = F.scatter_add(F.full(input.shape, int(include_self), dtype=total.dtype), dim, index, F.ones_like(src))
    counts = F.maximum(counts, F.ones_like(counts))
    return (total // counts if input.dtype.kind in "iu" else total / counts).astype(input.dtype)


def _neutral(reduce: str, dtype: Any) -> float:
    """The value that a reduction starts from where nothing is there."""
    if reduce == "prod":
        return 1
    if dtype.kind not in "iu":
        return -math.inf if reduce == "amax" else math.inf
    limits = np.iinfo(dtype)
    return limits.min if reduce == "amax" else limits.max


def index_reduce(input, dim, index, source, reduce, *, include_self=True):
    """Reduces slices along an axis to the places of others."""
    rows = index.reshape(-1, *(1,) * (input.ndim - dim % input.ndim - 1))
    return scatter_reduce(input, dim, F.broadcast_to(rows, source.shape), source, reduce, include_self=include_self)


# -- dtypes ------------------------------------------------------------------------------------------


def _cast(dtype: str):
    return lambda input, *ignored, **options: input.astype(dtype)


def to(input, *args, dtype=None, **options):
    """Casts to a dtype (a name, or that of a tensor) or to that of another tensor; devices are all
    the host here.
    """
    wanted = dtype or next((arg for arg in args if _is_dtype(arg)), None)
    if wanted is not None:
        return input.astype(wanted)
    others = [arg for arg in args if not isinstance(arg, (str, bool, type(None)))]
    return like(input, others[0]) if others else input


def _is_dtype(value: Any) -> bool:
    try:
        return isinstance(value, (str, np.dtype)) and bool(dtype_name(value))
    except TypeError:
        return False


@wrap
def like(input: Tensor, other: Tensor | DTypeLike) -> Tensor:
    """Casts to the dtype of a tensor, or to a dtype that the program computed."""
    return input.astype(getattr(other, "dtype", other))


# -- new tensors -------------------------------------------------------------------------------------


@wrap
def full(size: Sequence[int], fill_value: float | Tensor, dtype: DTypeLike | None = None) -> Tensor:
    """A tensor of one value; the dtype is that of the value by default."""
    if dtype is None:
        kinds = {bool: "bool", int: "int32"}
        dtype = kinds.get(type(fill_value), "float32")
    return F.full(tuple(size), fill_value, dtype=dtype_name(dtype))


@wrap
def _range(start: float, end: float, step: float, dtype: Any) -> Tensor:
    if dtype is None:
        whole = all(isinstance(number, int) for number in (start, end, step))
        dtype = "int32" if whole else "float32"
    return F.arange(start, end, step, dtype=dtype_name(dtype))


def arange(start, end=None, step=1, *, dtype=None, **options):
    start, end = (0, start) if end is None else (start, end)
    return _range(start, end, step, dtype)


# -- checks ------------------------------------------------------------------------------------------


@wrap
def check(condition: object, message: str = "") -> None:
    """Raises AssertionError with the message unless the condition holds."""
    if not condition:
        raise AssertionError(message or "a condition of the program does not hold")


_IMPURE.add(check)


def nothing(*ignored, **options):
    """Does nothing, for hints to torch's compiler."""


FUNCTIONS = {
    **dict.fromkeys(
        ("contiguous", "clone", "detach", "cpu", "cuda", "requires_grad", "alias", "lift_fresh_copy", "to_dense", "resolve_conj"), same
    ),
    **dict.fromkeys(
        ("_assert_async", "_assert_scalar", "_assert_tensor_metadata", "sym_constrain_range", "sym_constrain_range_for_size",
         "_set_grad_enabled"), nothing
    ),
    "_assert": check,
    # shapes
    "size": lambda input, dim=None: input.shape if dim is None else input.shape[dim],
    "dim": lambda input: input.ndim,
    "numel": lambda input: input.size,
    "view": view,
    "reshape": lambda input, *shape: F.reshape(input, _sizes(shape)),
    "view_as": lambda input, other: F.reshape(input, other.shape),
    "flatten": flatten,
    "unflatten": unflatten,
    "transpose": lambda input, dim0, dim1: F.swapaxes(input, dim0, dim1),
    "t": lambda input: F.swapaxes(input, 0, -1),
    "mT": lambda input: F.swapaxes(input, -1, -2),
    "numpy_T": lambda input: input.T,
    "permute": lambda input, *dims: F.transpose(input, _sizes(dims)),
    "movedim": movedim,
    "unsqueeze": lambda input, dim: F.expand_dims(input, dim),
    "squeeze": squeeze,
    "expand": expand,
    "broadcast_tensors": broadcast_tensors,
    "expand_as": lambda input, other: F.broadcast_to(input, other.shape),
    "repeat": lambda input, *repeats: F.tile(input, _sizes(repeats)),
    "repeat_interleave": lambda input, repeats, dim=None: F.repeat(input, repeats, dim),
    "as_strided": as_strided,
    "as_strided_scatter": as_strided_scatter,
    "roll": lambda input, shifts, dims=None: F.roll(input, shifts, dims),
    "flip": flip,
    "meshgrid": lambda *tensors, indexing="ij": F.meshgrid(*_sizes(tensors), indexing=indexing),
    # pieces
    "cat": cat,
    "stack": lambda tensors, dim=0: F.stack(tensors, axis=dim),
    "select": lambda input, dim, index: input[_along(dim, index)],
    "slice": lambda input, dim=0, start=None, end=None, step=1: input[_along(dim, slice(start, _end(end), step))],
    "narrow": lambda input, dim, start, length: input[_along(dim, slice(start, start + length))],
    "index_select": lambda input, dim, index: input[_along(dim, index)],
    "gather": lambda input, dim, index, *, sparse_grad=False: F.gather(input, dim, index),
    "scatter": lambda input, dim, index, src: F.scatter(F.copy(input), dim, index, src),
    "copy": lambda input, src, non_blocking=False: F.broadcast_to(src.astype(input.dtype), input.shape),
    "split": split,
    "chunk": chunk,
    "unbind": lambda input, dim=0: F.unbind(input, dim),
    "tril": lambda input, diagonal=0: F.tril(input, diagonal),
    "triu": lambda input, diagonal=0: F.triu(input, diagonal),
    "index_add": index_add,
    "scatter_add": lambda input, dim, index, src: F.scatter_add(input, dim, index, src),
    "scatter_reduce": scatter_reduce,
    "index_reduce": index_reduce,
    "bincount": lambda input, weights=None, minlength=0: F.bincount(input, weights, minlength),
    "index_put": index_put,
    "select_scatter": select_scatter,
    "slice_scatter": slice_scatter,
    # dtypes
    **{name: _cast(dtype) for name, dtype in {
        "float": "float32", "double": "float32", "half": "float16", "bfloat16": "bfloat16", "int": "int32", "long": "int32",
        "short": "int16", "bool": "bool",
    }.items()},
    "to": to,
    "type_as": lambda input, other: input.astype(other.dtype),
    # new tensors
    "full": lambda size, fill_value, *, dtype=None, **options: full(size, fill_value, dtype),
    "zeros": lambda *size, dtype="float32", **options: full(_sizes(size), 0, dtype or "float32"),
    "ones": lambda *size, dtype="float32", **options: full(_sizes(size), 1, dtype or "float32"),
    "full_like": lambda input, fill_value, *, dtype=None, **options: full(input.shape, fill_value, dtype or input.dtype),
    "zeros_like": lambda input, *, dtype=None, **options: full(input.shape, 0, dtype or input.dtype),
    "ones_like": lambda input, *, dtype=None, **options: full(input.shape, 1, dtype or input.dtype),
    "fill": lambda input, value: full(input.shape, value, input.dtype),
    "new_full": lambda input, size, fill_value, *, dtype=None, **options: full(size, fill_value, dtype or input.dtype),
    "new_zeros": lambda input, *size, dtype=None, **options: full(_sizes(size), 0, dtype or input.dtype),
    "new_ones": lambda input, *size, dtype=None, **options: full(_sizes(size), 1, dtype or input.dtype),
    "scalar_tensor": lambda s, *, dtype=None, **options: full((), s, dtype),
    "arange": arange,
    "linspace": lambda start, end, steps, *, dtype=None, **options: F.linspace(start, end, steps, dtype=dtype or "float32"),
}  # fmt: skip
