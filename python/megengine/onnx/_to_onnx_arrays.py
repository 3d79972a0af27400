"""Writes ops that move elements in ONNX: shapes, slices, indices."""

from __future__ import annotations

from typing import Any

import numpy as np

from ._dynamic import Dim
from ._emitter import Call, Emitter
from ._to_onnx import converts, operands

TO_THE_FRONT = -(2**31)  # an end that lies before the first element


@converts("reshape")
def _reshape(emit: Emitter, call: Call) -> str:
    """Writes Reshape; one open extent may be -1."""
    is_open = [isinstance(extent, Dim) for extent in call.shape]
    if sum(is_open) == 1 and 0 not in call.shape:
        return emit("Reshape", call.inputs[0], emit.ints([-1 if o else n for o, n in zip(is_open, call.shape, strict=True)]))
    return emit("Reshape", call.inputs[0], emit.ints(call.shape))


@converts("broadcast_to")
def _broadcast_to(emit: Emitter, call: Call) -> str:
    return emit("Expand", call.inputs[0], emit.ints(call.shape))


@converts("transpose")
def _transpose(emit: Emitter, call: Call) -> str:
    return emit("Transpose", call.inputs[0], perm=list(call.attrs["perm"])) if call.shape else emit("Identity", call.inputs[0])


@converts("concat")
def _concat(emit: Emitter, call: Call) -> str:
    rank = len(call.shape)
    return emit("Concat", *operands(emit, call, call.dtype), axis=call.attrs["axis"] % rank)


@converts("full")
def _full(emit: Emitter, call: Call) -> str:
    return emit("Expand", emit.constant(call.attrs["value"], call.dtype), emit.ints(call.shape))


@converts("slice")
def _slice(emit: Emitter, call: Call) -> str:
    extents = call.types[0][1]
    begin, end, step = (call.attrs[name] for name in ("begin", "end", "step"))
    cut = [axis for axis, extent in enumerate(extents) if (begin[axis], end[axis], step[axis]) != (0, extent, 1)]
    if not cut:
        return emit("Identity", call.inputs[0])
    ends = [end[axis] if end[axis] >= 0 else TO_THE_FRONT for axis in cut]
    bounds = [[begin[axis] for axis in cut], ends, cut, [step[axis] for axis in cut]]
    return emit("Slice", call.inputs[0], *map(emit.ints, bounds))


def region(call: Call) -> np.ndarray:
    """Returns int64 [n, 1]: the places in the flattened tensor that begin, end and step of a write
    select.
    """
    shape = call.shape
    bounds = zip(call.attrs["begin"], call.attrs["end"], call.attrs["step"], strict=True)
    lines = [np.arange(begin, end, step) for begin, end, step in bounds]
    places = np.ravel_multi_index(np.ix_(*lines), shape) if shape else np.zeros((), np.int64)
    return np.asarray(places, np.int64).reshape(-1, 1)


@converts("slice_set")
def _slice_set(emit: Emitter, call: Call) -> str:
    flat, value = (emit("Reshape", name, emit.ints([-1])) for name in call.inputs)
    written = emit("ScatterND", flat, emit.constant(region(call)), value)
    return emit("Reshape", written, emit.ints(call.shape))


@converts("pad")
def _pad(emit: Emitter, call: Call) -> str:
    if not call.shape:  # onnxruntime pads no number
        return emit("Identity", call.inputs[0])
    widths = emit.ints((*call.attrs["before"], *call.attrs["after"]))
    if call.attrs["mode"] != "constant":
        return emit("Pad", call.inputs[0], widths, mode=call.attrs["mode"])
    return emit("Pad", call.inputs[0], widths, emit.constant(call.attrs["value"], call.dtype))


@converts("coordinates")
def _coordinates(emit: Emitter, call: Call) -> str:
    axis = call.attrs["axis"] % len(call.shape)
    line = np.arange(call.shape[axis], dtype=np.int32)
    shaped = line.reshape([-1 if place == axis else 1 for place in range(len(call.shape))])
    return emit("Expand", emit.constant(shaped), emit.ints(call.shape))


@converts("checked_index")
def _checked_index(emit: Emitter, call: Call) -> str:
    index, zero = call.inputs[0], emit.constant(0, np.int32)
    from_end = emit("Add", index, emit.constant(call.attrs["extent"], np.int32))
    return emit("Where", emit("Less", index, zero), from_end, index)


@converts("checked_label")
def _checked_label(emit: Emitter, call: Call) -> str:
    return emit("Identity", call.inputs[0])


@converts("one_hot")
def _one_hot(emit: Emitter, call: Call) -> str:
    (labels,) = operands(emit, call, np.int64)
    values = emit.constant([0, 1], np.float32)
    if len(call.shape) == 1:  # ONNX has no 0-d labels
        labels = emit("Reshape", labels, emit.ints([1]))
    hot = emit("OneHot", labels, emit.constant(call.attrs["num_classes"], np.int64), values)
    if len(call.shape) == 1:
        hot = emit("Reshape", hot, emit.ints(call.shape))
    return hot if call.dtype == np.float32 else emit.cast(hot, call.dtype)


# -- gathering and scattering ---------------------------------------------------------------------


def _indexed(emit: Emitter, call: Call, indices: list[str], shapes: list[tuple[int, ...]]) -> tuple[list[int], str]:
    """Returns the order of axes that puts the indexed ones first, and int64 [places..., k] for
    GatherND.
    """
    axes = list(call.attrs["axes"])
    order = axes + [axis for axis in range(len(call.types[0][1])) if axis not in axes]
    places = np.broadcast_shapes(*shapes)
    columns = []
    for name, shape in zip(indices, shapes, strict=True):
        wide = emit.cast(name, np.int64)
        if shape != places:
            wide = emit("Expand", wide, emit.ints(places))
        columns.append(emit("Unsqueeze", wide, emit.ints([len(places)])))
    return order, columns[0] if len(columns) == 1 else emit("Concat", *columns, axis=len(places))


def _arranged(emit: Emitter, name: str, order: list[int]) -> str:
    return name if order == sorted(order) else emit("Transpose", name, perm=order)


def _place_of_results(call: Call, axes: tuple[int, ...], rank: int) -> int:
    """Returns the axis of the result at which the places' axes stand: the first indexed one if
    these are neighbours, else 0.
    """
    adjacent = all(b == a + 1 for a, b in zip(axes, axes[1:], strict=False))
    return axes[0] if adjacent else 0


@converts("index_get")
def _index_get(emit: Emitter, call: Call) -> str:
    x, *indices = call.inputs
    axes = call.attrs["axes"]
    if len(axes) == 1:
        return emit("Gather", x, indices[0], axis=axes[0])
    shapes = [shape for _, shape in call.types[1:]]
    order, index = _indexed(emit, call, indices, shapes)
    taken = emit("GatherND", _arranged(emit, x, order), index)
    width = len(np.broadcast_shapes(*shapes))
    front = _place_of_results(call, axes, len(order))
    back = [width + i for i in range(front)] + list(range(width)) + list(range(width + front, len(call.shape)))
    return _arranged(emit, taken, back)


@converts("index_set", "index_add")
def _index_write(emit: Emitter, call: Call) -> str:
    x, value, *indices = call.inputs
    shapes = [shape for _, shape in call.types[2:]]
    order, index = _indexed(emit, call, indices, shapes)
    width = len(np.broadcast_shapes(*shapes))
    front = _place_of_results(call, call.attrs["axes"], len(order))
    rank = len(call.types[1][1])
    to_front = list(range(front, front + width)) + list(range(front)) + list(range(front + width, rank))
    how: dict[str, Any] = {"reduction": "add"} if call.op == "index_add" else {}
    written = emit("ScatterND", _arranged(emit, x, order), index, _arranged(emit, value, to_front), **how)
    return _arranged(emit, written, [int(axis) for axis in np.argsort(order)])


@converts("gather")
def _gather(emit: Emitter, call: Call) -> str:
    return emit("GatherElements", *call.inputs, axis=call.attrs["axis"])


@converts("scatter", "scatter_add", "scatter_reduce")
def _scatter(emit: Emitter, call: Call) -> str:
    reduction = "add" if call.op == "scatter_add" else call.attrs.get("mode", "").replace("prod", "mul")
    how: dict[str, Any] = {"reduction": reduction} if reduction else {}
    return emit("ScatterElements", *call.inputs, axis=call.attrs["axis"], **how)
