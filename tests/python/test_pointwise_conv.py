"""Convolutions of 1x1 in row-major order are products of matrices where an image has pixels enough (512): against NumPy, at the bound and beside it."""

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
from megengine.autodiff import GradManager
from megengine.jit import trace

RNG = np.random.default_rng(3)
CONV = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
SHAPES = [(1, 5, (32, 16)), (3, 7, (16, 32)), (2, 4, (7, 73)), (2, 4, (8, 73)), (2, 3, (600,)), (2, 3, (8, 8, 9)), (0, 6, (24, 24))]


def normal(*shape):
    return RNG.standard_normal(shape, dtype=np.float32)


def operands(images, channels, pixels, out=9):
    ones = (1,) * len(pixels)
    return normal(images, channels, *pixels), normal(out, channels, *ones), normal(1, out, *ones), normal(images, out, *pixels)


@pytest.mark.parametrize("images, channels, pixels", SHAPES)
def test_forward_and_gradients(images, channels, pixels):
    x, w, bias, dy = operands(images, channels, pixels)
    values = [mge.Parameter(array) for array in (x, w, bias)]
    with GradManager().attach(values) as gm:
        y = CONV[len(pixels)](*values)
        gm.backward(y, mge.tensor(dy))
    count = int(np.prod(pixels))
    flat_w, flat_x, flat_dy = w.reshape(w.shape[:2]), x.reshape(images, channels, count).astype(np.float64), dy.reshape(images, 9, count).astype(np.float64)
    np.testing.assert_allclose(y.numpy(), (flat_w @ flat_x).reshape(dy.shape) + bias, atol=1e-5)
    np.testing.assert_allclose(values[0].grad.numpy(), (flat_w.T @ flat_dy).reshape(x.shape), atol=1e-5)
    np.testing.assert_allclose(values[1].grad.numpy(), np.einsum("nop,nip->oi", flat_dy, flat_x).reshape(w.shape), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("numerics", ["exact", "fast"])
@pytest.mark.parametrize("images, channels, pixels", SHAPES)
def test_steps_behind_it_and_fixed_weights(images, channels, pixels, numerics):
    x, w, bias, residual = (mge.tensor(array) for array in operands(images, channels, pixels))
    conv = CONV[len(pixels)]
    body = lambda x, residual: (F.relu(conv(x, w, bias)), F.relu(conv(x, w) + residual), conv(x, w) * 2)  # noqa: E731
    traced = trace(body, symbolic=True, opt_level=3, numerics=numerics)
    for _ in range(2):
        for got, want in zip(traced(x, residual), body(x, residual), strict=True):
            np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=0, atol=0 if numerics == "exact" else 1e-5)


def test_no_operand_is_copied_for_it():
    x, w, bias, _ = (mge.tensor(array) for array in operands(2, 32, (32, 32), 16))
    alone = trace(lambda x: F.relu(F.conv2d(x, w, bias)), symbolic=True, opt_level=3)
    kernel = mge.tensor(normal(16, 16, 3, 3))
    in_a_network = trace(lambda x: F.conv2d(F.conv2d(F.conv2d(x, w[:, :, :1, :1], padding=1), kernel), w[:, :16]), symbolic=True, opt_level=3)
    alone(x), in_a_network(x)
    assert not [step for step in map(str, alone.memory_plan().steps) if "relayout" in step]
    assert len([step for step in map(str, in_a_network.memory_plan().steps) if "relayout" in step and "f32[2," in step]) <= 2
