"""Normalizations, softmax and related operators."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import functional as F
from ...core import ops
from ...tensor import Tensor
from ._table import axis_of, counterpart, wide


@counterpart("Softmax")
def softmax(x: Tensor, *, axis: int = -1) -> Tensor:
    if x.dtype.name == "float64":
        return F.exp(log_softmax(x, axis=axis))
    return ops.softmax(x, axis=axis_of(axis, x.ndim))


@counterpart("LogSoftmax")
def log_softmax(x: Tensor, *, axis: int = -1) -> Tensor:
    if x.dtype.name == "float64":
        return x - F.logsumexp(x, axis_of(axis, x.ndim), True)
    return ops.log_softmax(x, axis=axis_of(axis, x.ndim))


@counterpart("Hardmax")
def hardmax(x: Tensor, *, axis: int = -1) -> Tensor:
    axis = axis_of(axis, x.ndim)
    places = F.argmax(x, axis=axis, keepdims=True)
    extent: Any = x.shape[axis]
    line = Tensor(np.arange(extent, dtype=np.int32).reshape([-1 if a == axis else 1 for a in range(x.ndim)]))
    return F.equal(places, line).astype(x.dtype)


def _across(x: Tensor, rank: int) -> Tensor:
    return F.reshape(x, (1, -1) + (1,) * (rank - 2))


@counterpart("BatchNormalization", counts_results=True)
def batch_normalization(
    x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, var: Tensor, *, epsilon: float = 1e-5, momentum: float = 0.9,
    training_mode: int = 0, spatial: int = 1, results: int = 1,
) -> Any:  # fmt: skip
    """Normalizes; in training by the statistics of the batch, and then returns the running ones
    too, with the biased variance.
    """
    if not training_mode and x.dtype.name == "float64":
        return (x - _across(mean, x.ndim)) / F.sqrt(_across(var, x.ndim) + epsilon) * _across(scale, x.ndim) + _across(bias, x.ndim)
    if not training_mode:
        return F.nn.batch_norm(x, mean, var, scale, bias, eps=epsilon)
    axes = (0, *range(2, x.ndim))
    own_mean = F.mean(x, axis=axes)
    own_var = F.mean(F.square(x - _across(own_mean, x.ndim)), axis=axes)
    y = F.nn.batch_norm(x, own_mean, own_var, scale, bias, eps=epsilon)
    running = (mean * momentum + own_mean * (1 - momentum), var * momentum + own_var * (1 - momentum))
    return (y, *running)[:results] if results > 1 else y


def _normalized(x: Tensor, axes: tuple[int, ...], epsilon: float) -> tuple[Tensor, Tensor, Tensor]:
    """Returns x with mean 0 and variance 1 over the axes, the mean, and one over the deviation."""
    real = wide(x)
    mean = ops.reduce_mean(real, axes=axes, keepdims=1)
    centred = real - mean
    inverse = 1 / F.sqrt(ops.reduce_mean(F.square(centred), axes=axes, keepdims=1) + epsilon)
    return (centred * inverse).astype(x.dtype), mean, inverse


@counterpart("LayerNormalization", counts_results=True)
def layer_normalization(
    x: Tensor, scale: Tensor, bias: Tensor | None = None, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1, results: int = 1
) -> Any:
    axes = tuple(range(axis_of(axis, x.ndim), x.ndim))
    y, mean, inverse = _normalized(x, axes, epsilon)
    y = y * scale if bias is None else y * scale + bias
    return (y, mean, inverse)[:results] if results > 1 else y


@counterpart("RMSNormalization")
def rms_normalization(x: Tensor, scale: Tensor, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1) -> Tensor:
    axes = tuple(range(axis_of(axis, x.ndim), x.ndim))
    real = wide(x)
    size = F.sqrt(ops.reduce_mean(F.square(real), axes=axes, keepdims=1) + epsilon)
    return (real / size).astype(x.dtype) * scale


@counterpart("InstanceNormalization")
def instance_normalization(x: Tensor, scale: Tensor, bias: Tensor, *, epsilon: float = 1e-5) -> Tensor:
    y, _, _ = _normalized(x, tuple(range(2, x.ndim)), epsilon)
    return y * _across(scale, x.ndim) + _across(bias, x.ndim)


@counterpart("GroupNormalization")
def group_normalization(
    x: Tensor, scale: Tensor, bias: Tensor, *, num_groups: int, epsilon: float = 1e-5, stash_type: int = 1
) -> Tensor:
    """Normalizes groups of channels. scale, bias: one for each channel, or for each group up to
    opset 20.
    """
    channels = x.shape[1]
    y, _, _ = _normalized(F.reshape(x, (x.shape[0], num_groups, -1)), (2,), epsilon)
    if scale.shape[0] != channels:
        scale, bias = (F.repeat(part, channels // num_groups) for part in (scale, bias))
    return F.reshape(y, x._tuple_shape) * _across(scale, x.ndim) + _across(bias, x.ndim)


@counterpart("MeanVarianceNormalization")
def mean_variance_normalization(x: Tensor, *, axes: Any = (0, 2, 3)) -> Tensor:
    return _normalized(x, tuple(sorted(axis_of(axis, x.ndim) for axis in axes)), 1e-9)[0]


@counterpart("LpNormalization")
def lp_normalization(x: Tensor, *, axis: int = -1, p: int = 2) -> Tensor:
    """Divides lines by their norms; lines of zeros stay."""
    axes = (axis_of(axis, x.ndim),)
    total = ops.reduce_sum(F.abs(x) if p == 1 else F.square(x), axes=axes, keepdims=1)
    length = total if p == 1 else F.sqrt(total)
    return x / F.where(F.equal(length, 0), F.ones_like(length), length)


@counterpart("LRN")
def local_response_normalization(x: Tensor, *, size: int, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0) -> Tensor:
    before, rest = (size - 1) // 2, (0,) * (x.ndim - 2)
    squares = ops.pad(F.square(x), before=(0, before, *rest), after=(0, size - 1 - before, *rest), mode="constant", value=0.0)
    total = squares[:, : x.shape[1]]
    for shift in range(1, size):
        total = total + squares[:, shift : shift + x.shape[1]]
    return x / F.pow(total * (alpha / size) + bias, beta)


@counterpart("RotaryEmbedding")
def rotary_embedding(
    x: Tensor, cos: Tensor, sin: Tensor, positions: Tensor | None = None, *, interleaved: int = 0, num_heads: int = 0,
    rotary_embedding_dim: int = 0,
) -> Tensor:  # fmt: skip
    """Rotates pairs of elements by position. x: [n, heads, t, size], or [n, t, heads * size] with
    num_heads.
    """
    shape = x._tuple_shape
    if x.ndim == 3:
        x = F.reshape(x, (*shape[:2], num_heads, -1))
    else:
        x = F.transpose(x, (0, 2, 1, 3))
    width = rotary_embedding_dim or x.shape[-1]
    if positions is not None:
        cos, sin = (ops.index_get(table, positions.astype("int32"), axes=(0,)) for table in (cos, sin))
    cos, sin = (F.expand_dims(table[..., : width // 2], 2) for table in (cos, sin))
    turned, rest = x[..., :width], x[..., width:]
    even, odd = (turned[..., ::2], turned[..., 1::2]) if interleaved else (turned[..., : width // 2], turned[..., width // 2 :])
    real, imaginary = cos * even - sin * odd, sin * even + cos * odd
    if interleaved:
        joined = F.reshape(F.stack([real, imaginary], axis=-1), turned._tuple_shape)
    else:
        joined = F.concat([real, imaginary], axis=-1)
    y = F.concat([joined, rest], axis=-1) if rest.shape[-1] else joined
    return F.reshape(y, shape) if len(shape) == 3 else F.transpose(y, (0, 2, 1, 3))
