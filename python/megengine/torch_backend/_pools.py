"""ATen operators that pool, with the places of maxima, and that sample images; with their gradients."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .. import functional as F
from ..autodiff.transforms import pulled_back
from ..core import ops
from ..functional._grid_sample import in_pixels, reflected
from ..fx.torchlike import FUNCTIONS
from ..tensor import Tensor
from ._forms import Unsupported

_MOST_PLACES = 1 << 24  # float32 counts so far exactly


def _each(value: Any, count: int) -> tuple[int, ...]:
    """Returns a number for each spatial axis; one number may stand for all."""
    return tuple(value) * (count // len(value)) if isinstance(value, Sequence) else (value,) * count


def _of_batches(rank: int) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Makes a function of batches of images with ``rank`` spatial axes take one image, too."""

    def decorated(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def apply(x: Tensor, *given: Any) -> Any:
            if x.ndim == rank + 2:
                return function(x, *given)
            y = function(*(F.expand_dims(each, 0) if isinstance(each, Tensor) else each for each in (x, *given)))
            return F.squeeze(y, 0) if isinstance(y, Tensor) else [F.squeeze(each, 0) for each in y]

        return apply

    return decorated


# -- maxima and their places


def _places_of_maxima(x: Tensor, y: Tensor, pool: Callable[[Tensor], Tensor], pick: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """Returns the places of maxima in a flattened image: the first of equal ones, the last NaN."""
    extents = x._tuple_shape[2:]
    if math.prod(extents) > _MOST_PLACES:
        raise Unsupported("with places of so large an image")
    line = np.arange(math.prod(extents), dtype=np.float32).reshape(1, 1, *extents)
    places = F.broadcast_to(Tensor(line), x._tuple_shape)
    of_nan = pool(F.where(F.isnan(x), places, F.full_like(places, -1.0)))
    return F.where(F.isnan(y), of_nan, pick(x, places)).astype("int32")


def _max_pool(rank: int) -> Callable[..., Any]:
    @_of_batches(rank)
    def pool(x: Tensor, kernel: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False) -> tuple[Tensor, Tensor]:
        """Returns (result, places)."""
        y = FUNCTIONS[f"max_pool{rank}d"](x, kernel, stride or kernel, padding, dilation, ceil_mode)
        if not has_places(x.dtype.name, x._tuple_shape[2:], dilation) or not y.size:  # nobody reads them
            return y, F.zeros(y._tuple_shape, dtype="int32")
        kernel, stride, padding = _each(kernel, rank), _each(stride or kernel, rank), _each(padding, rank)
        window, beyond = {"kernel": kernel, "stride": stride, "padding": padding}, _beyond(x, y, kernel, stride, padding)
        wide = x.astype("float32")
        places = _places_of_maxima(
            wide, y, lambda v: ops.max_pool(_widened(v, beyond), **window), lambda x, v: ops.max_pool_pick(_widened(x, beyond), _widened(v, beyond), **window)
        )
        return y, places

    return pool


def has_places(dtype: str, extents: Sequence[int], dilation: Any) -> bool:
    """Whether places of maxima can be found in such windows of images of these extents."""
    return dtype in ("float32", "float16", "bfloat16") and set(np.ravel(dilation)) <= {1} and math.prod(extents) <= _MOST_PLACES


def _adaptive_max_pool(rank: int) -> Callable[..., Any]:
    @_of_batches(rank)
    def pool(x: Tensor, size: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Returns (result, places)."""
        size = _each(size, rank)
        y, wide = ops.adaptive_max_pool(x, output=size), x.astype("float32")
        return y, _places_of_maxima(
            wide, y, lambda v: ops.adaptive_max_pool(v, output=size), lambda x, v: ops.adaptive_max_pool_pick(x, v, output=size)
        )

    return pool


def _gradient_at(places: Tensor, dy: Tensor, x: Tensor, rank: int) -> Tensor:
    """The gradient of pooling ``x`` whose maxima lie at these places of an image."""
    if not dy.size:
        return F.zeros_like(x)
    outer = x._tuple_shape[: x.ndim - rank]
    flat = F.zeros((*outer, math.prod(x._tuple_shape[-rank:])), dtype="float32")
    y = ops.scatter_add(flat, places.reshape(*outer, -1), dy.astype("float32").reshape(*outer, -1), axis=len(outer))
    return y.reshape(*x._tuple_shape).astype(x.dtype)


def _max_pool_backward(rank: int) -> Callable[..., Any]:
    def backward(dy: Tensor, x: Tensor, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool, places: Tensor) -> Tensor:
        """Finds the maxima again where `_joint` has left their places out."""
        if places.size or not dy.size:
            return _gradient_at(places, dy, x, rank)
        kernel, stride, padding = _each(kernel, rank), _each(stride or kernel, rank), _each(padding, rank)
        beyond = _beyond(x, dy, kernel, stride, padding)
        grad = ops.max_pool_grad(_widened(x, beyond), dy, kernel=kernel, stride=stride, padding=padding)
        return grad[(..., *map(slice, x._tuple_shape[2:]))] if any(beyond) else grad

    return backward


def _widened(x: Tensor, beyond: Sequence[int]) -> Tensor:
    """Pads the end of each axis with -inf, which is never a maximum."""
    return F.nn.pad(x, ((0, 0), (0, 0), *((0, each) for each in beyond)), constant_value=-math.inf) if any(beyond) else x


# -- means


def _beyond(x: Tensor, dy: Tensor, kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int]) -> list[int]:
    """Returns how far the last windows of ceil_mode reach beyond the padding, by axis."""
    sizes = zip(x._tuple_shape[2:], dy._tuple_shape[2:], kernel, stride, padding, strict=True)
    return [max(0, (count - 1) * step + window - extent - 2 * pad) for extent, count, window, step, pad in sizes]


def avg_pool_backward(
    dy: Tensor, x: Tensor, kernel: Any, stride: Any, padding: Any, ceil_mode: bool, count_include_pad: bool, divisor: int | None
) -> Tensor:
    rank = x.ndim - 2
    kernel, stride, padding = _each(kernel, rank), _each(stride or kernel, rank), _each(padding, rank)
    beyond = _beyond(x, dy, kernel, stride, padding)
    if any(beyond) or divisor:  # sums, with the divisors of such windows
        dy = dy * (math.prod(kernel) / _divisors(x, dy, kernel, stride, padding, count_include_pad, divisor))
        count_include_pad = True
    extents = x._tuple_shape[2:]
    grad = ops.avg_pool_grad(
        dy, kernel=kernel, stride=stride, padding=padding, count_include_padding=int(count_include_pad),
        input_shape=[extent + more for extent, more in zip(extents, beyond, strict=True)],
    )  # fmt: skip
    return grad[(..., *map(slice, extents))] if any(beyond) else grad


def _divisors(x: Tensor, dy: Tensor, kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int], with_padding: bool, divisor: int | None) -> Any:
    """Returns the number of elements that each window counts."""
    if divisor:
        return divisor
    counts = []
    for extent, count, window, step, pad in zip(x._tuple_shape[2:], dy._tuple_shape[2:], kernel, stride, padding, strict=True):
        starts = np.arange(count) * step - pad
        last = np.minimum(starts + window, extent + pad)
        counts.append(last - starts if with_padding else np.minimum(last, extent) - np.maximum(starts, 0))
    return Tensor(functools.reduce(np.multiply.outer, counts).astype(np.float32)).astype(dy.dtype)


def replication_pad_backward(dy: Tensor, x: Tensor, padding: Sequence[int]) -> Tensor:
    """padding: (before, behind) of the last axis, then of the one before it, ..."""
    rank = len(padding) // 2
    axes, places = list(range(x.ndim - rank, x.ndim)), []
    for axis, before, behind in zip(axes, padding[-2::-2], padding[::-2], strict=True):
        extent = x._tuple_shape[axis]
        line = np.clip(np.arange(-before, extent + behind), 0, extent - 1).astype(np.int32)
        places.append(Tensor(line).reshape(-1, *(1,) * (x.ndim - 1 - axis)))
    return ops.index_add(F.zeros_like(x), dy, *places, axes=axes)

def _avg_pool(rank: int) -> Callable[..., Any]:
    def pool(
        x: Tensor, kernel: Any, stride: Any = (), padding: Any = 0, ceil_mode: bool = False, count_include_pad: bool = True, divisor: int | None = None
    ) -> Tensor:
        y = FUNCTIONS[f"avg_pool{rank}d"](x, kernel, stride, padding, ceil_mode, count_include_pad)
        if not divisor:
            return y
        kernel, stride, padding = _each(kernel, rank), _each(stride or kernel, rank), _each(padding, rank)
        counts = _divisors(x, y, kernel, stride, padding, count_include_pad, None)
        return y * (counts / divisor)

    return _of_batches(rank)(pool)


def _adaptive_avg_pool_backward(rank: int) -> Callable[..., Any]:
    @_of_batches(rank)
    def backward(dy: Tensor, x: Tensor) -> Tensor:
        if rank == 2:
            return ops.adaptive_avg_pool_grad(dy, input_shape=x._tuple_shape[-2:])
        return pulled_back(lambda x: FUNCTIONS["adaptive_avg_pool3d"](x, dy._tuple_shape[-3:]), [x], dy)[0]

    return backward


# -- images


def grid_sampler(x: Tensor, grid: Tensor, mode: int, padding: int, aligned: bool) -> Tensor:
    """Samples images in float32, because halves are too coarse for places."""
    return FUNCTIONS["grid_sampler"](x, grid.astype("float32"), mode, padding, aligned)


def grid_sampler_backward(dy: Tensor, x: Tensor, grid: Tensor, mode: int, padding: int, aligned: bool, mask: Sequence[bool]) -> tuple[Tensor, Tensor]:
    """The gradients of the image and of the places."""
    x, grid, dy = (each.astype("float32") for each in (x, grid, dy))
    found = pulled_back(lambda x, grid: grid_sampler(x, grid, mode, padding, aligned), [x, grid], dy)
    if padding and mode == 0:
        found[1] = F.where(_at_border(grid, x._tuple_shape[2:], padding, aligned), F.zeros_like(grid), found[1])
    return found[0], found[1]


def _at_border(grid: Tensor, extents: Sequence[int], padding: int, aligned: bool) -> Tensor:
    """Returns a mask of the places without a gradient: at the middle of an outermost element, or
    farther out.
    """
    lines = []
    for axis, extent in enumerate(reversed(extents)):
        at = in_pixels(grid[..., axis], extent, aligned)
        at = reflected(at, extent, aligned) if padding == 2 else at
        lines.append((at <= 0) | (at >= extent - 1))
    return F.stack(lines, axis=-1)


ROWS: dict[str, Callable[..., Any]] = {
    **{f"max_pool{rank}d_with_indices": _max_pool(rank) for rank in (2, 3)},
    **{f"max_pool{rank}d_with_indices_backward": _max_pool_backward(rank) for rank in (2, 3)},
    **{f"adaptive_max_pool{rank}d": _adaptive_max_pool(rank) for rank in (2, 3)},
    **{f"adaptive_max_pool{rank}d_backward": lambda dy, x, places, rank=rank: _gradient_at(places, dy, x, rank) for rank in (2, 3)},
    **{f"avg_pool{rank}d": _avg_pool(rank) for rank in (2, 3)},
    **dict.fromkeys(("avg_pool2d_backward", "avg_pool3d_backward"), avg_pool_backward),
    "_adaptive_avg_pool2d": _of_batches(2)(FUNCTIONS["adaptive_avg_pool2d"]),
    **{f"_adaptive_avg_pool{rank}d_backward": _adaptive_avg_pool_backward(rank) for rank in (2, 3)},
    **dict.fromkeys((f"replication_pad{rank}d_backward" for rank in (1, 2, 3)), replication_pad_backward),
    **dict.fromkeys(("grid_sampler_2d", "grid_sampler_3d"), grid_sampler),
    **dict.fromkeys(("grid_sampler_2d_backward", "grid_sampler_3d_backward"), grid_sampler_backward),
}  # fmt: skip
