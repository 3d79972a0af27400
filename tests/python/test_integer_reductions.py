"""Reductions of integers are exact: they wrap as NumPy's of the same dtype do, eagerly and in kernels."""

import numpy as np
import pytest

import megengine.functional as F
from megengine import Tensor
from megengine.jit import trace

SHAPES = [(5, 7), (3, 64), (64, 3), (2, 5, 33), (1, 1000), (1000, 1)]
FUNCTIONS = {"sum": (F.sum, np.sum), "prod": (F.prod, np.prod), "max": (F.max, np.max), "min": (F.min, np.min)}


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "uint8", "uint16"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_reductions_of_integers_are_exact(name, dtype):
    ours, numpys = FUNCTIONS[name]
    keeps = {"dtype": dtype} if name in ("sum", "prod") else {}
    rng, limits = np.random.default_rng(0), np.iinfo(dtype)
    for shape in SHAPES:
        array = rng.integers(limits.min, limits.max, shape, endpoint=True).astype(dtype)
        for axis in (None, 0, -1, (0, 1)):
            expected = numpys(array, axis=axis, **keeps)
            traced = trace(lambda x, axis=axis: ours(x, axis=axis), symbolic=True, opt_level=3)
            traced(Tensor(array))
            for got in (ours(Tensor(array), axis=axis), traced(Tensor(array))):
                assert got.dtype == dtype
                np.testing.assert_array_equal(got.numpy(), expected)


def test_a_sum_above_24_bits_keeps_its_low_ones():
    assert F.sum(Tensor(np.int32([1 << 24, 1]))).item() == (1 << 24) + 1
    assert F.prod(Tensor(np.int32([2000000011, 3]))).item() == np.int32(1705032737)


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "uint8", "uint16"])
def test_places_and_orders_of_integers_are_numpys(dtype):
    rng, limits = np.random.default_rng(1), np.iinfo(dtype)
    for shape in SHAPES[:4]:
        array = rng.integers(limits.min, limits.max, shape, endpoint=True).astype(dtype)
        for axis in range(array.ndim):
            np.testing.assert_array_equal(F.argmax(Tensor(array), axis).numpy(), np.argmax(array, axis))
            np.testing.assert_array_equal(F.argmin(Tensor(array), axis).numpy(), np.argmin(array, axis))
            sums = F.cumsum(Tensor(array), axis)
            np.testing.assert_array_equal(sums.numpy(), np.cumsum(array, axis, dtype=sums.dtype))
        np.testing.assert_array_equal(F.sort(Tensor(array))[0].numpy(), np.sort(array, -1))
