"""Attention in its forms, with and without caches, and other operators of language models with
states.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ... import functional as F
from ...core import ops
from ...tensor import Tensor
from ._table import axis_of, counterpart, wide
from .arrays import matmul
from .layers import softmax


def _split(x: Tensor, heads: int) -> Tensor:
    """Returns [n, heads, t, width] of [n, t, heads * width]."""
    n, t, width = x._tuple_shape
    if heads < 1 or width % heads:
        raise ValueError(f"attention: {width} features cannot be split into {heads} heads")
    return F.transpose(F.reshape(x, (n, t, heads, width // heads)), (0, 2, 1, 3))


def _joined(x: Tensor) -> Tensor:
    """Returns [n, t, heads * width] of [n, heads, t, width]."""
    n, heads, t, width = x._tuple_shape
    return F.reshape(F.transpose(x, (0, 2, 1, 3)), (n, t, heads * width))


def _line(extent: Any, axis: int) -> Tensor:
    """0, 1, ... along an axis of four."""
    return Tensor(np.arange(extent, dtype=np.int32).reshape([-1 if a == axis else 1 for a in range(4)]))


def _hidden(allowed: Tensor) -> Tensor:
    """Returns what is added to scores: 0 where a key is seen, else -inf."""
    zero = F.zeros(allowed._tuple_shape)
    return F.where(allowed, zero, F.full_like(zero, -math.inf))


def _windows(ahead: Tensor, causal: bool, left: int, right: int) -> Tensor | None:
    """Returns a mask of the keys that a query sees by its place alone. ahead: the query's place
    minus the key's.
    """
    parts = [ahead >= 0] if causal else []
    parts += [ahead <= left] if left >= 0 else []
    parts += [ahead >= -right] if right >= 0 else []
    seen = None
    for part in parts:
        seen = part if seen is None else F.logical_and(seen, part)
    return seen


def _bias(mask: Tensor | None, keys: int) -> Tensor | None:
    """Turns a mask into numbers that are added to scores, one column for each key; keys after its
    last column are hidden.
    """
    if mask is None:
        return None
    bias = _hidden(mask) if mask.dtype == np.bool_ else mask.astype("float32")
    lacking = keys - bias._tuple_shape[-1]
    if lacking > 0:
        widths = (0,) * (bias.ndim - 1)
        bias = ops.pad(bias, before=(*widths, 0), after=(*widths, lacking), mode="constant", value=-math.inf)
    return bias


def _offset(q: Tensor, past: Tensor | None, lengths: Tensor | None) -> Any:
    """Returns the place of the first query among the keys; one for each example of a batch if they
    differ.
    """
    if past is not None:
        return past.shape[2]
    return 0 if lengths is None else F.reshape(lengths.astype("int32"), (-1, 1, 1, 1)) - q.shape[2]


@counterpart("Attention", counts_results=True)
def attention(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, past_key: Tensor | None = None, past_value: Tensor | None = None,
    lengths: Tensor | None = None, *, is_causal: int = 0, kv_num_heads: int = 0, q_num_heads: int = 0, qk_matmul_output_mode: int = 0,
    scale: float | None = None, softcap: float = 0.0, softmax_precision: int = 0, left_window_size: int = -1, right_window_size: int = -1,
    results: int = 1,
) -> Any:  # fmt: skip
    """lengths: the number of keys of each example that are not padding. Returns also keys and
    values with those of the past, and scores.
    """
    if (past_key is None) != (past_value is None):
        raise ValueError("Attention: past_key and past_value go together\n  fix: give both, or neither")
    is_joined = q.ndim == 3
    if is_joined:
        q, k, v = _split(q, q_num_heads), _split(k, kv_num_heads), _split(v, kv_num_heads)
    offset = _offset(q, past_key, lengths)
    if past_key is not None and past_value is not None:
        k, v = F.concat([past_key, k], axis=2), F.concat([past_value, v], axis=2)
    bias = _bias(mask, k._tuple_shape[2])
    is_plain = past_key is None and lengths is None and max(left_window_size, right_window_size) < 0
    if not is_plain:
        ahead = _line(q.shape[2], 2) + offset - _line(k.shape[2], 3)
        seen = _windows(ahead, bool(is_causal), left_window_size, right_window_size)
        if lengths is not None:
            real = _line(k.shape[2], 3) < F.reshape(lengths.astype("int32"), (-1, 1, 1, 1))
            seen = real if seen is None else F.logical_and(seen, real)
        if seen is not None:
            bias = _hidden(seen) if bias is None else bias + _hidden(seen)
    is_causal = int(bool(is_causal) and is_plain)
    if softcap or results > 3 or "float64" in (q.dtype.name, v.dtype.name):
        y, scores = _by_scores(q, k, v, bias, scale, is_causal, softcap, qk_matmul_output_mode)
    else:
        y, scores = F.scaled_dot_product_attention(q, k, v, bias, is_causal=bool(is_causal), scale=scale, enable_gqa=True), None
    y = (_joined(y) if is_joined else y).astype(q.dtype)
    return (y, k, v, scores)[:results] if results > 1 else y


def _by_scores(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, scale: float | None, causal: int, softcap: float, mode: int
) -> tuple[Tensor, Tensor]:
    """Computes attention with all scores in memory, and returns these too: as products, with the
    cap, with masks, or as weights.
    """
    k, v = (F.repeat(part, q._tuple_shape[1] // part._tuple_shape[1], axis=1) for part in (k, v))
    dtype = q.dtype.name
    q, k, v = wide(q), wide(k), wide(v)
    root = math.sqrt(1 / math.sqrt(q._tuple_shape[-1]) if scale is None else scale)
    scores = matmul(q * root, F.transpose(k, (0, 1, 3, 2)) * root)
    capped = F.tanh(scores / softcap) * softcap if softcap else scores
    if causal:
        rows = _hidden(_line(q.shape[2], 2) >= _line(k.shape[2], 3))
        bias = rows if bias is None else bias + rows
    biased = capped if bias is None else capped + bias
    weights = softmax(biased, axis=-1)
    if bias is not None:
        is_hidden = F.equal(F.max(bias, axis=-1, keepdims=True), -math.inf)
        weights = F.where(F.broadcast_to(is_hidden, weights._tuple_shape), F.zeros_like(weights), weights)
    shown = (scores, capped, biased, weights)[mode]
    return matmul(weights, v).astype(dtype), shown.astype(dtype)


@counterpart("LinearAttention", counts_results=True)
def linear_attention(
    q: Tensor, k: Tensor, v: Tensor, state: Tensor | None = None, decay: Tensor | None = None, beta: Tensor | None = None, *,
    chunk_size: int = 64, kv_num_heads: int, q_num_heads: int, scale: float = 0.0, update_rule: str = "gated_delta", results: int = 1,
) -> Any:  # fmt: skip
    """Computes one token after the other: a state [n, heads, width, width of values] fades by
    ``decay`` and adds each key and value.
    """
    is_gated, is_delta = "gated" in update_rule, "delta" in update_rule
    if (decay is None) == is_gated or (beta is None) == is_delta:
        raise ValueError(f"LinearAttention: the inputs do not fit update_rule {update_rule!r}\n  why: gated rules have a decay, delta rules a beta")
    dtype, state_dtype = q.dtype.name, (q if state is None else state).dtype.name
    queries, keys, values = (_split(part.astype("float32"), heads) for part, heads in ((q, q_num_heads), (k, kv_num_heads), (v, kv_num_heads)))
    n, heads, _, width = keys._tuple_shape
    if state is None:
        state = F.zeros((n, heads, width, values._tuple_shape[-1]))
    more = []
    if is_gated and decay is not None:
        fading = F.exp(_split(decay.astype("float32"), heads))
        more.append(F.broadcast_to(fading, keys._tuple_shape))
    if is_delta and beta is not None:
        rate = F.expand_dims(F.transpose(beta.astype("float32"), (0, 2, 1)), 3)
        more.append(F.broadcast_to(rate, (*keys._tuple_shape[:3], 1)))

    def step(held: Tensor, rows: list[Tensor]) -> tuple[Tensor, Tensor]:
        query, key, value, *rest = rows
        held = held * F.expand_dims(rest[0], -1) if is_gated else held
        if is_delta:
            value = rest[-1] * (value - F.sum(held * F.expand_dims(key, -1), axis=2))
        held = held + F.expand_dims(key, -1) * F.expand_dims(value, 2)
        seen = F.repeat(held, q_num_heads // heads, axis=1)
        return held, F.sum(seen * F.expand_dims(query, -1), axis=2)

    rows = [F.transpose(part, (2, 0, 1, 3)) for part in (queries, keys, values, *more)]
    last, tokens = F.scan(step, state.astype("float32"), rows)
    y = F.reshape(F.transpose(tokens, (1, 0, 2, 3)), (n, q._tuple_shape[1], -1)) * (scale or 1 / math.sqrt(width))
    return (y.astype(dtype), last.astype(state_dtype)) if results > 1 else y.astype(dtype)


@counterpart("CausalConvWithState", counts_results=True)
def causal_conv_with_state(
    x: Tensor, w: Tensor, b: Tensor | None = None, past: Tensor | None = None, *, activation: str = "none", results: int = 1
) -> Any:
    """Convolves each channel with its own kernel, after ``past`` or zeros. Returns also the end,
    which is the next past.
    """
    channels, _, size = w._tuple_shape
    if past is None:
        held = ops.pad(x, before=(0, 0, size - 1), after=(0, 0, 0), mode="constant", value=0.0)
    else:
        held = F.concat([past, x], axis=2)
    y = ops.conv(held, w, stride=(1,), padding=(0,), dilation=(1,), groups=channels)
    y = y if b is None else y + F.reshape(b, (1, -1, 1))
    if activation in ("silu", "swish"):
        y = F.silu(y)
    elif activation != "none":
        raise ValueError(f"CausalConvWithState: activation {activation!r} is none of 'none', 'silu' and 'swish'")
    return (y, held[:, :, x._tuple_shape[2] :]) if results > 1 else y


@counterpart("TensorScatter")
def tensor_scatter(cache: Tensor, update: Tensor, starts: Tensor | None = None, *, axis: int = -2, mode: str = "linear") -> Tensor:
    """Writes ``update`` into a cache along an axis, from another place on for each image of the batch."""
    if mode not in ("linear", "circular"):
        raise ValueError(f"TensorScatter: mode {mode!r} is neither 'linear' nor 'circular'")
    axis = axis_of(axis, cache.ndim)
    count: Any = update.shape[axis]
    line = Tensor(np.arange(count, dtype=np.int32).reshape([-1 if a == axis else 1 for a in range(cache.ndim)]))
    if starts is not None:
        line = line + F.reshape(starts.astype("int32"), (-1,) + (1,) * (cache.ndim - 1))
    places = F.mod(line, cache.shape[axis]) if mode == "circular" else line
    return ops.scatter(cache, F.broadcast_to(places, update._tuple_shape), update, axis=axis)
