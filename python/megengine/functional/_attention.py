"""Attention (Vaswani et al., 2017): one op or, if its weights are wanted, products and softmax."""

import functools
import math

import numpy as np

from .._core import note_extent_read
from ..core import apply_const, ops
from ..core.random_state import noise_state
from ..core.tensor.amp import to_low
from ..core.tensor.array_method import require_tensors
from ..tensor import Tensor
from ._dropout import dropout
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

    Parameters
    ----------
    query : Tensor
        Tensor of shape [n, lq, eq], or without n; then key and value have no n either.
    key : Tensor
        Tensor of shape [n, lk, ek].
    value : Tensor
        Tensor of shape [n, lk, ev].
    embed_dim : int
        The number of features of ``query``, eq.
    num_heads : int
        Number of heads, which must divide the sizes of q, k and v.
    attn_drop, out_drop : float
        Dropout probabilities of the attention weights and of the output.
    io_weight_bias : Tensor or None
        One 1-d tensor that holds the projections q, k, v and o as [in, out] matrices, one after the
        other, then their biases.
    qproj_size, kproj_size, vproj_size, oproj_size : int or None
        Number of output features of each projection; None or 0 leaves the projection out.
    qbias, kbias, vbias, obias : bool
        Whether that projection has a bias.
    bias_k, bias_v : Tensor or None
        Learned key and value that are appended to the others.
    add_zero_attn : bool
        Whether to append a key and a value of zeros.
    key_padding_mask : Tensor or None
        Mask [n, lk]: bool (true hides a key) or a float that is added to the scores.
    attn_mask : Tensor or None
        Mask [lq, lk] or [n * num_heads, lq, lk]: bool (true hides a key) or a float that is added
        to the scores.
    need_weights : bool
        Whether to return the attention weights.
    average_attn_weights : bool
        Whether the returned weights are means over the heads.
    is_causal : bool
        Whether to hide key j from query i where j > i, besides what attn_mask hides; all queries
        see the keys that are appended.
    maybe_cudnn_style_mask : bool
        Whether masks may be short: an attn_mask [2, lq] has the first key that each query sees and
        the one past the last, and row 1 of a key_padding_mask [2, n] counts the valid keys.
    reslink : bool
        Whether to add the query to the output.
    training : bool
        Whether dropout is applied; False applies none.

    Returns
    -------
    out : Tensor
        [n, lq, size].
    weights : Tensor or None
        None unless need_weights, else [n, num_heads, lq, lk], or [n, lq, lk] if
        average_attn_weights.

    Raises
    ------
    ValueError
        For sizes that do not fit each other.

    References
    ----------
    Vaswani et al., 2017, "Attention Is All You Need".

    Examples
    --------
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
    if query.ndim not in (2, 3) or not query.ndim == key.ndim == value.ndim:
        shapes = ", ".join(str(list(t._tuple_shape)) for t in (query, key, value))
        raise ValueError(f"multi_head_attention: query, key and value have shapes {shapes}\n  fix: give [n, l, features] or [l, features], all of one rank")
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
    is_plainly_causal = is_causal and own_keys == k._tuple_shape[2] and not need_weights
    masks = _masks(q, k, key_padding_mask, attn_mask, own_keys if is_causal and not is_plainly_causal else 0, maybe_cudnn_style_mask)
    mask = functools.reduce(ops.add, masks) if masks else None
    attention: Tensor | None = None
    if need_weights:
        scores = ops.mul(matmul(q, k, transpose_b=True), scale)
        attention = ops.softmax(scores if mask is None else ops.add(scores, mask), axis=3)
        out = matmul(dropout(attention, attn_drop, training), v)
    else:
        out = attend(q, k, v, scale, is_plainly_causal, mask, attn_drop if training else 0.0)
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


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Computes ``softmax(scale * query @ key.T + mask) @ value`` over the last two axes, without
    holding the scores of all keys: memory grows with the length, not with its square.

    Parameters
    ----------
    query : Tensor
        Tensor of shape [..., heads, lq, e].
    key : Tensor
        Tensor of shape [..., heads, lk, e].
    value : Tensor
        [..., heads, lk, ev]; all three have one floating dtype.
    attn_mask : Tensor or None
        Mask that broadcasts to [..., heads, lq, lk]: bool (true where a key is seen) or a float
        that is added to the scores.
    dropout_p : float
        Probability of dropping an attention weight; 0 in evaluation.
    is_causal : bool
        Whether a query sees only the keys up to its own place, besides what attn_mask hides.
    scale : float or None
        Factor of the scores; None is 1 / sqrt(e).
    enable_gqa : bool
        Whether key and value may have fewer heads, each for an equal number of neighbouring heads
        of the query.

    Returns
    -------
    Tensor
        [..., heads, lq, ev].

    Raises
    ------
    ValueError
        For shapes that do not fit.

    Notes
    -----
    A query that sees no key gets zeros, and no gradient. A query whose scores are all lowered by a
    number such as -1e9 still sees all keys; its weights depend on what float32 leaves of the sums.

    References
    ----------
    Vaswani et al., 2017, "Attention Is All You Need"; Dao et al., 2022, "FlashAttention"; Ainslie
    et al., 2023, "GQA".

    Examples
    --------
    >>> from megengine import functional as F
    >>> x = F.ones((1, 2, 3, 4))
    >>> F.scaled_dot_product_attention(x, x, x, is_causal=True).shape
    (1, 2, 3, 4)
    """
    require_tensors("scaled_dot_product_attention", query, key, value)
    outer = query._tuple_shape[:-2]
    if not enable_gqa:
        key, value = (x if x._tuple_shape[:-2] == outer else ops.broadcast_to(x, shape=outer + x._tuple_shape[-2:]) for x in (key, value))
    scale = 1 / math.sqrt(query._tuple_shape[-1]) if scale is None else scale
    q, k, v = (_with_four_axes(x) for x in (query, key, value))
    if attn_mask is not None:
        attn_mask = _seen(attn_mask)
        if attn_mask.ndim > 4:
            lengths = (query._tuple_shape[-2], key._tuple_shape[-2])
            attn_mask = ops.broadcast_to(attn_mask, shape=outer + lengths)
        attn_mask = _with_four_axes(attn_mask)
    y = attend(q, k, v, scale, is_causal, attn_mask, dropout_p)
    return ops.reshape(y, shape=outer + y._tuple_shape[-2:])


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float,
    is_causal: bool = False,
    mask: Tensor | None = None,
    drop_prob: float = 0.0,
) -> Tensor:
    """Attention of [n, heads, length, width] as one op. mask: numbers added to the scores, with
    four axes, each of their extent or 1. A query that sees no key gets zeros.
    """
    q, k, v = to_low(q, k, v)
    dtypes = {x.dtype.name for x in (q, k, v)}
    if len(dtypes) > 1 or not dtypes <= {"float32", "float16", "bfloat16"}:
        q, k, v = (ops.cast(x, dtype="float32") for x in (q, k, v))
    if k._tuple_shape[2] == 0:
        return matmul(matmul(q, k, transpose_b=True), v)  # zeros: sums over no keys
    more = []
    if mask is not None:
        more.append(mask if mask.dtype.name == "float32" else ops.cast(mask, dtype="float32"))
    if drop_prob:
        more.append(noise_state().key(q._device_name))
    return ops.attention(
        q, k, v, *more, scale=scale, causal=int(is_causal), masked=int(mask is not None), drop_prob=float(drop_prob), zeros=1
    )[0]


def _with_four_axes(x: Tensor) -> Tensor:
    """Joins leading axes, or adds axes in front, to make four."""
    shape = x._tuple_shape
    if len(shape) == 4:
        return x
    outer = (1,) * (4 - len(shape)) + shape[:-2] if len(shape) < 4 else (math.prod(shape[:-3]), shape[-3])
    return ops.reshape(x, shape=outer + shape[-2:])


def _seen(mask: Tensor) -> Tensor:
    """Turns a bool mask, true where keys are seen, into numbers that are added to the scores."""
    if mask.dtype != np.bool_:
        return mask
    return ops.where(mask, apply_const(np.float32(0)), apply_const(np.float32(-np.inf)))


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
                note_extent_read(x, 0)
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
    q: Tensor,
    k: Tensor,
    key_padding_mask: Tensor | None,
    attn_mask: Tensor | None,
    causal_keys: int,
    maybe_cudnn_style: bool,
) -> list[Tensor]:
    """Returns the numbers that are added to the scores [n, heads, lq, lk]. causal_keys: the number
    of first keys that are hidden from earlier queries.
    """
    (n, heads, lq, _), lk = q._tuple_shape, k._tuple_shape[2]
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
    if causal_keys:
        column = np.arange(lk)[None, :]
        hidden = (column > np.arange(lq)[:, None]) & (column < causal_keys)
        out.append(apply_const(np.where(hidden, _MASKED, 0).astype(np.float32)[None, None]))
    return out


def _range(n: int) -> Tensor:
    return apply_const(np.arange(n, dtype=np.int32)[None, :])


def _additive(mask: Tensor) -> Tensor:
    return ops.mul(ops.cast(mask, dtype="float32"), _MASKED) if mask.dtype == np.bool_ else mask


def _padded(mask: Tensor, lk: int) -> Tensor:
    """Pads a mask so that all queries see the keys that `_extend` added."""
    extra = lk - mask._tuple_shape[-1]
    if extra == 0:
        return mask
    before = (0,) * mask.ndim
    return ops.pad(mask, before=before, after=before[1:] + (extra,), mode="constant", value=0.0)
