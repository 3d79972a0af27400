"""Layers written with NumPy loops: slow, obvious, in float64."""

import numpy as np


def _pairs(value, rank):
    return (value,) * rank if np.ndim(value) == 0 else tuple(value)


def conv(x, w, bias=None, stride=1, padding=0, dilation=1, groups=1):
    """Convolution of x (n, c, *s) with w (oc, ic, *k), or (g, oc/g, ic/g, *k) with groups."""
    rank = x.ndim - 2
    stride, padding, dilation = (_pairs(v, rank) for v in (stride, padding, dilation))
    if groups == 1:
        w = w[None] if w.ndim == rank + 2 else w
    x = np.pad(x.astype(np.float64), [(0, 0), (0, 0)] + [(p, p) for p in padding])
    kernel = w.shape[3:]
    out = [
        (s - d * (k - 1) - 1) // t + 1
        for s, k, t, d in zip(x.shape[2:], kernel, stride, dilation, strict=True)
    ]
    oc, ic = w.shape[1], w.shape[2]
    y = np.zeros((x.shape[0], groups * oc, *out))
    for g in range(groups):
        for place in np.ndindex(*out):
            for k in np.ndindex(*kernel):
                at = tuple(
                    p * t + i * d for p, t, i, d in zip(place, stride, k, dilation, strict=True)
                )
                pixel = x[(slice(None), slice(g * ic, (g + 1) * ic), *at)]
                weight = w[(g, slice(None), slice(None), *k)]
                y[(slice(None), slice(g * oc, (g + 1) * oc), *place)] += pixel @ weight.T
    return y if bias is None else y + bias


def conv_transpose(x, w, bias=None, stride=1, padding=0, output_padding=0, dilation=1, groups=1):
    """Transposed convolution of x (n, c, *s) with w (ic, oc, *k), or (g, ic/g, oc/g, *k) with groups."""
    rank = x.ndim - 2
    stride, padding, dilation, extra = (
        _pairs(v, rank) for v in (stride, padding, dilation, output_padding)
    )
    if groups == 1:
        w = w[None] if w.ndim == rank + 2 else w
    kernel = w.shape[3:]
    ic, oc = w.shape[1], w.shape[2]
    full = [
        (s - 1) * t + d * (k - 1) + 1 + e
        for s, t, d, k, e in zip(x.shape[2:], stride, dilation, kernel, extra, strict=True)
    ]
    y = np.zeros((x.shape[0], groups * oc, *full))
    for g in range(groups):
        for place in np.ndindex(*x.shape[2:]):
            for k in np.ndindex(*kernel):
                at = tuple(
                    p * t + i * d for p, t, i, d in zip(place, stride, k, dilation, strict=True)
                )
                pixel = x[(slice(None), slice(g * ic, (g + 1) * ic), *place)]
                weight = w[(g, slice(None), slice(None), *k)]
                y[(slice(None), slice(g * oc, (g + 1) * oc), *at)] += pixel @ weight
    y = y[
        (slice(None), slice(None), *(slice(p, f - p) for p, f in zip(padding, full, strict=True)))
    ]
    return y if bias is None else y + bias


def normalize(x, axes, eps=1e-5):
    mean = x.mean(axes, keepdims=True)
    return (x - mean) / np.sqrt(x.var(axes, keepdims=True) + eps)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def lstm_cell(x, h, c, w_ih, w_hh, b_ih, b_hh):
    i, f, g, o = np.split(x @ w_ih.T + b_ih + h @ w_hh.T + b_hh, 4, axis=-1)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    return sigmoid(o) * np.tanh(c), c


def attention(query, key, value, heads, io_weight_bias, hide=None):
    """Multi-head attention on (n, length, size) with packed (in, out) matrices of q, k, v, o and their biases."""
    sizes = [query.shape[-1], key.shape[-1], value.shape[-1], query.shape[-1]]
    size = query.shape[-1]
    flat = io_weight_bias.astype(np.float64)
    weights, at = [], 0
    for rows in sizes:
        weights.append(flat[at : at + rows * size].reshape(rows, size))
        at += rows * size
    biases = flat[at:].reshape(4, size) if flat.size > at else np.zeros((4, size))
    q, k, v = (
        (x @ w + b).reshape(x.shape[0], x.shape[1], heads, -1).transpose(0, 2, 1, 3)
        for x, w, b in zip((query, key, value), weights, biases, strict=False)
    )
    scores = q @ k.transpose(0, 1, 3, 2) / np.sqrt(size // heads)
    if hide is not None:
        scores = np.where(hide, -1e30, scores)
    scores = np.exp(scores - scores.max(-1, keepdims=True))
    scores /= scores.sum(-1, keepdims=True)
    out = (scores @ v).transpose(0, 2, 1, 3).reshape(query.shape[0], query.shape[1], size)
    return out @ weights[3] + biases[3], scores
