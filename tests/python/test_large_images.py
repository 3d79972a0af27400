"""Convolutions and pooling of large activations run some images at a time: in a small workspace, and in place where a result is as large as what it is made of."""

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
from megengine.autodiff import GradManager
from megengine.jit import trace

SHAPE = (8, 16, 128, 1024)  # 64 MiB
VALUE = 8 * 16 * 128 * 1024 * 4


def gradient(of):
    """The gradient of a function's sum, weighted so that it is not the same everywhere, of what it is applied to."""

    def body(v, w, b):
        manager = GradManager()
        with manager:
            manager.attach([v])
            y = of(v, w, b)
            manager.backward((F.sin(y) * 3).sum())
        return v.grad

    return body


def conv(v, w, b):
    return F.conv2d(v, w, padding=1)


BODIES = {
    "conv": conv,
    "conv, relu": lambda v, w, b: F.relu(F.conv2d(v, w, b, padding=1)),
    "conv onto itself": lambda v, w, b: F.conv2d(v, w, b, padding=1) + v,
    "conv twice": lambda v, w, b: conv(conv(v, w, b), w, b),
    "two sizes": lambda v, w, b: F.conv2d(v, w, b, padding=1, stride=2),
    "grouped": lambda v, w, b: F.conv2d(v, F.reshape(w[:, 0], (16, 1, 1, 3, 3)), padding=1, groups=16),
    "depthwise": lambda v, w, b: F.conv2d(v, F.reshape(F.linspace(-1, 1, 16 * 25), (16, 1, 1, 5, 5)), padding=2, groups=16),
    "gradient of conv": gradient(conv),
    "gradient of max_pool": gradient(lambda v, w, b: F.max_pool2d(v, 3, 2, 1)),
}
IN_PLACE = {"conv", "conv, relu", "conv twice", "grouped", "depthwise", "gradient of conv"}  # beside the results there is one value


@pytest.mark.parametrize("name", BODIES)
def test_images_one_after_the_other_have_the_bits_of_eager(name):
    draw = np.random.RandomState(0)
    x, w, b = (mge.tensor(draw.randn(*shape).astype("float32")) for shape in (SHAPE, (16, 16, 3, 3), (1, 16, 1, 1)))

    def body(x):
        return BODIES[name](x * 1.5, w, b)

    eager = body(x).numpy()
    for level in (2, 3):
        fn = trace(body, symbolic=True, opt_level=level, numerics="exact")
        if name in IN_PLACE:
            assert fn.plan(x).arena_bytes <= 1.05 * VALUE
        assert np.array_equal(fn(x).numpy(), eager)


def test_the_gradient_of_weights_is_a_sum_over_parts_of_the_images():
    draw = np.random.RandomState(0)
    x = mge.tensor(draw.randn(8, 64, 128, 1024).astype("float32"))  # 256 MiB
    w = mge.Parameter(draw.randn(2, 64, 3, 3).astype("float32"))
    manager = GradManager().attach([w])

    def body(x):
        with manager:
            manager.backward((F.conv2d(x, w, padding=1) * 0.25).sum())
        return w.grad

    def gradient(fn, x):
        w.grad = None
        return fn(x).numpy()

    eager = gradient(body, x)
    expected = sum(gradient(body, x[i : i + 1]).astype("float64") for i in range(8))
    np.testing.assert_allclose(eager, expected, rtol=1e-3, atol=0.2)
    for level in (2, 3):
        fn = trace(body, symbolic=True, opt_level=level, numerics="exact")
        w.grad = None
        assert fn.plan(x).workspace_bytes < 200 << 20
        assert np.array_equal(gradient(fn, x), eager)
