"""Windows that move over spatial axes with any padding, dilation and rounding, and pooling over
them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..core import apply_const, ops
from ..tensor import Tensor


@dataclass(frozen=True)
class Window:
    """One spatial axis: a kernel of ``size`` elements ``gap`` apart moves by ``step`` over padding and ``extent``."""

    extent: int
    size: int
    step: int
    gap: int
    before: int
    after: int
    count: int  # the number of places

    def positions(self) -> np.ndarray:
        """Returns [count, size]: the elements that each window covers; numbers below 0 or from
        ``extent`` on are padding.
        """
        return np.arange(self.count)[:, None] * self.step - self.before + np.arange(self.size) * self.gap


def windows_of(
    extents: Any, kernel: Any, strides: Any, dilations: Any, pads: Any, auto_pad: str, ceil_mode: int = 0
) -> list[Window]:
    """One Window for each spatial axis."""
    dims = len(extents)
    strides, dilations, pads = strides or [1] * dims, dilations or [1] * dims, pads or [0] * 2 * dims
    found = []
    for axis, (extent, size, step, gap) in enumerate(zip(extents, kernel, strides, dilations, strict=True)):
        span, before, after = gap * (size - 1) + 1, pads[axis], pads[axis + dims]
        if auto_pad.startswith("SAME"):
            width = max((-(-extent // step) - 1) * step + span - extent, 0)
            before = width // 2 if auto_pad == "SAME_UPPER" else width - width // 2
            after = width - before
        elif auto_pad == "VALID":
            before = after = 0
        room = extent + before + after - span
        count = (-(-room // step) if ceil_mode else room // step) + 1
        # a window that would begin in the padding at the end
        if ceil_mode and (count - 1) * step >= extent + before:
            count -= 1
        found.append(Window(extent, size, step, gap, before, after, count))
    return found


def max_pool(x: Tensor, windows: list[Window]) -> Tensor:
    """The largest element of each window of the last axes; floats only, for padding is -inf."""
    if _is_even(x, windows):
        return ops.max_pool(x, **_attributes(windows))
    if _is_dense(x, windows):
        return ops.max_pool(padded(x, windows, -math.inf), **_attributes(windows) | {"padding": (0,) * len(windows)})
    return reduce_windows(x, windows, -math.inf, ops.reduce_max)


def avg_pool(x: Tensor, windows: list[Window], count_padding: bool) -> Tensor:
    """The mean of each window of the last axes, with the elements of the padding or without."""
    if _is_even(x, windows):
        return ops.avg_pool(x, **_attributes(windows), count_include_padding=int(count_padding))
    counts = np.ones((1,) * (x.ndim - len(windows)))
    for w in windows:
        places = w.positions()
        low, high = (-w.before, w.extent + w.after) if count_padding else (0, w.extent)
        counts = counts[..., None] * ((places >= low) & (places < high)).sum(1)
    if _is_dense(x, windows):
        attributes = _attributes(windows) | {"padding": (0,) * len(windows)}
        means = ops.avg_pool(padded(x, windows, 0.0), **attributes, count_include_padding=1)
        area = math.prod(w.size for w in windows)
        return means if (counts == area).all() else (means * apply_const((area / counts).astype(np.float32))).astype(x.dtype)
    return (reduce_windows(x, windows, 0.0, ops.reduce_sum) / Tensor(counts.astype(np.float32))).astype(x.dtype)


def _is_dense(x: Tensor, windows: list[Window]) -> bool:
    """Whether there is an op for the padded input: images without dilation."""
    return x.ndim == len(windows) + 2 and all(w.gap == 1 for w in windows)


def _is_even(x: Tensor, windows: list[Window]) -> bool:
    """Whether there is an op for it: images, no dilation, equal padding on both sides, nothing
    rounded up.
    """
    return _is_dense(x, windows) and all(
        w.before == w.after < w.size and w.count == (w.extent + 2 * w.before - w.size) // w.step + 1
        for w in windows
    )


def _attributes(windows: list[Window]) -> dict[str, Any]:
    kernel, stride, padding = (tuple(getattr(w, name) for w in windows) for name in ("size", "step", "before"))
    return {"kernel": kernel, "stride": stride, "padding": padding}


def padded(x: Tensor, windows: list[Window], fill: float) -> Tensor:
    """Pads to all that the windows of the last axes cover."""
    kept = (0,) * (x.ndim - len(windows))
    after = [max(int(w.positions().max()) + 1 - w.extent, 0) for w in windows]
    return ops.pad(x, before=(*kept, *(w.before for w in windows)), after=(*kept, *after), mode="constant", value=fill)


def reduce_windows(x: Tensor, windows: list[Window], fill: float, reduce: Callable[..., Any]) -> Tensor:
    """``reduce`` over the window of each place of the last axes, one axis after the other."""
    x = padded(x, windows, fill)
    for axis, w in enumerate(windows, x.ndim - len(windows)):
        places = Tensor((w.positions() + w.before).astype(np.int32))
        x = reduce(ops.index_get(x, places, axes=(axis,)), axes=(axis + 1,), keepdims=0)
    return x
