"""Every row of op_samples.py: against NumPy, against finite differences, and traced."""

import numpy as np
import pytest
from op_samples import SAMPLES

from megengine import Tensor, autodiff, jit

WITH_GRADIENT = [s for s in SAMPLES if s.grad]
rows = pytest.mark.parametrize("sample", SAMPLES, ids=repr)


def tensors(sample):
    return [Tensor(x) for x in sample.inputs]


def in_float64(x):
    return x.astype(np.float64) if x.dtype.kind == "f" else x


@rows
def test_the_value_is_numpys(sample):
    got = sample.call(*tensors(sample)).numpy()
    want = np.asarray(sample.reference(*map(in_float64, sample.inputs)))
    assert got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=sample.tolerance, atol=sample.tolerance)


@pytest.mark.parametrize("sample", WITH_GRADIENT, ids=repr)
def test_the_gradient_is_that_of_finite_differences(sample):
    inputs = tensors(sample)
    rng = np.random.default_rng(7)
    shape = np.shape(sample.reference(*map(in_float64, sample.inputs)))
    weights = rng.normal(size=shape)
    gm = autodiff.GradManager().attach([inputs[i] for i in sample.grad])
    with gm:
        gm.backward(sample.call(*inputs), Tensor(weights.astype(np.float32)))
    for i in sample.grad:
        direction = rng.normal(size=sample.inputs[i].shape)
        along = slope(sample, i, direction, weights)
        got = float((inputs[i].grad.numpy().astype(np.float64) * direction).sum())
        np.testing.assert_allclose(got, along, rtol=2e-3, atol=2e-3)


def slope(sample, i, direction, weights, step=1e-4):
    """Derivative of sum(weights * f) when input i moves along the direction, in float64."""

    def value(by):
        moved = [in_float64(x) for x in sample.inputs]
        moved[i] = moved[i] + by * direction
        return (weights * sample.reference(*moved)).sum()

    return (value(step) - value(-step)) / (2 * step)


@pytest.mark.parametrize("symbolic", [False, True], ids=["value", "symbolic"])
@rows
def test_a_traced_call_gives_what_an_eager_one_gives(sample, symbolic):
    inputs = tensors(sample)
    want = sample.call(*inputs).numpy()
    traced = jit.trace(sample.call, symbolic=symbolic)
    for _ in range(3):
        np.testing.assert_allclose(traced(*inputs).numpy(), want, rtol=1e-5, atol=1e-6)
