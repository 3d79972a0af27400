"""vmap: each sample function against a Python loop, nesting, gradients, trees, traces, and what is refused."""

import threading

import numpy as np
import pytest
from op_samples import SAMPLES

import megengine as mge
import megengine.functional as F
import megengine.module as M
from megengine import Tensor
from megengine.autodiff import Function, GradManager, hessian, jacobian, jvp, vmap
from megengine.core import ops
from megengine.jit import trace

RNG = np.random.default_rng(1)
X, Y = (Tensor(RNG.normal(size=(n, 3)).astype(np.float32)) for n in (4, 5))
W = mge.Parameter(RNG.normal(size=(3, 2)).astype(np.float32))

REFUSED = {("conv_transpose1d", "all"), ("conv_transpose1d", "last")}  # weights that differ, without a rule


def examples(x):
    return np.stack([x, x[::-1] if x.ndim else x, np.roll(x, 1)])


def loop(function, arguments, axes):
    """What vmap stands for."""
    rows = [function(*(x if axis is None else x[k] for x, axis in zip(arguments, axes, strict=True))) for k in range(3)]
    return [F.stack(parts) for parts in zip(*rows, strict=True)] if isinstance(rows[0], (list, tuple)) else F.stack(rows)


def agree(got, want, tolerance):
    if isinstance(want, (list, tuple)):
        for pair in zip(got, want, strict=True):
            agree(*pair, tolerance)
        return
    assert got.dtype == want.dtype and got.shape == want.shape
    np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=tolerance, atol=tolerance)


def cases():
    for sample in SAMPLES:
        n = len(sample.inputs)
        yield pytest.param(sample, (0,) * n, "all", id=f"{sample}-all")
        if n > 1:
            yield pytest.param(sample, (0,) + (None,) * (n - 1), "first", id=f"{sample}-first")
            yield pytest.param(sample, (None,) * (n - 1) + (0,), "last", id=f"{sample}-last")


@pytest.mark.parametrize(("sample", "axes", "which"), list(cases()))
def test_a_batch_is_what_a_loop_computes(sample, axes, which):
    arguments = [Tensor(x if axis is None else examples(x)) for x, axis in zip(sample.inputs, axes, strict=True)]
    mapped = vmap(sample.call, in_axes=axes)
    if (sample.name, which) in REFUSED:
        with pytest.raises(TypeError, match="vmap: conv_backward_data of .* is not computed for a batch"):
            mapped(*arguments)
        return
    agree(mapped(*arguments), loop(sample.call, arguments, axes), max(3 * sample.tolerance, 1e-5))


DIFFERENTIABLE = [s for s in SAMPLES if s.grad and (s.name, "all") not in REFUSED]


@pytest.mark.parametrize("sample", DIFFERENTIABLE, ids=repr)
def test_gradients_go_through_a_batch(sample):
    axes = (0,) * len(sample.inputs)

    def gradient(call):
        arguments = [Tensor(examples(x)) for x in sample.inputs]
        with GradManager().attach([arguments[i] for i in sample.grad]) as gm:
            y = call(arguments)
            y = y[0] if isinstance(y, (list, tuple)) else y
            gm.backward((y * y).sum())
        return [arguments[i].grad for i in sample.grad]

    got, want = gradient(lambda a: vmap(sample.call)(*a)), gradient(lambda a: loop(sample.call, a, axes))
    agree(got, want, max(10 * sample.tolerance, 1e-4))


def far(x):
    return F.softmax(x @ (W * 2)) * F.ones(2)


@pytest.mark.parametrize("options", [{}, {"symbolic": True}, {"symbolic": True, "without_host": True}], ids=repr)
@pytest.mark.parametrize(
    ("call", "want"),
    [
        (lambda x: vmap(far)(x), lambda: F.stack([far(x) for x in X])),
        (lambda x: vmap(lambda x: vmap(lambda y: (x * y).sum())(Y))(x), lambda: X @ Y.T),
        (lambda x: vmap(lambda x: jacobian(far, x))(x), lambda: F.stack([jacobian(far, x) for x in X])),
    ],
    ids=["one", "nested", "jacobians"],
)
def test_it_works_in_traces(call, want, options):
    traced = trace(call, **options)
    for _ in range(3):
        agree(traced(X), want(), 1e-5)


@pytest.mark.parametrize("sample", DIFFERENTIABLE, ids=repr)
def test_a_jacobian_by_batches_is_that_of_single_passes(sample, monkeypatch):
    i = sample.grad[0]
    others = [Tensor(x) for x in sample.inputs]

    def call(x):
        y = sample.call(*others[:i], x, *others[i + 1 :])
        return (y[0] if isinstance(y, (list, tuple)) else y).reshape(-1)[:5]

    got = jacobian(call, others[i])
    monkeypatch.setattr("megengine.autodiff.transforms._AT_ONCE", 10)
    agree(jacobian(call, others[i]), got, 1e-5)
    one = [F.stack([jacobian(lambda x, k=k: call(x)[k : k + 1], others[i])[0] for k in range(got.shape[0])])]
    agree([got], one, max(10 * sample.tolerance, 1e-4))


INDICES = {
    "one": lambda i: i,
    "behind": lambda i: (slice(None), i),
    "adjacent": lambda i: (slice(None), i, i),
    "in front": lambda i: (i, i),
    "apart": lambda i: (i, slice(None), i),
    "apart behind": lambda i: (slice(None), i, slice(None), i),
    "of two axes": lambda i: (slice(1, None), i.reshape(3, 1), i),
}


@pytest.mark.parametrize("index", INDICES.values(), ids=INDICES)
def test_places_are_those_of_each_example(index):
    array, places = RNG.normal(size=(2, 3, 4, 5, 6)).astype(np.float32), np.array([[0, 1, 2], [2, 2, 0]], np.int32)

    def written(x, i):
        x = x * 1
        x[index(i)] = 7
        return x

    for axes in ((0, 0), (0, None), (None, 0)):
        x, i = (value if axis == 0 else value[0] for value, axis in zip((array, places), axes, strict=True))
        of = [(x if axes[0] is None else x[k], i if axes[1] is None else i[k]) for k in range(2)]
        got = vmap(lambda x, i: x[index(i)], in_axes=axes)(Tensor(x), Tensor(i))
        np.testing.assert_array_equal(got.numpy(), [x[index(i)] for x, i in of])
        if axes[0] == 0:
            got = vmap(written, in_axes=axes)(Tensor(x), Tensor(i))
            np.testing.assert_array_equal(got.numpy(), [written(x, i) for x, i in of])


def test_inner_batches_leave_outer_examples_as_they_were():
    def adds(x, y):
        x += y
        return x

    for outer in (lambda x: vmap(lambda y: adds(x, y))(Y), lambda x: vmap(lambda y: adds(x * 1, y))(Y)):
        with pytest.raises(TypeError, match="writes a tensor from outside|is the same for all"):
            vmap(outer)(X)
    agree(vmap(lambda x: vmap(lambda y: adds(y * 1, x))(Y))(X), F.expand_dims(X, 1) + Y, 1e-6)


@pytest.mark.parametrize("symbolic", [False, True])
def test_traces_are_called_in_it(symbolic):
    traced = trace(lambda x: F.exp(x) * 2, symbolic=symbolic)
    for scale in (1, 2, 3):
        agree(vmap(lambda x: traced(x))(X * scale), F.exp(X * scale) * 2, 1e-5)


def loss(w, x, scale):
    return ((x @ w) ** 2).sum() * scale


def test_derivatives_stand_in_a_batch():
    scales = F.arange(4)
    got = vmap(lambda w, x, s: jacobian(lambda w: loss(w, x, s), w), in_axes=(None, 0, 0))(W, X, scales)
    agree(got, F.stack([jacobian(lambda w, k=k: loss(w, X[k], scales[k]), W) for k in range(4)]), 1e-5)

    def cubes(x):
        return (x**3).sum() * x[0]

    agree(vmap(lambda x: hessian(cubes, x))(X), F.stack([hessian(cubes, x) for x in X]), 1e-4)
    agree(vmap(lambda x: jvp(F.exp, [x], [x])[1])(X), F.exp(X) * X, 1e-5)


def test_gradients_of_parameters_outside_are_those_of_the_batch():
    grads = []
    for call in (lambda: vmap(lambda x: F.tanh(x @ (W * 2)).sum())(X).sum(), lambda: F.tanh(X @ (W * 2)).sum()):
        W.grad = None
        with GradManager().attach([W]) as gm:
            gm.backward(call())
        grads.append(W.grad)
    agree(*grads, 1e-6)


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (M.Sequential(M.Linear(3, 4), M.ReLU(), M.LayerNorm(4), M.Linear(4, 2)), (4, 3)),
        (M.Sequential(M.Conv2d(2, 4, 3), M.GroupNorm(2, 4), M.MaxPool2d(2)), (3, 1, 2, 8, 8)),
        (M.Embedding(7, 3), (4, 2)),
    ],
    ids=["rows", "images", "places"],
)
def test_layers_take_examples(layer, shape):
    x = Tensor(RNG.integers(0, 7, size=shape).astype(np.int32 if isinstance(layer, M.Embedding) else np.float32))
    agree(vmap(layer)(x), F.stack([layer(x[k]) for k in range(shape[0])]), 1e-5)


def test_axes_and_trees():
    got = vmap(
        lambda d, z, w: {"a": d["x"] * z, "b": (1.0, d["x"].sum()), "c": w},
        in_axes=({"x": 1}, None, None), out_axes={"a": -1, "b": 0, "c": None},
    )({"x": X}, 2.0, W)  # fmt: skip
    agree([got["a"], got["b"][0], got["b"][1]], [X * 2, F.ones(3), X.sum(axis=0)], 1e-6)
    assert got["c"] is W
    agree(vmap(lambda x, y: x - y)(X, y=2 * X.numpy()), -X, 1e-6)
    assert vmap(F.exp)(X[:0]).shape == (0, 3)


def test_operators_and_writes_to_what_the_function_made():
    def local(x):
        y = F.zeros(3)
        y += 1
        y[0] = 2.0
        z = x * 1
        z[1] = 5.0
        z += y
        z[:] = z * 2
        z /= 3
        return z - np.ones(3, np.float32) + sum(x)

    def bits(x):
        return (x > 0) & ~(x > 1) | (x < -1) ^ True

    for function in (local, bits, lambda x: (x.astype("uint8") & 3) | 1, lambda x: 2**x + 1 / (x * x + 1) + x.detach() // 2 + -abs(x)):
        agree(vmap(function)(X), F.stack([function(x) for x in X]), 1e-6)


def writes(x):
    global W
    W += x.sum()


def writes_a_part(x):
    W[0] = 1.0


def counts(x):
    M_BN.running_mean[...] = M_BN.running_mean + 1


def goes_back(x):
    with GradManager().attach([x]) as gm:
        gm.backward(x)


class ByHand(Function):
    def forward(self, x):
        return x * x

    def backward(self, grad):
        return grad


M_BN = M.BatchNorm1d(3)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (writes, r"writes a tensor from outside, float32 \[3, 2\]"),
        (writes_a_part, "writes a tensor from outside"),
        (counts, "writes a tensor from outside"),
        (lambda x: M_BN(x.reshape(1, 3)), "batch_norm of .* is not computed for a batch"),
        (lambda x: F.dropout(x, 0.5), r"draws random numbers \(dropout_mask\)"),
        (lambda x: x + mge.random.normal(size=(3,)), r"draws random numbers \(random_normal\)"),
        (lambda x: x[x > 0], r"mask_select of \[3\], \[3\] is not computed for a batch"),
        (lambda x: x if x.sum() > 0 else -x, "reads the value"),
        (lambda x: x.numpy(), "reads the value"),
        (lambda x: ByHand()(x), "no rule for batches"),
        (goes_back, "uses a GradManager"),
    ],
)
def test_what_has_no_batch_is_refused_by_name_and_changes_nothing(function, message):
    before = W.numpy(), M_BN.running_mean.numpy()
    with pytest.raises(TypeError, match=message) as caught:
        vmap(function)(X)
    assert "test_vmap.py" in str(caught.value) and "fix:" in str(caught.value)
    np.testing.assert_array_equal(W.numpy(), before[0])
    np.testing.assert_array_equal(M_BN.running_mean.numpy(), before[1])


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: vmap(lambda x, y: x)(X, Y), ValueError, "argument 0 has 4, argument 1 has 5"),
        (lambda: vmap(F.exp, in_axes=None)(X), ValueError, "no argument has an axis of examples"),
        (lambda: vmap(F.exp, in_axes=2)(X), ValueError, "has no axis 2"),
        (lambda: vmap(F.exp, in_axes="0")(X), TypeError, "the axis of argument 0 is '0'"),
        (lambda: vmap(F.exp, in_axes=(0, 0))(X), TypeError, "2 entries for 1 argument"),
        (lambda: vmap(sum, in_axes=((0, 0, 0),))([X, X]), TypeError, "for list of 2"),
        (lambda: vmap(F.exp, out_axes=None)(X), ValueError, "out_axes is None"),
        (lambda: vmap(F.exp, out_axes=(0, 1))(X), TypeError, "the axis of the result"),
        (lambda: vmap(lambda x: "a")(X), TypeError, "the result is a str"),
        (lambda: vmap(X), TypeError, "is no function"),
    ],
)
def test_wrong_axes_are_told(call, kind, message):
    with pytest.raises(kind, match=message):
        call()


def test_nothing_stays_behind():
    native, kept = ops.add, []
    with pytest.raises(ZeroDivisionError):
        vmap(lambda x: kept.append(x + 1) or 1 / 0)(X)
    assert ops.add is native
    with pytest.raises(TypeError, match="a vmap that has ended"):
        vmap(lambda x: x + kept[0])(X)
    with pytest.raises(RuntimeError):
        F.exp(kept[0])


def test_other_threads_go_on():
    is_done, rounds, errors = threading.Event(), [], []

    def other():
        try:
            while not is_done.is_set():
                w = Tensor([1.0, 2.0])
                w += 1
                w[0] = 3.0
                rounds.append((w.sum() + mge.random.normal(size=(2,))).shape)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=other)
    thread.start()
    for _ in range(150):  # more than the number of times that writes are looked at for one call alone
        vmap(lambda x: jacobian(far, x))(X)
    is_done.set()
    thread.join()
    assert not errors and set(rounds) <= {(2,)}
