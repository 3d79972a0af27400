"""What divides or squares integers or halves, and sums them up: in floats, without wrapping and overflow, eagerly and in kernels."""

import numpy as np
import pytest

import megengine.functional as F
from megengine import Tensor
from megengine.jit import trace

INTEGERS = ["bool", "int8", "uint8", "int16", "uint16", "int32", "int64"]
MODES = {"eager": None, "level 0": {"opt_level": 0}, "level 2": {}, "level 3": {"opt_level": 3}, "by value": {"symbolic": False}}


def norm_of(ord):
    return lambda x, axis: F.norm(x, ord, axis), lambda x, axis: np.linalg.norm(x, ord, axis)


# name: (ours, NumPy's of float64); the original's results have these dtypes, too
OF_REALS = {
    "mean": (F.mean, np.mean), "method": (lambda x, axis: x.mean(axis), np.mean), "var": (F.var, np.var), "std": (F.std, np.std),
    "norm": norm_of(None), "norm of 1": norm_of(1), "norm of 3": norm_of(3),
    "normalize": (lambda x, axis: F.normalize(x, axis=axis), lambda x, axis: x / np.maximum(np.linalg.norm(x, axis=axis, keepdims=True), 1e-12)),
    "square_loss": (lambda x, axis: F.loss.square_loss(x, x[::-1]), lambda x, axis: ((x - x[::-1]) ** 2).mean()),
    "square_loss, none": (lambda x, axis: F.loss.square_loss(x, x[::-1], "none"), lambda x, axis: (x - x[::-1]) ** 2),
    "square_loss, sum": (lambda x, axis: F.loss.square_loss(x, x[::-1], "sum"), lambda x, axis: ((x - x[::-1]) ** 2).sum()),
    "square_loss of floats": (lambda x, axis: F.loss.square_loss(x, x.astype("float32") + 1), lambda x, axis: ((x - (np.float32(x) + np.float32(1))) ** 2).mean()),
}  # fmt: skip


def extremes(dtype, shape):
    if dtype == "bool":
        return np.arange(np.prod(shape)).reshape(shape) % 3 > 0
    limits = np.iinfo(dtype)
    rng = np.random.default_rng(0)
    near = [limits.min, limits.max, limits.max // 2, limits.max - 1, 0, 1]
    return rng.choice(np.array(near, dtype), shape)


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("name", OF_REALS)
def test_what_divides_or_squares_integers_computes_with_reals(name, dtype):
    ours, numpys = OF_REALS[name]
    if dtype == "int64" and numpys not in (np.mean, np.var, np.std):
        pytest.skip("float32 does not hold the square of an int64")
    for shape in ((5, 7), (64, 3), (2, 3, 40)):
        array = extremes(dtype, shape)
        for axis in (0, -1):
            want = numpys(array.astype(np.float64), axis)
            for mode, options in MODES.items():
                function = lambda x, axis=axis: ours(x, axis)  # noqa: E731
                fn = function if options is None else trace(**{"symbolic": True} | options)(function)
                got = fn(Tensor(array, dtype=dtype))
                if mode == "level 3":
                    fn.kernels()  # waits for them
                    got = fn(Tensor(array, dtype=dtype))
                assert got.dtype == "float32", (mode, axis)
                np.testing.assert_allclose(got.numpy(), want, rtol=1e-4, atol=1e-6 * np.abs(want).max(), err_msg=f"{mode}, axis {axis} of {shape}")


@pytest.mark.parametrize("mode", MODES)
def test_the_mean_of_integers_is_exact(mode):
    for array, want in [
        (np.full((2048, 2048), 1000, np.int32), 1000), (np.full(4, 2**30, np.int32), 2**30), (np.arange(100000, dtype=np.int32), 49999.5),
        (np.int32([2**30 + 1, -(2**30)]), 0.5), (np.full(4, 2**62, np.int64), 2.0**62), (np.full((70000, 2), 65535, np.uint16), 65535),
    ]:  # fmt: skip
        fn = F.mean if MODES[mode] is None else trace(**{"symbolic": True} | MODES[mode])(lambda x: F.mean(x))
        for _ in range(3):
            assert fn(Tensor(array, dtype=array.dtype)).item() == want


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("mode", MODES)
def test_norms_of_halves_do_not_overflow_where_their_result_does_not(mode, dtype):
    big = 3e4 if dtype == "float16" else 1e12
    x = Tensor(np.float32([[big, big], [0, 0], [1e-6, 0]])).astype(dtype)
    for ord in (None, 2, 3, 1.5, np.inf):
        def function(x, ord=ord):
            return F.norm(x, ord, axis=1), F.normalize(x, ord, axis=1)

        fn = function if MODES[mode] is None else trace(**{"symbolic": True} | MODES[mode])(function)
        for _ in range(3):
            norms, directions = fn(x)
        assert norms.dtype == directions.dtype == x.dtype
        exact = x.astype("float32").numpy().astype(np.float64)
        want = np.linalg.norm(exact, ord, axis=1)
        np.testing.assert_allclose(norms.astype("float32").numpy(), want, rtol=1e-2, atol=1e-7)
        np.testing.assert_allclose(directions.astype("float32").numpy(), exact / np.maximum(want, 1e-12)[:, None], rtol=1e-2, atol=1e-7)
