"""Products of integer matrices: NumPy's integers at every level of instructions, wrapped in the result's dtype."""

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
from megengine.core import ops
from megengine.jit import trace

DTYPES = ["int8", "uint8", "int16", "uint16", "int32"]

# Batch of a, batch of b, m, n, k: single rows, odd sums, panels that are not full, sums longer than a tile.
PROBLEMS = [
    ((), (), 1, 1, 1),
    ((), (), 1, 70, 33),
    ((), (), 3, 7, 260),
    ((), (), 4, 40, 5),
    ((), (), 13, 31, 7),
    ((), (), 50, 130, 300),
    ((), (), 97, 65, 515),
    ((3,), (), 5, 9, 12),
    ((3,), (3,), 6, 34, 11),
    ((1,), (4,), 5, 33, 10),
    ((2, 1), (1, 3), 5, 9, 17),
    ((2, 3), (3,), 2, 9, 17),
]


def factors(dtype, problem, transpose_a, transpose_b):
    batch_a, batch_b, m, n, k = problem
    info = np.iinfo(dtype)
    rng = np.random.default_rng(m * n + k)
    shapes = (*batch_a, *((k, m) if transpose_a else (m, k))), (*batch_b, *((n, k) if transpose_b else (k, n)))
    a, b = (rng.integers(info.min, info.max, shape, dtype=dtype, endpoint=True) for shape in shapes)
    a.flat[0] = b.flat[0] = info.min  # -32768 * -32768 twice fills 32 bits
    a.flat[-1] = b.flat[-1] = info.min
    return a, b


def expected(a, b, transpose_a, transpose_b):
    wide = [np.swapaxes(x, -1, -2) if turned else x for x, turned in ((a.astype("int64"), transpose_a), (b.astype("int64"), transpose_b))]
    return np.matmul(*wide).astype("int32" if a.dtype == np.int8 else a.dtype)


@pytest.mark.parametrize("transpose_b", [False, True])
@pytest.mark.parametrize("transpose_a", [False, True])
@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
def test_products_are_numpys_modulo_the_dtype(dtype, problem, transpose_a, transpose_b):
    a, b = factors(dtype, problem, transpose_a, transpose_b)
    got = ops.matmul(mge.tensor(a), mge.tensor(b), transpose_a=transpose_a, transpose_b=transpose_b).numpy()
    want = expected(a, b, transpose_a, transpose_b)
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_sum_of_nothing_is_zero(dtype):
    got = ops.matmul(mge.tensor(np.zeros((5, 0), dtype)), mge.tensor(np.zeros((0, 7), dtype))).numpy()
    np.testing.assert_array_equal(got, np.zeros((5, 7), "int32" if dtype == "int8" else dtype))


@pytest.mark.parametrize("dtype", ["int8", "int32"])
@pytest.mark.parametrize("level", [2, 3])
def test_a_trace_gives_the_same(dtype, level):
    a, b = factors(dtype, ((), (), 33, 20, 50), False, False)
    step = trace(symbolic=True, opt_level=level)(lambda a, b: F.matmul(a, b) * 2 + 1)
    for _ in range(3):
        got = step(mge.tensor(a), mge.tensor(b)).numpy()
    np.testing.assert_array_equal(got, expected(a, b, False, False) * np.int32(2) + np.int32(1))
