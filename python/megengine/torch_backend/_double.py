"""Norms, softmax and attention of float64, for which megjit's own kernels have float32 alone: in element-wise ops, sums and products."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from .. import functional as F
from ..core import ops
from ..tensor import Tensor


def is_double(x: Tensor) -> bool:
    return x.dtype == np.float64


def wide(x: Tensor) -> Tensor:
    """Returns a tensor in the dtype of its statistics: float64 of float64, else float32."""
    return x if is_double(x) else x.astype("float32")


def beside_channels(value: Tensor, ndim: int) -> Tensor:
    return value.reshape(1, -1, *(1,) * (ndim - 2))


def _over_channels(x: Tensor) -> list[int]:
    return [axis for axis in range(x.ndim) if axis != 1]


def batch_norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """Returns (result, mean, variance), the last two of shape (channels,)."""
    axes = _over_channels(x)
    mean = F.mean(x, axis=axes, keepdims=True)
    centred = x - mean
    var = F.mean(F.square(centred), axis=axes, keepdims=True)
    y = centred * ops.rsqrt(var + eps) * beside_channels(weight, x.ndim) + beside_channels(bias, x.ndim)
    return y, F.flatten(mean), F.flatten(var)


def batch_norm_sums(dy: Tensor, x: Tensor, mean: Tensor, deviation: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the gradients of the weight and of the bias. deviation: its reciprocal."""
    axes = _over_channels(x)
    normal = (x - beside_channels(mean, x.ndim)) * beside_channels(deviation, x.ndim)
    return F.sum(dy * normal, axis=axes), F.sum(dy, axis=axes)


def batch_norm_grad(dy: Tensor, x: Tensor, mean: Tensor, deviation: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the gradients of x, of the weight and of the bias."""
    of_weight, of_bias = batch_norm_sums(dy, x, mean, deviation)
    mean, deviation, weight, along, total = (beside_channels(each, x.ndim) for each in (mean, deviation, weight, of_weight, of_bias))
    count = math.prod(x._tuple_shape) // x._tuple_shape[1]
    return (dy - (total + (x - mean) * deviation * along) / count) * (deviation * weight), of_weight, of_bias


def softmax(x: Tensor, dim: int, is_log: bool = False) -> Tensor:
    if not x.size:
        return x
    shifted = x - F.max(x, axis=dim, keepdims=True)
    total = F.sum(F.exp(shifted), axis=dim, keepdims=True)
    return shifted - F.log(total) if is_log else F.exp(shifted) / total


def _scores(q: Tensor, k: Tensor, mask: Sequence[Tensor], scale: float, causal: int) -> Tensor:
    scores = F.matmul(q, k, transpose_b=True) * scale
    for each in mask:
        scores = scores + each
    if causal:
        queries, keys = scores._tuple_shape[-2:]
        hidden = np.where(np.tri(queries, keys, dtype=np.bool_), 0.0, -math.inf)
        scores = scores + Tensor(hidden, dtype="float64")
    return scores


def attention(q: Tensor, k: Tensor, v: Tensor, mask: Sequence[Tensor], scale: float, causal: int) -> tuple[Tensor, Tensor]:
    """Returns (result, logarithms of the sums). Rows in which all is hidden are 0."""
    scores = _scores(q, k, mask, scale, causal)
    sums = F.logsumexp(scores, -1)
    return F.matmul(_weights(scores, sums), v), sums


def attention_grad(
    dy: Tensor, q: Tensor, k: Tensor, v: Tensor, y: Tensor, sums: Tensor, mask: Sequence[Tensor], scale: float, causal: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the gradients of q, k and v."""
    weights = _weights(_scores(q, k, mask, scale, causal), sums)
    along = F.sum(dy * y, axis=-1, keepdims=True)
    of_scores = weights * (F.matmul(dy, v, transpose_b=True) - along) * scale
    return F.matmul(of_scores, k), F.matmul(of_scores, q, transpose_a=True), F.matmul(weights, dy, transpose_a=True)


def _weights(scores: Tensor, sums: Tensor) -> Tensor:
    sums = F.expand_dims(sums, -1)
    return F.where(sums == -math.inf, F.zeros_like(scores), F.exp(scores - sums))
