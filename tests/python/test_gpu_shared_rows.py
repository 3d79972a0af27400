"""Rows that are too few for a GPU are shared by blocks, which join their sums: walked once, whatever else the kernel writes."""

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
import megengine.module as M
from megengine import config
from megengine.amp import autocast
from megengine.autodiff import GradManager
from megengine.jit import trace

pytestmark = pytest.mark.gpu


def random(*shape):
    return np.random.default_rng(0).standard_normal(shape).astype("float32")


@pytest.mark.parametrize(
    ("shape", "axis"), [((4096, 64), 0), ((8, 50000), 1), ((131, 7, 640), (0, 2))], ids=["columns", "rows", "both"]
)
def test_elements_are_written_beside_the_sums(shape, axis):
    @trace(symbolic=True, opt_level=3)
    def both(x):
        y = x * 2 + 1
        return y, F.sum(y, axis=axis), F.sum(y * y, axis=axis)

    x = random(*shape)
    y, total, squares = both(mge.tensor(x))
    wide = x.astype("float64") * 2 + 1
    assert len(both.kernels()) == 1
    np.testing.assert_array_equal(y.numpy(), x * 2 + 1)
    np.testing.assert_allclose(total.numpy(), wide.sum(axis), rtol=1e-5, atol=1e-2)
    np.testing.assert_allclose(squares.numpy(), (wide**2).sum(axis), rtol=1e-5)


def test_what_needs_the_sums_is_another_kernel():
    @trace(symbolic=True, opt_level=3)
    def centered(x):
        y = x * 2 + 1
        return y - F.mean(y, axis=0)

    x = random(4096, 64)
    got = centered(mge.tensor(x)).numpy()
    wide = x.astype("float64") * 2 + 1
    assert [kernel.ops for kernel in centered.kernels()] == [["mul", "add", "reduce_mean"], ["mul", "add", "sub"]]
    np.testing.assert_allclose(got, wide - wide.mean(0), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_gradient_computes_again_what_it_alone_would_read(dtype):
    x, y = mge.tensor(random(64, 8192)).astype(dtype), mge.tensor(np.arange(64, dtype="int32"))
    gm = GradManager().attach([x])

    @trace(symbolic=True, opt_level=3)
    def step(x, y):
        with gm:
            loss = F.nn.cross_entropy(x.astype("float32"), y)
            gm.backward(loss)
        return loss, x.grad

    loss, gradient = step(x, y)
    kernels = [kernel.ops for kernel in step.kernels()]
    assert "reduce_max" in kernels[0] and "exp" in kernels[-1]
    wide = x.astype("float32").numpy().astype("float64")
    chance = np.exp(wide - wide.max(1, keepdims=True))
    chance /= chance.sum(1, keepdims=True)
    np.testing.assert_allclose(loss.numpy(), -np.log(chance.diagonal()).mean(), rtol=1e-5)
    wanted = (chance - np.eye(64, 8192)) / 64
    np.testing.assert_allclose(gradient.astype("float32").numpy(), wanted, rtol=1e-2 if dtype == "bfloat16" else 1e-4, atol=1e-7)


@pytest.mark.parametrize("mean", [0, 1000], ids=["centered", "far"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("level", [2, 3])
def test_batch_norm_of_few_channels(level, dtype, mean):
    x = (random(16, 24, 20, 20) + mean).astype(dtype)
    scale = mge.Parameter(np.linspace(0.5, 2, 24, dtype="float32").reshape(1, 24, 1, 1))
    bias = mge.Parameter(np.zeros((1, 24, 1, 1), "float32"))
    weight = mge.tensor(random(16, 24, 20, 20).astype(dtype))
    image = mge.tensor(x)
    gm = GradManager().attach([image, scale])

    @trace(symbolic=True, opt_level=level)
    def step(x, weight):
        with gm:
            y = F.batch_norm(x, weight=scale, bias=bias, training=True)
            gm.backward((y * weight).sum())
        return y, x.grad, scale.grad

    y, dx, dscale = step(image, weight)
    wide, dy = x.astype("float64"), weight.numpy().astype("float64")
    factor = scale.numpy().astype("float64")
    deviation = np.sqrt(wide.var((0, 2, 3), keepdims=True) + 1e-5)
    normal = (wide - wide.mean((0, 2, 3), keepdims=True)) / deviation
    sums = (dy * normal).sum((0, 2, 3), keepdims=True)
    count = wide.size / 24
    gradient = factor / deviation * (dy - dy.sum((0, 2, 3), keepdims=True) / count - normal * sums / count)
    digits = {"atol": 2e-2, "rtol": 1e-2} if dtype == "float16" else {"atol": 2e-4 if mean == 0 else 5e-3, "rtol": 1e-3}
    np.testing.assert_allclose(y.numpy(), normal * factor, **digits)
    np.testing.assert_allclose(dx.numpy(), gradient, **digits)
    np.testing.assert_allclose(dscale.numpy(), sums, rtol=digits["rtol"], atol=1 if dtype == "float16" else 0.2 if mean else 2e-2)


class Normalized(M.Module):
    """Two convolutions with batch norm, the second one's result beside a shortcut, in channels-last order on a GPU."""

    def __init__(self):
        super().__init__()
        self.first, self.second = M.Conv2d(4, 32, 1, bias=False), M.Conv2d(32, 32, 1, bias=False)
        self.norm1, self.norm2, self.head = M.BatchNorm2d(32), M.BatchNorm2d(32), M.Conv2d(32, 2, 3, padding=1)

    def forward(self, x):
        y = F.relu(self.norm1(self.first(x)))
        return self.head(F.relu(self.norm2(self.second(y)) + y))


def normalized_step(level, low="float32"):
    mge.random.seed(3)
    net = Normalized()
    gm = GradManager().attach(net.parameters())

    @trace(symbolic=True, opt_level=level)
    def step(x):
        with gm:
            with autocast(low == "bfloat16", low_prec_dtype="bfloat16"):
                y = net(x)
            loss = (y.astype("float32") ** 2).mean()
            gm.backward(loss)
        return loss, *(p.grad for p in net.parameters()), net.norm1.running_var, net.norm2.running_mean

    x = mge.tensor(np.random.default_rng(1).standard_normal((16, 4, 32, 32)).astype("float32") * 3 + 1)
    return step, [t.numpy() for t in step(x)]


@pytest.mark.parametrize("low", ["float32", "tf32", "bfloat16"])
def test_sums_of_batch_norm_share_walks_with_what_stands_around_them(low):
    """Statistics are one kernel, with what is computed of them by channel; those of halves come from the convolution. The gradient's sums are one with
    relu's gradient, which nobody writes: it is computed again from what batch norm has normalized. Where tensor cores compute, they come from the
    convolution before them, behind relu's mask and a sum with the shortcut's gradient."""
    with config._override(tf32=low == "tf32"):
        step, got = normalized_step(3, low)
        _, expected = normalized_step(0, low)
    digits = {"float32": 2e-4, "tf32": 3e-3, "bfloat16": 0.03}[low]
    for a, b in zip(got, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=digits * np.abs(b).max())
    ops = [kernel.ops for kernel in step.kernels()]
    assert not [each for each in ops if each[0].startswith("batch_norm")]
    assert sum("reduce_variance" in each and "reduce_mean" in each for each in ops) == (0 if low == "bfloat16" else 2)
    sums = [each for each in ops if each.count("reduce_sum") >= 2]
    assert len(sums) == (2 if low == "float32" else 0) and all("relu.grad0" in each for each in sums)
    steps = [str(each) for each in step.memory_plan().steps]
    assert sum("conv_stats" in each for each in steps) == (2 if low == "bfloat16" else 0)
    assert sum("conv_backward_data_sums" in each for each in steps) == (0 if low == "float32" else 2)
