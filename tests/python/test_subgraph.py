"""Ops that a program composes: core.tensor.utils.subgraph_fn."""

import numpy as np
import pytest

from megengine import Tensor
from megengine.autodiff import GradManager
from megengine.core.ops import builtin
from megengine.core.tensor.utils import subgraph_fn
from megengine.jit import trace


def vector(*values):
    return Tensor(np.array(values, "float32"))


@subgraph_fn("Scaled", dtype="float32", device="xpux", nr_inputs=3)
def scaled(inputs, f, c):
    x, scale, shift = inputs
    y = f("relu", f("+", f("*", x, scale), shift))
    return (y, f("-", y, c(1))), (True, True)


def test_its_parts_are_computed_and_differentiated():
    x = vector(1, 2)
    with GradManager().attach([x]) as gm:
        y, below = scaled(x, vector(3, 4), vector(-5, 6))
        gm.backward((y + below).sum())
    assert (y.tolist(), below.tolist(), x.grad.tolist()) == ([0, 14], [-1, 13], [0, 8])


def test_a_trace_records_its_parts():
    traced = trace(lambda x: scaled(x, x, x)[0], symbolic=True)
    traced(vector(1, 2))
    assert traced(vector(3, -2)).tolist() == [12, 2] and traced.ops >= 3


def test_ops_of_builtin_and_results_without_gradient():
    @subgraph_fn("Sum", dtype="float32", device="xpux", nr_inputs=2)
    def total(inputs, f, c):
        a, b = inputs
        return (f(builtin.Reduce(mode="sum", axis=0), a), f("max", a, b)), (True, False)

    x = vector(1, 2)
    with GradManager().attach([x]) as gm:
        s, largest = total(x, vector(0, 3))
        gm.backward(s.sum() + largest.sum())
    assert (s.tolist(), largest.tolist(), x.grad.tolist()) == ([3], [1, 3], [1, 1])


def test_a_gradient_of_its_own():
    @subgraph_fn("Twice", dtype="float32", device="xpux", nr_inputs=1, custom_grad=True)
    def twice(inputs, f, c):
        (x,) = inputs
        (dy,) = yield (f("*", x, c(2)),)
        yield (f("*", dy, c(10)),)

    x = vector(1, 2)
    with GradManager().attach([x]) as gm:
        (y,) = twice(x)
        gm.backward(y.sum())
    assert (y.tolist(), x.grad.tolist()) == ([2, 4], [10, 10])


def test_a_wrong_number_of_operands_is_refused():
    with pytest.raises(TypeError, match="Scaled: 1 operands, 3 wanted"):
        scaled(vector(1))


A = np.arange(24, dtype="float32").reshape(2, 3, 4)


def test_parts_are_taken_by_items():
    part = builtin.Subtensor(items=[(0, False, False, False, True), (2, True, True, False, False)])
    np.testing.assert_array_equal(part(Tensor(A), 1, 1, 3).numpy(), A[1, :, 1:3])
    rows = builtin.IndexingMultiAxisVec(items=[(1, False, False, False, True)])
    np.testing.assert_array_equal(rows(Tensor(A), Tensor([2, 0])).numpy(), A[:, [2, 0]])


def test_ops_of_older_programs():
    x, scale = vector(-30, 0.26, 30), vector(0.1)
    np.testing.assert_allclose(builtin.FakeQuant(qmin=-128, qmax=127)(x, scale, vector(0)).numpy(), [-12.8, 0.3, 12.7], rtol=1e-6)
    assert builtin.Linspace()(0, 1, 3).tolist() == [0, 0.5, 1]
