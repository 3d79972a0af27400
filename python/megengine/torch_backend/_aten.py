"""ATen operators on our tensors that graphs of AOTAutograd have and `fx.torchlike` lacks, or gives
fewer results of.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .. import functional as F
from .._core import default_random_state
from ..core import ops
from ..fx.torchlike import FUNCTIONS, OPERATORS
from ..tensor import Tensor
from . import _bags, _ctc, _double, _linalg, _places, _pointwise, _pools, _reductions
from ._double import beside_channels, is_double, wide
from ._forms import Unsupported

# -- convolutions


def convolution_backward(
    dy: Tensor, x: Tensor, w: Tensor, bias_sizes: Any, stride: Any, padding: Any, dilation: Any, transposed: bool, output_padding: Any, groups: int, mask: Any
) -> tuple[Tensor | None, ...]:
    rank = len(stride)
    window: dict[str, Any] = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    kernel, image = w._tuple_shape[-rank:], x._tuple_shape[-rank:]
    bias = F.sum(dy, axis=[0, *range(2, rank + 2)]) if mask[2] else None
    # a transposed convolution is the gradient of a convolution, and its gradient is a convolution
    if transposed:
        data = ops.conv(dy, w, **window) if mask[0] else None
        return data, ops.conv_backward_filter(dy, x, kernel=kernel, **window) if mask[1] else None, bias
    data = ops.conv_backward_data(dy, w, input_shape=image, **window) if mask[0] else None
    return data, ops.conv_backward_filter(x, dy, kernel=kernel, **window) if mask[1] else None, bias


# -- normalization: with mean and reciprocal deviation, which backward reads


def _scale_of(x: Tensor, weight: Tensor | None) -> Tensor:
    return F.ones((x._tuple_shape[1],)) if weight is None else weight


def batch_norm(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, running_mean: Tensor, running_var: Tensor, training: bool, momentum: float, eps: float
) -> tuple[Tensor, ...]:
    """Returns (result, mean, reciprocal deviation, new running mean, new running variance)."""
    weight, bias = _scale_of(x, weight), F.zeros((x._tuple_shape[1],)) if bias is None else bias
    if not training:
        factor = ops.rsqrt(running_var + eps) * weight
        y = (x - beside_channels(running_mean, x.ndim)) * beside_channels(factor, x.ndim) + beside_channels(bias, x.ndim)
        empty = F.zeros((0,))
        return y, empty, empty, running_mean, running_var
    count = math.prod(x._tuple_shape) // x._tuple_shape[1]
    y, *statistics = (_double.batch_norm if is_double(x) else ops.batch_norm)(x, weight, bias, eps=eps)
    mean, var = (F.flatten(each) for each in statistics)
    new_mean = running_mean * (1 - momentum) + mean * momentum
    return y, mean, ops.rsqrt(var + eps), new_mean, running_var * (1 - momentum) + var * (momentum * count / (count - 1))


def batch_norm_without_statistics(x: Tensor, weight: Tensor | None, bias: Tensor | None, training: bool, momentum: float, eps: float) -> tuple[Tensor, ...]:
    """Returns (result, mean, reciprocal deviation)."""
    zeros = F.zeros((x._tuple_shape[1],))
    return batch_norm(x, weight, bias, zeros, zeros, True, momentum, eps)[:3]


def batch_norm_backward(
    dy: Tensor, x: Tensor, weight: Tensor | None, running_mean: Tensor, running_var: Tensor, mean: Tensor, deviation: Tensor, training: bool, eps: float, mask: Any
) -> tuple[Tensor, ...]:
    scale = _scale_of(x, weight)
    if training and is_double(x):
        return _double.batch_norm_grad(dy, x, mean, deviation, scale)
    if training:
        mean, deviation = _wide(mean, deviation)
        return tuple(ops.batch_norm_grad(x, mean, 1 / F.square(deviation), scale, dy, eps=0.0))
    factor = ops.rsqrt(running_var + eps) * scale
    in_double = is_double(x)
    sums = _double.batch_norm_sums(dy, x, running_mean, ops.rsqrt(running_var + eps)) if in_double else ops.batch_norm_grad_sums(x, running_mean, running_var, dy, eps=eps)
    return (dy * beside_channels(factor, x.ndim)).astype(x.dtype), *sums


def layer_norm(x: Tensor, shape: Sequence[int], weight: Tensor | None, bias: Tensor | None, eps: float) -> tuple[Tensor, ...]:
    """Returns (result, mean, reciprocal deviation), the last two with axes of extent 1."""
    axes = list(range(x.ndim - len(shape), x.ndim))
    mean = F.mean(wide(x), axis=axes, keepdims=True)
    centred = wide(x) - mean
    deviation = ops.rsqrt(F.mean(F.square(centred), axis=axes, keepdims=True) + eps)
    y = centred * deviation
    y = y if weight is None else y * weight
    return (y if bias is None else y + bias).astype(x.dtype), mean, deviation


def group_norm(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, n: int, c: int, size: int, groups: int, eps: float
) -> tuple[Tensor, ...]:
    """Returns (result, mean, reciprocal deviation), the last two (n, groups)."""
    parts = x.reshape(n, groups, -1)
    mean = F.mean(parts, axis=2, keepdims=True)
    centred = parts - mean
    deviation = ops.rsqrt(F.mean(F.square(centred), axis=2, keepdims=True) + eps)
    y = (centred * deviation).reshape(*x._tuple_shape)
    y = y if weight is None else y * beside_channels(weight, x.ndim)
    y = y if bias is None else y + beside_channels(bias, x.ndim)
    return y, mean.reshape(n, groups), deviation.reshape(n, groups)


# -- attention


def attention(
    q: Tensor, k: Tensor, v: Tensor, dropout: float = 0.0, is_causal: bool = False, *, attn_mask: Tensor | None = None, scale: float | None = None
) -> tuple[Tensor, ...]:
    """Returns (result, logarithm of the sums). Scores are in float32, as torch has them: in
    bfloat16 ours would be rounded.
    """
    more, options = _attention_options(q, dropout, is_causal, attn_mask, scale)
    if is_double(q):
        return _double.attention(q, k, v, more, options["scale"], options["causal"])
    return tuple(ops.attention(*_wide(q, k, v), *more, **options))


def attention_backward(
    dy: Tensor, q: Tensor, k: Tensor, v: Tensor, y: Tensor, lse: Tensor, dropout: float, is_causal: bool, *,
    attn_mask: Tensor | None = None, scale: float | None = None,
) -> tuple[Tensor, ...]:  # fmt: skip
    more, options = _attention_options(q, dropout, is_causal, attn_mask, scale)
    if is_double(q):
        return _double.attention_grad(dy, q, k, v, y, lse, more, options["scale"], options["causal"])
    return tuple(ops.attention_grad(*_wide(q, k, v, y, lse, dy), *more, **options))


# On GPUs torch has another operation for it: rows of sums are padded to multiples of 32, and dropout's masks come from two numbers.
_ROWS_OF_SUMS = 32


def attention_on_gpus(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, with_sums: bool, dropout: float = 0.0, is_causal: bool = False, *, scale: float | None = None
) -> tuple[Tensor, ...]:
    """Returns (result, logarithm of the sums, seed, offset)."""
    y, sums = attention(q, k, v, dropout, is_causal, attn_mask=bias, scale=scale)
    more = -sums._tuple_shape[-1] % _ROWS_OF_SUMS
    sums = F.pad(sums, ((0, 0), (0, 0), (0, more))) if with_sums else sums[:, :, :0]
    number = F.zeros((), dtype="int64")
    return y, sums, number, number


def attention_on_gpus_backward(
    dy: Tensor, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, y: Tensor, sums: Tensor, seed: Tensor, offset: Tensor, dropout: float,
    wanted: Sequence[bool], is_causal: bool = False, *, scale: float | None = None,
) -> tuple[Tensor | None, ...]:  # fmt: skip
    if wanted[3]:
        raise Unsupported("with a gradient of its mask")
    gradients = attention_backward(dy, q, k, v, y, sums[:, :, : q._tuple_shape[-2]], dropout, is_causal, attn_mask=bias, scale=scale)
    return *gradients, None if bias is None else F.zeros_like(bias)


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
    return [] if mask is None else [wide(mask)], options


# -- products of groups, as transformers has them where torch has no kernel


def experts_backward(x: Tensor, weight: Tensor, ends: Tensor, dy: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the gradients of the rows and of the weights."""
    ends = ends.astype("int32")
    return ops.grouped_matmul(dy, weight, ends, transpose_b=1), ops.grouped_matmul(x, dy, ends, transpose_a=1)


# -- random numbers: keys of our generator, which a call seeds from torch's


def dropout(x: Tensor, p: float, train: bool | None) -> tuple[Tensor, Tensor]:
    """Returns (result, mask of the kept elements)."""
    if train is False or p == 0:
        return x, F.ones(x._tuple_shape).astype("bool")
    mask = ops.dropout_mask(default_random_state().key(), shape=x._tuple_shape, drop_prob=p)
    return x * mask.astype(x.dtype), mask > 0


def rand(size: Sequence[int], **_: Any) -> Tensor:
    return ops.random_uniform(default_random_state().key(), shape=tuple(size))


def bernoulli(x: Tensor, p: float) -> Tensor:
    return (rand(x._tuple_shape) < p).astype(x.dtype)


# -- the rest


def arange(*bounds: float, dtype: str | None = None, **_: Any) -> Tensor:
    if not (dtype or "float32").startswith(("float", "bfloat")):
        if any(each != int(each) for each in bounds):
            raise Unsupported("whole numbers from bounds that are not")
        bounds = tuple(map(int, bounds))
    return FUNCTIONS["arange"](*bounds, dtype=dtype)


def full(size: Sequence[int], value: Any, *, dtype: str | None = None, **_: Any) -> Tensor:
    return F.full(tuple(size), value, dtype=dtype or ("float32" if isinstance(value, float) else "bool" if isinstance(value, bool) else "int64"))


def with_alpha(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, y, alpha=1: function(x, y if alpha == 1 else y * alpha)


TABLE: dict[str, Callable[..., Any]] = {
    **_reductions.ROWS, **_places.ROWS, **_bags.ROWS, **_pools.ROWS, **_pointwise.ROWS, **_linalg.ROWS, **_ctc.ROWS,
    "convolution_backward": convolution_backward,
    "_native_batch_norm_legit_functional": batch_norm, "_native_batch_norm_legit.no_stats": batch_norm_without_statistics, "native_batch_norm_backward": batch_norm_backward, "native_layer_norm": layer_norm, "native_group_norm": group_norm,
    "_scaled_dot_product_flash_attention_for_cpu": attention,
    "_scaled_dot_product_flash_attention_for_cpu_backward": attention_backward,
    "_scaled_dot_product_efficient_attention": attention_on_gpus, "_scaled_dot_product_efficient_attention_backward": attention_on_gpus_backward,
    "transformers::grouped_mm_fallback": FUNCTIONS["grouped_mm"], "transformers::grouped_mm_fallback_backward": experts_backward,
    "native_dropout": dropout, "rand": rand, "bernoulli.p": bernoulli,
    "arange": arange, "full": full, "scalar_tensor": lambda value, **options: full((), value, **options),
    **dict.fromkeys(("empty", "empty_permuted", "empty_strided"), lambda size, *order, dtype=None, **_: F.zeros(tuple(size), dtype=dtype or "float32")),
    "new_empty_strided": lambda x, size, strides, **options: FUNCTIONS["new_empty"](x, size, **options),
    "add": with_alpha(lambda x, y: x + y), "sub": with_alpha(lambda x, y: x - y),
    "mul.Scalar": lambda x, y: x * y,
    "copy": lambda x, value: F.broadcast_to(value, x._tuple_shape).astype(x.dtype),
    "bitwise_not": lambda x: ops.logical_not(x) if x.dtype == np.bool_ else ~x,
    "sigmoid_backward": lambda dy, y: dy * y * (1 - y), "tanh_backward": lambda dy, y: dy * (1 - y * y),
    "threshold_backward": lambda dy, y, threshold: F.where(y > threshold, dy, F.zeros_like(dy)),
    "sym_size": lambda x, dim: x._tuple_shape[dim], "sym_numel": lambda x: math.prod(x._tuple_shape),
    "alias": lambda x: x, "detach": lambda x: x, "clone": lambda x, **_: x, "lift_fresh_copy": lambda x: x,
}  # fmt: skip
# Operations that draw from a generator.
RANDOM = {"native_dropout", "rand", "bernoulli"}


def function_of(name: str) -> Callable[..., Any] | None:
    """Returns the function that computes ``aten.<name>``, such as "add.Tensor", or an operation of
    another namespace, "transformers::<name>"; None if torch does.
    """
    packet = name.partition(".")[0]
    return TABLE.get(name) or TABLE.get(packet) or OPERATORS.get(packet) or FUNCTIONS.get(packet)
