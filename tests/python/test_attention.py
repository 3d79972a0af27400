"""Attention in blocks: against NumPy in float64 and against the same in simpler ops, forward, backward and again."""

import math

import numpy as np
import pytest

import megengine as mge
from megengine import Tensor
from megengine import functional as F
from megengine.autodiff import GradManager
from megengine.core import ops
from megengine.jit import trace

rng = np.random.default_rng(7)


def normal(*shape):
    return rng.normal(size=shape).astype(np.float32)


# n, heads, heads of keys, queries, keys, width, width of values: within a block and over several, whole and not.
SIZES = [
    (2, 3, 3, 5, 7, 4, 6),
    (1, 2, 2, 64, 64, 16, 16),
    (2, 4, 2, 70, 130, 32, 48),
    (1, 1, 1, 200, 600, 16, 16),
    (1, 2, 1, 1, 300, 64, 64),
    (1, 2, 2, 130, 1, 8, 3),
    (2, 1, 1, 65, 67, 80, 100),
    (3, 2, 2, 1, 1, 16, 64),
    (1, 2, 1, 20, 66, 144, 260),
]
MASKS = {
    "none": lambda n, h, q, k: None,
    "keys": lambda n, h, q, k: np.where(np.arange(k) % 3 == 1, -np.inf, 0.5).astype(np.float32).reshape(1, 1, 1, k),
    "full": lambda n, h, q, k: normal(n, h, q, k),
    "pairs": lambda n, h, q, k: np.where(normal(1, 1, q, k) > 1.5, -np.inf, 0).astype(np.float32),
    "queries": lambda n, h, q, k: normal(n, 1, q, 1),
}


def reference(q, k, v, dy, scale, causal, masks, factors=1.0, seen=True, hidden=0.0):
    """y, lse and the gradients of q, k and v, in float64; but masks are added in float32: of a large number the scores leave what
    they leave there. A query that sees no key gets zeros."""
    q, k, v, dy = (x.astype(np.float64) for x in (q, k, v, dy))
    shared = q.shape[1] // k.shape[1]
    wide_k, wide_v = np.repeat(k, shared, 1), np.repeat(v, shared, 1)
    s = scale * q @ wide_k.swapaxes(2, 3)
    for mask in masks:
        s = (s.astype(np.float32) + mask).astype(np.float64)
    s = np.where(seen, s, hidden)
    if causal:
        s = np.where(np.arange(s.shape[3]) > np.arange(s.shape[2])[:, None], -np.inf, s)
    top = s.max(3, keepdims=True)
    e = np.exp(s - np.where(np.isneginf(top), 0, top))
    total = e.sum(3, keepdims=True)
    p = e / np.where(total == 0, 1, total)
    y = (p * factors) @ wide_v
    ds = p * (factors * (dy @ wide_v.swapaxes(2, 3)) - (dy * y).sum(3, keepdims=True)) * seen
    together = lambda x: x.reshape(k.shape[0], k.shape[1], shared, *x.shape[2:]).sum(2)  # noqa: E731
    grads = scale * ds @ wide_k, together(scale * ds.swapaxes(2, 3) @ q), together((p * factors).swapaxes(2, 3) @ dy)
    with np.errstate(divide="ignore"):
        return y, (top + np.log(total))[..., 0], *grads


def both(q, k, v, dy, more, **attrs):
    """What the ops give."""
    y, lse = ops.attention(q, k, v, *more, **attrs)
    return y, lse, *ops.attention_grad(q, k, v, y, lse, dy, *more, **attrs)


def assert_close(got, want, tolerance=1e-5):
    for name, a, b in zip(("y", "lse", "dq", "dk", "dv"), got, want, strict=True):
        a, are_real = a.numpy(), np.isfinite(b)
        assert np.array_equal(a[~are_real], b[~are_real]), name
        assert np.abs(a[are_real] - b[are_real]).max(initial=0) <= tolerance * max(1, np.abs(b[are_real]).max(initial=0)), name


def operands(size):
    """The same for a size in whatever order tests run: of a single key dq and dk are what rounding leaves, now more, now less."""
    own = np.random.default_rng((7, *size))
    n, heads, key_heads, queries, keys, width, value_width = size
    shapes = (n, heads, queries, width), (n, key_heads, keys, width), (n, key_heads, keys, value_width), (n, heads, queries, value_width)
    return [own.normal(size=shape).astype(np.float32) for shape in shapes]


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("causal", [False, True], ids=["all", "causal"])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_against_numpy(size, causal, mask):
    q, k, v, dy = operands(size)
    made = MASKS[mask](size[0], size[1], size[3], size[4])
    if made is not None:
        made[..., 0] = 0  # each query sees a key
    more = [] if made is None else [Tensor(made)]
    got = both(*map(Tensor, (q, k, v, dy)), more, scale=0.3, causal=int(causal), masked=len(more))
    assert_close(got, reference(q, k, v, dy, 0.3, causal, [] if made is None else [made]))


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_dropout_takes_the_numbers_of_dropout_mask(size):
    """So attention and what it expands to drop the same weights, and backward drops what forward did."""
    q, k, v, dy = operands(size)
    n, heads, _, queries, keys, _, _ = size
    key = Tensor(np.array([3, 0, 11, 0], np.int32))
    factors = ops.dropout_mask(key, shape=(n, heads, queries, keys), drop_prob=0.4).numpy()
    got = both(*map(Tensor, (q, k, v, dy)), [key], scale=0.3, drop_prob=0.4)
    assert_close(got, reference(q, k, v, dy, 0.3, False, [], factors))


def composed(q, k, v, mask, scale):
    s = F.matmul(q, k, transpose_b=True) * scale
    return F.matmul(F.softmax(s if mask is None else s + mask, axis=3), v)


def gradients(function, *inputs):
    """Those of a weighted sum, and those of the sum of their squares: first and second order."""
    tensors = [Tensor(x) for x in inputs]
    with GradManager().attach(tensors) as outer:
        with GradManager().attach(tensors) as inner:
            y = function(*tensors)
            inner.backward((y * Tensor(np.cos(np.arange(y.size)).reshape(y.shape).astype(np.float32))).sum())
        first = [x.grad for x in tensors]
        for x in tensors:
            x.grad = None
        outer.backward(sum((g**2).sum() for g in first))
    return [g.numpy() for g in first], [x.grad.numpy() for x in tensors]


@pytest.mark.parametrize("mask_shape", [(2, 3, 5, 7), (1, 3, 5, 7), (1, 1, 1, 7), (2, 1, 5, 1)], ids=str)
def test_gradients_of_masks_and_of_second_order(mask_shape):
    inputs = normal(2, 3, 5, 4), normal(2, 3, 7, 4), normal(2, 3, 7, 6), normal(*mask_shape)
    ours = gradients(lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, m, scale=0.7), *inputs)
    theirs = gradients(lambda q, k, v, m: composed(q, k, v, m, 0.7), *inputs)
    for got, want in zip(ours[0] + ours[1], theirs[0] + theirs[1], strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-4, atol=2e-5)


def test_the_gradient_of_lse():
    def loss(q, k, v, attend):
        if attend:
            y, lse = ops.attention(q, k, v, scale=0.7)
        else:
            y, lse = composed(q, k, v, None, 0.7), F.logsumexp(F.matmul(q, k, transpose_b=True) * 0.7, 3)
        return (y**2).sum() + F.sin(lse).sum()

    inputs = normal(1, 2, 5, 4), normal(1, 2, 7, 4), normal(1, 2, 7, 6)
    found = []
    for attend in (True, False):
        tensors = [Tensor(x) for x in inputs]
        with GradManager().attach(tensors) as gm:
            gm.backward(loss(*tensors, attend))
        found.append([x.grad.numpy() for x in tensors])
    for got, want in zip(*found, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


# What hides a key: numbers that people write, the least ones of three dtypes, and none that hides it.
NUMBERS = [-np.inf, -1e4, -65504.0, -1e6, -1e9, -3.3895314e38, float(np.finfo("float32").min), 3.0]


def hiding(queries, keys):
    """Some keys, and all of queries 0, 3 and the last one; all that lie behind key 64 of query 4."""
    hidden = np.random.default_rng(1).random((1, 1, queries, keys)) < 0.4
    hidden[:, :, [0, min(3, queries - 1), -1]] = True
    hidden[:, :, min(4, queries - 1), 64:] = True
    return hidden


def exact(size):
    """Operands whose scores float32 has without rounding, times 1/4: what a number leaves of them does not hang on the order of sums."""
    return [np.round(x * 4) / 4 for x in operands(size)]


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("form", ["added", "added twice", "selected", "both"])
@pytest.mark.parametrize("size", [(1, 2, 1, 70, 130, 16, 16), (2, 2, 2, 1, 70, 8, 20), (1, 2, 2, 65, 3, 16, 16), (1, 1, 1, 20, 66, 20, 12)], ids=str)
def test_what_a_number_hides_is_what_float32_leaves(size, form, number):
    """Rows that are hidden as a whole have the softmax of the sums, whose gradients add up: 1 / keys each where the scores are lost."""
    q, k, v, dy = exact(size)
    hidden, added = hiding(*size[3:5]), np.float32(number if number < 0 else -number)
    masks, more = [], {}
    if form != "selected":
        masks.append(np.where(hidden, added, np.float32(0)))
    if form == "added twice":
        masks.append(np.where(np.arange(size[4]) % 3 == 2, added, np.float32(0.5)).reshape(1, 1, 1, -1))
    if form in ("selected", "both"):
        more = {"seen": ~hidden if form == "selected" else np.arange(size[4]).reshape(1, 1, 1, -1) % 3 < 2, "hidden": np.float32(number)}
    operands_ = [Tensor(x) for x in masks] + ([Tensor(more["seen"]), Tensor(np.full((1, 1, 1, 1), number, np.float32))] if more else [])
    with np.errstate(over="ignore"):
        want = reference(q, k, v, dy, 0.25, False, masks, **more)
    got = both(*map(Tensor, (q, k, v, dy)), operands_, scale=0.25, masked=len(masks), hides=int(bool(more)), zeros=1)
    assert_close(got, want, 2e-5)


@pytest.mark.parametrize("number", NUMBERS[:-1])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_what_a_number_hides_from_halves(dtype, number):
    size = (1, 2, 1, 70, 130, 16, 16)
    halves = [Tensor(x).astype(dtype) for x in exact(size)]
    mask = np.where(hiding(70, 130), np.float32(number), np.float32(0))
    want = reference(*(x.astype("float32").numpy() for x in halves), 0.25, False, [mask])
    got = both(*halves, [Tensor(mask)], scale=0.25, masked=1, zeros=1)
    rounding = {"float16": 2.0**-11, "bfloat16": 2.0**-8}[dtype]
    assert_close([x.astype("float32") for x in got], want, 8 * rounding)


@pytest.mark.parametrize("logit", [2.0**10, 2.0**20, 2.0**23, -(2.0**23)])
@pytest.mark.parametrize("size", [(1, 2, 1, 70, 130, 16, 16), (2, 2, 2, 1, 70, 16, 20), (1, 1, 1, 20, 600, 16, 12)], ids=str)
def test_large_logits(size, logit):
    """All scores are integers near the logit, as float32 has them: weights are exact, but where lse is rounded to its place."""
    q, k, v, dy = operands(size)
    q, k = np.round(q), np.round(k)
    q[..., 0], k[..., 0] = logit, 1
    got = both(*map(Tensor, (q, k, v, dy)), [], scale=1.0)
    assert_close(got, reference(q, k, v, dy, 1.0, False, []), 2e-5)


FEW = pytest.mark.host("a GPU takes few queries by products, which sum in orders of their own")


@pytest.mark.parametrize("scale", [1e4, 1e6, 1e9])
@pytest.mark.parametrize("size", [pytest.param(size, marks=FEW) if size[3] < 16 else size for size in SIZES], ids=str)
def test_a_query_that_takes_one_key_alone_gives_its_scores_no_gradient(size, scale):
    """None at all: what rounding would leave of dp - dot, times the scale, is no small number."""
    q, k, v, dy = operands(size)
    scores = np.sort(np.matmul(q.astype(float), np.repeat(k.astype(float), size[1] // size[2], 1).swapaxes(2, 3)) * scale)
    alone = (scores[..., -1:] - scores[..., -2:-1]).min(-1, initial=np.inf) > 200 + 1e-6 * np.abs(scores).max()
    dq = both(*map(Tensor, (q, k, v, dy)), [], scale=scale)[2].numpy()
    assert alone.mean() > 0.5 and not dq[alone].any()


@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize("size", [(1, 2, 2, 70, 300, 16, 16), (1, 2, 1, 1, 70, 16, 20), (2, 2, 2, 3, 5, 4, 4)], ids=str)
def test_queries_that_see_no_key_get_zeros_and_give_no_gradient(size, causal):
    """A whole block of hidden keys before the first one that is seen is no such case."""
    q, k, v, dy = operands(size)
    mask = np.zeros((1, 1, *size[3:5]), np.float32)
    mask[..., 0 : size[4] // 2] = -np.inf
    mask[:, :, min(3, size[3] - 1)] = -np.inf
    got = both(*map(Tensor, (q, k, v, dy)), [Tensor(mask)], scale=0.3, causal=causal, masked=1, zeros=1)
    assert_close(got, reference(q, k, v, dy, 0.3, causal, [mask]))
    row = min(3, size[3] - 1)
    assert not got[0].numpy()[:, :, row].any() and not got[2].numpy()[:, :, row].any()


def test_queries_that_see_no_key_get_nan_where_no_zeros_are_asked_for():
    """As softmax gives, whose gradients reach all keys."""
    q, k, v, dy = operands((1, 2, 2, 70, 300, 16, 16))
    mask = np.zeros((1, 1, 70, 300), np.float32)
    mask[:, :, :, :200] = -np.inf
    mask[:, :, 3] = -np.inf
    y, _, dq, dk, dv = (x.numpy() for x in both(*map(Tensor, (q, k, v, dy)), [Tensor(mask)], scale=0.3, masked=1))
    seen = np.arange(70) != 3
    want = reference(q, k, v, dy, 0.3, False, [mask])
    np.testing.assert_allclose(y[:, :, seen], want[0][:, :, seen], atol=1e-5)
    np.testing.assert_allclose(dq[:, :, seen], want[2][:, :, seen], atol=1e-5)
    assert all(np.isnan(x).all() for x in (y[:, :, 3], dq[:, :, 3], dk, dv))


@pytest.mark.parametrize("number", [-np.inf, -1e9])
def test_gradients_of_rows_that_are_hidden_as_a_whole_of_second_order(number):
    hidden = np.where(hiding(5, 7), np.float32(number), np.float32(0))
    inputs = exact((2, 3, 3, 5, 7, 4, 6))[:3]

    def parts(q, k, v):
        s = F.matmul(q, k, transpose_b=True) * 0.25 + Tensor(hidden)
        sees_none = np.isneginf(hidden).all(3, keepdims=True)
        return F.where(Tensor(sees_none), F.zeros(()), F.matmul(F.softmax(F.where(Tensor(sees_none), F.zeros(()), s), axis=3), v))

    ours = gradients(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, Tensor(hidden), scale=0.25), *inputs)
    for got, want in zip(ours[0] + ours[1], sum(gradients(parts, *inputs), []), strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-4, atol=2e-5)


def test_keys_that_a_mask_hides_from_whole_blocks_cost_nothing_and_change_nothing():
    q, k, v, dy = operands((1, 2, 2, 200, 300, 16, 16))
    mask = np.where(np.arange(300) > np.arange(200)[:, None], -np.inf, 0).astype(np.float32)[None, None]
    hidden = both(*map(Tensor, (q, k, v, dy)), [Tensor(mask)], scale=0.3, masked=1)
    causal = both(*map(Tensor, (q, k, v, dy)), [], scale=0.3, causal=1)
    for a, b in zip(hidden, causal, strict=True):
        assert np.array_equal(a.numpy(), b.numpy())


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_key_that_is_no_number_reaches_all_queries_and_no_other_head(value):
    q, k, v, _ = operands((1, 2, 2, 70, 130, 16, 16))
    q = np.abs(q)
    k[0, 1, 100, 0] = value
    y = F.scaled_dot_product_attention(*map(Tensor, (q, k, v))).numpy()
    assert np.isfinite(y[0, 0]).all() and np.isnan(y[0, 1]).all()


def train(q, k, v, mask, drop):
    """A step that a graph can recompute; its random key comes from the generator of the process."""
    gm = GradManager().attach([q, k, v])

    def step():
        with gm:
            y = F.scaled_dot_product_attention(q, k, v, mask, dropout_p=drop)
            loss = (y * y).sum()
            gm.backward(loss)
        return loss, q.grad, k.grad, v.grad

    return step


@pytest.mark.parametrize("level", [0, 2, 3])
@pytest.mark.parametrize("drop", [0.0, 0.3])
def test_traces_have_the_bits_of_eager_mode(level, drop):
    q, k, v, _ = operands((2, 4, 2, 70, 130, 24, 40))
    mask = Tensor(MASKS["keys"](2, 4, 70, 130))

    def run(wrap):
        tensors = [mge.Parameter(x) for x in (q, np.repeat(k, 2, 1), np.repeat(v, 2, 1))]
        mge.random.seed(5)
        step = wrap(train(*tensors, mask, drop))
        found = []
        for _ in range(3):
            found.append([x.numpy() for x in step()])
            for x in tensors:
                x.grad = None
        return found

    for got, want in zip(run(trace(symbolic=True, opt_level=level)), run(lambda f: f), strict=True):
        for a, b in zip(got, want, strict=True):
            assert np.array_equal(a, b)


@pytest.mark.host("blocks of scores are the CPU's")
def test_bits_do_not_depend_on_the_number_of_threads():
    q, k, v, dy = map(Tensor, operands((1, 2, 1, 300, 900, 64, 64)))
    found = []
    try:
        for threads in (1, 2, 3):
            mge.device.set_num_threads(threads)
            found.append([x.numpy() for x in both(q, k, v, dy, [], scale=0.125, causal=1)])
    finally:
        mge.device.set_num_threads(None)
    for other in found[1:]:
        assert all(np.array_equal(a, b) for a, b in zip(found[0], other, strict=True))


@pytest.mark.host("blocks of scores are the CPU's")
@pytest.mark.parametrize("length", [256, 1024, 4096])
def test_memory_grows_with_the_length_alone(length):
    """Beside q, k, v and their gradients, which are 4 * 32 * length bytes each."""
    q, k, v = (mge.Parameter(normal(1, 8, length, 32)) for _ in range(3))
    step = trace(symbolic=True)(train(q, k, v, None, 0.1))
    step()
    rows = 8 * length * 32 * 4
    assert step.memory_plan().arena_bytes <= 5 * rows + (1 << 20)


def test_memory_of_longer_sequences_grows_by_their_rows():
    """The scores of a head of 256 queries have 256 KiB."""
    arenas = []
    for length in (128, 256):
        tensors = [mge.Parameter(normal(1, 2, length, 32)) for _ in range(3)]
        mask = Tensor(np.where(np.arange(length) % 5 == 1, -np.inf, 0).astype(np.float32))
        step = trace(symbolic=True, opt_level=3)(train(*tensors, mask, 0.1))
        step()
        arenas.append(step.memory_plan().arena_bytes)
    rows = 2 * 128 * 32 * 4
    assert arenas[1] - arenas[0] <= 5 * rows


@pytest.mark.parametrize("sizes", [(1, 4, 2, 33, 70, 20, 12), (1, 2, 1, 130, 70, 64, 64), (1, 1, 1, 70, 150, 72, 130), (2, 2, 2, 64, 64, 128, 7)])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_halves_with_masks_and_dropout(dtype, sizes):
    """Few heads of keys, odd widths, several tiles; sums are float32."""
    q, k, v, dy = operands(sizes)
    batch, heads, _, queries, keys = sizes[:5]
    mask = MASKS["pairs"](batch, heads, queries, keys)
    mask[..., 0] = 0
    key = Tensor(np.array([3, 0, 11, 0], np.int32))
    halves = [Tensor(x).astype(dtype) for x in (q, k, v, dy)]
    wide = [x.astype("float32").numpy() for x in halves]
    factors = ops.dropout_mask(key, shape=(batch, heads, queries, keys), drop_prob=0.4).numpy()
    want = reference(*wide, 0.3, True, [mask], factors)
    got = both(*halves, [Tensor(mask), key], scale=0.3, causal=1, masked=1, drop_prob=0.4)
    assert [x.dtype for x in got] == [halves[0].dtype, np.float32] + [halves[0].dtype] * 3
    rounding = {"float16": 2.0**-11, "bfloat16": 2.0**-8}[dtype]
    assert_close([x.astype("float32") for x in got], want, 4 * rounding)  # y is rounded before backward


def test_shapes_of_scaled_dot_product_attention():
    for outer in ((), (3,), (2, 3), (2, 2, 3)):
        q, k, v = normal(*outer, 5, 4), normal(*outer, 7, 4), normal(*outer, 7, 6)
        seen = normal(*outer, 5, 7) > -0.5
        seen[..., 0] = True
        y = F.scaled_dot_product_attention(*map(Tensor, (q, k, v)), attn_mask=Tensor(seen)).numpy()
        s = np.where(seen, q @ k.swapaxes(-1, -2) / 2, -np.inf)
        p = np.exp(s - s.max(-1, keepdims=True))
        np.testing.assert_allclose(y, p / p.sum(-1, keepdims=True) @ v, atol=1e-5)
    one = F.scaled_dot_product_attention(Tensor(normal(2, 3, 5, 4)), Tensor(normal(7, 4)), Tensor(normal(7, 6)))
    assert one.shape == (2, 3, 5, 6)
    few = F.scaled_dot_product_attention(Tensor(normal(2, 6, 5, 4)), *(Tensor(normal(2, 2, 7, 4)) for _ in "kv"), enable_gqa=True)
    assert few.shape == (2, 6, 5, 4)
    none = F.scaled_dot_product_attention(Tensor(normal(2, 0, 5, 4)), *(Tensor(normal(2, 0, 7, 4)) for _ in "kv"))
    assert none.shape == (2, 0, 5, 4)


def test_no_keys_give_zeros():
    y = F.scaled_dot_product_attention(Tensor(normal(2, 3, 5, 4)), *(Tensor(normal(2, 3, 0, 4)) for _ in "kv"))
    assert y.shape == (2, 3, 5, 4) and not y.numpy().any()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_halves(dtype):
    q, k, v, _ = operands((2, 2, 2, 70, 130, 32, 32))
    halves = [Tensor(x).astype(dtype) for x in (q, k, v)]
    y = F.scaled_dot_product_attention(*halves)
    wide = [x.astype("float32").numpy() for x in halves]
    want = reference(*wide, wide[0], 1 / math.sqrt(32), False, [])[0]
    assert y.dtype == halves[0].dtype
    assert np.abs(y.astype("float32").numpy() - want).max() < (1e-2 if dtype == "float16" else 5e-2)  # scores may be halves, too


@pytest.mark.parametrize("level", [2, 3])
def test_few_queries_of_halves_with_a_mask(level):
    """Too few for a kernel of ours on a GPU, and masked, which cuDNN does not take."""
    q, k, v, _ = (Tensor(x).astype("float16") for x in operands((1, 2, 2, 4, 70, 16, 16)))
    mask = Tensor(MASKS["full"](1, 2, 4, 70))
    step = trace(symbolic=True, opt_level=level)(lambda *x: F.scaled_dot_product_attention(*x[:3], attn_mask=x[3]))
    wide = [x.astype("float32").numpy() for x in (q, k, v)]
    want = reference(*wide, wide[0], 0.25, False, [mask.numpy()])[0]
    for _ in range(2):
        assert np.abs(step(q, k, v, mask).astype("float32").numpy() - want).max() < 1e-2


def test_errors_say_what_does_not_fit():
    q, k, v, _ = map(Tensor, operands((1, 4, 4, 5, 7, 4, 4)))
    with pytest.raises(ValueError, match="q and k have one width"):
        F.scaled_dot_product_attention(q, k[:, :3], v[:, :3], enable_gqa=True)
    with pytest.raises(ValueError, match="a mask is float32 and broadcasts to"):
        F.scaled_dot_product_attention(q, k, v, attn_mask=F.zeros((5, 6)))
    with pytest.raises(ValueError, match="drop_prob is 1"):
        F.scaled_dot_product_attention(q, k, v, dropout_p=1.0)
