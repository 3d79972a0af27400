"""Level 3: products of matrices and what is computed of their results, as generated kernels."""

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
import megengine.module as M
from megengine.autodiff import GradManager
from megengine.jit import trace
from megengine.optimizer import SGD, Adam

RNG = np.random.default_rng(0)


def normal(*shape):
    return RNG.standard_normal(shape, dtype=np.float32)


def joined(traced):
    """The kernels that compute a product."""
    return [kernel.ops for kernel in traced.kernels() if "matmul" in kernel.ops]


SHAPES = [(4, 8, 2), (8, 16, 64), (33, 45, 17), (129, 65, 70), (50, 8, 1024), (7, 100, 3)]


@pytest.mark.parametrize("m, n, k", SHAPES)
def test_a_product_with_an_activation_is_one_kernel(m, n, k):
    a, b, bias, scale = normal(m, k), normal(k, n), normal(n), normal(m, 1)
    traced = trace(lambda a, b, bias, scale: F.tanh(F.matmul(a, b) * scale + bias), symbolic=True, opt_level=3)
    result = traced(*map(mge.tensor, (a, b, bias, scale))).numpy()
    wanted = np.tanh(a.astype(np.float64) @ b * scale + bias)
    np.testing.assert_allclose(result, wanted, rtol=0, atol=1e-6 * k + 2e-6)
    assert len(joined(traced)) == 1 and joined(traced)[0][0] == "matmul"


@pytest.mark.parametrize("first, second", [((3, 20, 9), (3, 9, 12)), ((3, 20, 9), (9, 12)), ((20, 9), (3, 9, 12)), ((2, 1, 20, 9), (3, 9, 12))])
@pytest.mark.parametrize("turned", [False, True])
def test_batches_broadcast_and_the_first_factor_may_be_transposed(first, second, turned):
    a, b = normal(*first), normal(*second)
    if turned:
        a = np.ascontiguousarray(a.swapaxes(-1, -2))
    traced = trace(lambda a, b: F.exp(-F.matmul(a, b, transpose_a=turned)), symbolic=True, opt_level=3)
    result = traced(mge.tensor(a), mge.tensor(b)).numpy()
    wanted = np.exp(-((a.swapaxes(-1, -2) if turned else a).astype(np.float64) @ b))
    np.testing.assert_allclose(result, wanted, rtol=3e-5)
    assert joined(traced)


def test_special_values_pass_as_in_the_library():
    a, b = normal(8, 8), normal(8, 16)
    a[0, 0], a[1, 1], a[2, 2], b[3, 3] = np.nan, np.inf, -np.inf, 0
    traced = trace(lambda a, b: F.matmul(a, b) * 0.5 - 1, symbolic=True, opt_level=3)
    np.testing.assert_allclose(traced(mge.tensor(a), mge.tensor(b)).numpy(), a @ b * np.float32(0.5) - 1, rtol=1e-5, atol=1e-5)
    assert joined(traced)


@pytest.mark.parametrize("m, n, k", [(16, 9, 5), (17, 33, 130), (64, 64, 64), (200, 70, 70), (50, 20, 300), (300, 65, 33), (129, 8, 257)])
@pytest.mark.parametrize("turned", [False, True])
def test_the_second_factor_may_be_transposed(m, n, k, turned):
    """By panels, where the product is small: large ones are the library's, unless measurements say otherwise."""
    a, b, bias, more = normal(*((k, m) if turned else (m, k))), normal(n, k), normal(n), normal(m, n)
    body = lambda a, b, bias, more: F.tanh(F.matmul(a, b, transpose_a=turned, transpose_b=True) + bias) + more  # noqa: E731
    traced = trace(body, symbolic=True, opt_level=3)
    operands = [mge.tensor(value) for value in (a, b, bias, more)]
    result = traced(*operands).numpy()
    wanted = np.tanh((a.T if turned else a).astype(np.float64) @ b.T + bias) + more
    np.testing.assert_allclose(result, wanted, rtol=0, atol=1e-6 * k + 2e-6)
    assert len(joined(traced)) == 1
    for _ in range(2):
        np.testing.assert_array_equal(traced(*operands).numpy(), result)


@pytest.mark.parametrize("body", [
    lambda a, b: F.tanh(F.matmul(F.concat([a] * 70), F.concat([b] * 70), transpose_b=True)),  # large, and read across memory
    lambda a, b: F.relu(F.matmul(a, b) + a),  # steps of the library's product
])
def test_other_products_are_the_librarys(body):
    traced = trace(body, symbolic=True, opt_level=3)
    traced(mge.tensor(normal(16, 16)), mge.tensor(normal(16, 16)))
    assert not joined(traced)


@pytest.mark.parametrize("m, n, k, transposed", [(33, 45, 17, False), (64, 64, 64, False), (50, 20, 130, True)])
@pytest.mark.parametrize("dtype, step", [("float16", 2**-11), ("bfloat16", 2**-8)])
def test_halves_are_summed_in_float32(m, n, k, transposed, dtype, step):
    a, b = (mge.tensor(value * 0.1).astype(dtype) for value in (normal(m, k), normal(*((n, k) if transposed else (k, n)))))
    traced = trace(lambda a, b: F.tanh(F.matmul(a, b, transpose_b=transposed)), symbolic=True, opt_level=3)
    result = traced(a, b)
    right = b.astype("float32").numpy().astype(np.float64)
    wanted = np.tanh(a.astype("float32").numpy() @ (right.T if transposed else right))
    np.testing.assert_allclose(result.astype("float32").numpy(), wanted, rtol=2 * step, atol=1e-5)
    assert joined(traced) or "the library has instructions for this dtype" in traced.explain()


FEW = [(1, 9, 5), (1, 64, 768), (2, 33, 100), (3, 8, 16), (4, 70, 130), (7, 11, 47), (1, 1, 300), (5, 3, 9), (32, 5, 20)]


@pytest.mark.parametrize("m, n, k", FEW)
@pytest.mark.parametrize("dtype", ["int8", "uint8", "float16"])
def test_few_rows_read_small_weights_as_they_are(m, n, k, dtype):
    x, scale, bias = normal(m, k), normal(n, 1), normal(n)
    weight = (RNG.standard_normal((n, k)) * 30 + (50 if dtype == "uint8" else 0)).clip(-127 * (dtype != "uint8"), 127).astype(dtype)
    body = lambda x, w, scale, bias: F.gelu(F.matmul(x, (w.astype("float32") - 3) * scale, transpose_b=True) * 0.1 + bias)  # noqa: E731
    operands = [mge.tensor(value) for value in (x, weight, scale, bias)]
    traced = trace(body, symbolic=True, opt_level=3)
    result = traced(*operands).numpy()
    exact = trace(body, symbolic=True, opt_level=3, numerics="exact")
    np.testing.assert_allclose(result, exact(*operands).numpy(), rtol=0, atol=2e-5 * k**0.5 * 10)
    assert [kernel[:3] for kernel in joined(traced)] == [["cast", "sub", "mul"]] and not joined(exact)
    for _ in range(2):
        np.testing.assert_array_equal(traced(*operands).numpy(), result)


def test_weights_of_a_batch_are_read_as_they_are():
    x, w = normal(3, 2, 1, 40), (RNG.standard_normal((3, 2, 17, 40)) * 40).astype(np.int8)
    traced = trace(lambda x, w: F.tanh(F.matmul(x, w.astype("float32"), transpose_b=True) * 0.01), symbolic=True, opt_level=3)
    wanted = np.tanh(x.astype(np.float64) @ w.swapaxes(-1, -2) * 0.01)
    np.testing.assert_allclose(traced(mge.tensor(x), mge.tensor(w)).numpy(), wanted, atol=1e-5)
    assert joined(traced)


SOME = [(33, 70, 130, True), (33, 70, 130, False), (100, 200, 300, True), (512, 65, 20, True), (512, 65, 20, False), (16, 128, 16, False)]


@pytest.mark.parametrize("m, n, k, transposed", SOME)
def test_some_hundred_rows_convert_small_weights_once_a_panel(m, n, k, transposed):
    x, scale, bias = normal(m, k), normal(*((n, 1) if transposed else (1, n))), normal(n)
    weight = (RNG.standard_normal((n, k) if transposed else (k, n)) * 30).clip(-127, 127).astype("int8")
    body = lambda x, w, scale, bias: F.gelu(F.matmul(x, w.astype("float32") * scale, transpose_b=transposed) * 0.1 + bias)  # noqa: E731
    operands = [mge.tensor(value) for value in (x, weight, scale, bias)]
    traced = trace(body, symbolic=True, opt_level=3)
    exact = trace(body, symbolic=True, opt_level=3, numerics="exact")
    np.testing.assert_allclose(traced(*operands).numpy(), exact(*operands).numpy(), rtol=0, atol=2e-5 * k**0.5 * 10)
    assert [kernel[:2] for kernel in joined(traced)] == [["cast", "mul"]] and not joined(exact)


@pytest.mark.parametrize("body", [
    lambda x, w, big: F.matmul(F.concat([big] * 9), w.astype("float32"), transpose_b=True),  # many rows: converted once
    lambda x, w, big: F.matmul(x, w.astype("float32") + big, transpose_b=True),  # no fewer bytes
    lambda x, w, big: (F.matmul(x, w.astype("float32"), transpose_b=True), w.astype("float32")),  # they are wanted as they are
])
def test_other_weights_are_the_librarys(body):
    traced = trace(body, symbolic=True, opt_level=3)
    traced(mge.tensor(normal(2, 32)), mge.tensor(np.ones((64, 32), np.int8)), mge.tensor(normal(64, 32)))
    assert not joined(traced)


def test_exact_numerics_have_eager_bits():
    a, b = mge.tensor(normal(64, 200)), mge.tensor(normal(200, 48))
    body = lambda a, b: F.tanh(F.matmul(a, b))  # noqa: E731
    traced = trace(body, symbolic=True, opt_level=3, numerics="exact")
    np.testing.assert_array_equal(traced(a, b).numpy(), body(a, b).numpy())
    assert not joined(traced)


def test_a_parameter_that_its_own_product_updates_is_read_whole_before():
    weight = mge.Parameter(normal(96, 96) * 0.1)

    @trace(symbolic=True, opt_level=3)
    def step():
        weight._reset(F.tanh(F.matmul(weight, weight)) * 0.5 + weight)

    wanted = weight.numpy().astype(np.float64)
    for _ in range(4):
        step()
        wanted = np.tanh(wanted @ wanted) * 0.5 + wanted
        np.testing.assert_allclose(weight.numpy(), wanted, rtol=0, atol=2e-6)
    assert joined(step)


@pytest.mark.parametrize("optimizer", [SGD, Adam])
def test_a_gradient_and_its_update_are_one_kernel_and_train_as_eager_mode(optimizer):
    def losses(level):
        mge.random.seed(3)
        net = M.Sequential(M.Linear(40, 96), M.ReLU(), M.Linear(96, 64), M.Sigmoid(), M.Linear(64, 10))
        gm, opt = GradManager().attach(net.parameters()), optimizer(net.parameters(), lr=0.01)

        def step(x, y):
            with gm:
                loss = F.nn.cross_entropy(net(x), y)
                gm.backward(loss)
            opt.step().clear_grad()
            return loss

        run = trace(step, symbolic=True, opt_level=level) if level else step
        rng = np.random.default_rng(1)
        found = []
        for n in (48, 48, 33, 48, 7, 48):
            x, y = rng.standard_normal((n, 40), dtype=np.float32), rng.integers(0, 10, n).astype(np.int32)
            found.append(run(mge.tensor(x), mge.tensor(y)).item())
        if level:
            assert any(len(ops) > 2 for ops in joined(run)) and len(joined(run)) >= 4
        return found

    np.testing.assert_allclose(losses(3), losses(0), rtol=2e-6)
