"""Convolutions and pooling with every padding, dilation and rounding of ONNX, over any number of spatial axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ... import functional as F
from ...core import ops
from ...functional import _moving_window as moving
from ...functional._moving_window import Window, padded, reduce_windows, windows_of
from ...tensor import Tensor
from ._table import counterpart, is_float

# -- pooling --------------------------------------------------------------------------------------


@counterpart("MaxPool", counts_results=True)
def max_pool(
    x: Tensor, *, kernel_shape: Sequence[int], auto_pad: str = "NOTSET", ceil_mode: int = 0, dilations: Sequence[int] | None = None, pads: Sequence[int] | None = None,
    storage_order: int = 0, strides: Sequence[int] | None = None, results: int = 1,
) -> Any:  # fmt: skip
    windows = windows_of(x.shape[2:], kernel_shape, strides, dilations, pads, auto_pad, ceil_mode)
    real = x if is_float(x) else x.astype("float32")
    if results > 1:
        y, places = _max_and_places(real, windows, storage_order)
        return y.astype(x.dtype), places
    return moving.max_pool(real, windows).astype(x.dtype)


def _max_and_places(x: Tensor, windows: list[Window], storage_order: int) -> tuple[Tensor, Tensor]:
    """Returns the largest elements, and their places in the flattened input."""
    shape, dims = x._tuple_shape, len(windows)
    extents = shape[2:]
    covered, flat = padded(x, windows, -math.inf), np.zeros((1,) * 2 * dims, np.int64)
    for axis, w in enumerate(windows):
        places = w.positions()
        covered = ops.index_get(covered, Tensor((places + w.before).astype(np.int32)), axes=(2 + 2 * axis,))
        weight = math.prod(extents[:axis] if storage_order else extents[axis + 1 :])
        side = [1] * 2 * dims
        side[2 * axis : 2 * axis + 2] = places.shape
        flat = flat + places.reshape(side) * weight
    order = [2 * axis for axis in range(dims)] + [2 * axis + 1 for axis in range(dims)]
    covered = F.transpose(covered, (0, 1, *(2 + axis for axis in order)))
    counts = tuple(w.count for w in windows)
    covered = F.reshape(covered, (*shape[:2], *counts, -1))
    chosen = F.argmax(covered, axis=2 + dims, keepdims=True)
    table = Tensor(np.ascontiguousarray(flat.transpose(order)).reshape(1, 1, *counts, -1), dtype="int64")
    table = F.broadcast_to(table, covered._tuple_shape)
    image = Tensor((np.arange(shape[0] * shape[1]) * math.prod(extents)).reshape(*shape[:2], *(1,) * dims), dtype="int64")
    from_image = F.reshape(F.gather(table, 2 + dims, chosen), (*shape[:2], *counts)) + image
    return F.max(covered, axis=2 + dims), from_image


@counterpart("MaxUnpool", plain=(2,))
def max_unpool(x: Tensor, places: Tensor, output_shape: Tensor | Sequence[int] | None = None, *, kernel_shape: Sequence[int], pads: Sequence[int] | None = None, strides: Sequence[int] | None = None) -> Tensor:
    dims = x.ndim - 2
    strides, pads = strides or [1] * dims, pads or [0] * 2 * dims
    spatial: list[Any] = [(x.shape[2 + i] - 1) * strides[i] - pads[i] - pads[i + dims] + kernel_shape[i] for i in range(dims)]
    own = (*x._tuple_shape[:2], *spatial)
    flat = ops.scatter(F.zeros((math.prod(own),)), F.reshape(places, (-1,)), F.reshape(x, (-1,)), axis=0)
    y = F.reshape(flat, own)
    if output_shape is None:
        return y
    wanted = tuple(int(n) for n in output_shape)
    return ops.pad(y, before=(0,) * y.ndim, after=tuple(w - o for w, o in zip(wanted, own, strict=True)), mode="constant", value=0.0)


@counterpart("AveragePool")
def average_pool(
    x: Tensor, *, kernel_shape: Sequence[int], auto_pad: str = "NOTSET", ceil_mode: int = 0, count_include_pad: int = 0,
    dilations: Sequence[int] | None = None, pads: Sequence[int] | None = None, strides: Sequence[int] | None = None,
) -> Tensor:  # fmt: skip
    windows = windows_of(x.shape[2:], kernel_shape, strides, dilations, pads, auto_pad, ceil_mode)
    return moving.avg_pool(x, windows, bool(count_include_pad))


@counterpart("LpPool")
def lp_pool(
    x: Tensor, *, kernel_shape: Sequence[int], auto_pad: str = "NOTSET", ceil_mode: int = 0, dilations: Sequence[int] | None = None, p: int = 2,
    pads: Sequence[int] | None = None, strides: Sequence[int] | None = None,
) -> Tensor:  # fmt: skip
    windows = windows_of(x.shape[2:], kernel_shape, strides, dilations, pads, auto_pad, ceil_mode)
    return F.pow(reduce_windows(F.pow(F.abs(x), float(p)), windows, 0.0, ops.reduce_sum), 1 / p)


def _spatial(x: Tensor) -> tuple[int, ...]:
    return tuple(range(2, x.ndim))


@counterpart("GlobalAveragePool")
def global_average_pool(x: Tensor) -> Tensor:
    return ops.reduce_mean(x, axes=_spatial(x), keepdims=1).astype(x.dtype)


@counterpart("GlobalMaxPool")
def global_max_pool(x: Tensor) -> Tensor:
    return ops.reduce_max(x, axes=_spatial(x), keepdims=1)


@counterpart("GlobalLpPool")
def global_lp_pool(x: Tensor, *, p: int = 2) -> Tensor:
    return F.pow(ops.reduce_sum(F.pow(F.abs(x), float(p)), axes=_spatial(x), keepdims=1), 1 / p)


# -- convolution ----------------------------------------------------------------------------------


@counterpart("Conv")
def conv(
    x: Tensor, w: Tensor, b: Tensor | None = None, *, auto_pad: str = "NOTSET", dilations: Sequence[int] | None = None, group: int = 1,
    kernel_shape: Sequence[int] | None = None, pads: Sequence[int] | None = None, strides: Sequence[int] | None = None,
) -> Tensor:  # fmt: skip
    windows = windows_of(x.shape[2:], w.shape[2:], strides, dilations, pads, auto_pad)
    stride, padding, dilation = (tuple(getattr(v, name) for v in windows) for name in ("step", "before", "gap"))
    if any(v.before != v.after for v in windows):
        widths = (0, 0, *padding), (0, 0, *(v.after for v in windows))
        x, padding = ops.pad(x, before=widths[0], after=widths[1], mode="constant", value=0.0), (0,) * len(windows)
    y = ops.conv(x, w, stride=stride, padding=padding, dilation=dilation, groups=group)
    return y if b is None else y + _across(b, y)


def _across(bias: Tensor, y: Tensor) -> Tensor:
    return F.reshape(bias, (1, -1) + (1,) * (y.ndim - 2))


@counterpart("ConvTranspose")
def conv_transpose(
    x: Tensor, w: Tensor, b: Tensor | None = None, *, auto_pad: str = "NOTSET", dilations: Sequence[int] | None = None, group: int = 1,
    kernel_shape: Sequence[int] | None = None, output_padding: Sequence[int] | None = None, output_shape: Sequence[int] | None = None, pads: Sequence[int] | None = None, strides: Sequence[int] | None = None,
) -> Tensor:  # fmt: skip
    """Computes all that the kernels reach, and cuts the padding off."""
    dims = x.ndim - 2
    steps, gaps = strides or [1] * dims, dilations or [1] * dims
    extra, pads = list(output_padding or [0] * dims), list(pads or [0] * 2 * dims)
    reach: list[Any] = [(x.shape[2 + i] - 1) * steps[i] + gaps[i] * (w.shape[2 + i] - 1) + 1 for i in range(dims)]
    for i in range(dims):
        if output_shape is None and not auto_pad.startswith("SAME"):
            continue
        wanted: Any = output_shape[-dims:][i] if output_shape else x.shape[2 + i] * steps[i]
        width = max(reach[i] + extra[i] - wanted, 0)
        extra[i] = max(wanted - reach[i], extra[i])
        half = width // 2
        pads[i], pads[i + dims] = (half, width - half) if auto_pad == "SAME_UPPER" else (width - half, half)
    y = ops.conv_backward_data(
        x, w, stride=tuple(steps), padding=(0,) * dims, dilation=tuple(gaps), groups=group, input_shape=tuple(reach)
    )
    if any(extra):
        y = ops.pad(y, before=(0,) * y.ndim, after=(0, 0, *extra), mode="constant", value=0.0)
    y = y[(slice(None), slice(None), *(slice(pads[i], y.shape[2 + i] - pads[i + dims]) for i in range(dims)))]
    return y if b is None else y + _across(b, y)


@counterpart("Col2Im", plain=(1, 2))
def col2im(x: Tensor, image_shape: Tensor | Sequence[int], block_shape: Tensor | Sequence[int], *, dilations: Sequence[int] | None = None, pads: Sequence[int] | None = None, strides: Sequence[int] | None = None) -> Tensor:
    """Adds [n, c * block, places] into images."""
    windows = windows_of(image_shape, block_shape, strides, dilations, pads, "NOTSET")
    n, channels = x.shape[0], x.shape[1] // math.prod(block_shape)
    sizes, counts = tuple(w.size for w in windows), tuple(w.count for w in windows)
    blocks = F.reshape(x, (n, channels, *sizes, *counts))
    index, dims = [], len(windows)
    for axis, w in enumerate(windows):
        side = [1] * 2 * dims
        side[axis], side[axis + dims] = w.size, w.count
        index.append(Tensor((w.positions() + w.before).T.reshape(side).astype(np.int32)))
    room = tuple(w.extent + w.before + w.after for w in windows)
    y = ops.index_add(F.zeros((n, channels, *room)), blocks, *index, axes=tuple(range(2, 2 + dims)))
    return y[(slice(None), slice(None), *(slice(w.before, w.before + w.extent) for w in windows))]
