"""ATen operators on our tensors: what graphs of AOTAutograd have beyond the tables of `fx.torchlike`, or need more results of."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .. import functional as F
from .._core import default_random_state
from ..core import ops
from ..fx.torchlike import FUNCTIONS, OPERATORS
from ..tensor import Tensor


class Unsupported(Exception):
    """A form of an operator that is left to torch; ``node``: where a graph has it."""

    def __init__(self, why: str, node: Any = None) -> None:
        super().__init__(why)
        self.node = node


def _each(value: Any, count: int) -> tuple[int, ...]:
    """By spatial axis, where one number may stand for all."""
    return tuple(value) * (count // len(value)) if isinstance(value, Sequence) else (value,) * count


def _axes(dims: Any, ndim: int) -> list[int]:
    chosen = range(ndim) if dims is None or dims == [] else [dims] if isinstance(dims, int) else dims
    return [d % ndim for d in chosen] if ndim else []


def _beside_channels(value: Tensor, ndim: int) -> Tensor:
    return value.reshape(1, -1, *(1,) * (ndim - 2))


# -- convolutions and pooling


def convolution_backward(
    dy: Tensor, x: Tensor, w: Tensor, bias_sizes: Any, stride: Any, padding: Any, dilation: Any, transposed: bool, output_padding: Any, groups: int, mask: Any
) -> tuple[Tensor | None, ...]:
    rank = len(stride)
    window: dict[str, Any] = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    kernel, image = w._tuple_shape[-rank:], x._tuple_shape[-rank:]
    bias = F.sum(dy, axis=[0, *range(2, rank + 2)]) if mask[2] else None
    if transposed:  # is the gradient of a convolution, whose gradient is the convolution
        data = ops.conv(dy, w, **window) if mask[0] else None
        return data, ops.conv_backward_filter(dy, x, kernel=kernel, **window) if mask[1] else None, bias
    data = ops.conv_backward_data(dy, w, input_shape=image, **window) if mask[0] else None
    return data, ops.conv_backward_filter(x, dy, kernel=kernel, **window) if mask[1] else None, bias


def max_pool2d(x: Tensor, kernel: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False) -> tuple[Tensor, Tensor]:
    """(result, zeros in place of the places, which nobody reads: `_joint` sees to it that backward finds them again)."""
    y = FUNCTIONS["max_pool2d"](x, kernel, stride or kernel, padding, dilation, ceil_mode)
    return y, F.zeros(y._tuple_shape, dtype="int32")


def max_pool2d_backward(dy: Tensor, x: Tensor, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool, places: Tensor) -> Tensor:
    if set(_each(dilation, 2)) != {1}:
        raise Unsupported("with a dilation")
    kernel, stride, padding = _each(kernel, 2), _each(stride or kernel, 2), _each(padding, 2)
    beyond = _beyond(x, dy, kernel, stride, padding)
    wide = F.nn.pad(x, ((0, 0), (0, 0), *((0, each) for each in beyond)), constant_value=-math.inf) if any(beyond) else x
    grad = ops.max_pool_grad(wide, dy, kernel=kernel, stride=stride, padding=padding)
    return grad[:, :, : x._tuple_shape[2], : x._tuple_shape[3]] if any(beyond) else grad


def _beyond(x: Tensor, dy: Tensor, kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int]) -> list[int]:
    """By how much the last windows of ceil_mode reach beyond the padding, by axis."""
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
    """How many elements each window counts."""
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


# -- normalization: with mean and reciprocal deviation, which backward reads


def _scale_of(x: Tensor, weight: Tensor | None) -> Tensor:
    return F.ones((x._tuple_shape[1],)) if weight is None else weight


def batch_norm(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, running_mean: Tensor, running_var: Tensor, training: bool, momentum: float, eps: float
) -> tuple[Tensor, ...]:
    """(result, mean, reciprocal deviation, new running mean, new running variance)."""
    weight, bias = _scale_of(x, weight), F.zeros((x._tuple_shape[1],)) if bias is None else bias
    if not training:
        factor = ops.rsqrt(running_var + eps) * weight
        y = (x - _beside_channels(running_mean, x.ndim)) * _beside_channels(factor, x.ndim) + _beside_channels(bias, x.ndim)
        empty = F.zeros((0,))
        return y, empty, empty, running_mean, running_var
    count = math.prod(x._tuple_shape) // x._tuple_shape[1]
    y, *statistics = ops.batch_norm(x, weight, bias, eps=eps)
    mean, var = (F.flatten(each) for each in statistics)
    new_mean = running_mean * (1 - momentum) + mean * momentum
    return y, mean, ops.rsqrt(var + eps), new_mean, running_var * (1 - momentum) + var * (momentum * count / (count - 1))


def batch_norm_without_statistics(x: Tensor, weight: Tensor | None, bias: Tensor | None, training: bool, momentum: float, eps: float) -> tuple[Tensor, ...]:
    """(result, mean, reciprocal deviation)."""
    zeros = F.zeros((x._tuple_shape[1],))
    return batch_norm(x, weight, bias, zeros, zeros, True, momentum, eps)[:3]


def batch_norm_backward(
    dy: Tensor, x: Tensor, weight: Tensor | None, running_mean: Tensor, running_var: Tensor, mean: Tensor, deviation: Tensor, training: bool, eps: float, mask: Any
) -> tuple[Tensor, ...]:
    scale = _scale_of(x, weight)
    if training:
        mean, deviation = _wide(mean, deviation)
        return tuple(ops.batch_norm_grad(x, mean, 1 / F.square(deviation), scale, dy, eps=0.0))
    factor = ops.rsqrt(running_var + eps) * scale
    sums = ops.batch_norm_grad_sums(x, running_mean, running_var, dy, eps=eps)
    return (dy * _beside_channels(factor, x.ndim)).astype(x.dtype), *sums


def layer_norm(x: Tensor, shape: Sequence[int], weight: Tensor | None, bias: Tensor | None, eps: float) -> tuple[Tensor, ...]:
    """(result, mean, reciprocal deviation), the last two with axes of extent 1."""
    axes = list(range(x.ndim - len(shape), x.ndim))
    wide = x.astype("float32")
    mean = F.mean(wide, axis=axes, keepdims=True)
    centred = wide - mean
    deviation = ops.rsqrt(F.mean(F.square(centred), axis=axes, keepdims=True) + eps)
    y = centred * deviation
    y = y if weight is None else y * weight
    return (y if bias is None else y + bias).astype(x.dtype), mean, deviation


def group_norm(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, n: int, c: int, size: int, groups: int, eps: float
) -> tuple[Tensor, ...]:
    """(result, mean, reciprocal deviation), the last two (n, groups)."""
    parts = x.reshape(n, groups, -1)
    mean = F.mean(parts, axis=2, keepdims=True)
    centred = parts - mean
    deviation = ops.rsqrt(F.mean(F.square(centred), axis=2, keepdims=True) + eps)
    y = (centred * deviation).reshape(*x._tuple_shape)
    y = y if weight is None else y * _beside_channels(weight, x.ndim)
    y = y if bias is None else y + _beside_channels(bias, x.ndim)
    return y, mean.reshape(n, groups), deviation.reshape(n, groups)


# -- attention


def attention(
    q: Tensor, k: Tensor, v: Tensor, dropout: float = 0.0, is_causal: bool = False, *, attn_mask: Tensor | None = None, scale: float | None = None
) -> tuple[Tensor, ...]:
    """(result, logarithm of the sums). Scores are in float32, as torch has them: in bfloat16 ours would be rounded."""
    more, options = _attention_options(q, dropout, is_causal, attn_mask, scale)
    return tuple(ops.attention(*_wide(q, k, v), *more, **options))


def attention_backward(
    dy: Tensor, q: Tensor, k: Tensor, v: Tensor, y: Tensor, lse: Tensor, dropout: float, is_causal: bool, *,
    attn_mask: Tensor | None = None, scale: float | None = None,
) -> tuple[Tensor, ...]:  # fmt: skip
    more, options = _attention_options(q, dropout, is_causal, attn_mask, scale)
    return tuple(ops.attention_grad(*_wide(q, k, v, y, lse, dy), *more, **options))


def _wide(*tensors: Tensor) -> list[Tensor]:
    return [each.astype("float32") for each in tensors]


def _attention_options(
    q: Tensor, dropout: float, is_causal: bool, mask: Tensor | None, scale: float | None
) -> tuple[list[Tensor], dict[str, Any]]:
    if dropout:
        raise Unsupported("with dropout")
    if mask is not None and mask.dtype == np.bool_:
        mask = F.where(mask, F.zeros(()), F.full((), -math.inf))
    if mask is not None:
        mask = mask.reshape((1,) * (4 - mask.ndim) + mask._tuple_shape)
    options = {
        "scale": 1 / math.sqrt(q._tuple_shape[-1]) if scale is None else scale,
        "causal": int(is_causal), "masked": int(mask is not None), "zeros": 1,
    }  # fmt: skip
    return [] if mask is None else [mask.astype("float32")], options


# -- indices


def sort(x: Tensor, dim: int = -1, descending: bool = False, *, stable: bool | None = None) -> tuple[Tensor, Tensor]:
    """(values, places), equal ones in their order."""
    if x.dtype.itemsize < 4:
        raise Unsupported(f"of {x.dtype}, where equal ones would change places")
    return tuple(FUNCTIONS["sort"](x, dim, descending))


def slice_scatter(x: Tensor, part: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> Tensor:
    shape, dim = x._tuple_shape, dim % x.ndim
    first, last, step = slice(start, end, step).indices(shape[dim])

    def at(value: int, others: Sequence[int]) -> list[int]:
        return [value if axis == dim else other for axis, other in enumerate(others)]

    ones = [1] * x.ndim
    return ops.slice_set(x, part, begin=at(first, [0] * x.ndim), end=at(last, shape), step=at(step, ones))


def select_scatter(x: Tensor, part: Tensor, dim: int, index: int) -> Tensor:
    return slice_scatter(x, F.expand_dims(part, dim), dim, index, index + 1 or None)


def slice_backward(dy: Tensor, sizes: Sequence[int], dim: int, start: int, end: int, step: int) -> Tensor:
    return slice_scatter(F.zeros(tuple(sizes), dtype=dy.dtype.name), dy, dim, start, end, step)


def select_backward(dy: Tensor, sizes: Sequence[int], dim: int, index: int) -> Tensor:
    return select_scatter(F.zeros(tuple(sizes), dtype=dy.dtype.name), dy, dim, index)


def index(x: Tensor, indices: Sequence[Tensor | None]) -> Tensor:
    return x[tuple(slice(None) if i is None else i for i in indices)]


def index_put(x: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False) -> Tensor:
    if any(i is not None and i.dtype == np.bool_ for i in indices):
        raise Unsupported("at a mask")
    return FUNCTIONS["index_put"](x, indices, values, accumulate)


def embedding_backward(dy: Tensor, indices: Tensor, count: int, padding_idx: int, by_frequency: bool) -> Tensor:
    if by_frequency or padding_idx >= 0:
        raise Unsupported("with padding_idx or scale_grad_by_freq")
    return index_put(F.zeros((count, dy._tuple_shape[-1]), dtype=dy.dtype.name), [indices], dy, True)


# -- random numbers: keys of our generator, which a call seeds from torch's


def dropout(x: Tensor, p: float, train: bool | None) -> tuple[Tensor, Tensor]:
    """(result, what was kept)."""
    if train is False or p == 0:
        return x, F.ones(x._tuple_shape).astype("bool")
    mask = ops.dropout_mask(default_random_state().key(), shape=x._tuple_shape, drop_prob=p)
    return x * mask.astype(x.dtype), mask > 0


def rand(size: Sequence[int], **_: Any) -> Tensor:
    return ops.random_uniform(default_random_state().key(), shape=tuple(size))


def bernoulli(x: Tensor, p: float) -> Tensor:
    return (rand(x._tuple_shape) < p).astype(x.dtype)


# -- the rest


def var_mean(x: Tensor, dims: Any = None, *, correction: float = 1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    axes = _axes(dims, x.ndim)
    count = math.prod(x._tuple_shape[axis] for axis in axes)
    mean = F.mean(x, axis=axes, keepdims=True)
    var = F.mean(F.square(x - mean), axis=axes, keepdims=keepdim) * (count / (count - correction))
    return var, mean if keepdim else F.mean(x, axis=axes)


def arange(*bounds: float, dtype: str | None = None, **_: Any) -> Tensor:
    if any(isinstance(each, float) for each in bounds) and not (dtype or "float32").startswith(("float", "bfloat")):
        raise Unsupported("whole numbers from bounds that are not")
    return FUNCTIONS["arange"](*bounds, dtype=dtype)


def full(size: Sequence[int], value: Any, *, dtype: str | None = None, **_: Any) -> Tensor:
    return F.full(tuple(size), value, dtype=dtype or ("float32" if isinstance(value, float) else "bool" if isinstance(value, bool) else "int64"))


def with_alpha(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, y, alpha=1: function(x, y if alpha == 1 else y * alpha)


TABLE: dict[str, Callable[..., Any]] = {
    "convolution_backward": convolution_backward,
    "max_pool2d_with_indices": max_pool2d, "max_pool2d_with_indices_backward": max_pool2d_backward,
    **dict.fromkeys(("avg_pool2d_backward", "avg_pool3d_backward"), avg_pool_backward),
    **dict.fromkeys((f"replication_pad{rank}d_backward" for rank in (1, 2, 3)), replication_pad_backward),
    "_adaptive_avg_pool2d_backward": lambda dy, x: ops.adaptive_avg_pool_grad(dy, input_shape=x._tuple_shape[-2:]),
    "_native_batch_norm_legit_functional": batch_norm, "_native_batch_norm_legit.no_stats": batch_norm_without_statistics, "native_batch_norm_backward": batch_norm_backward, "native_layer_norm": layer_norm, "native_group_norm": group_norm,
    "_scaled_dot_product_flash_attention_for_cpu": attention,
    "_scaled_dot_product_flash_attention_for_cpu_backward": attention_backward,
    "slice_scatter": slice_scatter, "select_scatter": select_scatter, "slice_backward": slice_backward, "select_backward": select_backward,
    "sort": sort, "argsort": lambda *given, **options: sort(*given, **options)[1],
    "index": index, "_unsafe_index": index, "index_put": index_put, "_unsafe_index_put": index_put,
    "embedding_dense_backward": embedding_backward,
    "native_dropout": dropout, "rand": rand, "bernoulli.p": bernoulli,
    "var": lambda *given, **options: var_mean(*given, **options)[0], "var_mean": var_mean,
    "arange": arange, "full": full, "scalar_tensor": lambda value, **options: full((), value, **options),
    **dict.fromkeys(("empty", "empty_permuted", "empty_strided"), lambda size, *order, dtype=None, **_: F.zeros(tuple(size), dtype=dtype or "float32")),
    "new_empty_strided": lambda x, size, strides, **options: FUNCTIONS["new_empty"](x, size, **options),
    "add": with_alpha(lambda x, y: x + y), "sub": with_alpha(lambda x, y: x - y),
    "mul.Scalar": lambda x, y: x * y,
    "copy": lambda x, value: F.broadcast_to(value, x._tuple_shape).astype(x.dtype),
    "bitwise_not": lambda x: ops.logical_not(x) if x.dtype == np.bool_ else ~x,
    "sigmoid_backward": lambda dy, y: dy * y * (1 - y), "tanh_backward": lambda dy, y: dy * (1 - y * y),
    "threshold_backward": lambda dy, y, threshold: F.where(y > threshold, dy, F.zeros_like(dy)),
    "_softmax_backward_data": lambda dy, y, dim, dtype: y * (dy - F.sum(dy * y, axis=dim, keepdims=True)),
    "_log_softmax_backward_data": lambda dy, y, dim, dtype: dy - F.exp(y) * F.sum(dy, axis=dim, keepdims=True),
    "sym_size": lambda x, dim: x._tuple_shape[dim], "sym_numel": lambda x: math.prod(x._tuple_shape),
    "alias": lambda x: x, "detach": lambda x: x, "clone": lambda x, **_: x, "lift_fresh_copy": lambda x: x,
    "scatter.value": lambda x, dim, where, value: ops.scatter(x, where, F.full(where._tuple_shape, value, dtype=x.dtype.name), axis=dim),
    "scatter.src": lambda x, dim, where, value: ops.scatter(x, where, value, axis=dim),
    "scatter_add": lambda x, dim, where, value: ops.scatter_add(x, where, value, axis=dim),
}  # fmt: skip
# torch multiplies each expert's own rows, ours all rows by all experts.
_BETTER_THERE = {"_grouped_mm"}
# Draw from a generator.
RANDOM = {"native_dropout", "rand", "bernoulli"}


def function_of(name: str) -> Callable[..., Any] | None:
    """What computes ``aten.<name>``, such as "add.Tensor"; None where torch does."""
    packet = name.partition(".")[0]
    if packet in _BETTER_THERE:
        return None
    return TABLE.get(name) or TABLE.get(packet) or OPERATORS.get(packet) or FUNCTIONS.get(packet)
