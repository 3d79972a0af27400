"""functional.scan, while_loop and cond as parts of graphs: plans, dumps, random numbers, and what they refuse."""

import io
import re

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
from megengine import _core, tensor
from megengine.autodiff import Function, GradManager
from megengine.core import ops
from megengine.jit import TraceError, trace
from megengine.utils.comp_graph_tools import GraphInference
from megengine.utils.network import Network

ways = pytest.mark.parametrize(
    "options",
    [{"symbolic": True}, {"symbolic": True, "opt_level": 3, "without_host": True}, {"symbolic": False}],
    ids=str,
)


def normal(*shape, seed=0):
    return tensor(np.random.default_rng(seed).normal(size=shape).astype(np.float32))


def deep_step(w):
    def step(h, x):
        for _ in range(4):
            h = F.tanh(F.matmul(h, w) * F.sigmoid(h) + x)
        return h, None

    return step


def train(step, loop):
    def run(w, h, xs):
        with GradManager().attach([w]) as gm:
            gm.backward((loop(step(w), h, xs) ** 2).sum())
        grad, w.grad = w.grad, None
        return grad

    return run


def unrolled(step, h, xs):
    for i in range(xs.shape[0]):
        h, _ = step(h, xs[i])
    return h


def planned_bytes(loop, trips):
    traced = trace(train(deep_step, loop), symbolic=True)
    traced(normal(16, 16) / 4, normal(8, 16, seed=1), normal(trips, 8, 16, seed=2))
    return traced.memory_plan().planned_bytes


def test_each_trip_runs_in_the_memory_of_the_first():
    """A further trip takes its x and its carry, for backward; unrolled also all between."""
    scanned = [planned_bytes(lambda *args: F.scan(*args)[0], trips) for trips in (20, 60)]
    of_a_trip = (scanned[1] - scanned[0]) / 40
    assert of_a_trip <= 2.2 * 8 * 16 * 4
    assert planned_bytes(unrolled, 60) > 3 * scanned[1]


def test_the_graph_and_its_plan_show_the_body():
    traced = trace(lambda x: F.scan(lambda c, x: (c * 2 + x, c), x[0], x), symbolic=True, opt_level=3)
    traced(normal(3, 2))
    text = traced.graph_text(optimized=False)
    assert "scan" in text and "body=graph, carries=1, slices=1, trips=3" in text
    assert re.search(r"  \| %\d: f32\[2\] = mul %0 %\d", text)
    assert re.search(r"  \| %\d: f32\[2\] = fused .*ops=mul,add", traced.graph_text())
    assert any("scan" in step for step in traced.memory_plan().steps)
    assert traced.memory_plan().workspace_bytes > 0


def both_ways(function, x, seed=3, calls=3, **options):
    for how in (None, options):
        mge.random.seed(seed)
        run = trace(function, **how) if how else function
        yield [run(x).numpy() for _ in range(calls)]


@ways
@pytest.mark.parametrize("reverse", [False, True])
def test_each_trip_draws_its_own_random_numbers(options, reverse):
    def run(x):
        def step(c, x):
            return c + 1, F.dropout(x, 0.5) + F.dropout(c, 0.5) * mge.random.uniform(size=(4,))

        return F.dropout(F.scan(step, x, F.stack([x] * 5), reverse=reverse)[1], 0.1)

    eager, traced = both_ways(run, normal(4), **options)
    np.testing.assert_allclose(traced, eager, rtol=1e-6)
    assert len({row.tobytes() for row in eager[0]}) == 5


@ways
def test_random_numbers_in_a_scan_within_a_scan_and_its_gradient(options):
    def run(x):
        def outer(c, _):
            c, _ = F.scan(lambda c, _: (c + F.dropout(c, 0.5) * x, None), c, length=3)
            return F.dropout(c, 0.3), None

        with GradManager().attach([x]) as gm:
            gm.backward(F.scan(outer, x * 2, length=2)[0].sum())
        grad, x.grad = x.grad, None
        return grad

    eager, traced = both_ways(run, normal(6), **options)
    np.testing.assert_allclose(traced, eager, rtol=1e-5, atol=1e-6)


def test_a_loop_without_a_bound_draws_nothing():
    traced = trace(lambda x: F.while_loop(lambda v: v.sum() < 9, lambda v: F.dropout(v + 1, 0.5), x))
    with pytest.raises(RuntimeError, match=r"draws random numbers(.|\n)*max_trips=n"):
        traced(normal(3))


def test_dump_and_load():
    w = normal(3, 3) / 2

    def run(xs):
        last, ys = F.scan(lambda h, x: (F.tanh(F.matmul(h, w) + x), h), xs[0], xs)
        n = F.while_loop(lambda n: n < last.sum() + 9, lambda n: n + 1, 0.0)
        return last, ys, F.cond(n > 5, lambda: last * n, lambda: last)

    traced, xs = trace(run, symbolic=True, capture_as_const=True), normal(4, 2, 3, seed=1)
    expected = [y.numpy() for y in traced(xs)]
    first, again = io.BytesIO(), io.BytesIO()
    traced.dump(first)
    first.seek(0)
    Network.load(first).dump(again)
    for file in (first, again):
        file.seek(0)
        found = list(GraphInference(file).run(xs.numpy()).values())
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@ways
def test_gradients_stop_where_the_body_says_so(options):
    def run(x):
        with GradManager().attach([x]) as gm:
            gm.backward(F.scan(lambda c, _: (c * x.detach() + c.detach(), None), x, length=2)[0].sum())
        grad, x.grad = x.grad, None
        return grad

    eager, traced = both_ways(run, normal(4), **options)
    np.testing.assert_allclose(traced, eager, rtol=1e-6)


@ways
def test_a_gradient_taken_in_the_body(options):
    def run(x):
        def descend(y, _):
            with GradManager().attach([y]) as gm:
                gm.backward(((y * y - x) ** 2).sum())
            return y - 0.05 * y.grad, None

        return F.scan(descend, F.ones(3), length=60)[0]

    eager, traced = both_ways(run, tensor([1.0, 2.0, 3.0]), **options)
    np.testing.assert_allclose(traced, eager, rtol=1e-5)
    np.testing.assert_allclose(eager[0], np.sqrt([1, 2, 3]), rtol=1e-3)


@ways
def test_the_body_of_a_loop_checks_its_indices(options):
    traced = trace(lambda x, i: F.scan(lambda c, i: (c + x[i], None), 0.0, i)[0], **options)
    x = normal(4)
    for _ in range(2):
        np.testing.assert_allclose(traced(x, tensor([1, 3])).item(), x.numpy()[[1, 3]].sum(), rtol=1e-6)
        with pytest.raises(IndexError):
            traced(x, tensor([1, 7])).numpy()


def test_plans_and_kernels_pass_their_checks(monkeypatch):
    monkeypatch.setenv("MEGJIT_CHECK", "1")
    _core.reload_debug()
    try:
        run = train(deep_step, lambda *args: F.scan(*args)[0])
        values = normal(5, 5) / 2, normal(3, 5, seed=1), normal(7, 3, 5, seed=2)
        expected = run(*values).numpy()
        traced = trace(run, symbolic=True, opt_level=3)
        for _ in range(2):
            np.testing.assert_allclose(traced(*values).numpy(), expected, rtol=1e-4, atol=1e-5)
    finally:
        monkeypatch.undo()
        _core.reload_debug()


def test_more_results_than_eight():
    def run(x):
        return F.scan(lambda c, x: ([part + x for part in c], list(c)), [x[0] * i for i in range(6)], x)[1]

    x = normal(3, 2)
    for a, b in zip(run(x), trace(run)(x), strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy())


# ---- errors: what, why, a way out, the user's line

X = np.ones((3, 2), np.float32)


class Doubled(Function):
    def forward(self, x):
        return x * 2

    def backward(self, dy):
        return dy * 2


def leak(x):
    seen = []
    last, _ = F.scan(lambda c, x: (c + x, seen.append(c * 2)), x[0], x)
    return last + seen[0]


def leak_of_a_branch(x):
    seen = []
    last = F.cond(x.sum() > 0, lambda: seen.append(x * 2) or x, lambda: -x)
    return last + seen[0]


def custom(x):
    with GradManager().attach([x]) as gm:
        gm.backward(F.scan(lambda c, x: (Doubled()(c) + x, None), x[0], x)[0].sum())


REFUSED = [
    (lambda x: F.scan(lambda c, x: (c.astype("float16"), None), x[0], x),
     TypeError, "scan: the carry comes back as another type", r"it was float32\[2\] and is float16\[2\]", "astype", True),
    (lambda x: F.scan(lambda c, x: ({"h": [c["h"][0], x[:1]]}, None), {"h": [x[0], x[1]]}, x),
     TypeError, "the carry comes back as another type", r"\['h'\]\[1\] was float32\[2\] and is float32\[1\]", "reshape", True),
    (lambda x: F.scan(lambda c, x: ({"b": c["a"]}, None), {"a": x[0]}, x),
     TypeError, "the carry comes back as another tree", r"a dict of \['a'\] and is a dict of \['b'\]", "same containers", True),
    (lambda x: F.scan(lambda c, x: c, x[0], x), TypeError, "f returns a Tensor", "a pair", "return carry, y", True),
    (lambda x: F.scan(lambda c, x: (c, c), x[0]), ValueError, "nothing tells the number", "first axis", "length=", True),
    (lambda x: F.scan(lambda c, x: (c, c), x[0], x, length=7), ValueError, "3, 7 tells", "first axis", "length=", True),
    (lambda x: F.scan(lambda c, x: (c, c), ["h"], x), TypeError, "the carry holds a str", "numbers and None", "outside", True),
    (lambda x: F.while_loop(lambda c: c < 3, lambda c: c + 1, x),
     TypeError, r"what cond_fun gives is bool\[3, 2\]", "one bool", "any", True),
    (lambda x: F.cond(x.sum() > 0, lambda: x, lambda: x[0]),
     TypeError, "the result of false_fun comes as another type", r"was float32\[3, 2\] and is float32\[2\]", "either side", False),
    (lambda x: F.scan(lambda c, x: (c if c.sum() > 0 else x, None), x[0], x),
     ValueError, r"the value of a bool\[\] tensor is read in the body of scan", "before anything", "F.cond", False),
    (lambda x: F.scan(lambda c, x: (c + ops.mask_select(x, x > 0).sum(), None), x[0], x),
     ValueError, "the shape of mask_select's result depends on values", "recorded once", "F.where", False),
    (lambda x: F.scan(lambda c, row: (c + x.__iadd__(1)[0], None), x[0], x),
     RuntimeError, r"the body of scan updates a f32\[3, 2\] tensor from outside in place", "recorded once", "the carry", False),
    (leak, RuntimeError, "the body of a loop, or a branch of cond, computes is used outside of it", "none of its results", "from a loop as a carry", False),
    (leak_of_a_branch, RuntimeError, "a branch of cond, computes is used outside of it", "none of its results", "from a branch as a result", False),
    (custom, RuntimeError, "its backward would be lost in the body of scan", "from its operations", "outside", False),
]  # fmt: skip


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case[2])
def test_refusals_name_the_line_and_a_way_out(case):
    function, kind, what, why, fix, also_eager = case
    for run in [trace(function, symbolic=True)] + [function] * also_eager:
        with pytest.raises(kind) as caught:
            run(tensor(X))
        text = str(caught.value)
        assert re.search(rf"{what}.*\n  why: .*{why}.*\n  fix: .*{fix}", text) and len(text.splitlines()) <= 4
        assert "test_control_flow_in_graphs.py:" in text.splitlines()[-1]


def test_a_python_if_on_a_tensor_is_told_of_cond():
    with pytest.raises(ValueError, match="F.cond for an if on it, F.while_loop for a while"):
        trace(lambda x: x if x.sum() > 0 else -x, symbolic=True)(tensor(X))


def test_a_body_that_does_something_else_is_another_graph():
    factor = 2.0
    traced = trace(lambda x: F.scan(lambda c, x: (c * factor + x, None), x[0], x)[0])
    traced(tensor(X))
    factor = 3.0
    with pytest.raises(TraceError, match="the body of op scan does something else"):
        traced(tensor(X))
