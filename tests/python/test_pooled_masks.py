"""A mask in front of max pooling is applied, backward, to what was pooled (pass mask_pooled): gradients keep eager mode's bits."""

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
from megengine.autodiff import GradManager
from megengine.jit import trace

POOLINGS = {
    "apart": lambda x: F.max_pool2d(x, 2, 2),
    "overlapping": lambda x: F.max_pool2d(x, 3, 2, 1),
    "one apart": lambda x: F.max_pool2d(x, 3, 1, 1),
    "adaptive": lambda x: F.adaptive_max_pool2d(x, 3),
}
ODD = (0.0, -0.0, np.nan, np.inf, -np.inf, 6.0, 7.0)


def values(shape, dtype):
    """Small numbers, of which many are equal, and odd ones."""
    random = np.random.RandomState(1)
    made = random.randint(-3, 4, shape).astype(np.float32)
    made.flat[random.choice(made.size, 3 * len(ODD), replace=False)] = 3 * ODD
    return mge.tensor(made).astype(dtype)


@pytest.mark.parametrize("level", [2, 3])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("mask", [F.relu, F.relu6], ids=lambda mask: mask.__name__)
@pytest.mark.parametrize("pool", POOLINGS.values(), ids=POOLINGS)
def test_gradients_keep_their_bits(pool, mask, dtype, level):
    x = values((2, 8, 7, 7), dtype)
    scale = values(tuple(int(n) for n in pool(x).shape), dtype)

    def gradient(x, scale):
        with GradManager().attach([x]) as gm:
            y = pool(mask(x))
            gm.backward(y, scale)
        return y, x.grad

    def bits(call):
        return [each.astype("float32").numpy().view(np.int32) for each in call(mge.tensor(x), scale)]

    traced = trace(gradient, symbolic=True, opt_level=level, numerics="exact")
    for ours, eager in zip(bits(traced), bits(gradient), strict=True):
        np.testing.assert_array_equal(ours, eager)
    assert "max_pool_grad" in traced.memory_plan().steps[-1]
