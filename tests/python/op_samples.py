"""One row per function: how to call it, what NumPy says in float64, sample inputs, and where a gradient is checked.

Drives test_functional_ops.py, which runs each row against NumPy, against finite differences, and traced.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

import megengine.functional as F
from megengine import Tensor


@dataclass(frozen=True)
class Sample:
    name: str
    call: Callable
    reference: Callable
    inputs: tuple
    grad: tuple = (0,)  # inputs whose gradient is checked
    tolerance: float = 1e-5  # relative and absolute
    settings: dict = field(default_factory=dict)  # keyword arguments of both

    def __repr__(self):
        return self.name


def _normal(*shape, seed=0):
    return np.random.default_rng(seed + sum(shape)).normal(size=shape).astype(np.float32)


def _between(low, high, *shape, seed=0):
    return np.random.default_rng(seed).uniform(low, high, size=shape).astype(np.float32)


def _distinct(*shape):
    """Elements at least 0.1 apart, so that order and kinks survive a small step."""
    n = math.prod(shape)
    values = np.random.default_rng(n).permutation(n).astype(np.float32)
    return ((values - n / 2) * 0.1 + 0.05).reshape(shape)


X = _distinct(3, 4)
POSITIVE = _between(0.2, 3, 3, 4)
UNIT = _between(-0.9, 0.9, 3, 4)
INTS = np.array([[3, -7, 0], [5, 2, -1]], np.int32)
LABEL = np.array([1, 0, 3], np.int32)
IMAGE = _distinct(2, 4, 6, 5)


def _sigmoid(x):
    return 1 / (1 + np.exp(-x))


_erf = np.vectorize(math.erf, otypes=[np.float64])


def _unary(function, reference, x=X, **kwargs):
    return Sample(function.__name__, function, reference, (x,), **kwargs)


def _binary(function, reference, x=X, y=_normal(1, 4) + 3, **kwargs):
    return Sample(function.__name__, function, reference, (x, y), **kwargs)


UNARY = [
    _unary(F.abs, np.abs),
    _unary(F.acos, np.arccos, UNIT),
    _unary(F.asin, np.arcsin, UNIT),
    _unary(F.atan, np.arctan),
    _unary(F.asinh, np.arcsinh),
    _unary(F.acosh, np.arccosh, POSITIVE + 1.2),
    _unary(F.atanh, np.arctanh, UNIT),
    _unary(F.ceil, np.ceil, grad=()),
    _unary(F.cos, np.cos),
    _unary(F.cosh, np.cosh),
    _unary(F.erf, _erf),
    _unary(F.celu, lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0)))),
    _unary(F.elu, lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0)))),
    Sample("elu_of_half", lambda x: F.elu(x, 0.5), lambda x: np.where(x > 0, x, 0.5 * np.expm1(np.minimum(x, 0))), (X,)),
    Sample("celu_of_half", lambda x: F.celu(x, 0.5), lambda x: np.where(x > 0, x, 0.5 * np.expm1(2 * np.minimum(x, 0))), (X,)),
    _unary(F.exp, np.exp),
    _unary(F.expm1, np.expm1),
    _unary(F.floor, np.floor, grad=()),
    _unary(F.gelu, lambda x: x * 0.5 * (1 + _erf(x / np.sqrt(2)))),
    _unary(F.hsigmoid, lambda x: np.clip(x + 3, 0, 6) / 6, 5 * X),
    _unary(F.hswish, lambda x: x * np.clip(x + 3, 0, 6) / 6, 5 * X),
    _unary(F.leaky_relu, lambda x: np.where(x > 0, x, 0.01 * x)),
    _unary(F.log, np.log, POSITIVE),
    _unary(F.log1p, np.log1p, POSITIVE),
    _unary(F.logsigmoid, lambda x: -np.logaddexp(0, -x)),
    _unary(F.mish, lambda x: x * np.tanh(np.logaddexp(0, x))),
    _unary(F.neg, np.negative),
    _unary(F.relu, lambda x: np.maximum(x, 0)),
    _unary(F.relu6, lambda x: np.clip(x, 0, 6), 10 * X),
    _unary(F.round, lambda x: np.trunc(x + np.copysign(0.5, x)), 3 * X, grad=()),
    _unary(F.selu, lambda x: 1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * np.expm1(np.minimum(x, 0)))),
    _unary(F.sigmoid, _sigmoid),
    _unary(F.sign, np.sign, grad=()),
    _unary(F.silu, lambda x: x * _sigmoid(x)),
    _unary(F.sin, np.sin),
    _unary(F.sinh, np.sinh),
    _unary(F.softplus, lambda x: np.logaddexp(0, x)),
    _unary(F.sqrt, np.sqrt, POSITIVE),
    _unary(F.square, np.square),
    _unary(F.tan, np.tan, UNIT),
    _unary(F.tanh, np.tanh),
    _unary(F.isnan, np.isnan, np.array([1, np.nan, np.inf], np.float32), grad=()),
    _unary(F.isinf, np.isinf, np.array([1, np.nan, -np.inf], np.float32), grad=()),
    _unary(F.logical_not, np.logical_not, X > 0, grad=()),
]

BINARY = [
    _binary(F.add, np.add, grad=(0, 1)),
    _binary(F.sub, np.subtract, grad=(0, 1)),
    _binary(F.mul, np.multiply, grad=(0, 1)),
    _binary(F.div, np.divide, grad=(0, 1)),
    _binary(F.pow, np.power, POSITIVE, grad=(0, 1)),
    _binary(F.atan2, np.arctan2, grad=(0, 1)),
    _binary(F.logaddexp, np.logaddexp, grad=(0, 1)),
    _binary(F.maximum, np.maximum, grad=(0, 1)),
    _binary(F.minimum, np.minimum, grad=(0, 1)),
    _binary(F.mod, np.fmod, grad=()),
    _binary(F.floor_div, np.floor_divide, grad=()),
    _binary(F.prelu, lambda x, y: np.where(x > 0, x, x * y), grad=(0, 1)),
    Sample("mod_int", F.mod, np.mod, (INTS, np.int32(3) + 0 * INTS), ()),
    Sample("floor_div_int", F.floor_div, np.floor_divide, (INTS, np.int32(2) + 0 * INTS), ()),
    Sample("left_shift", F.left_shift, np.left_shift, (INTS, 1 + 0 * INTS), ()),
    Sample("right_shift", F.right_shift, np.right_shift, (INTS, 1 + 0 * INTS), ()),
    *(
        _binary(function, reference, INTS, INTS.T.reshape(2, 3), grad=())
        for function, reference in {
            F.equal: np.equal,
            F.not_equal: np.not_equal,
            F.less: np.less,
            F.less_equal: np.less_equal,
            F.greater: np.greater,
            F.greater_equal: np.greater_equal,
        }.items()
    ),
    *(
        _binary(function, reference, INTS, 2 * INTS[::-1].copy() + 1, grad=())
        for function, reference in {F.bitwise_and: np.bitwise_and, F.bitwise_or: np.bitwise_or, F.bitwise_xor: np.bitwise_xor}.items()
    ),
    Sample("bitwise_not", F.bitwise_not, np.invert, (INTS,), ()),
    Sample("lerp", F.lerp, lambda a, b, w: a + w * (b - a), (X, _normal(3, 4), UNIT), (0, 1, 2)),
    _binary(F.logical_and, np.logical_and, INTS > 0, INTS > 2, grad=()),
    _binary(F.logical_or, np.logical_or, INTS > 0, INTS > 2, grad=()),
    _binary(F.logical_xor, np.logical_xor, INTS > 0, INTS > 2, grad=()),
    Sample("clip", lambda x: F.clip(x, -0.5, 0.5), lambda x: np.clip(x, -0.5, 0.5), (1.7 * X,)),
    Sample("clip_below", lambda x: F.clip(x, lower=0.0), lambda x: np.maximum(x, 0), (X,)),
]


def _reduction(function, reference, x=X, **kwargs):
    name = function.__name__
    return [
        Sample(name, function, reference, (x,), **kwargs),
        Sample(
            f"{name}_axis",
            lambda x: function(x, axis=-1),
            lambda x: reference(x, axis=-1),
            (x,),
            **kwargs,
        ),
        Sample(
            f"{name}_keepdims",
            lambda x: function(x, axis=(0, 1), keepdims=True),
            lambda x: reference(x, axis=(0, 1), keepdims=True),
            (x,),
            **kwargs,
        ),
    ]


def _logsumexp(x, axis=1):
    return np.log(np.exp(x).sum(axis))


REDUCTIONS = [
    *_reduction(F.sum, np.sum),
    *_reduction(F.prod, np.prod, POSITIVE),
    *_reduction(F.mean, np.mean),
    *_reduction(F.max, np.max),
    *_reduction(F.min, np.min),
    *_reduction(F.var, np.var),
    *_reduction(F.std, np.std),
    Sample("norm_2", lambda x: F.norm(x, axis=1), lambda x: np.linalg.norm(x, axis=1), (X,)),
    Sample("norm_3", lambda x: F.norm(x, 3, 1), lambda x: np.linalg.norm(x, 3, 1), (X,)),
    Sample(
        "norm_inf", lambda x: F.norm(x, np.inf, 1), lambda x: np.linalg.norm(x, np.inf, 1), (X,)
    ),
    Sample(
        "normalize",
        lambda x: F.normalize(x, axis=1),
        lambda x: x / np.linalg.norm(x, axis=1, keepdims=True),
        (X,),
    ),
    Sample("argmax", lambda x: F.argmax(x, axis=1), lambda x: np.argmax(x, 1), (X,), ()),
    Sample("argmin", F.argmin, np.argmin, (X,), ()),
    Sample("argsort", F.argsort, np.argsort, (X,), ()),
    Sample("sort", lambda x: F.sort(x)[0], np.sort, (X,)),
    Sample("topk", lambda x: F.topk(x, 2)[0], lambda x: -np.sort(-x)[:, :2], (X,)),
    Sample("cumsum", lambda x: F.cumsum(x, 1), lambda x: np.cumsum(x, 1), (X,)),
    Sample("logsumexp", lambda x: F.logsumexp(x, 1), _logsumexp, (X,)),
    Sample(
        "logsoftmax",
        lambda x: F.logsoftmax(x, 1),
        lambda x: x - _logsumexp(x)[:, None],
        (X,),
    ),
    Sample("softmax", F.softmax, lambda x: np.exp(x - _logsumexp(x)[:, None]), (X,)),
]


def _cross_entropy(x, label, smooth=0.0):
    logp = x - _logsumexp(x)[:, None]
    return np.mean(-(1 - smooth) * logp[np.arange(len(label)), label] - smooth * logp.mean(1))


PROBABILITY = _between(0.1, 0.9, 3, 4)
TARGET = (X > 0).astype(np.float32)

LOSSES = [
    Sample(
        "l1_loss", F.loss.l1_loss, lambda a, b: np.abs(a - b).mean(), (X, _normal(3, 4)), (0, 1)
    ),
    Sample(
        "square_loss",
        F.loss.square_loss,
        lambda a, b: ((a - b) ** 2).mean(),
        (X, _normal(3, 4)),
        (0, 1),
    ),
    Sample("cross_entropy", F.loss.cross_entropy, _cross_entropy, (X, LABEL)),
    Sample(
        "cross_entropy_smooth",
        lambda x, y: F.loss.cross_entropy(x, y, label_smooth=0.1),
        lambda x, y: _cross_entropy(x, y, 0.1),
        (X, LABEL),
    ),
    Sample(
        "cross_entropy_probabilities",
        lambda x, y: F.loss.cross_entropy(x, y, with_logits=False),
        lambda x, y: -np.log(x[np.arange(3), y]).mean(),
        (PROBABILITY, LABEL),
    ),
    Sample(
        "binary_cross_entropy",
        F.loss.binary_cross_entropy,
        lambda x, y: -(y * np.log(_sigmoid(x)) + (1 - y) * np.log(1 - _sigmoid(x))).mean(),
        (X, TARGET),
    ),
    Sample(
        "binary_cross_entropy_probabilities",
        lambda x, y: F.loss.binary_cross_entropy(x, y, with_logits=False),
        lambda x, y: -(y * np.log(x) + (1 - y) * np.log(1 - x)).mean(),
        (PROBABILITY, TARGET),
    ),
    Sample(
        "hinge_loss",
        F.loss.hinge_loss,
        lambda x, y: np.maximum(0, 1 - x * y).sum(1).mean(),
        (X, 2 * TARGET - 1),
    ),
    Sample(
        "hinge_loss_l2",
        lambda x, y: F.loss.hinge_loss(x, y, norm="L2"),
        lambda x, y: (np.maximum(0, 1 - x * y) ** 2).sum(1).mean(),
        (X, 2 * TARGET - 1),
    ),
]

def _of_labels(x, label, weight=1.0, ignored=None, smooth=0.0):
    logp = (x - _logsumexp(x)[:, None]) * weight
    kept = [i for i, each in enumerate(label) if each != ignored]
    losses = [-(1 - smooth) * logp[i, label[i]] - smooth * logp[i].mean() for i in kept]
    return np.sum(losses) / np.sum((np.ones(4) * weight)[label[kept]])


def _cosine(x, y):
    return (x * y).sum(-1) / np.linalg.norm(x, axis=-1) / np.linalg.norm(y, axis=-1)


def _apart(x, y, p=2):
    return (np.abs(x - y + 1e-6) ** p).sum(-1) ** (1 / p)


SIDES = np.array([1, -1, -1], np.int32)
WEIGHT = _between(0.2, 3, 4)
WEIGHT_OF_CLASSES = Tensor(WEIGHT)
LOSSES += [
    Sample("cross_entropy_ignoring", lambda x, y: F.loss.cross_entropy(x, y, ignore_index=-100), lambda x, y: _of_labels(x, y, ignored=-100), (X, np.array([1, -100, 3], np.int32))),
    Sample("cross_entropy_weighted", lambda x, y, w: F.loss.cross_entropy(x, y, weight=w), _of_labels, (X, LABEL, WEIGHT), (0, 2)),
    Sample(
        "cross_entropy_of_all",
        lambda x, y, w: F.loss.cross_entropy(x, y, label_smooth=0.1, ignore_index=0, weight=w),
        lambda x, y, w: _of_labels(x, y, w, 0, 0.1),
        (X, LABEL, WEIGHT),
        (0, 2),
    ),
    Sample("huber_loss", lambda x, y: F.loss.huber_loss(x, y, delta=0.3), lambda x, y: np.where(np.abs(x - y) < 0.3, (x - y) ** 2 / 2, 0.3 * (np.abs(x - y) - 0.15)).mean(), (X, UNIT / 4), (0, 1)),
    Sample("smooth_l1_loss", lambda x, y: F.loss.smooth_l1_loss(x, y, beta=0.3), lambda x, y: np.where(np.abs(x - y) < 0.3, (x - y) ** 2 / 0.6, np.abs(x - y) - 0.15).mean(), (X, UNIT / 4), (0, 1)),
    Sample("smooth_l1_loss_of_0", lambda x, y: F.loss.smooth_l1_loss(x, y, beta=0), lambda x, y: np.abs(x - y).mean(), (X, UNIT), (0, 1)),
    Sample("kl_div", F.loss.kl_div, lambda x, y: (y * (np.log(y) - x)).mean(), (X, PROBABILITY), (0, 1)),
    Sample("kl_div_of_batches", lambda x, y: F.loss.kl_div(x, y, "batchmean"), lambda x, y: -(y * x).sum() / 3, (X, TARGET)),
    Sample("kl_div_of_logarithms", lambda x, y: F.loss.kl_div(x, y, "sum", log_target=True), lambda x, y: (np.exp(y) * (y - x)).sum(), (X, UNIT), (0, 1)),
    Sample("cosine_embedding_loss", lambda x, y, side: F.loss.cosine_embedding_loss(x, y, side, margin=-0.9), lambda x, y, side: np.where(side == 1, 1 - _cosine(x, y), np.maximum(0, _cosine(x, y) + 0.9)).mean(), (X, _normal(3, 4), SIDES), (0, 1)),
    Sample("nll_loss", lambda x, i: F.loss.nll_loss(x, i), lambda x, i: -x[np.arange(3), i].mean(), (X, LABEL)),
    Sample("nll_loss_weighted", lambda x, i: F.loss.nll_loss(x, i, weight=WEIGHT_OF_CLASSES, ignore_index=0), lambda x, i: -(x[[0, 2], i[[0, 2]]] * WEIGHT[i[[0, 2]]]).sum() / WEIGHT[i[[0, 2]]].sum(), (X, LABEL)),
    Sample("cosine_similarity", F.cosine_similarity, _cosine, (X, _normal(3, 4)), (0, 1)),
    Sample("cosine_similarity_of_columns", lambda x, y: F.cosine_similarity(x, y, axis=0), lambda x, y: _cosine(x.T, y.T), (X, _normal(3, 1)), (0, 1)),
    Sample("pairwise_distance", F.pairwise_distance, _apart, (X, UNIT), (0, 1)),
    Sample("pairwise_distance_3", lambda x, y: F.pairwise_distance(x, y, 3.0, keepdims=True), lambda x, y: _apart(x, y, 3)[:, None], (X, _normal(4)), (0, 1)),
    Sample("triplet_margin_loss", lambda a, b, c: F.loss.triplet_margin_loss(a, b, c, margin=9.0), lambda a, b, c: (_apart(a, b) - _apart(a, c) + 9).mean(), (X, UNIT, POSITIVE), (0, 1, 2)),
    Sample("triplet_margin_loss_swapped", lambda a, b, c: F.loss.triplet_margin_loss(a, b, c, margin=9.0, p=3, swap=True), lambda a, b, c: (_apart(a, b, 3) - np.minimum(_apart(a, c, 3), _apart(b, c, 3)) + 9).mean(), (X, UNIT, POSITIVE), (0, 1, 2)),
]  # fmt: skip

BAGS = np.array([[0, 3, 3], [1, 2, 0]], np.int32)


def _bag_sums(w, i, offsets, weights=1.0):
    ends = [*offsets[1:], len(i)]
    rows = w[i] * np.reshape(weights, (-1, 1))
    return np.stack([rows[begin:end].sum(0) for begin, end in zip(offsets, ends, strict=True)])


def _unfolded(x, kernel, dilation=1, padding=0, stride=1):
    """Columns of windows, one loop a window."""
    x = np.pad(x, ((0, 0), (0, 0), (padding,) * 2, (padding,) * 2))
    n, c, h, w = x.shape
    span = [dilation * (k - 1) + 1 for k in kernel]
    places = [(i, j) for i in range(0, h - span[0] + 1, stride) for j in range(0, w - span[1] + 1, stride)]
    return np.stack([x[:, :, i : i + span[0] : dilation, j : j + span[1] : dilation].reshape(n, -1) for i, j in places], 2)


def _folded(columns, size, kernel, padding, stride):
    """Each column added to its window, one loop a window."""
    n, rows, _ = columns.shape
    y = np.zeros((n, rows // (kernel[0] * kernel[1]), size[0] + 2 * padding, size[1] + 2 * padding))
    places = [(i, j) for i in range(0, y.shape[2] - kernel[0] + 1, stride) for j in range(0, y.shape[3] - kernel[1] + 1, stride)]
    for at, (i, j) in enumerate(places):
        y[:, :, i : i + kernel[0], j : j + kernel[1]] += columns[:, :, at].reshape(n, -1, *kernel)
    return y[:, :, padding : padding + size[0], padding : padding + size[1]]


def _transposed_line(x, w, stride, padding, extra):
    """[n, c, l] by [c, out, k]."""
    full = np.zeros((x.shape[0], w.shape[1], (x.shape[2] - 1) * stride + w.shape[2] + extra))
    for at in range(x.shape[2]):
        full[:, :, at * stride : at * stride + w.shape[2]] += np.einsum("nc,cok->nok", x[:, :, at], w)
    return full[:, :, padding : full.shape[2] - padding]


def _lines(x, kernel, stride):
    return np.lib.stride_tricks.sliding_window_view(x, kernel, 2)[:, :, ::stride]


INDEX = np.array([[0, 2, 1, 3], [3, 3, 0, 0], [1, 0, 2, 2]], np.int32)



def _added(x, place, value):
    x = x.copy()
    np.add.at(x, place, value)
    return x


def _least(x, place, value):
    x = x.copy()
    np.minimum.at(x, place, value)
    return x


ARRANGEMENT = [
    Sample("reshape", lambda x: F.reshape(x, (2, -1)), lambda x: x.reshape(2, -1), (X,)),
    Sample("transpose", lambda x: F.transpose(x, (2, 0, 1)), lambda x: x.transpose(2, 0, 1), (_normal(2, 3, 4),)),
    Sample("swapaxes", lambda x: F.swapaxes(x, 0, 2), lambda x: x.swapaxes(0, 2), (_normal(2, 3, 4),)),
    Sample("flatten", lambda x: F.flatten(x, 1), lambda x: x.reshape(2, -1), (_normal(2, 3, 4),)),
    Sample("expand_dims", lambda x: F.expand_dims(x, (0, -1)), lambda x: x[None, ..., None], (X,)),
    Sample("squeeze", lambda x: F.squeeze(x, 1), lambda x: x[:, 0], (_normal(3, 1, 2),)),
    Sample("broadcast_to", lambda x: F.broadcast_to(x, (2, 3, 4)), lambda x: np.broadcast_to(x, (2, 3, 4)), (X,)),
    Sample("concat", lambda x, y: F.concat([x, y], 1), lambda x, y: np.concatenate([x, y], 1), (X, _normal(3, 2)), (0, 1)),
    Sample("stack", lambda x, y: F.stack([x, y], -1), lambda x, y: np.stack([x, y], -1), (X, 2 * X), (0, 1)),
    Sample("split", lambda x: F.split(x, 3, axis=1)[0], lambda x: np.array_split(x, 3, 1)[0], (X,)),
    Sample("repeat", lambda x: F.repeat(x, 2, axis=1), lambda x: np.repeat(x, 2, 1), (X,)),
    Sample("repeat_each", lambda x: F.repeat(x, [2, 0, 1], axis=0), lambda x: np.repeat(x, [2, 0, 1], 0), (X,)),
    Sample("tile", lambda x: F.tile(x, (2, 1, 3)), lambda x: np.tile(x, (2, 1, 3)), (X,)),
    Sample("roll", lambda x: F.roll(x, (1, -1), (0, 1)), lambda x: np.roll(x, (1, -1), (0, 1)), (X,)),
    Sample("roll_flat", lambda x: F.roll(x, 5), lambda x: np.roll(x, 5), (X,)),
    Sample("diag", lambda x: F.diag(x, 1), lambda x: np.diag(x, 1), (X,)),
    Sample("diag_of_vector", lambda x: F.diag(x, -1), lambda x: np.diag(x, -1), (_normal(3),)),
    Sample("gather", lambda x, i: F.gather(x, 1, i), lambda x, i: np.take_along_axis(x, i, 1), (X, INDEX)),
    Sample("where", lambda x, y: F.where(x > 0, x, y), lambda x, y: np.where(x > 0, x, y), (X, 2 * X), (0, 1)),
    Sample("indexing_one_hot", F.indexing_one_hot, lambda x, i: x[np.arange(3), i], (X, LABEL)),
    Sample("one_hot", lambda i: F.one_hot(i, 5), lambda i: np.eye(5, dtype=np.int32)[i], (INDEX,), ()),
    Sample("embedding", lambda w, i: F.embedding(i, w), lambda w, i: w[i], (_normal(4, 3), INDEX)),
    Sample("embedding_bag", lambda w, i: F.embedding_bag(i, w), lambda w, i: w[i].mean(1), (_normal(4, 3), BAGS)),
    Sample("embedding_bag_sums", lambda w, i, s: F.embedding_bag(i, w, mode="sum", per_sample_weights=s), lambda w, i, s: (w[i] * s[..., None]).sum(1), (_normal(4, 3), BAGS, _normal(2, 3)), (0, 2)),
    Sample("embedding_bag_largest", lambda w, i: F.embedding_bag(i, w, mode="max"), lambda w, i: w[i].max(1), (_distinct(4, 3), BAGS)),
    Sample("embedding_bag_padded", lambda w, i: F.embedding_bag(i, w, padding_idx=-1), lambda w, i: np.stack([w[0], w[[1, 2, 0]].mean(0)]), (_normal(4, 3), BAGS)),
    Sample("embedding_bag_largest_padded", lambda w, i: F.embedding_bag(i, w, mode="max", padding_idx=3), lambda w, i: np.stack([w[0], w[[1, 2, 0]].max(0)]), (_distinct(4, 3), BAGS)),
    Sample("embedding_bag_by_offsets", lambda w, i: F.embedding_bag(i, w, np.array([0, 1, 1, 4], np.int32), mode="sum"), lambda w, i: _bag_sums(w, i, [0, 1, 1, 4]), (_normal(4, 3), BAGS.ravel())),
    Sample("embedding_bag_means_by_offsets", lambda w, i, o: F.embedding_bag(i, w, o), lambda w, i, o: _bag_sums(w, i, o) / [[2], [1], [3]], (_normal(4, 3), BAGS.ravel(), np.array([0, 2, 3], np.int32))),
    Sample("glu", F.glu, lambda x: x[:, :2] * _sigmoid(x[:, 2:]), (X,)),
    Sample("glu_of_rows", lambda x: F.glu(x, 0), lambda x: x[:2] * _sigmoid(x[2:]), (_normal(4, 3),)),
    Sample("pixel_unshuffle", lambda x: F.pixel_unshuffle(x, 2), lambda x: x.reshape(2, 4, 3, 2, 2, 2).transpose(0, 1, 3, 5, 2, 4).reshape(2, 16, 3, 2), (IMAGE[..., :4],)),
    Sample("pad", lambda x: F.pad(x, ((1, 0), (0, 2)), constant_value=3.0), lambda x: np.pad(x, ((1, 0), (0, 2)), constant_values=3.0), (X,)),
    Sample("pad_edge", lambda x: F.pad(x, ((1, 2), (2, 1)), "replicate"), lambda x: np.pad(x, ((1, 2), (2, 1)), "edge"), (X,)),
    Sample("pad_reflect", lambda x: F.pad(x, ((1, 2), (2, 1)), "reflect"), lambda x: np.pad(x, ((1, 2), (2, 1)), "reflect"), (X,)),
    Sample("meshgrid", lambda x, y: F.meshgrid(x, y)[0], lambda x, y: np.meshgrid(x, y)[0], (_normal(3), _normal(2))),
    Sample("copy", F.copy, np.copy, (X,)),
    Sample("tril", F.tril, np.tril, (_normal(2, 3, 4),)),
    Sample("triu", lambda x: F.triu(x, k=-1), lambda x: np.triu(x, -1), (_normal(2, 4, 3),)),
    Sample("unbind", lambda x: F.unbind(x, -1)[1], lambda x: x[..., 1], (X,)),
    Sample("cumprod", lambda x: F.cumprod(x, 1), lambda x: np.cumprod(x, 1), (_between(-2, 2, 3, 7) * (np.arange(7) != 4),)),
    Sample("index_add", lambda x, i, v: F.index_add(x, -1, i, v), lambda x, i, v: _added(x, (slice(None), i), v), (X, np.array([2, 0, 2], np.int32), _normal(3, 3)), (0, 2)),
    Sample("scatter_add", lambda x, i, v: F.scatter_add(x, 1, i, v), lambda x, i, v: _added(x, (np.arange(3)[:, None], i), v), (X, INDEX, _normal(3, 4)), (0, 2)),
    Sample("scatter_reduce", lambda x, i, v: F.scatter_reduce(x, 1, i, v, "min"), lambda x, i, v: _least(x, (np.arange(3)[:, None], i), v), (X, INDEX, _normal(3, 4)), (0, 2)),
    Sample("bincount", lambda i: F.bincount(i, length=9), lambda i: np.bincount(i, minlength=9), (INDEX.ravel(),), ()),
    Sample("bincount_weighted", lambda i, w: F.bincount(i, w, length=4), np.bincount, (LABEL, _normal(3)), (1,)),
    Sample("searchsorted", F.searchsorted, np.searchsorted, (np.sort(X.ravel()), np.append(X.ravel()[::3], [-9, 9]).astype(np.float32)), ()),
    Sample("searchsorted_right", lambda a, v: F.searchsorted(a, v, "right"), lambda a, v: np.searchsorted(a, v, "right"), (np.array([1, 1, 2, 5, 5, 5, 7], np.int32), np.arange(9, dtype=np.int32).reshape(3, 3)), ()),
    Sample("searchsorted_rows", F.searchsorted, lambda a, v: np.stack([np.searchsorted(*pair) for pair in zip(a, v, strict=True)]), (np.sort(X, 1), _normal(3, 5)), ()),
    Sample("embedding_padded", lambda w, i: F.embedding(i, w, padding_idx=-1), lambda w, i: w[i], (_normal(5, 3), INDEX)),
]  # fmt: skip

CONV_KERNEL = _normal(3, 4, 2, 3)


def _ceil_windows(x, fill):
    """Windows of 3 by 2, stride 2, padding 1 and 0, rounded up, of 6 by 5 images: [n, c, 4, 3, 3, 2]."""
    x = np.pad(x, ((0, 0), (0, 0), (1, 2), (0, 1)), constant_values=fill)
    return np.lib.stride_tricks.sliding_window_view(x, (3, 2), (2, 3))[:, :, ::2, ::2]


def _inside(counts_padding):
    ones = np.zeros((1, 1, 9, 6))
    ones[:, :, 0 if counts_padding else 1 : 8 if counts_padding else 7, :5] = 1
    return np.lib.stride_tricks.sliding_window_view(ones, (3, 2), (2, 3))[:, :, ::2, ::2].sum((4, 5))


def _convolved(x, w):
    x = np.pad(x, ((0, 0), (0, 0), (0, 1), (2, 2)))
    view = np.lib.stride_tricks.sliding_window_view(x, (2, 5), (2, 3))[..., ::2]
    return np.einsum("nchwij,ocij->nohw", view, w)


WINDOWS = [
    Sample("max_pool2d_rounded_up", lambda x: F.max_pool2d(x, (3, 2), 2, (1, 0), ceil_mode=True), lambda x: _ceil_windows(x, -np.inf).max((4, 5)), (IMAGE,)),
    Sample("avg_pool2d_rounded_up", lambda x: F.avg_pool2d(x, (3, 2), 2, (1, 0), ceil_mode=True), lambda x: _ceil_windows(x, 0).sum((4, 5)) / _inside(False), (IMAGE,)),
    Sample("avg_pool2d_rounded_up_of_all", lambda x: F.avg_pool2d(x, (3, 2), 2, (1, 0), "average", True), lambda x: _ceil_windows(x, 0).sum((4, 5)) / _inside(True), (IMAGE,)),
    Sample("unfold", lambda x: F.unfold(x, (3, 2), padding=1, stride=2), lambda x: _unfolded(x, (3, 2), padding=1, stride=2), (IMAGE,)),
    Sample("unfold_dilated", lambda x: F.unfold(x, 2, dilation=2), lambda x: _unfolded(x, (2, 2), dilation=2), (IMAGE,)),
    Sample("fold", lambda x: F.fold(x, (5, 4), (3, 2), padding=1, stride=2), lambda x: _folded(x, (5, 4), (3, 2), 1, 2), (_normal(2, 12, 9),)),
    Sample("max_pool1d", lambda x: F.max_pool1d(x, 3, 2), lambda x: _lines(x, 3, 2).max(3), (IMAGE[:, :, 0],)),
    Sample("max_pool1d_rounded_up", lambda x: F.max_pool1d(x, 2, ceil_mode=True), lambda x: _lines(np.pad(x, ((0, 0), (0, 0), (0, 1)), constant_values=-np.inf), 2, 2).max(3), (IMAGE[:, :, 0],)),
    Sample("avg_pool1d", lambda x: F.avg_pool1d(x, 2, 2, 1, mode="average"), lambda x: _lines(np.pad(x, ((0, 0), (0, 0), (1, 1))), 2, 2).mean(3), (IMAGE[:, :, 0],)),
    Sample("avg_pool1d_of_elements", lambda x: F.avg_pool1d(x, 2, 2, 1), lambda x: _lines(np.pad(x, ((0, 0), (0, 0), (1, 1))), 2, 2).mean(3) * [2, 1, 1], (IMAGE[:, :, 0],)),
    Sample("adaptive_avg_pool1d", lambda x: F.adaptive_avg_pool1d(x, 3), lambda x: _lines(x, 3, 1).mean(3), (IMAGE[:, :, 0],)),
    Sample("adaptive_max_pool1d", lambda x: F.adaptive_max_pool1d(x, 3), lambda x: _lines(x, 3, 1).max(3), (IMAGE[:, :, 0],)),
    Sample("conv_transpose1d", lambda x, w: F.conv_transpose1d(x, w, stride=2, padding=1, output_padding=1), lambda x, w: _transposed_line(x, w, 2, 1, 1), (_normal(2, 4, 5), _normal(4, 3, 3)), (0, 1), 1e-4),
    Sample("conv2d_same", lambda x, w: F.conv2d(x, w, padding="same", dilation=(1, 2)), _convolved, (IMAGE, CONV_KERNEL), (0, 1), 1e-4),
    Sample("conv2d_valid", lambda x, w: F.conv2d(x, w, padding="valid", dilation=(1, 2)), lambda x, w: _convolved(x, w)[:, :, :-1, 2:-2], (IMAGE, CONV_KERNEL), (0, 1), 1e-4),
]  # fmt: skip

MATRIX = _normal(3, 3) + 3 * np.eye(3, dtype=np.float32)


def _of_eigenvectors(v):
    """What does not depend on their signs."""
    return v[:, :1] @ v[:, :1].T


LINEAR_ALGEBRA = [
    Sample("matmul", F.matmul, np.matmul, (X, _normal(4, 2)), (0, 1)),
    Sample("matmul_batched", F.matmul, np.matmul, (_normal(2, 1, 3, 4), _normal(5, 4, 2)), (0, 1)),
    Sample("matmul_transposed", lambda a, b: F.matmul(a, b, transpose_a=True, transpose_b=True), lambda a, b: a.T @ b.T, (_normal(4, 3), _normal(2, 4)), (0, 1)),
    Sample("matmul_vector", F.matmul, np.matmul, (X, _normal(4)), (0, 1)),
    Sample("matmul_vectors", F.matmul, np.matmul, (_normal(4), _normal(4, seed=1)), (0, 1)),
    Sample("dot", F.dot, np.dot, (_normal(4), _normal(4, seed=1)), (0, 1)),
    Sample("linear", F.linear, lambda x, w, b: x @ w.T + b, (X, _normal(2, 4), _normal(2)), (0, 1, 2)),
    Sample("bilinear", F.bilinear, lambda a, b, w, bias: np.einsum("...i,oij,...j->...o", a, w, b) + bias, (_normal(2, 3, 4), _normal(2, 3, 2), _normal(5, 4, 2), _normal(5)), (0, 1, 2, 3), 1e-4),
    Sample("rms_norm", lambda x, w: F.rms_norm(x, 4, w, 0.5), lambda x, w: x / np.sqrt((x**2).mean(1, keepdims=True) + 0.5) * w, (X, _normal(4)), (0, 1)),
    Sample("rms_norm_of_two_axes", lambda x: F.rms_norm(x, (3, 4)), lambda x: x / np.sqrt((x**2).mean((1, 2), keepdims=True)), (_normal(2, 3, 4),)),
    Sample("matinv", F.matinv, np.linalg.inv, (MATRIX,), tolerance=1e-4),
    Sample("svd", lambda x: F.svd(x)[1], lambda x: np.linalg.svd(x)[1], (X,), ()),
    Sample("solve", F.linalg.solve, np.linalg.solve, (MATRIX, _normal(3, 2)), (0, 1), 1e-4),
    Sample("solve_of_a_vector", F.linalg.solve, lambda a, b: np.stack([np.linalg.solve(each, b) for each in a]), (np.stack([MATRIX, MATRIX.T]), _normal(3)), (0, 1), 1e-4),
    Sample("cholesky", lambda x: F.linalg.cholesky(F.matmul(x, x, transpose_b=True)), lambda x: np.linalg.cholesky(x @ x.T), (MATRIX,), tolerance=1e-4),
    Sample("det", F.linalg.det, np.linalg.det, (np.stack([MATRIX, -MATRIX]),), tolerance=1e-4),
    Sample("slogdet", lambda x: F.linalg.slogdet(x).logabsdet, lambda x: np.linalg.slogdet(x)[1], (-MATRIX,), tolerance=1e-4),
    Sample("eigvalsh", lambda x: F.linalg.eigvalsh(x + x.T), lambda x: np.linalg.eigvalsh(x + x.T), (MATRIX,), tolerance=1e-4),
    Sample("eigenvectors", lambda x: _of_eigenvectors(F.linalg.eigh(x + x.T).eigenvectors), lambda x: _of_eigenvectors(np.linalg.eigh(x + x.T)[1]), (MATRIX,), tolerance=1e-4),
    *(Sample(f"qr_{part}", lambda x, part=part: F.linalg.qr(x)[part], lambda x, part=part: np.linalg.qr(x)[part], (_normal(2, 5, 3),), tolerance=1e-4) for part in (0, 1)),
    Sample("pinv", F.linalg.pinv, np.linalg.pinv, (_normal(5, 3),), tolerance=1e-4),
    Sample("lstsq", F.linalg.lstsq, lambda a, b: np.linalg.lstsq(a, b, rcond=None)[0], (_normal(5, 3), _normal(5)), (0, 1), 1e-4),
    Sample("matrix_power", lambda x: F.linalg.matrix_power(x, 5), lambda x: np.linalg.matrix_power(x, 5), (MATRIX / 4,), tolerance=1e-4),
    Sample("matrix_power_below_0", lambda x: F.linalg.matrix_power(x, -2), lambda x: np.linalg.matrix_power(x, -2), (MATRIX,), tolerance=1e-4),
    Sample("cross", F.cross, np.cross, (_normal(4, 3), _normal(4, 3, seed=1)), (0, 1)),
    Sample("einsum", lambda a, b: F.einsum("bij,bjk->bik", a, b), lambda a, b: a @ b, (_normal(2, 3, 4), _normal(2, 4, 2)), (0, 1)),
    Sample("einsum_trace", lambda a: F.einsum("ii", a), np.trace, (MATRIX,)),
    Sample("einsum_dots", lambda a, b: F.einsum("...i,ij->...j", a, b), lambda a, b: a @ b, (_normal(2, 3, 4), _normal(4, 2)), (0, 1)),
]  # fmt: skip



def _parts(z):
    return np.concatenate([z.real, z.imag]) if isinstance(z, np.ndarray) else F.concat([F.real(z), F.imag(z)])


def _of_parts(name, *args, x=X, **kwargs):
    """A transform of complex numbers, whose real and imaginary parts are two operands."""
    ours, theirs = getattr(F.fft, name), getattr(np.fft, name)
    back = (lambda z: z) if name.startswith("ir") else _parts
    return Sample(f"{name}_{len(x.shape)}_{args}_{kwargs}", lambda a, b: back(ours(F.complex(a, b), *args, **kwargs)), lambda a, b: back(theirs(a + 1j * b, *args, **kwargs)), (x, _normal(*x.shape)), (0, 1))


_LINE = _normal(2, 7)
TRANSFORMS = [
    Sample("rfft", lambda x: _parts(F.fft.rfft(x)), lambda x: _parts(np.fft.rfft(x)), (X,)),
    Sample("rfft_odd", lambda x: _parts(F.fft.rfft(x, norm="ortho")), lambda x: _parts(np.fft.rfft(x, norm="ortho")), (_LINE,)),
    Sample("rfftn", lambda x: _parts(F.fft.rfftn(x, (4, 6), (2, 0))), lambda x: _parts(np.fft.rfftn(x, (4, 6), (2, 0))), (_normal(5, 2, 3),)),
    Sample("rfft_power", lambda x: F.sum(F.real(F.fft.rfft(x)) ** 2 + F.imag(F.fft.rfft(x)) ** 2, axis=1), lambda x: (np.abs(np.fft.rfft(x)) ** 2).sum(1), (_normal(3, 5) / 2,)),
    Sample("fft_of_real", lambda x: _parts(F.fft.fft(x, n=3)), lambda x: _parts(np.fft.fft(x, n=3)), (X,)),
    _of_parts("fft"), _of_parts("fft", 6, 0, "forward"), _of_parts("ifft", x=_LINE), _of_parts("ifft", None, -2, "forward"), _of_parts("irfft"), _of_parts("irfft", 7, norm="forward"),
    _of_parts("irfft", 5, 0), _of_parts("fftn", x=_normal(2, 3, 4)), _of_parts("fft2", x=_normal(2, 3, 4)), _of_parts("ifft2", (5, 2), x=_normal(2, 3, 4)), _of_parts("ifftn", axes=(0, 2), x=_normal(2, 3, 4)),
    _of_parts("irfftn", axes=(1, 0), x=_normal(3, 4)), _of_parts("irfft2", (3, 5), x=_normal(2, 3, 4)),
    Sample("fftshift", F.fft.fftshift, np.fft.fftshift, (_normal(4, 3),)), Sample("ifftshift", lambda x: F.fft.ifftshift(x, -1), lambda x: np.fft.ifftshift(x, -1), (_normal(4, 3),)),
]  # fmt: skip

NOT_IN_ONNX = {"matinv", "svd", "matrix_power_below_0"} | {sample.name for sample in TRANSFORMS if "shift" not in sample.name}
NOT_IN_ONNX |= {sample.name for sample in LINEAR_ALGEBRA if sample.name.startswith(("solve", "cholesky", "det", "slogdet", "eig", "qr", "pinv", "lstsq"))}
SAMPLES = UNARY + BINARY + REDUCTIONS + LOSSES + ARRANGEMENT + WINDOWS + LINEAR_ALGEBRA + TRANSFORMS
