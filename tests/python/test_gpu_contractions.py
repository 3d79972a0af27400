"""Generated products on a GPU: what its libraries cannot do in one kernel, by tiles in shared memory."""

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
from megengine.jit import trace

RNG = np.random.default_rng(0)


def normal(*shape):
    return RNG.standard_normal(shape, dtype=np.float32)


def joined(traced):
    """The kernels that compute a product."""
    return [kernel.ops for kernel in traced.kernels() if "matmul" in kernel.ops]


def on(place, body, *arrays, **options):
    traced = trace(body, symbolic=True, opt_level=3, **options)
    return traced(*(mge.tensor(a, device=place) for a in arrays)).astype("float32").numpy(), traced


SOME = [(5, 70, 130), (16, 33, 65), (32, 70, 64), (20, 9, 600), (31, 200, 7)]


@pytest.mark.parametrize("m, n, k", SOME)
@pytest.mark.parametrize("turned", [False, True])
def test_some_rows_read_small_weights_as_they_are(m, n, k, turned):
    x, scale, bias = normal(m, k), normal(*((n, 1) if turned else (1, n))), normal(n)
    weight = (RNG.standard_normal((n, k) if turned else (k, n)) * 30).clip(-127, 127).astype("int8")
    body = lambda x, w, scale, bias: F.gelu(F.matmul(x, w.astype("float32") * scale, transpose_b=turned) * 0.1 + bias)  # noqa: E731
    result, traced = on("gpu0", body, x, weight, scale, bias)
    exact, plain = on("gpu0", body, x, weight, scale, bias, numerics="exact")
    np.testing.assert_allclose(result, exact, rtol=0, atol=2e-5 * k**0.5 * 10)
    assert [ops[:3] for ops in joined(traced)] == [["cast", "mul", "matmul"]] and not joined(plain)
    assert "makes its weights as it reads them" in traced.explain()
    for _ in range(2):
        again = traced(*(mge.tensor(value, device="gpu0") for value in (x, weight, scale, bias)))
        np.testing.assert_array_equal(again.numpy(), result)


def test_sums_have_the_bits_of_a_cpu():
    """Each takes its products one after the other, whoever adds them."""
    x, weight = normal(30, 150), (RNG.standard_normal((150, 70)) * 30).clip(-127, 127).astype("int8")
    body = lambda x, w: F.matmul(x, w.astype("float32")) + 1  # noqa: E731
    results = [on(place, body, x, weight) for place in ("cpu0", "gpu0")]
    assert all(joined(traced) for _, traced in results)
    np.testing.assert_array_equal(results[0][0], results[1][0])


def test_more_rows_are_the_librarys():
    """Its faster product outweighs what converted weights cost."""
    weight = np.ones((64, 200), "int8")
    _, traced = on("gpu0", lambda x, w: F.matmul(x, w.astype("float32"), transpose_b=True), normal(33, 200), weight)
    assert not joined(traced)


@pytest.mark.parametrize("dtype, step", [("float16", 2**-11), ("bfloat16", 2**-8)])
@pytest.mark.parametrize("m, n, k", SOME)
def test_halves_read_small_weights_as_they_are(m, n, k, dtype, step):
    x, scale = mge.tensor(normal(m, k) * 0.1).astype(dtype), mge.tensor(normal(1, n)).astype(dtype)
    weight = mge.tensor((RNG.standard_normal((k, n)) * 10).clip(-127, 127).astype("int8"))
    body = lambda x, w, scale: F.tanh(F.matmul(x, w.astype(dtype) * scale))  # noqa: E731
    traced, exact = (trace(body, symbolic=True, opt_level=3, numerics=numerics) for numerics in ("fast", "exact"))
    result, wanted = (fn(x, weight, scale).astype("float32").numpy() for fn in (traced, exact))
    assert joined(traced) and not joined(exact)
    # tanh's slope is 1 at most: an error of the sums, which are rounded once, is one of the results at most
    np.testing.assert_allclose(result, wanted, rtol=0, atol=4 * step * (1 + k**0.5))


@pytest.mark.parametrize("m, n, k", [(300, 200, 8), (65, 33, 17), (128, 64, 33)])
@pytest.mark.parametrize("turned", [False, True])
def test_a_short_sum_takes_what_follows_along(m, n, k, turned):
    """Where the result's way through memory takes longer than the library is faster."""
    a, b, bias, more = normal(*((k, m) if turned else (m, k))), normal(k, n), normal(n), normal(m, n)
    body = lambda a, b, bias, more: F.gelu(F.matmul(a, b, transpose_a=turned) + bias) + more  # noqa: E731
    result, traced = on("gpu0", body, a, b, bias, more)
    exact, _ = on("gpu0", body, a, b, bias, more, numerics="exact")
    np.testing.assert_allclose(result, exact, rtol=0, atol=1e-6 * k + 2e-6)
    assert len(joined(traced)) == 1 and "a short sum" in traced.explain()


def test_long_sums_and_steps_of_its_own_are_the_librarys():
    for body in (lambda a, b: F.tanh(F.matmul(a, b)), lambda a, b: F.relu(F.matmul(a, b) + a)):
        _, traced = on("gpu0", body, normal(400, 400), normal(400, 400))
        assert not joined(traced)


def test_special_values_pass_as_in_the_library():
    a, b = normal(20, 8), normal(8, 16)
    a[0, 0], a[1, 1], a[2, 2], b[3, 3] = np.nan, np.inf, -np.inf, 0
    result, traced = on("gpu0", lambda a, b: F.matmul(a, b) * 0.5 - 1, a, b)
    np.testing.assert_allclose(result, a @ b * np.float32(0.5) - 1, rtol=1e-5, atol=1e-5)
    assert joined(traced)


@pytest.mark.parametrize("dtype, step", [("float16", 2**-11), ("bfloat16", 2**-8)])
@pytest.mark.parametrize("turned", [(False, False), (False, True), (True, False), (True, True)])
def test_rows_that_begin_anywhere_are_copied_for_tensor_cores(turned, dtype, step):
    m, n, k = 300, 517, 261
    a, b = normal(*((k, m) if turned[0] else (m, k))), normal(*((n, k) if turned[1] else (k, n)))
    halves = [mge.tensor(value, device="gpu0").astype(dtype) for value in (a, b)]
    traced = trace(
        lambda a, b: F.matmul(a, b, transpose_a=turned[0], transpose_b=turned[1]), symbolic=True, opt_level=2
    )
    for _ in range(3):
        result = traced(*halves).astype("float32").numpy()
    exact = [value.astype("float32").numpy().astype("float64") for value in halves]
    wanted = (exact[0].T if turned[0] else exact[0]) @ (exact[1].T if turned[1] else exact[1])
    np.testing.assert_allclose(result, wanted, rtol=step, atol=1e-4 * k**0.5)
    assert any("of copies whose rows begin at 16 bytes" in line for line in traced.memory_plan().steps)
