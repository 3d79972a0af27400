"""Multi-head attention (Vaswani et al., 2017), composed of matrix products and softmax."""

import math

import numpy as np

from ..core import apply_const, ops
from ..core.tensor.amp import to_low as _to_low
from ..core.tensor.array_method import require_tensors
from ..tensor import Tensor
from ._activation import dropout
from .math import matmul

_MASKED = -1e9  # added to scores of positions that may not be seen


def multi_head_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim: int,
    num_heads: int,
    attn_drop: float,
    out_drop: float,
    io_weight_bias: Tensor | None,
    qproj_size: int | None = None,
    kproj_size: int | None = None,
    vproj_size: int | None = None,
    oproj_size: int | None = None,
    qbias: bool = False,
    kbias: bool = False,
    vbias: bool = False,
    obias: bool = False,
    bias_k: Tensor | None = None,
    bias_v: Tensor | None = None,
    add_zero_attn: bool = False,
    key_padding_mask: Tensor | None = None,
    attn_mask: Tensor | None = None,
    need_weights: bool = False,
    average_attn_weights: bool = False,
    is_causal: bool = False,
    maybe_cudnn_style_mask: bool = False,
    reslink: bool = False,
    training: bool = True,
) -> tuple[Tensor, Tensor | None]:
    """Computes multi-head attention, ``softmax(q @ k.T / sqrt(head size) + mask) @ v`` in each
    head.

    query: [n, lq, eq], key: [n, lk, ek], value: [n, lk, ev], or all three without the batch axis.
    embed_dim: eq. num_heads: must divide the sizes of q, k and v. attn_drop, out_drop: dropout
    probabilities of the attention weights and of the output. training: whether to drop.

    io_weight_bias: one 1-d tensor that holds the projections q, k, v and o as [in, out] matrices,
    one after the other, then their biases. qproj_size, kproj_size, vproj_size, oproj_size: the
    output features of each projection; None or 0 leaves it out. qbias, kbias, vbias, obias: whether
    it has a bias.

    bias_k, bias_v: a learned key and value that are appended to the others. add_zero_attn: appends
    a zero key and value.
    key_padding_mask: [n, lk]; attn_mask: [lq, lk] or [n * num_heads, lq, lk]; each is bool (true
    hides a position) or a float that is added to the scores. is_causal: without an attn_mask, hides
    key j from query i where j > i; keys that are appended are seen by all. maybe_cudnn_style_mask: attn_mask may be [2, lq], the first key
    seen and the one past the last, and key_padding_mask [2, n], whose row 1 counts the valid keys.

    reslink: adds the query to the output. Returns (out, weights): out [n, lq, size]; weights None
    unless need_weights, else [n, num_heads, lq, lk], or [n, lq, lk] if average_attn_weights.
    ValueError for sizes that do not fit each other.
    Source: Vaswani et al., 2017, "Attention Is All You Need".

    >>> from megengine import functional as F
    >>> x = F.ones((1, 3, 4))
    >>> out, weights = F.multi_head_attention(
    ...     x, x, x, 4, num_heads=2, attn_drop=0.0, out_drop=0.0, io_weight_bias=None,
    ...     is_causal=True, need_weights=True,
    ... )
    >>> out.shape, weights.shape
    ((1, 3, 4), (1, 2, 3, 3))
    >>> weights[0, 0, :2].numpy()  # of the first two queries
    array([[1. , 0. , 0. ],
           [0.5, 0.5, 0. ]], dtype=float32)
    """
    require_tensors("multi_head_attention", query, key, value)
    batched = query.ndim == 3
    if not batched:
        query, key, value = (_unsqueeze(t) for t in (query, key, value))
    if embed_dim != query._tuple_shape[-1]:
        raise ValueError(f"multi_head_attention: embed_dim {embed_dim}, query has {query._tuple_shape[-1]} features")
    packed = _Packed(io_weight_bias)
    vsize = vproj_size or value._tuple_shape[-1]
    sizes = [
        (query._tuple_shape[-1], qproj_size, qbias), (key._tuple_shape[-1], kproj_size, kbias),
        (value._tuple_shape[-1], vproj_size, vbias), (vsize, oproj_size, obias),
    ]  # fmt: skip
    for name, (_, size, has) in zip("qkvo", sizes, strict=True):
        if has and not size:
            raise ValueError(f"multi_head_attention: {name}bias without {name}proj_size: a bias belongs to a projection")
    weights = [packed.take((fan_in, size)) if size else None for fan_in, size, _ in sizes]
    biases = [packed.take((size,)) if size and has else None for _, size, has in sizes]
    q, k, v = (
        _project(t, w, b) for t, w, b in zip((query, key, value), weights, biases, strict=False)
    )
    own_keys = k._tuple_shape[1]
    k, v = _extend(k, v, bias_k, bias_v, add_zero_attn)
    q, k, v = (_heads(t, num_heads) for t in (q, k, v))
    scale = 1.0 / math.sqrt(q._tuple_shape[-1])
    is_masked = key_padding_mask is not None or attn_mask is not None
    is_masked |= is_causal and own_keys != k._tuple_shape[2]
    out: Tensor | None = None
    attention: Tensor | None = None
    if not (is_masked or need_weights or (training and attn_drop)):
        out = fused_attention(q, k, v, scale, is_causal)
    if out is None:
        scores = ops.mul(matmul(q, k, transpose_b=True), scale)
        for mask in _masks(scores, key_padding_mask, attn_mask, own_keys if is_causal else 0, maybe_cudnn_style_mask):
            scores = ops.add(scores, mask)
        attention = ops.softmax(scores, axis=3)
        out = matmul(dropout(attention, attn_drop, training), v)
    n, heads, lq, size = out._tuple_shape
    out = ops.reshape(ops.transpose(out, perm=(0, 2, 1, 3)), shape=(n, lq, heads * size))
    out = dropout(_project(out, weights[3], biases[3]), out_drop, training)
    if reslink:
        out = ops.add(out, query)
    if not need_weights:
        attention = None
    elif average_attn_weights:
        attention = ops.reduce_mean(attention, axes=(1,), keepdims=False)
    if batched:
        return out, attention
    return _squeeze(out), None if attention is None else _squeeze(attention)


def fused_attention(q: Tensor, k: Tensor, v: Tensor, scale: float, is_causal: bool) -> Tensor | None:
    """softmax(scale * q @ k.T) @ v as one op, of [n, heads, length, width], in which a library may
    keep the scores to itself. Only of halves: in float32 cuDNN rounds to 11 bits, and has no gradient.
    """
    q, k, v = _to_low(q, k, v)
    if q.ndim != 4 or any(t.dtype.name not in ("float16", "bfloat16") for t in (q, k, v)):
        return None
    return ops.attention(q, k, v, scale=scale, causal=int(is_causal))[0]


class _Packed:
    """Reads matrices and vectors one after the other out of a flat tensor."""

    def __init__(self, flat: Tensor | None) -> None:
        self.flat = None if flat is None else ops.reshape(flat, shape=(math.prod(flat._tuple_shape),))
        self.at = 0

    def take(self, shape: tuple[int, ...]) -> Tensor:
        begin, self.at = self.at, self.at + math.prod(shape)
        have = 0 if self.flat is None else self.flat._tuple_shape[0]
        if self.at > have:
            raise ValueError(
                f"multi_head_attention: io_weight_bias has {have} elements, needed are at least {self.at}"
            )
        return ops.reshape(
            ops.slice(self.flat, begin=(begin,), end=(self.at,), step=(1,)), shape=shape
        )


def _unsqueeze(x: Tensor) -> Tensor:
    return ops.reshape(x, shape=(1,) + x._tuple_shape)


def _squeeze(x: Tensor) -> Tensor:
    return ops.reshape(x, shape=x._tuple_shape[1:])


def _project(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    if weight is not None:
        x = matmul(x, weight)
    return x if bias is None else ops.add(x, bias)


def _extend(
    k: Tensor, v: Tensor, bias_k: Tensor | None, bias_v: Tensor | None, add_zero_attn: bool
) -> tuple[Tensor, Tensor]:
    """Adds learned keys and values, and a zero one, behind the others."""
    for extra in ((bias_k, bias_v), (0.0, 0.0) if add_zero_attn else (None, None)):
        pair = []
        for x, more in zip((k, v), extra, strict=False):
            if more is not None:
                n, _, size = x._tuple_shape
                if isinstance(more, Tensor):
                    more = ops.broadcast_to(
                        ops.reshape(more, shape=(1, 1, size)), shape=(n, 1, size)
                    )
                else:
                    more = ops.full(shape=(n, 1, size), value=more, dtype=x.dtype.name, device=x)
                x = ops.concat(x, more, axis=1)
            pair.append(x)
        k, v = pair
    return k, v


def _heads(x: Tensor, num_heads: int) -> Tensor:
    n, length, size = x._tuple_shape
    if size % num_heads:
        raise ValueError(f"multi_head_attention: size {size} does not split into {num_heads} heads")
    return ops.transpose(
        ops.reshape(x, shape=(n, length, num_heads, size // num_heads)), perm=(0, 2, 1, 3)
    )


def _masks(
    scores: Tensor,
    key_padding_mask: Tensor | None,
    attn_mask: Tensor | None,
    causal_keys: int,
    maybe_cudnn_style: bool,
) -> list[Tensor]:
    """What is added to the scores [n, heads, lq, lk]. causal_keys: that many keys, the first ones, are hidden from queries before them."""
    n, heads, lq, lk = scores._tuple_shape
    out = []
    if key_padding_mask is not None:
        if maybe_cudnn_style and key_padding_mask._tuple_shape == (2, n) and (2, n) != (n, lk):
            valid = ops.reshape(
                ops.slice(key_padding_mask, begin=(1, 0), end=(2, n), step=(1, 1)), shape=(n, 1)
            )
            key_padding_mask = ops.greater_equal(_range(lk), valid)
        out.append(ops.reshape(_padded(_additive(key_padding_mask), lk), shape=(n, 1, 1, lk)))
    if attn_mask is not None:
        if maybe_cudnn_style and attn_mask._tuple_shape == (2, lq) and lq != 2:
            low, high = (ops.reshape(attn_mask[i], shape=(lq, 1)) for i in (0, 1))
            keys = _range(lk)
            attn_mask = ops.logical_or(ops.less(keys, low), ops.greater_equal(keys, high))
        mask = _padded(_additive(attn_mask), lk)
        out.append(
            ops.reshape(mask, shape=(n, heads, lq, lk) if mask.ndim == 3 else (1, 1, lq, lk))
        )
    elif causal_keys:
        column = np.arange(lk)[None, :]
        hidden = (column > np.arange(lq)[:, None]) & (column < causal_keys)
        out.append(apply_const(np.where(hidden, _MASKED, 0).astype(np.float32)[None, None]))
    return out


def _range(n: int) -> Tensor:
    return apply_const(np.arange(n, dtype=np.int32)[None, :])


def _additive(mask: Tensor) -> Tensor:
    return ops.mul(ops.cast(mask, dtype="float32"), _MASKED) if mask.dtype == np.bool_ else mask


def _padded(mask: Tensor, lk: int) -> Tensor:
    """Keys that `_extend` added are seen by all."""
    extra = lk - mask._tuple_shape[-1]
    if extra == 0:
        return mask
    before = (0,) * mask.ndim
    return ops.pad(mask, before=before, after=before[1:] + (extra,), mode="constant", value=0.0)
