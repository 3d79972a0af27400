"""functional.scan, while_loop and cond: against NumPy, and traced in every way against without a trace."""

from collections import namedtuple

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
from megengine import Parameter, tensor
from megengine.autodiff import GradManager
from megengine.core.tensor.dtype import qint8, quint8
from megengine.jit import trace

WAYS = [
    {"symbolic": True, "opt_level": 0},
    {"symbolic": True},
    {"symbolic": True, "opt_level": 3},
    {"symbolic": False},
    {"symbolic": False, "opt_level": 3, "without_host": True},
]
ways = pytest.mark.parametrize("options", WAYS, ids=str)

Pair = namedtuple("Pair", "a b")


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def flat(tree):
    if tree is None:
        return []
    if isinstance(tree, mge.Tensor):
        return [tree.numpy()]
    parts = tree.values() if isinstance(tree, dict) else tree
    return [leaf for part in parts for leaf in flat(part)]


def check(function, *arrays, options, calls=3, tolerance=1e-5):
    """Traced as without a trace, in every call."""
    expected = flat(function(*map(tensor, arrays)))
    traced = trace(function, **options)
    for _ in range(calls):
        found = flat(traced(*map(tensor, arrays)))
        assert len(found) == len(expected)
        for a, b in zip(found, expected, strict=True):
            assert a.dtype == b.dtype and a.shape == b.shape
            np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)
    return expected


def rnn(w):
    def step(h, x):
        h = F.tanh(F.matmul(h, w) + x)
        return h, h * 2

    return step


def gradients(function, *values, loss=lambda results: sum((leaf**2).sum() for leaf in results)):
    """Gradients of the sum of squares of all results, by the values."""
    values = [tensor(value) for value in values]
    gm = GradManager().attach(values)
    with gm:
        gm.backward(loss(function(*values)))
    return [value.grad for value in values]


@ways
def test_scan_is_the_loop(options):
    w, xs, h = normal(4, 4) / 2, normal(7, 3, 4, seed=1), normal(3, 4, seed=2)
    last, ys = check(lambda w, xs, h: F.scan(rnn(w), h, xs), w, xs, h, options=options)
    for t in range(7):
        h = np.tanh(h @ w + xs[t])
        np.testing.assert_allclose(ys[t], 2 * h, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(last, h, rtol=1e-4, atol=1e-5)


@ways
@pytest.mark.parametrize("trips", [0, 1, 2, 5])
@pytest.mark.parametrize("reverse", [False, True])
def test_scan_of_few_trips_and_in_reverse(options, trips, reverse):
    def run(xs):
        return F.scan(lambda c, x: (c * 2 + x, c - x), tensor([1.0, 2.0]), xs, reverse=reverse)

    check(run, normal(trips, 2), options=options)


@ways
def test_gradients_of_scan(options):
    def run(w, xs, h):
        return gradients(lambda w, xs, h: F.scan(rnn(w), h, xs), w, xs, h)

    check(run, normal(4, 4) / 2, normal(5, 3, 4, seed=1), normal(3, 4, seed=2), options=options)


def test_gradients_of_scan_by_finite_differences():
    w, xs, h = normal(3, 3) / 2, normal(4, 2, 3, seed=1), normal(2, 3, seed=2)
    traced = trace(lambda *values: gradients(lambda w, xs, h: F.scan(rnn(w), h, xs), *values))

    def loss(w, xs, h):
        last, total = h.astype(np.float64), 0.0
        for x in xs:
            last = np.tanh(last @ w + x)
            total += ((2 * last) ** 2).sum()
        return total + (last**2).sum()

    for grad, which in zip(traced(tensor(w), tensor(xs), tensor(h)), range(3), strict=True):
        values, direction = [w, xs, h], normal(*grad.shape, seed=which)
        ends = []
        for step in (1e-4, -1e-4):
            moved = [v.astype(np.float64) for v in values]
            moved[which] = moved[which] + step * direction
            ends.append(loss(*moved))
        slope = (ends[0] - ends[1]) / 2e-4
        np.testing.assert_allclose((grad.numpy() * direction).sum(), slope, rtol=1e-3)


@ways
def test_second_order_gradients_of_scan(options):
    def norm_of_gradient(w, xs, h):
        outer = GradManager().attach([w, xs, h])
        with outer:
            inner = GradManager().attach([w, xs, h])
            with inner:
                last, ys = F.scan(rnn(w), h, xs)
                inner.backward((last * last).sum() + (ys**3).sum())
            outer.backward((w.grad**2).sum() + (xs.grad**2).sum() + (h.grad**2).sum())
        return w.grad, xs.grad, h.grad

    def run(*values):
        return norm_of_gradient(*(value * 1 for value in values))

    check(run, normal(3, 3) / 2, normal(4, 2, 3, seed=1), normal(2, 3, seed=2), options=options)


@ways
def test_a_parameter_that_the_body_reads_is_trained(options):
    def losses(**how):
        w = Parameter(normal(3, 3) / 2)
        optimizer, gm = mge.optimizer.SGD([w], lr=0.1), GradManager().attach([w])
        xs, h = tensor(normal(6, 2, 3, seed=1)), tensor(normal(2, 3, seed=2))

        def step(xs, h):
            with gm:
                loss = (F.scan(rnn(w), h, xs)[0] ** 2).mean()
                gm.backward(loss)
            optimizer.step().clear_grad()
            return loss

        run = trace(step, **how) if how else step
        return [run(xs, h).item() for _ in range(5)]

    np.testing.assert_allclose(losses(**options), losses(), rtol=1e-5)


@ways
def test_trees_and_numbers(options):
    def run(x):
        def step(carry, x):
            h, (n, none) = carry["h"], carry["more"]
            assert none is None
            return {"more": Pair(n + 1, None), "h": h + x.a * x.b}, [h, {"n": n}]

        init = {"h": x * 0, "more": Pair(0, None)}
        xs = Pair(F.stack([x, x + 1]), tensor([2.0, 3.0]))
        return F.scan(step, init, xs)

    h, n, hs, ns = check(run, normal(3), options=options)
    assert n == 2 and n.dtype == np.int32 and ns.tolist() == [0, 1] and hs.shape == (2, 3)


@ways
def test_scan_without_xs_and_without_carry(options):
    check(lambda x: F.scan(lambda c, none: (c * x, None), x, length=4), normal(3), options=options)
    check(lambda x: F.scan(lambda none, x: (None, x * 2), None, x), normal(3, 2), options=options)
    check(lambda x: F.scan(lambda c, none: (None, F.ones(2)), None, length=2), normal(3), options=options)


@ways
def test_shapes_that_change_between_calls(options):
    traced = trace(lambda xs: F.scan(lambda c, x: (c + x, c), xs[0], xs), **options)
    for shape in ((3, 2), (5, 2), (3, 4), (3, 2), (5, 2)):
        xs = normal(*shape)
        last, _ = traced(tensor(xs))
        np.testing.assert_allclose(last.numpy(), xs[0] + xs.sum(axis=0), rtol=1e-5, atol=1e-6)


@ways
def test_scan_in_scan_with_a_condition(options):
    def run(xs):
        def outer(c, row):
            def inner(s, x):
                return F.cond(s > c, lambda: s - x, lambda: s + F.exp(x)), s

            s, seen = F.scan(inner, c * 0, row)
            return c + s * 0.5, seen

        return F.scan(outer, tensor(0.1), xs)

    check(run, normal(4, 5), options=options)
    check(lambda xs: gradients(run, xs), normal(4, 5), options=options)


@ways
def test_cond(options):
    def run(x):
        pick = F.cond(x.sum() > 0, lambda a: {"y": a * 2, "n": 1}, lambda a: {"n": 2, "y": F.exp(a)}, x)
        return pick["y"], pick["n"]

    for sign in (1, -1):
        y, n = check(run, np.float32([sign, sign]), options=options)
        assert n == (1 if sign > 0 else 2)
    traced = trace(run, **options)
    for sign in (1, -1, 1):
        x = np.float32([sign, sign])
        np.testing.assert_allclose(traced(tensor(x))[0].numpy(), x * 2 if sign > 0 else np.exp(x), rtol=1e-6)


@ways
def test_gradients_of_cond(options):
    def run(x, w):
        return gradients(lambda x, w: [F.cond(x.sum() > 0, lambda: x * w, lambda: F.exp(x))], x, w)

    for sign in (1, -1):
        x = sign * np.abs(normal(3))
        if sign > 0:
            check(run, x, normal(3, seed=1), options=options)
    dx, dw = trace(run, **options)(tensor(-np.abs(normal(3))), tensor(normal(3)))
    np.testing.assert_allclose(dx.numpy(), 2 * np.exp(-2 * np.abs(normal(3))), rtol=1e-5)
    assert not dw.numpy().any()


READING = {
    "in operations": lambda x, b: F.exp(x * b),
    "in another condition": lambda x, b: F.cond(x.sum() > 5, lambda: x, lambda: x * b),
    "in a loop": lambda x, b: F.scan(lambda c, _: (c * b, None), x, length=2)[0],
    "beside random numbers": lambda x, b: F.dropout(x * b, 0.5),
    "before an error": lambda x, b: F.reshape(x * b, (7,)),
    "before a read by the host": lambda x, b: x * (x * b).sum().item(),
}


@pytest.mark.parametrize("how", READING)
def test_what_the_branch_not_taken_reads_has_gradient_zeros_without_a_trace_too(how):
    x, a, b, gm = tensor(np.abs(normal(3))), Parameter(normal(3)), Parameter(normal(3)), GradManager()
    gm.attach([a, b])
    counted = []
    for take in (True, False):
        a.grad = b.grad = None
        mge.random.seed(3)
        with gm:
            branches = [lambda: counted.append(1) or x * a, lambda: READING[how](x, b)]
            y = F.cond((x.sum() > 0) if take else (x.sum() < 0), *(branches if take else branches[::-1]))
            gm.backward(y)
        np.testing.assert_array_equal(a.grad.numpy(), x.numpy())
        np.testing.assert_array_equal(b.grad.numpy(), np.zeros(3))
        drawn = mge.random.uniform(size=(2,)).tolist()
        mge.random.seed(3)
        assert drawn == mge.random.uniform(size=(2,)).tolist()  # it has drawn nothing
    assert len(counted) == 2


def test_a_branch_not_taken_changes_nothing_and_weight_decay_moves_what_it_reads():
    norm = mge.module.BatchNorm1d(3)
    x, b = tensor(normal(4, 3)), Parameter(np.ones(3, np.float32))
    opt, gm = mge.optimizer.SGD([b], lr=0.1, weight_decay=0.1), GradManager().attach([b])
    means = norm.running_mean.tolist()
    for _ in range(2):
        with gm:
            gm.backward(F.cond(x.sum() > 1e9, lambda: norm(x * b), lambda: x))
        opt.step().clear_grad()
    assert norm.running_mean.tolist() == means
    np.testing.assert_allclose(b.numpy(), 0.99**2, rtol=1e-6)


@ways
def test_what_a_scan_reads_without_effect_has_gradient_zeros(options):
    def run(x, p):
        return gradients(lambda x, p: F.scan(lambda c, r: (c + (r * p).sum(), c * r.sum()), x.sum(), x), x, p, loss=lambda results: results[1].sum())

    dx, dp = check(run, normal(1, 3), normal(3), options=options)
    assert dp.tolist() == [0, 0, 0]


WITHOUT_EFFECT = {
    "a row of scan": lambda x: F.scan(lambda c, r: (c + r, c), F.zeros(3), x.reshape(1, 3))[1],
    "rows that scan never reads": lambda x: F.scan(lambda c, r: (c * 2, None), F.ones(3), x)[0],
    "a carry that scan replaces": lambda x: F.scan(lambda c, r: (F.ones(3) * r, None), x, F.ones(2))[0],
    "a carry that while_loop replaces": lambda x: F.while_loop(lambda v: v[1] < 2, lambda v: (F.ones(3), v[1] + 1), (x, 0), max_trips=3)[0],
    "a carry that no trip replaces": lambda x: F.while_loop(lambda v: v[0].sum() > 1e9, lambda v: (v[0], v[1] * 2), (F.ones(3), x), max_trips=3)[0],
}


@ways
@pytest.mark.parametrize("what", WITHOUT_EFFECT)
def test_what_has_no_effect_on_a_loop_has_gradient_zeros(what, options):
    (dx,) = check(lambda x: gradients(WITHOUT_EFFECT[what], x, loss=lambda result: result.sum()), normal(3), options=options)
    assert dx.tolist() == [0, 0, 0]


def test_a_scan_leaves_behind_what_a_trip_gave():
    x, seen = tensor(normal(2, 3)), []

    def body(c, r):
        seen.append(c + r)
        return seen[-1], None

    with GradManager().attach([x]) as gm:
        gm.backward(F.scan(body, F.zeros(3), x)[0].sum())
    np.testing.assert_allclose(seen[-1].numpy(), x.numpy().sum(0), rtol=1e-6)


def test_a_loop_of_no_trip_gives_zeros_to_what_it_reads():
    x, b = tensor(normal(3)), Parameter(normal(3))
    with GradManager().attach([x, b]) as gm:
        gm.backward(F.while_loop(lambda v: v.sum() > 1e9, lambda v: v * b, x, max_trips=3))
    assert x.grad.tolist() == [1, 1, 1] and b.grad.tolist() == [0, 0, 0]


@ways
def test_while_loop(options):
    def run(x, limit):
        return F.while_loop(lambda v: v[0].sum() < limit, lambda v: (v[0] * 2, v[1] + 1), (x, 0))

    traced = trace(run, **options)
    for limit in (100.0, 3.0, 0.5, 1e6):
        x, n = traced(tensor([1.0, 2.0]), tensor(limit))
        trips = next(k for k in range(99) if 3 * 2**k >= limit)
        assert n.item() == trips and x.numpy().tolist() == [2.0**trips, 2.0 * 2**trips]


@ways
def test_bounded_while_loop_has_gradients(options):
    def run(x):
        def loop(x):
            return [F.while_loop(lambda v: v.sum() < 100, lambda v: v * v, x, max_trips=5)]

        return loop(x) + gradients(loop, x)

    y, dx = check(run, np.float32([1.5, 2.0]), options=options)
    np.testing.assert_allclose(y, np.float32([1.5, 2.0]) ** 8, rtol=1e-5)


def test_gradient_of_a_loop_without_a_bound():
    def run(x):
        return gradients(lambda x: [F.while_loop(lambda v: v.sum() < 9, lambda v: v * 2, x)], x)

    np.testing.assert_allclose(run(tensor([1.0]))[0].numpy(), [2 * 16 * 16.0])
    with pytest.raises(RuntimeError, match=r"while_loop: it has no gradient in a trace(.|\n)*max_trips=n"):
        trace(run)(tensor([1.0]))


# What a trip makes of its carries, which lie where they lay wherever that can be (jit/plan/ops/control_flow_program.cpp).
CARRIES = {
    "each its own": lambda a, b, x: (a * 0.5 + x, b - x),
    "swapped": lambda a, b, x: (b, a),
    "one from both": lambda a, b, x: (b, a + b * 0.25),
    "both from both": lambda a, b, x: (a + b * x, a - b * x),
    "passed on": lambda a, b, x: (a, b + a * x),
    "one value twice": lambda a, b, x: (a + x, a + x),
    "a product added": lambda a, b, x: (a + F.matmul(b, b), b * 0.5),
    "a product of itself": lambda a, b, x: (F.matmul(a, a) * 0.1 + x, b),
    "read behind its update": lambda a, b, x: (a + x, (a * x).sum() + b),
    "a row of itself": lambda a, b, x: (a + a[0], b + a[:, 1:2]),
}


@ways
@pytest.mark.parametrize("trips", [0, 1, 2, 5])
@pytest.mark.parametrize("body", CARRIES)
def test_carries_in_place(body, trips, options):
    def both(a, b, xs):
        (a, b), seen = F.scan(lambda carry, x: (CARRIES[body](*carry, x), carry[0] + carry[1]), (a, b), xs)
        return a, b, seen

    check(both, normal(4, 4), normal(4, 4, seed=1), normal(trips, 4, 4, seed=2), options=options)
    check(lambda a, xs: both(a, a, xs), normal(4, 4), normal(trips, 4, 4, seed=2), options=options)


OUTSIDE = Parameter(normal(3))
SAME = {
    "a loop of no trip": lambda x: F.while_loop(lambda v: v.sum() < -1e9, lambda v: v + 1, x),
    "a bounded loop of no trip": lambda x: F.while_loop(lambda v: v.sum() < -1e9, lambda v: v + 1, x, max_trips=2),
    "a loop that ends with a tensor from outside": lambda x: F.while_loop(lambda v: (v != OUTSIDE).any(), lambda v: OUTSIDE, x),
    "one tensor twice": lambda x: F.while_loop(lambda v: v[0].sum() < 1e3, lambda v: (v[0] ** 2 + 1,) * 2, (x, x)),
    "an operand": lambda x: F.cond(x.sum() < 1e9, lambda v: v, lambda v: v * 2, x),
    "what a branch reads": lambda x: F.cond(x.sum() < 1e9, lambda: (OUTSIDE, x, x), lambda: (x, x, x)),
    "the carry": lambda x: F.scan(lambda c, _: (c, None), x, length=2)[0],
    "a carry and a row": lambda x: F.scan(lambda c, row: ((c[0], OUTSIDE, c[0]), row), (x, x, x), x),
    "complex": lambda x: F.cond(x.sum() < 1e9, lambda v: v, lambda v: v, F.complex(x, x)),
}


@pytest.mark.parametrize("options", [None, *WAYS], ids=str)
@pytest.mark.parametrize("function", SAME.values(), ids=SAME)
def test_results_are_tensors_of_their_own(function, options):
    """A result is a tensor of its own, so that a write into it reaches no operand."""
    x = tensor(normal(3))
    found = trace(function, **options)(x) if options else function(x)
    leaves = [part for part in (found if isinstance(found, tuple) else (found,)) for part in (part if isinstance(part, tuple) else (part,))]
    assert len({*map(id, (x, OUTSIDE, *leaves))}) == len(leaves) + 2
    before = [t.numpy() for t in (x, OUTSIDE)]
    for leaf in leaves:
        leaf[...] = 7
    for t, value in zip((x, OUTSIDE), before, strict=True):
        np.testing.assert_array_equal(t.numpy(), value)


QUANTIZED = {
    "cond": lambda q: F.cond(q.astype("float32").sum() < 1e9, lambda: q, lambda: q.reshape(q.shape)),
    "an operand of cond": lambda q: F.cond(q.astype("float32").sum() < 1e9, lambda v: v.astype("float32") * 2, lambda v: v.astype("float32"), q),
    "while_loop": lambda q: F.while_loop(lambda v: v[0] < 2, lambda v: (v[0] + 1, halved(v[1])), (0, q))[1],
    "a bounded loop": lambda q: F.while_loop(lambda v: v[0] < 2, lambda v: (v[0] + 1, halved(v[1])), (0, q), max_trips=3)[1],
    "the carry of scan": lambda q: F.scan(lambda c, _: (halved(c), None), q, length=2)[0],
    "rows of scan": lambda q: F.scan(lambda c, row: (c + row.astype("float32"), row), F.zeros(4), q),
}


def halved(q):
    return (q.astype("float32") * 0.5).astype(q.dtype)


@pytest.mark.parametrize("dtype", [qint8(0.1), quint8(0.2, 3)], ids=["qint8", "quint8"])
@pytest.mark.parametrize("options", WAYS, ids=str)
@pytest.mark.parametrize("function", QUANTIZED.values(), ids=QUANTIZED)
def test_quantized_tensors_keep_their_scale(function, options, dtype):
    """Bodies see real values, and results have the dtype: eager mode once had both, a trace neither."""
    def real(q):
        results = function(q)
        return [part.astype("float32") for part in (results if isinstance(results, tuple) else (results,))]

    q = tensor(normal(3, 4)).astype(dtype)
    expected, traced = real(q), trace(real, **options)
    for _ in range(3):
        for found, value in zip(traced(q), expected, strict=True):
            np.testing.assert_array_equal(found.numpy(), value.numpy())
    assert abs(expected[0].numpy()).max() < 8  # not the integers, which are larger


@pytest.mark.parametrize("options", [None, *WAYS], ids=str)
def test_a_carry_that_changes_its_scale_is_refused(options):
    def function(q):
        return F.scan(lambda c, _: (c.astype(qint8(0.2)), None), q, length=2)[0]

    with pytest.raises(TypeError, match=r"(?s)another type.*'scale': 0.1.*'scale': 0.2"):
        (trace(function, **options) if options else function)(tensor(normal(3)).astype(qint8(0.1)))
