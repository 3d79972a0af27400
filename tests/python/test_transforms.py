"""jvp, jacobian and hessian: against finite differences of every sample that has a gradient, closed forms, traces and gradients around them."""

import numpy as np
import pytest
from op_samples import SAMPLES
from test_functional_ops import in_float64, slope

import megengine.functional as F
import megengine.module as M
from megengine import Tensor
from megengine.autodiff import GradManager, hessian, jacobian, jvp
from megengine.jit import trace

X = np.random.default_rng(1).normal(size=(2, 3)).astype(np.float32)


@pytest.mark.parametrize("sample", [s for s in SAMPLES if s.grad], ids=repr)
def test_a_change_is_that_of_finite_differences(sample):
    rng = np.random.default_rng(7)
    weights = rng.normal(size=np.shape(sample.reference(*map(in_float64, sample.inputs))))
    i = sample.grad[0]
    direction = rng.normal(size=sample.inputs[i].shape)
    others = [Tensor(x) for x in sample.inputs]
    result, change = jvp(lambda x: sample.call(*others[:i], x, *others[i + 1 :]), [others[i]], [Tensor(direction.astype(np.float32))])
    assert change.shape == result.shape and change.dtype == result.dtype
    got = (change.numpy().astype(np.float64) * weights).sum()
    np.testing.assert_allclose(got, slope(sample, i, direction, weights), rtol=5e-3, atol=5e-3)


FUNCTIONS = {
    "a square": (lambda x: x * x, lambda x: np.einsum("ij,ik,jl->ijkl", 2 * x, np.eye(2), np.eye(3))),
    "sums": (lambda x: x.sum(axis=1), lambda x: np.einsum("ik,l->ikl", np.eye(2), np.ones(3))),
    "one number": (lambda x: (x**3).sum(), lambda x: 3 * x**2),
    "a product": (lambda x: x @ Tensor(X.T), lambda x: np.einsum("ik,jl->ijkl", np.eye(2), X)),
    "what does not depend on it": (lambda x: F.ones(2), lambda x: np.zeros((2, 2, 3))),
    "nothing": (lambda x: x[:0], lambda x: np.zeros((0, 3, 2, 3))),
}


@pytest.mark.parametrize("symbolic", [None, False, True], ids=["eager", "value", "symbolic"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_jacobian_is_that_of_the_formula(name, symbolic):
    function, formula = FUNCTIONS[name]
    call = (lambda x: jacobian(function, x)) if symbolic is None else trace(lambda x: jacobian(function, x), symbolic=symbolic)
    for _ in range(2):
        np.testing.assert_allclose(call(Tensor(X)).numpy(), formula(X), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("symbolic", [None, True], ids=["eager", "symbolic"])
def test_a_hessian_is_that_of_the_formula(symbolic):
    def cubes(x):
        return (x**3).sum() + x.sum() ** 2

    call = (lambda x: hessian(cubes, x)) if symbolic is None else trace(lambda x: hessian(cubes, x), symbolic=symbolic)
    want = np.diag(6 * X.ravel()) + 2
    np.testing.assert_allclose(call(Tensor(X)).numpy(), want.reshape(2, 3, 2, 3), rtol=1e-4, atol=1e-5)


def test_several_inputs_change_together():
    x, y = Tensor(X), Tensor(2 * X)
    result, change = jvp(lambda x, y: x * y, [x, y], [F.ones_like(x), x])
    np.testing.assert_allclose(change.numpy(), 2 * X + X * X, rtol=1e-6)
    np.testing.assert_allclose(result.numpy(), 2 * X * X, rtol=1e-6)


def test_gradients_go_through_a_jacobian_and_leave_parameters_alone():
    x, layer = Tensor(X), M.Linear(3, 3)
    with GradManager().attach([x]) as gm:
        gm.backward(jacobian(lambda x: (x**3).sum(), x).sum())
    np.testing.assert_allclose(x.grad.numpy(), 6 * X, rtol=1e-5)
    jacobian(layer, Tensor(X[0]))
    assert layer.weight.grad is None
    np.testing.assert_allclose(jacobian(layer, Tensor(X[0])).numpy(), layer.weight.numpy(), rtol=1e-6)


def test_one_draw_is_differentiated():
    rows = jacobian(lambda x: F.dropout(x, 0.5), F.ones(32)).numpy()
    assert set(np.unique(rows)) == {0, 2} and (rows == np.diag(np.diag(rows))).all()


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: jacobian(F.exp, Tensor([1])), TypeError, "no derivatives for dtype int32"),
        (lambda: jvp(F.exp, [Tensor(X)], [Tensor(X[0])]), ValueError, "give a direction for each input"),
        (lambda: hessian(F.exp, Tensor(X)), ValueError, "return one number"),
        (lambda: jvp(lambda x: x.numpy(), [Tensor(X)], [Tensor(X)]), TypeError, "result"),
    ],
)
def test_what_has_no_derivative_is_told(call, kind, message):
    with pytest.raises(kind, match=message):
        call()
