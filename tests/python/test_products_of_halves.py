"""Biases, their gradients and casts of weights beside products of halves: at level 3 on a GPU the library adds and sums them up, and casts share a
launch."""

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
import megengine.module as M
from megengine import Tensor, jit
from megengine.amp import autocast
from megengine.autodiff import GradManager
from megengine.optimizer import SGD

HAS_GPU = "gpu" in Tensor(0).device.physical_name
HALVES = ["float16", "bfloat16"]
on_gpu = pytest.mark.skipif(not HAS_GPU, reason="a CPU rounds the product before it adds the bias")


def integers(*shape, seed=0, most=9):
    """Sums of their products are exact in float32, in any order."""
    return np.random.default_rng(seed).integers(-most, most + 1, shape).astype("float32")


def rounded(x, dtype):
    return mge.tensor(x).astype(dtype).astype("float32").numpy()


def layer(rows, width, out, dtype, **options):
    """A traced step: the layer's result, and the gradients of its weights and bias for a gradient dy of that."""
    weight, bias = mge.Parameter(integers(out, width, seed=1)), mge.Parameter(integers(out, seed=2) / 256)
    gm = GradManager().attach([weight, bias])

    def step(x, dy):
        with gm:
            with autocast(low_prec_dtype=dtype):
                y = F.linear(x, weight, bias)
            gm.backward(y, dy.astype(dtype))
        gradients = weight.grad, bias.grad
        weight.grad = bias.grad = None
        return y.astype("float32"), *gradients

    x, dy = integers(rows, width), integers(rows, out, seed=3)
    run = jit.trace(step, symbolic=True, opt_level=3, **options)
    return run, (mge.tensor(x), mge.tensor(dy)), (x, weight.numpy(), bias.numpy(), dy)


def ops_on_card(run, inputs):
    return [cost.ops for cost in run.on("sm_90").plan(*inputs).costs]


@on_gpu
@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("size", [(64, 32, 48), (8, 8, 8), (200, 64, 16)], ids=str)
def test_a_bias_is_added_before_rounding(size, dtype):
    run, inputs, (x, w, b, _) = layer(*size, dtype)
    got = run(*inputs)[0].numpy()
    np.testing.assert_array_equal(got, rounded(x @ w.T + rounded(b, dtype), dtype))
    twice = rounded(rounded(x @ w.T, dtype) + rounded(b, dtype), dtype)
    assert size[0] < 64 or dtype == "float16" or (got != twice).any()  # ties are broken by the bias


@on_gpu
@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("size", [(64, 32, 48), (8, 8, 8), (200, 64, 16)], ids=str)
def test_gradients_of_weights_and_bias_are_exact(size, dtype):
    run, inputs, (x, _, _, dy) = layer(*size, dtype)
    for _ in range(3):  # as single steps, and as a CUDA graph
        _, dw, db = run(*inputs)
    np.testing.assert_array_equal(dw.numpy(), rounded(dy.T @ x, dtype))
    np.testing.assert_array_equal(db.numpy(), rounded(dy.sum(0), dtype))


@on_gpu
@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("size", [(64, 32, 48), (24, 7, 9)], ids=str)
def test_exact_numerics_have_the_bits_of_single_ops(size, dtype):
    run, inputs, (x, w, b, _) = layer(*size, dtype, numerics="exact")
    twice = rounded(rounded(x @ w.T, dtype) + rounded(b, dtype), dtype)
    np.testing.assert_array_equal(run(*inputs)[0].numpy(), twice)


@pytest.mark.parametrize("dtype", HALVES)
def test_no_kernel_adds_a_bias_or_sums_its_gradient(dtype):
    run, inputs, _ = layer(64, 32, 48, dtype)
    ops = ops_on_card(run, inputs)
    assert ("matmul_epilogue",) in ops and ("matmul_sums",) in ops
    assert not [group for group in ops if "reduce_sum" in group or "add" in group]


@pytest.mark.parametrize("size", [(64, 30, 48), (64, 32, 44)], ids=str)
def test_rows_that_begin_anywhere_are_left_to_copies(size):
    run, inputs, _ = layer(*size, "bfloat16")
    ops = ops_on_card(run, inputs)
    assert ("matmul_epilogue",) not in ops and ("matmul_sums",) not in ops


def test_float32_sums_stay_kernels():
    run, inputs, _ = layer(64, 32, 48, "float32")
    assert ("matmul_sums",) not in ops_on_card(run, inputs)


class Net(M.Module):
    def __init__(self):
        super().__init__()
        self.layers = [M.Linear(16, 16) for _ in range(5)]

    def forward(self, x):
        for each in self.layers:
            x = F.relu(each(x))
        return x


def trained(dtype, **options):
    mge.random.seed(3)
    net = Net()
    optimizer, gm = SGD(net.parameters(), lr=0.1), GradManager().attach(net.parameters())

    def step(x):
        with gm:
            with autocast(low_prec_dtype=dtype):
                loss = (net(x).astype("float32") ** 2).mean()
            gm.backward(loss)
            optimizer.step().clear_grad()
        return loss

    return jit.trace(step, symbolic=True, **options) if options else step, net


@pytest.mark.parametrize("dtype", HALVES)
def test_casts_of_weights_share_a_launch(dtype):
    run, _ = trained(dtype, opt_level=3)
    costs = run.on("sm_90").plan(mge.tensor(integers(8, 16, most=3))).costs
    ops = [cost.ops for cost in costs]
    before = costs[: next(i for i, group in enumerate(ops) if group[0] == "matmul")]
    assert [cost.launches for cost in before if cost.ops == ("cast",)] == [1]


@pytest.mark.parametrize("dtype", HALVES)
def test_steps_train_as_single_ops_do(dtype):
    traced, net = trained(dtype, opt_level=3)
    eager, same = trained(dtype)
    x = mge.tensor(integers(8, 16, most=3))
    for _ in range(3):
        np.testing.assert_allclose(traced(x).numpy(), eager(x).numpy(), rtol=0.03)
    for a, b in zip(net.parameters(), same.parameters(), strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=0.05, atol=3e-3)


@pytest.mark.parametrize("dtype", HALVES)
def test_exact_steps_have_the_bits_of_single_ops(dtype):
    traced, net = trained(dtype, opt_level=3, numerics="exact")
    eager, same = trained(dtype)
    x = mge.tensor(integers(8, 16, most=3))
    for _ in range(3):
        assert traced(x).numpy().tobytes() == eager(x).numpy().tobytes()
    for a, b in zip(net.parameters(), same.parameters(), strict=True):
        assert a.numpy().tobytes() == b.numpy().tobytes()


def logits(words, width, rows, dtype, **options):
    """A traced step of a head of so many words: the loss, and the gradients of x and of the table."""
    x, table = mge.Parameter(integers(rows, width, most=2) / 8), mge.Parameter(integers(words, width, seed=1, most=2) / 16)
    gm = GradManager().attach([x, table])

    def step(y):
        with gm:
            with autocast(low_prec_dtype=dtype):
                out = F.linear(x, table)
            loss = F.loss.cross_entropy(out.astype("float32"), y)
            gm.backward(loss)
        gradients = x.grad, table.grad
        x.grad = table.grad = None
        return loss, *gradients

    labels = mge.tensor(np.random.default_rng(2).integers(0, words, rows).astype("int32"))
    return jit.trace(step, symbolic=True, **options) if options else step, labels


@pytest.mark.parametrize("dtype", HALVES)
def test_products_share_the_copy_of_odd_rows(dtype):
    run, labels = logits(301, 256, 256, dtype, opt_level=3)
    costs = run.on("sm_90").plan(labels).costs
    assert not [cost for cost in costs if "copies" in cost.by]
    assert [cost.ops for cost in costs if cost.ops == ("slice",) and cost.launches] == []


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("words", [301, 304, 511])
def test_odd_rows_give_what_single_ops_give(words, dtype):
    run, labels = logits(words, 256, 256, dtype, opt_level=3)
    eager, _ = logits(words, 256, 256, dtype)
    for _ in range(2):
        got = run(labels)
    for a, b in zip(got, eager(labels), strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=0.02, atol=2e-4 if dtype == "bfloat16" else 5e-5)


@pytest.mark.parametrize("dtype", HALVES)
def test_exact_odd_rows_have_the_bits_of_single_ops(dtype):
    run, labels = logits(301, 256, 256, dtype, opt_level=3, numerics="exact")
    eager, _ = logits(301, 256, 256, dtype)
    for a, b in zip(run(labels), eager(labels), strict=True):
        assert a.numpy().tobytes() == b.numpy().tobytes()
