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


def _in_time(steps, reverse):
    return range(steps)[:: -1 if reverse else 1]


def rnn(gates, w_hh, h, function=np.tanh, reverse=False):
    """h of all steps; gates: what the inputs give to them, [steps, n, hidden]."""
    y = np.zeros((*gates.shape[:2], w_hh.shape[1]))
    for t in _in_time(len(gates), reverse):
        y[t] = h = function(gates[t] + h @ w_hh.T)
    return y


def rnn_grad(y, w_hh, dy, reverse=False):
    """The gradient of a layer of tanh, by its gates."""
    dgates, after = np.zeros_like(y), 0
    for t in _in_time(len(y), not reverse):
        dgates[t] = (dy[t] + after) * (1 - y[t] ** 2)
        after = dgates[t] @ w_hh
    return dgates


def rounded_to_8_bits(h):
    low, high = min(h.min(), 0), max(h.max(), 0)
    scale = (high - low) / 255 or 1
    origin = np.round(np.clip(-low / scale, 0, 255))
    return (np.clip(np.round(h / scale) + origin, 0, 255) - origin) * scale


def lstm(gates, w_hh, h, c, reverse=False, rounded=False):
    """h and c of all steps, and the gates behind their functions."""
    y, cs = (np.zeros((*gates.shape[:2], w_hh.shape[1])) for _ in range(2))
    activations = np.zeros_like(gates)
    for t in _in_time(len(gates), reverse):
        i, f, g, o = np.split(gates[t] + (rounded_to_8_bits(h) if rounded else h) @ w_hh.T, 4, axis=-1)
        i, f, g, o = sigmoid(i), sigmoid(f), np.tanh(g), sigmoid(o)
        cs[t] = c = f * c + i * g
        y[t] = h = o * np.tanh(c)
        activations[t] = np.concatenate([i, f, g, o], -1)
    return y, cs, activations


def lstm_of_bytes(gates, w_hh, h, c, scale, reverse=False):
    return lstm(gates, w_hh * scale[:, None], h, c, reverse, rounded=True)[:2]


def lstm_grad(activations, w_hh, c_first, c, dy, dc, reverse=False):
    """The gradients of the gates and of the first c."""
    dgates, dh, carried = np.zeros_like(activations), 0, 0
    order = list(_in_time(len(c), reverse))
    for place, t in reversed(list(enumerate(order))):
        i, f, g, o = np.split(activations[t], 4, axis=-1)
        before, squashed = c[order[place - 1]] if place else c_first, np.tanh(c[t])
        dh = dy[t] + dh
        total = dc[t] + carried + dh * o * (1 - squashed**2)
        of_gates = total * g * i * (1 - i), total * before * f * (1 - f), total * i * (1 - g**2), dh * squashed * o * (1 - o)
        dgates[t] = np.concatenate(of_gates, -1)
        dh, carried = dgates[t] @ w_hh, total * f
    return dgates, carried


def gru_reset_first(gates, w_hh, h, b_hh, reverse=False):
    """h of all steps; r scales h before its product."""
    y, two = np.zeros((*gates.shape[:2], w_hh.shape[1])), 2 * w_hh.shape[1]
    for t in _in_time(len(gates), reverse):
        r, z = np.split(sigmoid(gates[t][:, :two] + h @ w_hh[:two].T + b_hh[:two]), 2, axis=-1)
        n = np.tanh(gates[t][:, two:] + (r * h) @ w_hh[two:].T + b_hh[two:])
        y[t] = h = n + z * (h - n)
    return y


def gru(gates, w_hh, h, b_hh, reverse=False):
    """h of all steps, the gates r, z, n behind their functions, and what r scales."""
    y, scaled = (np.zeros((*gates.shape[:2], w_hh.shape[1])) for _ in range(2))
    activations = np.zeros_like(gates)
    for t in _in_time(len(gates), reverse):
        (gr, gz, gn), (qr, qz, qn) = (np.split(part, 3, axis=-1) for part in (gates[t], h @ w_hh.T + b_hh))
        r, z = sigmoid(gr + qr), sigmoid(gz + qz)
        n = np.tanh(gn + r * qn)
        y[t] = h = (1 - z) * n + z * h
        activations[t], scaled[t] = np.concatenate([r, z, n], -1), qn
    return y, activations, scaled


def gru_grad(activations, w_hh, h_first, y, scaled, dy, reverse=False):
    """The gradients of the gates, of h w_hh' + b_hh, and of the first h but for its product."""
    dgates, dproduct = np.zeros_like(activations), np.zeros_like(activations)
    dh, order = 0, list(_in_time(len(y), reverse))
    for place, t in reversed(list(enumerate(order))):
        r, z, n = np.split(activations[t], 3, axis=-1)
        before = y[order[place - 1]] if place else h_first
        dh = dy[t] + dh
        dn = dh * (1 - z) * (1 - n**2)
        dr, dz = dn * scaled[t] * r * (1 - r), dh * (before - n) * z * (1 - z)
        dgates[t], dproduct[t] = np.concatenate([dr, dz, dn], -1), np.concatenate([dr, dz, dn * r], -1)
        carried = dh * z
        dh = dproduct[t] @ w_hh + carried
    return dgates, dproduct, carried


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
