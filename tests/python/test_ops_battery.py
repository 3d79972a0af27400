"""Every registered op: against NumPy in float64, finite differences, special values, shapes, dtypes, and traced.

A row says how to call the op and what NumPy gives. `test_every_op_has_a_row` keeps the table complete.
"""

import itertools
import math
from dataclasses import dataclass, field

import ml_dtypes
import numpy as np
import pytest
import reference_layers as R

import megengine as mge
from megengine import _core
from megengine.autodiff import GradManager
from megengine.core import ops
from megengine.jit import trace

OPS = {row["name"]: row for row in _core.op_table()}


@dataclass(frozen=True)
class Row:
    op: str
    reference: object  # of float64 arrays; None where another op's row, or a property, is the judge
    inputs: tuple
    attrs: dict = field(default_factory=dict)
    grad: tuple = ()  # inputs whose gradient is checked
    smooth: bool = False  # so is the gradient's
    tolerance: float = 2e-6

    def __repr__(self):
        return self.op

    def call(self, *inputs):
        return getattr(ops, self.op)(*inputs, **self.attrs)


def normal(*shape, seed=0):
    return np.random.default_rng(seed + 7 * sum(shape)).normal(size=shape).astype(np.float32)


def spread(*shape):
    """Elements 0.15 apart, none near an integer or a half: order and kinks survive a small step."""
    n = math.prod(shape)
    values = (np.random.default_rng(n).permutation(n) - n // 2) * 0.15 + 0.07
    return values.astype(np.float32).reshape(shape)


def between(low, high, *shape, seed=0):
    return np.random.default_rng(seed).uniform(low, high, size=shape).astype(np.float32)


def vectorized(function):
    return np.vectorize(function, otypes=[np.float64])


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def inverse(function, low, high):
    """By bisection, of a rising function."""

    def find(y):
        a, b = low, high
        for _ in range(80):
            a, b = ((a + b) / 2, b) if function((a + b) / 2) < y else (a, (a + b) / 2)
        return a

    return vectorized(find)


def is_pole(x):
    """Is it a pole of lgamma and digamma?"""
    return x <= 0 and x == math.floor(x) if math.isfinite(x) else x < 0


@vectorized
def lgamma(x):
    return math.inf if is_pole(x) else math.lgamma(x)


@vectorized
def digamma(x):
    if is_pole(x):
        return -math.copysign(math.inf, x) if x == 0 else math.nan
    if x < 0:
        return digamma(1 - x) - math.pi / math.tan(math.pi * x)
    before = 0.0
    while x < 10:
        before, x = before - 1 / x, x + 1
    r = 1 / x**2
    return before + math.log(x) - 1 / (2 * x) - r * (1 / 12 - r * (1 / 120 - r * (1 / 252 - r / 240)))


@vectorized
def erfinv(y):
    if not abs(y) < 1:
        return math.copysign(math.inf, y) if abs(y) == 1 else math.nan
    return y * math.sqrt(math.pi) / 2 if abs(y) < 1e-9 else inverse(math.erf, -6, 6)(y)


@vectorized
def erfcinv(y):
    if not 0 < y < 2:
        return {0: math.inf, 2: -math.inf}.get(y, math.nan)
    return 0.0 if y == 1 else inverse(lambda x: -math.erfc(x), -6, 12)(-y)


erf = vectorized(math.erf)
X, Y, UNIT, POSITIVE = spread(3, 4), spread(3, 4)[::-1].copy() + 0.031, between(-0.9, 0.9, 3, 4), between(0.2, 3, 3, 4)
INTS, MORE = np.array([[3, -7, 0], [5, 2, -1]], np.int32), np.array([[1, 2, 3], [2, 1, 4]], np.int32)
A, B = INTS > 0, MORE > 1
SELU, SCALE = 1.6732632423543772, 1.0507009873554805


def unary(op, reference, x=X, grad=(0,), smooth=True, **kwargs):
    return Row(op, reference, (x,), grad=grad, smooth=smooth, **kwargs)


def binary(op, reference, x=X, y=Y, grad=(0, 1), smooth=True, **kwargs):
    return Row(op, reference, (x, y), grad=grad, smooth=smooth, **kwargs)


ELEMENTWISE = [
    binary("add", np.add), binary("sub", np.subtract), binary("mul", np.multiply), binary("true_div", np.divide),
    binary("floor_div", np.floor_divide, grad=()), binary("mod", np.fmod, grad=()),
    binary("maximum", np.maximum), binary("minimum", np.minimum),
    binary("pow", np.power, POSITIVE), binary("atan2", np.arctan2, POSITIVE + 1), binary("logaddexp", np.logaddexp),
    Row("fma3", lambda a, b, c: a * b + c, (X, Y, normal(3, 4)), grad=(0, 1, 2), smooth=True),
    unary("neg", np.negative), unary("abs", np.abs), unary("sign", np.sign, grad=()), unary("square", np.square),
    unary("ceil", np.ceil, grad=()), unary("floor", np.floor, grad=()), unary("trunc", np.trunc, grad=()),
    unary("round", lambda x: np.trunc(x + np.copysign(0.5, x)), grad=()),
    unary("sqrt", np.sqrt, POSITIVE), unary("norm_root", np.sqrt, POSITIVE), unary("rsqrt", lambda x: 1 / np.sqrt(x), POSITIVE), unary("reciprocal", lambda x: 1 / x, POSITIVE),
    unary("exp", np.exp), unary("expm1", np.expm1), unary("log", np.log, POSITIVE), unary("log1p", np.log1p, POSITIVE),
    unary("sin", np.sin), unary("cos", np.cos), unary("tan", np.tan, UNIT),
    unary("asin", np.arcsin, UNIT), unary("acos", np.arccos, UNIT), unary("atan", np.arctan),
    unary("sinh", np.sinh), unary("cosh", np.cosh), unary("tanh", np.tanh),
    unary("asinh", np.arcsinh), unary("acosh", np.arccosh, POSITIVE + 1.2), unary("atanh", np.arctanh, UNIT),
    unary("erf", erf), unary("erfc", vectorized(math.erfc)),
    unary("erfinv", erfinv, UNIT),
    unary("erfcinv", erfcinv, between(0.2, 1.8, 3, 4)),
    unary("lgamma", lgamma, POSITIVE, smooth=False), unary("digamma", digamma, POSITIVE, grad=()),
    binary("equal", np.equal, INTS, MORE, ()), binary("not_equal", np.not_equal, INTS, MORE, ()),
    binary("less", np.less, INTS, MORE, ()), binary("less_equal", np.less_equal, INTS, MORE, ()),
    binary("greater", np.greater, INTS, MORE, ()), binary("greater_equal", np.greater_equal, INTS, MORE, ()),
    unary("isnan", np.isnan, np.array([1, np.nan, -np.inf], np.float32), ()),
    unary("isinf", np.isinf, np.array([1, np.nan, -np.inf], np.float32), ()),
    unary("isfinite", np.isfinite, np.array([1, np.nan, -np.inf], np.float32), ()),
    binary("logical_and", np.logical_and, A, B, ()), binary("logical_or", np.logical_or, A, B, ()),
    binary("logical_xor", np.logical_xor, A, B, ()), unary("logical_not", np.logical_not, A, ()),
    binary("bit_and", np.bitwise_and, INTS, MORE, ()), binary("bit_or", np.bitwise_or, INTS, MORE, ()),
    binary("bit_xor", np.bitwise_xor, INTS, MORE, ()), unary("bit_not", np.invert, INTS, ()),
    binary("left_shift", np.left_shift, INTS, MORE, ()), binary("right_shift", np.right_shift, INTS, MORE, ()),
    Row("where", np.where, (X > 0, X, Y), grad=(1, 2)),
    Row("cast", lambda x: x, (X,), {"dtype": "float32"}, (0,)), unary("identity", lambda x: x), Row("stop_gradient", lambda x: x, (X,)),
    unary("relu", lambda x: np.maximum(x, 0), smooth=False), unary("relu6", lambda x: np.clip(x, 0, 6), 9 * X, smooth=False),
    unary("sigmoid", sigmoid), unary("hsigmoid", lambda x: np.clip(x + 3, 0, 6) / 6, 5 * X, smooth=False),
    unary("hswish", lambda x: x * np.clip(x + 3, 0, 6) / 6, 5 * X, smooth=False),
    unary("silu", lambda x: x * sigmoid(x)), unary("gelu", lambda x: x * 0.5 * (1 + erf(x / math.sqrt(2)))),
    unary("mish", lambda x: x * np.tanh(np.logaddexp(0, x))), unary("logsigmoid", lambda x: -np.logaddexp(0, -x)),
    unary("softplus", lambda x: np.logaddexp(0, x)),
    Row("fake_quant", lambda x, s, z, _: (np.clip(np.round(x / s) + z, -2, 3) - z) * s,
        (X, np.float32(0.3), np.float32(1), np.float32(1)), {"qmin": -2, "qmax": 3}),
    unary("leaky_relu", lambda x: np.where(x > 0, x, 0.1 * x), smooth=False, attrs={"negative_slope": 0.1}),
    binary("prelu", lambda x, y: np.where(x >= 0, x, x * y), smooth=False),
    unary("left_leaky_relu", lambda x: np.where(x > 0, x, 0.1 * x), smooth=False, attrs={"negative_slope": 0.1}),
    binary("left_prelu", lambda x, y: np.where(x > 0, x, x * y), smooth=False),
    unary("even_abs", np.abs), binary("even_maximum", np.maximum), binary("even_minimum", np.minimum),
    unary("elu", lambda x: np.where(x > 0, x, 0.5 * np.expm1(x)), smooth=False, attrs={"alpha": 0.5}),
    unary("celu", lambda x: np.where(x > 0, x, 0.5 * np.expm1(x / 0.5)), smooth=False, attrs={"alpha": 0.5}),
    unary("selu", lambda x: SCALE * np.where(x > 0, x, SELU * np.expm1(x)), smooth=False),
]  # fmt: skip

INDEX = np.array([[0, 2, 1, 3], [3, 3, 0, 0], [1, 0, 2, 2]], np.int32)
ROWS, COLUMNS = np.array([0, 2, 2], np.int32), np.array([1, 3, -1], np.int32)
IMAGE, KERNEL = spread(2, 4, 6, 5), normal(6, 2, 3, 3)
CONV = {"stride": (2, 1), "padding": (1, 1), "dilation": (1, 1), "groups": 2}
POOL = {"kernel": (3, 2), "stride": (2, 1), "padding": (1, 0)}
KEY = np.array([1, 2, 3, 4], np.int32)
CUBE = normal(2, 3, 4)
LEANING = np.float32([[0.1, 2, -1], [3, 0.5, 1], [-2, 1, 4]])  # its rows are exchanged
POSITIVE_DEFINITE = np.cov(normal(3, 9)).astype(np.float32) + np.eye(3, dtype=np.float32)
SPECTRUM = (X + 1j * Y).astype(np.complex64)
ENDS = np.array([2, 2, 3], np.int32)


def changed(x, place, value, add=False):
    x = x.copy()
    if add:
        np.add.at(x, place, value)
    else:
        x[place] = value
    return x


def along(x, index, axis, value, add=False):
    places = list(np.indices(index.shape))
    places[axis] = index
    return changed(x, tuple(places), value, add)


def combined(function, x, index, axis, value):
    """What the function makes of x and of all values that go to its places."""
    x, places = x.copy(), list(np.indices(index.shape))
    places[axis] = index
    function.at(x, tuple(places), value)
    return x


def eliminated(x):
    """The triangles of p x = l u in one matrix, and the pivots, counted from 1."""
    a, pivots = x.astype(np.float64), np.arange(len(x), dtype=np.int32)
    for c in range(len(a)):
        pivots[c] = c + np.abs(a[c:, c]).argmax()
        a[[c, pivots[c]]] = a[[pivots[c], c]]
        a[c + 1 :, c] /= a[c, c]
        a[c + 1 :, c + 1 :] -= np.outer(a[c + 1 :, c], a[c, c + 1 :])
    return a, pivots + 1


def windows(x, fill):
    """The pooled windows of POOL: [n, c, oh, ow, kh, kw]."""
    x = np.pad(x, ((0, 0), (0, 0), (1, 1), (0, 0)), constant_values=fill)
    return np.lib.stride_tricks.sliding_window_view(x, (3, 2), (2, 3))[:, :, ::2, ::1]


def grouped(a, b, ends):
    """Products of groups of rows where b has a matrix for each group, else of groups of terms."""
    parts = [slice(begin, end) for begin, end in zip([0, *ends[:-1]], ends, strict=True)]
    if b.ndim == 2:
        return np.stack([a[:, part] @ b[part] for part in parts])
    rows = [a[part] @ each for part, each in zip(parts, b, strict=True)]
    return np.concatenate([*rows, np.zeros((len(a) - ends[-1], b.shape[-1]))])


def along_rows(x, w, scale, shift):
    view = np.lib.stride_tricks.sliding_window_view(x.astype(np.float64), 9, 2)[..., ::2]
    return np.einsum("nctk,ck->nct", view, w[:, 0]) * scale[:, None] + shift[:, None]


def of_rows(x, w, scale, shift, dtype):
    y = x[..., 0].astype(np.float64) @ w[..., 0].T * scale.astype(np.float64) + shift
    return (y if dtype == "float32" else np.clip(np.rint(y), 0, 255))[..., None]


def convolved(x, w):
    x = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    view = np.lib.stride_tricks.sliding_window_view(x, (3, 3), (2, 3))[:, :, ::2, ::1]
    halves = [np.einsum("nchwij,ocij->nohw", view[:, 2 * g : 2 * g + 2], w[3 * g : 3 * g + 3]) for g in range(2)]
    return np.concatenate(halves, 1)


def conv_with_sums(x, w):
    y = convolved(x, w)
    return y, y.sum((0, 2, 3), keepdims=True), (y**2).sum((0, 2, 3), keepdims=True)


def masked_gradient(dy, w, addend, y):
    padded = np.zeros((2, 4, 8, 7), dy.dtype)
    for i, j, g in np.ndindex(3, 3, 2):
        of_place = np.einsum("nohw,oc->nchw", dy[:, 3 * g : 3 * g + 3], w[3 * g : 3 * g + 3, :, i, j])
        padded[:, 2 * g : 2 * g + 2, i : i + 6 : 2, j : j + 5] += of_place
    return np.where(y > 0, padded[:, :, 1:-1, 1:-1] + addend, 0)


def gradient_with_sums(dy, w, addend, y, x, mean):
    g = masked_gradient(dy, w, addend, y)
    return g, g.sum((0, 2, 3), keepdims=True), (g * (x - mean)).sum((0, 2, 3), keepdims=True)


BLOCKS = np.random.default_rng(9).integers(0, 56, (5, 2, 18)).astype(np.uint8)  # a scale is at most 0.5


def unblocked(blocks):
    """Blocks of 4 bits with a float16 scale each."""
    scale = blocks[..., :2].copy().view(np.float16).astype(np.float64)
    values = np.concatenate([blocks[..., 2:] & 15, blocks[..., 2:] >> 4], -1) - 8.0
    return (values * scale).reshape(len(blocks), -1)


def normalized(x, axes, eps=1e-5):
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + eps)


def batch_norm_sums(x, mean, var, dy):
    normalized = (x - mean.reshape(-1, 1, 1)) / np.sqrt(var.reshape(-1, 1, 1) + 1e-5)
    return (dy * normalized).sum((0, 2, 3)), dy.sum((0, 2, 3))


def batch_normed(x, w, b):
    return (normalized(x, (0, 2, 3)) * w[:, None, None] + b[:, None, None], x.mean((0, 2, 3)), x.var((0, 2, 3)))


def layer_normed(x, w, b):
    return (normalized(x, (1, 2)) * w + b, x.mean((1, 2)), 1 / np.sqrt(x.var((1, 2)) + 1e-5))


def softmax(x, axis=1):
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def scores(q, k, causal):
    hidden = causal * (np.arange(k.shape[2]) > np.arange(q.shape[2])[:, None])
    return np.where(hidden, -np.inf, 0.5 * q @ k.swapaxes(2, 3))


def attended(q, k, v, causal=False):
    s = scores(q, k, causal)
    return softmax(s, 3) @ v, np.log(np.exp(s).sum(3))


def attended_grad(q, k, v, y, lse, dy):
    p = np.exp(scores(q, k, True) - lse[..., None])
    ds = 0.5 * p * (dy @ v.swapaxes(2, 3) - (dy * y).sum(3, keepdims=True))
    return ds @ k, ds.swapaxes(2, 3) @ q, p.swapaxes(2, 3) @ dy


# Two heads of three queries and five keys, of widths 4 and 6, as [n, length, heads, width].
PARTS = {"scale": 0.5, "causal": 1, "extents": (1, 2, 2, 3, 5, 4, 6), "views": (0, 0, 4, 8, 0, 0, 4, 8, 0, 0, 6, 12, 0, 0, 6, 12)}


def attended_parts(q, k, v):
    y, lse = attended(*(x.swapaxes(1, 2) for x in (q, k, v)), True)
    return y.swapaxes(1, 2).ravel(), lse


def attended_parts_grad(q, k, v, y, lse, dy):
    q, k, v, y, dy = (x.swapaxes(1, 2) for x in (q, k, v, y, dy))
    return tuple(x.swapaxes(1, 2).ravel() for x in attended_grad(q, k, v, y, lse, dy))


def adaptive(x, reduce):
    """To 2 x 3 cells of a 6 x 5 image."""
    cuts = [[(i * n // k, -(-(i + 1) * n // k)) for i in range(k)] for n, k in ((6, 2), (5, 3))]
    return np.stack([np.stack([reduce(x[:, :, a:b, c:d], (2, 3)) for c, d in cuts[1]], -1) for a, b in cuts[0]], -2)


def reduction(op, reference, x=X, **kwargs):
    return Row(op, lambda x: reference(x, axis=1, keepdims=True), (x,), {"axes": (1,), "keepdims": 1}, (0,), **kwargs)


# Graphs that ops hold.
STEP = """%0: f32[2] = input 0
%1: f32[2] = input 1
%2: f32[2] = input 2
%3: f32[2] = mul %0 %2
%4: f32[2] = add %3 %1
%5: f32[2] = sigmoid %4
return %5 %4
"""
TANH, EXP = (f"%0: f32[3] = input 0\n%1: f32[3] = {op} %0\nreturn %1\n" for op in ("tanh", "exp"))
DOUBLE = "%0: f32[3] = input 0\n%1: f32[3] = add %0 %0\nreturn %1\n"
BELOW_5 = """%0: f32[3] = input 0
%1: f32[] = reduce_max %0 {axes=[0], keepdims=0}
%2: f32[] = const 5
%3: bool[] = less %1 %2
return %3
"""


def scanned(c, xs, w, step=1):
    """What a scan of STEP gives."""
    ys = np.zeros_like(xs)
    for i in range(len(xs))[::step]:
        ys[i] = c * w + xs[i]
        c = sigmoid(ys[i])
    return c, ys


OTHERS = [
    Row("reshape", lambda x: x.reshape(4, 3), (X,), {"shape": (4, 3)}, (0,)),
    Row("broadcast_to", lambda x: np.broadcast_to(x, (2, 3, 4)), (X,), {"shape": (2, 3, 4)}, (0,)),
    Row("transpose", lambda x: x.transpose(2, 0, 1), (CUBE,), {"perm": (2, 0, 1)}, (0,)),
    Row("slice", lambda x: x[1:3, ::-2], (X,), {"begin": (1, 3), "end": (3, -1), "step": (1, -2)}, (0,)),
    Row("slice_set", lambda x, v: changed(x, np.s_[1:3, ::2], v), (X, normal(2, 2)), {"begin": (1, 0), "end": (3, 4), "step": (1, 2)}, (0, 1)),
    Row("concat", lambda x, y: np.concatenate([x, y], 0), (X, Y), {"axis": 0}, (0, 1)),
    Row("pad", lambda x: np.pad(x, ((1, 2), (0, 3)), constant_values=1.5), (X,), {"before": (1, 0), "after": (2, 3), "mode": "constant", "value": 1.5}, (0,)),
    Row("pad_grad", lambda g: changed(np.zeros((3, 4)), np.ix_([0, 0, 1, 2, 2, 2], [0, 1, 2, 3, 3, 3, 3]), g, True), (normal(6, 7),), {"before": (1, 0), "after": (2, 3), "mode": "edge"}, (0,)),
    Row("full", lambda: np.full((2, 3), 1.5), (), {"shape": (2, 3), "value": 1.5, "dtype": "float32"}),
    Row("complex", lambda a, b: a + 1j * b, (X, Y)),
    Row("real", np.real, (SPECTRUM,)), Row("imag", np.imag, (SPECTRUM,)),
    Row("index_get", lambda x, i, j: x[i, j], (X, ROWS, COLUMNS), {"axes": (0, 1)}, (0,)),
    Row("index_set", lambda x, v, i, j: changed(x, (i, j), v), (X, normal(3), np.array([0, 2, 1], np.int32), COLUMNS), {"axes": (0, 1)}, (0, 1)),
    Row("index_add", lambda x, v, i, j: changed(x, (i, j), v, True), (X, normal(3), ROWS, COLUMNS), {"axes": (0, 1)}, (0, 1)),
    Row("checked_index", lambda i: np.where(i < 0, i + 5, i), (np.array([0, -1, 4, -5], np.int32),), {"axis": 0, "extent": 5, "op": "gather"}),
    Row("coordinates", lambda: np.broadcast_to(np.arange(3)[:, None], (2, 3, 4)), (), {"shape": (2, 3, 4), "axis": 1}),
    Row("gather", lambda x, i: np.take_along_axis(x, i, 1), (X, INDEX), {"axis": 1}, (0,)),
    Row("scatter", lambda x, i, v: along(x, i, 1, v), (X, np.array([[0, 2], [3, 1]], np.int32), normal(2, 2)), {"axis": 1}, (0, 2)),
    Row("scatter_add", lambda x, i, v: along(x, i, 1, v, True), (X, INDEX, Y), {"axis": 1}, (0, 2)),
    *(Row("scatter_reduce", lambda x, i, v, f=f: combined(f, x, i, 1, v), (X, INDEX, Y), {"axis": 1, "mode": mode}, (0, 2), smooth=mode == "prod", tolerance=1e-6)
        for mode, f in [("max", np.maximum), ("min", np.minimum), ("prod", np.multiply)]),
    Row("mask_select", lambda x, m: (x[m], np.flatnonzero(m)), (X, X > 0), grad=(0,)),
    Row("nonzero", lambda m: np.argwhere(m), (X > 0,)),
    Row("fixed_batch", lambda x: x, (X,), {"batch": len(X), "line": "train.py:3"}, (0,)),
    Row("shape_of", lambda x: np.array(x.shape, np.int32), (X,)),
    Row("copy_to", lambda x: x, (X,), {"device": "cpu0:0"}, (0,)),
    Row("nms", lambda b, s: np.array([1, 2]), (np.array([[0, 0, 2, 2], [0, 0, 2, 2.1], [5, 5, 6, 6]], np.float32), np.array([0.5, 0.9, 0.7], np.float32)), {"iou_thresh": 0.5, "max_output": 3}),
    Row("checked_label", lambda i: i, (np.array([0, 4, 3, 1], np.int32),), {"classes": 5, "op": "cross_entropy"}),
    Row("nms_kept", lambda b: np.array([True, False, True, True]), (np.array([[0, 0, 2, 2.1], [0, 0, 2, 2], [5, 5, 6, 6], [0, 1, 2, 2]], np.float32),), {"iou_thresh": 0.5}),
    Row("one_hot", lambda i: np.eye(5)[i], (INDEX,), {"num_classes": 5, "dtype": "int32"}),
    reduction("reduce_sum", np.sum, smooth=True), reduction("reduce_mean", np.mean, smooth=True), reduction("reduce_variance", np.var, smooth=True), reduction("reduce_prod", np.prod, POSITIVE, smooth=True),
    reduction("reduce_max", np.max), reduction("reduce_min", np.min), reduction("even_max", np.max), reduction("even_min", np.min),
    Row("argmax", lambda x: x.argmax(1), (X,), {"axis": 1, "keepdims": 0}), Row("argmin", lambda x: x.argmin(0), (X,), {"axis": 0, "keepdims": 0}),
    Row("sort", lambda x: (np.sort(x, 1), np.argsort(x, 1)), (X,), {"axis": 1, "descending": 0}, (0,)),
    Row("topk", lambda x: (-np.sort(-x, 1)[:, :2], np.argsort(-x, 1)[:, :2]), (X,), {"k": 2, "axis": 1, "descending": 1}, (0,)),
    Row("cumsum", lambda x: np.cumsum(x, 1), (X,), {"axis": 1, "exclusive": 0, "reverse": 0}, (0,)),
    *(Row(op, None, inputs, attrs) for op, inputs, attrs in [
        ("random_uniform", (KEY,), {"shape": (3, 5)}), ("random_normal", (KEY,), {"shape": (3, 5)}),
        ("random_gamma", (KEY, POSITIVE, POSITIVE), {}), ("random_beta", (KEY, POSITIVE, POSITIVE), {}),
        ("random_poisson", (KEY, POSITIVE), {}), ("random_permutation", (KEY,), {"n": 9}),
        ("random_multinomial", (KEY, POSITIVE), {"num_samples": 3, "replacement": 1}), ("dropout_mask", (KEY,), {"shape": (3, 5), "drop_prob": 0.5}),
        ("relayout", (normal(2, 16, 3, 3),), {"layout": "channels_last"}), ("max_pool_grad", (IMAGE, normal(2, 4, 3, 4)), POOL), ("max_pool_pick", (IMAGE, IMAGE), POOL),
        ("adaptive_max_pool_grad", (IMAGE, normal(2, 4, 2, 3)), {"output": (2, 3)}), ("adaptive_max_pool_pick", (IMAGE, IMAGE), {"output": (2, 3)}),
    ]),
    Row("matinv", np.linalg.inv, (normal(3, 3) + 3 * np.eye(3, dtype=np.float32),), grad=(0,), smooth=True, tolerance=1e-5),
    Row("svd", lambda x: (None, np.linalg.svd(x)[1], None), (X,), {"full_matrices": 0}, tolerance=1e-5),  # and test_the_vectors_of_svd_...
    Row("cholesky", np.linalg.cholesky, (POSITIVE_DEFINITE,), tolerance=1e-5), Row("eigh", np.linalg.eigvalsh, (POSITIVE_DEFINITE,), tolerance=1e-5),
    Row("qr", np.linalg.qr, (normal(4, 3),), {"complete": 0}, (0,), tolerance=1e-5),
    Row("slogdet", lambda x: np.linalg.slogdet(x), (POSITIVE_DEFINITE,), tolerance=1e-5),
    Row("solve", np.linalg.solve, (POSITIVE_DEFINITE, normal(3, 2)), grad=(0, 1), smooth=True, tolerance=1e-5),
    *(Row("solve_triangular", lambda a, b, cut=cut: np.linalg.solve(cut(a), b), (POSITIVE_DEFINITE, normal(3, 2)), {"upper": upper}, (0, 1), smooth=True, tolerance=1e-5)
        for upper, cut in enumerate((np.tril, np.triu))),
    Row("exchanged_rows", lambda i: np.array([[2, 0, 3, 1], [0, 1, 2, 3]]), (np.array([[3, 3, 4, 4], [1, 2, 3, 4]], np.int32),)),
    Row("lu", eliminated, (LEANING,), grad=(0,), smooth=True, tolerance=1e-5),
    Row("fft", lambda x: np.fft.fft(x) / 2, (SPECTRUM,), {"scale": 0.5}), Row("rfft", np.fft.rfft, (X,)), Row("irfft", lambda x: 7 * np.fft.irfft(x, n=7), (SPECTRUM,), {"n": 7}),
    *(Row("grouped_matmul", lambda a, b, ends, ta=ta, tb=tb: grouped(a.T if ta else a, b.swapaxes(-1, -2) if tb else b, ends),
        (normal(5, 3).T if ta else normal(5, 3), b.swapaxes(-1, -2) if tb else b, ENDS), {"transpose_a": ta, "transpose_b": tb}, (0, 1), smooth=True, tolerance=1e-5)
        for ta in (0, 1) for tb in (0, 1) for b in (normal(3, 3, 4), normal(3, 4))),
    Row("conv", convolved, (IMAGE, KERNEL), CONV, (0, 1), smooth=True, tolerance=1e-5),
    Row("dequantize_blocks", unblocked, (BLOCKS,), {"bits": 4}),
    Row("matmul_of_blocks", lambda x, w: x @ unblocked(w).T, (normal(3, 64), BLOCKS), {"bits": 4}, (0,), smooth=True, tolerance=1e-5),
    Row("quantized_conv", lambda x, w, s, b: np.clip(np.rint(np.maximum(convolved(x * 1.0, w * 1.0) * s + b[:, None, None], 0)), -128, 127),
        ((5 * IMAGE).astype(np.int8), (30 * KERNEL).astype(np.int8), np.float32([0.013]), normal(6)), {**CONV, "relu": 1}),
    *(Row("quantized_conv", along_rows, (np.random.default_rng(4).integers(*limits, (2, 9, width)).astype(kind), (40 * normal(9, 1, 5)).astype(np.int8), between(0.001, 0.002, scales), normal(9)),
        {"stride": 1, "padding": 0, "dilation": 2, "groups": 9, "dtype": "float32"}, tolerance=1e-5)
        for kind, limits in (("uint8", (0, 255)), ("int8", (-128, 127))) for width in (9, 50) for scales in (1, 9)),
    *(Row("quantized_conv", lambda x, w, s, b, dtype=dtype: of_rows(x, w, s, b, dtype),
        (np.random.default_rng(3).integers(0, 255, (rows, 37, 1)).astype(np.uint8), (40 * normal(21, 37, 1)).astype(np.int8), between(0.001, 0.002, columns), normal(21)), {"stride": 1, "padding": 0, "dilation": 1, "dtype": dtype}, tolerance=1e-5)
        for rows in (3, 20) for columns in (1, 21) for dtype in ("float32", "uint8")),
    Row("conv_epilogue", lambda x, w, b: np.maximum(convolved(x, w) + b, 0), (IMAGE, KERNEL, normal(6, 1, 1)), {**CONV, "epilogue": "bias relu"}, (0, 1, 2), tolerance=1e-5),
    Row("conv_backward_data", None, (normal(2, 6, 3, 5), KERNEL), {**CONV, "input_shape": (6, 5)}),
    Row("conv_backward_filter", None, (IMAGE, normal(2, 6, 3, 5)), {**CONV, "kernel": (3, 3)}),
    Row("matmul", lambda a, b: a.swapaxes(1, 2) @ b, (normal(2, 4, 3), normal(4, 5)), {"transpose_a": 1, "transpose_b": 0}, (0, 1), smooth=True),
    Row("matmul_epilogue", lambda a, b, c, d: a @ b + c + d, (X, normal(4, 5), normal(5), normal(3, 5)), {"epilogue": "bias add"}, (0, 1, 2, 3), smooth=True, tolerance=1e-5),
    Row("conv_backward_data_epilogue", masked_gradient, (spread(2, 6, 3, 5), KERNEL, IMAGE, spread(2, 4, 6, 5)),
        {**CONV, "input_shape": (6, 5), "epilogue": "add mask"}, (0, 1, 2), tolerance=1e-5),
    Row("conv_backward_data_sums", gradient_with_sums, (spread(2, 6, 3, 5), KERNEL, IMAGE, spread(2, 4, 6, 5), spread(2, 4, 6, 5), normal(1, 4, 1, 1)),
        {**CONV, "input_shape": (6, 5), "epilogue": "add mask"}, tolerance=1e-5),
    Row("conv_stats", conv_with_sums, (IMAGE, KERNEL), CONV, tolerance=1e-5),
    Row("matmul_sums", lambda a, b: (a.T @ b, a.sum(0)), (X, normal(3, 5)), {"transpose_a": 1, "transpose_b": 0, "of": 0}, tolerance=1e-5),
    Row("batch_norm", batch_normed, (IMAGE, normal(4), normal(4)), {"eps": 1e-5}, (0, 1, 2), tolerance=1e-5),
    Row("batch_norm_grad", None, (IMAGE, normal(4), between(0.5, 1, 4), normal(4), normal(2, 4, 6, 5)), {"eps": 1e-5}),
    Row("batch_norm_stats", lambda x: (x.mean((0, 2, 3)), x.var((0, 2, 3))), (IMAGE,), tolerance=1e-5),
    Row("batch_norm_grad_sums", batch_norm_sums, (IMAGE, normal(4), between(0.5, 1, 4), normal(2, 4, 6, 5)), {"eps": 1e-5}, tolerance=1e-4),
    Row("layer_norm", layer_normed, (CUBE, normal(3, 4), normal(3, 4, seed=1)), {"axes": 2, "eps": 1e-5, "affine": 1}, (0, 1, 2), tolerance=1e-5),
    Row("layer_norm_grad", None, (CUBE, normal(2), between(0.5, 1, 2), normal(2, 3, 4, seed=2), normal(3, 4)), {"axes": 2, "affine": 1}),
    Row("max_pool", lambda x: windows(x, -np.inf).max((4, 5)), (IMAGE,), POOL, (0,)),
    Row("avg_pool", lambda x: windows(x, 0).mean((4, 5)), (IMAGE,), {**POOL, "count_include_padding": 1}, (0,)),
    Row("avg_pool_grad", None, (normal(2, 4, 3, 4),), {**POOL, "count_include_padding": 1, "input_shape": (6, 5)}),
    Row("adaptive_avg_pool", lambda x: adaptive(x, np.mean), (IMAGE,), {"output": (2, 3)}, (0,)),
    Row("adaptive_avg_pool_grad", None, (normal(2, 4, 2, 3),), {"input_shape": (6, 5)}),
    Row("adaptive_max_pool", lambda x: adaptive(x, np.max), (IMAGE,), {"output": (2, 3)}, (0,)),
    Row("attention", attended, (normal(2, 2, 3, 4), normal(2, 2, 5, 4), normal(2, 2, 5, 6)), {"scale": 0.5}, (0, 1, 2), smooth=True),
    Row("attention", lambda *qkv: attended(*qkv, True), (normal(1, 2, 3, 4), normal(1, 2, 5, 4), normal(1, 2, 5, 6)), {"scale": 0.5, "causal": 1}, (0, 1, 2), smooth=True),
    Row("attention_grad", attended_grad, (normal(1, 2, 3, 4), normal(1, 2, 5, 4), normal(1, 2, 5, 6), normal(1, 2, 3, 6), between(1, 2, 1, 2, 3), normal(1, 2, 3, 6, seed=1)),
        {"scale": 0.5, "causal": 1}, (0, 1, 2, 3, 4, 5), tolerance=1e-5),
    Row("attention_of_parts", attended_parts, (normal(1, 3, 2, 4), normal(1, 5, 2, 4), normal(1, 5, 2, 6)), PARTS, (0, 1, 2), smooth=True),
    Row("attention_grad_of_parts", attended_parts_grad, (normal(1, 3, 2, 4), normal(1, 5, 2, 4), normal(1, 5, 2, 6), normal(1, 3, 2, 6), between(1, 2, 1, 2, 3), normal(1, 3, 2, 6, seed=1)),
        {**PARTS, "views": PARTS["views"] + (0, 0, 6, 12) + PARTS["views"][:12], "outputs": (0, 1, 2)}, (0, 1, 2, 3, 4, 5), tolerance=1e-5),
    Row("rnn", R.rnn, (normal(3, 2, 5), normal(5, 5), normal(2, 5)), {}, (0, 1, 2), smooth=True),
    Row("rnn", lambda *x: R.rnn(*x, lambda p: np.maximum(p, 0), True), (normal(3, 2, 5), normal(5, 5), normal(2, 5)), {"nonlinearity": "relu", "reverse": 1}, (0, 1, 2)),
    Row("rnn_grad", R.rnn_grad, (between(-0.9, 0.9, 3, 2, 5), normal(5, 5), normal(3, 2, 5)), {}, (0, 1, 2), tolerance=1e-5),
    Row("scan", scanned, (normal(2), normal(3, 2), normal(2, seed=1)), {"body": STEP, "carries": 1, "slices": 1, "trips": 3}, (0, 1, 2), smooth=True),
    Row("scan", lambda *x: scanned(*x, -1), (normal(2), normal(3, 2), normal(2, seed=1)), {"body": STEP, "carries": 1, "slices": 1, "trips": 3, "reverse": 1}, (1, 0, 2)),
    Row("cond", lambda p, x: np.tanh(x), (np.bool_(True), normal(3)), {"if_true": TANH, "if_false": EXP}, (1,)),
    Row("cond", lambda p, x: np.exp(x), (np.bool_(False), normal(3)), {"if_true": TANH, "if_false": EXP}, (1,)),
    Row("while_loop", lambda x: np.full(3, 8.0), (np.float32([2, 2, 2]),), {"condition": BELOW_5, "body": DOUBLE}),
    Row("lstm", R.lstm, (normal(3, 2, 20), normal(20, 5), normal(2, 5), normal(2, 5, seed=1)), {}, (0, 1, 2, 3), smooth=True),
    Row("lstm", lambda *x: R.lstm(*x, True), (normal(3, 2, 20), normal(20, 5), normal(2, 5), normal(2, 5, seed=1)), {"reverse": 1}, (1, 0, 2, 3), smooth=True),
    Row("lstm", lambda *x: R.lstm(*x, rounded=True), (normal(3, 2, 20), normal(20, 5), normal(2, 5), normal(2, 5, seed=1)), {"rounded": 1}),
    Row("lstm", lambda *x: R.lstm(*x, True, True), (normal(2, 33, 8), normal(8, 2), normal(33, 2), normal(33, 2, seed=1)), {"reverse": 1, "rounded": 1}),
    Row("gru_reset_first", R.gru_reset_first, (normal(3, 2, 15), normal(15, 5), normal(2, 5), normal(15)), {}, (0, 1, 2, 3), smooth=True),
    Row("gru_reset_first", lambda *x: R.gru_reset_first(*x, True), (normal(2, 9, 15), normal(15, 5), normal(9, 5), normal(15)), {"reverse": 1}, (0, 1, 2, 3)),
    Row("lstm_of_bytes", R.lstm_of_bytes, (normal(3, 2, 20), (normal(20, 5) * 40).astype("int8"), normal(2, 5), normal(2, 5, seed=1), between(0.01, 0.02, 20)), {}),
    Row("lstm_of_bytes", lambda *x: R.lstm_of_bytes(*x, True), (normal(2, 3, 160), (normal(160, 40) * 40).astype("int8"), normal(3, 40), normal(3, 40, seed=1), between(0.01, 0.02, 160)), {"reverse": 1}),
    Row("lstm_grad", lambda *x: R.lstm_grad(*x, True), (between(0.1, 0.9, 3, 2, 20), normal(20, 5), normal(2, 5), normal(3, 2, 5), normal(3, 2, 5, seed=1), normal(3, 2, 5, seed=2)),
        {"reverse": 1}, (0, 1, 2, 3, 4, 5), tolerance=1e-5),
    Row("lstm_grad", lambda *x: R.lstm_grad(*x, 0 * x[3]), (between(0.1, 0.9, 3, 2, 20), normal(20, 5), normal(2, 5), normal(3, 2, 5), normal(3, 2, 5, seed=1)), tolerance=1e-5),
    Row("gru", R.gru, (normal(3, 2, 15), normal(15, 5), normal(2, 5), normal(15)), {}, (0, 1, 2, 3), smooth=True),
    Row("gru", lambda *x: R.gru(*x, True), (normal(3, 2, 15), normal(15, 5), normal(2, 5), normal(15)), {"reverse": 1}, (0, 1, 2, 3), smooth=True),
    Row("gru_grad", lambda *x: R.gru_grad(*x, True), (between(0.1, 0.9, 3, 2, 15), normal(15, 5), normal(2, 5), normal(3, 2, 5), normal(3, 2, 5, seed=1), normal(3, 2, 5, seed=2)),
        {"reverse": 1}, (0, 1, 2, 3, 4, 5), tolerance=1e-5),
    Row("softmax", softmax, (X,), {"axis": 1}, (0,), smooth=True), Row("log_softmax", lambda x: np.log(softmax(x)), (X,), {"axis": 1}, (0,), smooth=True),
]  # fmt: skip

ALL = ELEMENTWISE + OTHERS
rows = pytest.mark.parametrize("row", ALL, ids=repr)
elementwise_rows = pytest.mark.parametrize("row", ELEMENTWISE, ids=repr)


def tensors(row):
    return [mge.tensor(x) for x in row.inputs]


def float64(x):
    return x.astype(np.float64) if x.dtype == np.float32 else x


def as_tuple(value):
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)


def same_bits(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def test_every_op_has_a_row():
    derived = {name for name in OPS if ".grad" in name}
    of_groups = {name for name in OPS if "group" in OPS[name]["attrs"]}  # test_collectives.py
    assert set(OPS) - derived - {row.op for row in ALL} - of_groups == set()


@pytest.mark.parametrize("row", [r for r in ALL if r.reference], ids=repr)
def test_the_value_is_numpys(row):
    wanted = as_tuple(row.reference(*map(float64, row.inputs)))
    for got, want in zip(as_tuple(row.call(*tensors(row))), wanted):
        if want is not None:
            assert got._tuple_shape == np.shape(want)
            np.testing.assert_allclose(got.numpy(), want, rtol=row.tolerance, atol=row.tolerance)


def slope(function, inputs, i, direction, weights, step):
    moved = [x + step * direction if k == i else x for k, x in enumerate(inputs)]
    return (weights * as_tuple(function(*moved))[0]).sum()


@pytest.mark.parametrize("row", [r for r in ALL if r.grad], ids=repr)
def test_the_gradient_is_that_of_differences(row):
    inputs, rng = tensors(row), np.random.default_rng(3)
    weights = rng.normal(size=as_tuple(row.call(*inputs))[0]._tuple_shape)
    with GradManager().attach([inputs[i] for i in row.grad]) as gm:
        gm.backward(as_tuple(row.call(*inputs))[0], mge.tensor(weights.astype(np.float32)))
    exact = [float64(x) for x in row.inputs]
    for i in row.grad:
        direction = rng.normal(size=exact[i].shape)
        want = sum(s * slope(row.reference, exact, i, direction, weights, s * 1e-4) for s in (1, -1)) / 2e-4
        got = (inputs[i].grad.numpy().astype(np.float64) * direction).sum()
        np.testing.assert_allclose(got, want, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("row", [r for r in ALL if r.grad and len(r.inputs) > 1], ids=repr)
def test_constants_among_the_operands_lie_with_the_gradient(row):
    # What a gradient computes of constants alone meets the others, whatever device is the default one.
    i = row.grad[0]
    inputs = tensors(row)
    with GradManager().attach([inputs[i]]) as gm:
        gm.backward(as_tuple(row.call(*inputs))[0])
    for constant in (lambda x: x, lambda x: mge.tensor(x, is_const=True)):
        given = [mge.tensor(x) if k == i else constant(np.asarray(x)) for k, x in enumerate(row.inputs)]
        with GradManager().attach([given[i]]) as gm:
            y = as_tuple(row.call(*given))[0]
            gm.backward(y)
        assert y.device == given[i].grad.device == given[i].device
        np.testing.assert_array_equal(given[i].grad.numpy(), inputs[i].grad.numpy())


@pytest.mark.parametrize("row", [r for r in ALL if r.smooth and r.grad], ids=repr)
def test_the_second_gradient_is_that_of_differences(row):
    rng = np.random.default_rng(4)
    i = row.grad[0]
    direction = rng.normal(size=row.inputs[i].shape)
    along = mge.tensor(direction.astype(np.float32))

    def first(x):
        """The gradient at x, times the direction; and its own gradient times the direction."""
        inputs = tensors(row)
        inputs[i] = mge.tensor(x.astype(np.float32))
        with GradManager().attach([inputs[i]]) as outer:
            with GradManager().attach([inputs[i]]) as inner:
                y = as_tuple(row.call(*inputs))[0]
                inner.backward((y * y).sum())
            grad = inputs[i].grad
            inputs[i].grad = None
            outer.backward((grad * along).sum())
        return [(x.numpy().astype(np.float64) * direction).sum() for x in (grad, inputs[i].grad)]

    def difference(step):
        return (first(row.inputs[i] + step * direction)[0] - first(row.inputs[i] - step * direction)[0]) / (2 * step)

    step = 1e-2 / max(1, np.abs(direction).max())
    want = (4 * difference(step) - difference(2 * step)) / 3  # without the term of step**2
    assert first(row.inputs[i])[1] == pytest.approx(want, rel=5e-4, abs=5e-4)


@pytest.mark.parametrize("options", [{}, {"symbolic": True}, {"without_host": True}], ids=["value", "symbolic", "without_host"])
@rows
def test_a_traced_call_has_the_eager_bits(row, options):
    if options.get("without_host") and row.op in ("mask_select", "nonzero", "nms"):
        options = {}  # a shape that depends on data needs the body
    inputs = tensors(row)
    wanted = [x.numpy() for x in as_tuple(row.call(*inputs))]
    traced = trace(row.call, **options)
    for _ in range(3):
        assert all(same_bits(x.numpy(), want) for x, want in zip(as_tuple(traced(*inputs)), wanted, strict=True))


@elementwise_rows
def test_a_generated_kernel_has_the_eager_bits(row):
    def chain(*xs):
        y = row.call(*xs)
        return ops.identity(ops.where(y, 1.0, 0.0) if y.dtype == np.bool_ else y * 1.25) if row.op != "cast" else row.call(*xs) * 1.25

    inputs = tensors(row)
    want = chain(*inputs).numpy()
    traced = trace(chain, symbolic=True, opt_level=3)
    for _ in range(2):
        assert same_bits(traced(*inputs).numpy(), want)


# ---- special values

SPECIAL = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-39, -1e-39, 3e38, -3e38, 1.0, -1.0, 0.5, -2.0], np.float32)
# Where the row's formula in float64 says something else than float32 must: formulas of float32 arrays.
IN_FLOAT32 = {
    "floor_div": lambda x, y: np.floor(x / y),  # NumPy gives NaN for inf // y
    "fma3": lambda a, b, c: a * b + c,  # rounded twice, in every mode
    "hswish": lambda x: x * np.clip(x + 3, 0, 6) / 6,  # the product overflows before it is divided, as in MegEngine
}
ZERO_OF_ANY_SIGN = {
    "maximum", "minimum", "even_maximum", "even_minimum", "relu",  # of two equal zeros either may be the larger
    "logsigmoid",  # is less than 0 and rounds to it: -log1p(exp(-x))
}  # fmt: skip


def special(row):
    """Every combination of special values; of an operand that is one number, that number."""
    values = [SPECIAL if x.dtype == np.float32 else [False, True] for x in row.inputs]
    values = [choice if np.ndim(x) else [x] for x, choice in zip(row.inputs, values)]
    columns = zip(*itertools.product(*values))
    return [np.array(column, x.dtype) for x, column in zip(row.inputs, columns)]


def has_floats(row):
    return any(x.dtype == np.float32 for x in row.inputs)


@pytest.mark.parametrize("row", [r for r in ELEMENTWISE if has_floats(r)], ids=repr)
def test_special_values_are_numpys(row):
    operands = special(row)
    formula = IN_FLOAT32.get(row.op)
    with np.errstate(all="ignore"):
        want = np.asarray(formula(*operands) if formula else row.reference(*map(float64, operands))).astype(np.float32)
    got = row.call(*map(mge.tensor, operands)).numpy()
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    np.testing.assert_allclose(got, want, rtol=1e-6, atol=0)
    zero = (want == 0) & (row.op not in ZERO_OF_ANY_SIGN)
    np.testing.assert_array_equal(np.signbit(got[zero]), np.signbit(want[zero]))


@pytest.mark.parametrize("op", [r.op for r in ELEMENTWISE if len(r.inputs) == 1 and r.inputs[0].dtype == np.float32 and r.op not in ("isnan", "isinf", "isfinite")])
def test_nan_stays_nan(op):
    row = next(r for r in ELEMENTWISE if r.op == op)
    assert np.isnan(row.call(mge.tensor([np.nan, 1.0])).numpy()[0])


@pytest.mark.parametrize("options", [None, {}, {"symbolic": True, "opt_level": 3}], ids=["eager", "traced", "generated"])
def test_denormals_are_kept(options):
    def f(x):
        return (x * 0.5 + x) * 1.0

    f = f if options is None else trace(f, **options)
    for _ in range(2):
        got = f(mge.tensor(np.array([1e-39, -1e-40, 4e-45], np.float32))).numpy()
        want = np.array([1e-39, -1e-40, 4e-45], np.float32)
        np.testing.assert_array_equal(got, want * np.float32(0.5) + want)


# ---- shapes

SHAPES = [((), ()), ((0,), (0,)), ((0, 3), (3,)), ((2, 1, 3), (4, 1)), ((1,), ()), ((1, 1, 1), (2, 0, 3)), ((2, 3), (2, 3))]


@pytest.mark.parametrize("opt_level", [None, 2, 3], ids=["eager", "traced", "generated"])
@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_any_shapes_broadcast(shapes, opt_level):
    a, b = (normal(*shape) for shape in shapes)

    def f(x, y):
        return ops.add(ops.mul(x, y), ops.exp(ops.neg(y)))

    f = f if opt_level is None else trace(f, opt_level=opt_level)
    for _ in range(2):
        got = f(mge.tensor(a), mge.tensor(b)).numpy()
        assert got.shape == np.broadcast_shapes(*shapes)
        np.testing.assert_allclose(got, a * b + np.exp(-b), rtol=1e-5, atol=1e-6)


@elementwise_rows
def test_scalars_and_empty_tensors_are_welcome(row):
    for shape in ((), (0,), (2, 0)):
        inputs = [mge.tensor(x.flat[:0].reshape(shape) if 0 in shape else x.flat[0]) for x in row.inputs]
        assert row.call(*inputs)._tuple_shape == shape


# ---- dtypes

DTYPES = ["float32", "float16", "bfloat16", "int8", "uint8", "int16", "int32", "bool"]
FLOATS = DTYPES[:3]


def of_dtype(array, dtype):
    return mge.tensor(np.asarray(array).astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("row", [r for r in ELEMENTWISE if all(x.dtype == np.float32 for x in r.inputs) and r.op not in ("cast", "isnan", "isinf", "isfinite", "digamma")], ids=repr)
def test_half_floats_round_once(row, dtype):
    """A result is the float32 one, rounded."""
    halves = [of_dtype(x, dtype) for x in row.inputs]
    got = row.call(*halves)
    assert got.dtype.name == dtype
    want = row.call(*(x.astype("float32") for x in halves)).astype(dtype)
    assert same_bits(got.numpy(), want.numpy())


def promoted(a, b):
    """semantics.md, section 2."""
    if a == b:
        return a
    a, b = ("float32" if x == "float16" else x for x in (a, b))
    kinds = ["float" if x in FLOATS else "bool" if x == "bool" else "int" for x in (a, b)]
    if kinds[0] != kinds[1]:
        return "float32"
    if a == b:
        return a
    if kinds[0] == "float":
        return "float32"
    if "uint8" in (a, b):
        return None  # signed with unsigned: an error
    return max(a, b, key=lambda x: np.dtype(x).itemsize)


@pytest.mark.parametrize("a, b", [*itertools.combinations_with_replacement(DTYPES, 2)])
def test_two_dtypes_promote_as_documented(a, b):
    x, y, want = of_dtype([1, 0, 1], a), of_dtype([1, 1, 0], b), promoted(a, b)
    if want is None:
        with pytest.raises((TypeError, ValueError, RuntimeError)):
            ops.maximum(x, y)
        return
    for left, right in ((x, y), (y, x)):
        got = ops.maximum(left, right)
        assert got.dtype.name == want
        np.testing.assert_array_equal(got.numpy().astype(np.float32), [1, 1, 1])


@pytest.mark.parametrize("number", [True, 2, 1.5], ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_python_number_matters_only_when_its_category_is_higher(dtype, number):
    rank = 2 if dtype in FLOATS else 0 if dtype == "bool" else 1
    higher = {True: 0, 2: 1, 1.5: 2}[number] > rank
    got = ops.maximum(of_dtype([1, 0], dtype), number)
    if higher:
        assert got.dtype.name == "float32"  # also of bool with an int
    else:
        assert got.dtype.name == dtype


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32"])
@pytest.mark.parametrize("op", ["add", "sub", "mul", "floor_div", "mod", "maximum", "minimum"])
def test_integers_wrap_and_divide_as_numpys(op, dtype):
    info = np.iinfo(dtype)
    values = np.array([info.min, info.max, 1, 3, 7, 100], dtype)
    x, y = (p.ravel().copy() for p in np.meshgrid(values, values[values != 0]))
    with np.errstate(all="ignore"):
        want = getattr(np, {"sub": "subtract", "mul": "multiply", "floor_div": "floor_divide"}.get(op, op))(x, y)
    got = getattr(ops, op)(mge.tensor(x), mge.tensor(y)).numpy()
    assert same_bits(got, want)


@pytest.mark.parametrize("source, target", [*itertools.product(DTYPES, DTYPES)])
def test_casts_are_numpys(source, target):
    x = of_dtype([0, 1, 2, 100, 0], source)
    got = ops.cast(x, dtype=target).numpy()
    want = x.numpy().astype(ml_dtypes.bfloat16 if target == "bfloat16" else target)
    assert same_bits(got, want)


@pytest.mark.parametrize(("ends", "why"), [([3, 1], "group 1 ends at 1 of 5"), ([3, 6], "group 1 ends at 6 of 5"), ([-1, 5], "group 0 ends at -1 of 5")])
def test_ends_that_divide_nothing_into_groups_are_refused(ends, why):
    with pytest.raises(IndexError, match=why):
        ops.grouped_matmul(normal(5, 3), normal(2, 3, 4), np.array(ends, np.int32)).numpy()
