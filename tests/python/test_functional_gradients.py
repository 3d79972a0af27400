"""Functions made of several ops: gradients against their own differences, and traced against eager."""

import numpy as np
import pytest

import megengine.functional as F
from megengine import Tensor, autodiff, jit

V = F.vision


def normal(*shape):
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32)


def smooth(*shape):
    """An image without kinks, so that samples between pixels have stable differences."""
    grids = np.meshgrid(*(np.linspace(0, 2, n) for n in shape), indexing="ij")
    return np.sin(sum((i + 1) * g for i, g in enumerate(grids))).astype(np.float32)


IMAGE = smooth(2, 4, 6, 5)
PLACES = np.random.default_rng(3).uniform(0.6, 3.4, (2, 3, 3, 2)).astype(np.float32)
PLACES = np.floor(PLACES) + 0.2 + 0.6 * (PLACES % 1)  # away from the pixels' centres
MATRICES = np.array([[[0.9, 0.05, 0.33], [0.02, 0.8, 0.41], [0, 0, 1]]] * 2, np.float32)
ROIS = Tensor([[0, 0.7, 0.9, 3.2, 4.1], [1, 1.1, 0.4, 4.3, 3.8]])
MASK = Tensor(normal(3, 4) > 0)
OFFSETS = 0.3 * np.tanh(normal(2, 18, 6, 5)) + 0.35


def attention(q, k, packed):
    sizes = {f"{name}proj_size": 6 for name in "qkvo"} | {f"{name}bias": True for name in "qkvo"}
    return F.nn.multi_head_attention(q, k, k, 6, 2, 0.0, 0.0, packed, **sizes)[0]


# name: (function, inputs); the gradient of every input is checked
CASES = {
    "conv2d": (
        lambda x, w, b: F.conv2d(x, w, b, 2, 1),
        (IMAGE, normal(3, 4, 3, 3), normal(1, 3, 1, 1)),
    ),
    "conv2d groups": (lambda x, w: F.conv2d(x, w, groups=2), (IMAGE, normal(2, 3, 2, 3, 3))),
    "conv_transpose2d": (
        lambda x, w: F.conv_transpose2d(x, w, stride=2),
        (IMAGE, normal(4, 2, 3, 3)),
    ),
    "local_conv2d": (F.local_conv2d, (IMAGE, normal(1, 4, 3, 4, 3, 3, 2))),
    "deformable_conv2d": (
        lambda x, w, o, m: F.deformable_conv2d(x, w, o, m, padding=1),
        (IMAGE, normal(3, 4, 3, 3), OFFSETS, normal(2, 9, 6, 5)),
    ),
    "region_restricted_conv": (
        lambda x, w: F.region_restricted_conv(
            x, w, F.ones((2, 6, 5), dtype="int32"), F.ones((2, 4, 3), dtype="int32")
        ),
        (IMAGE, normal(1, 3, 4, 3, 3)),
    ),
    "avg_pool2d": (lambda x: F.avg_pool2d(x, 3, 2, 1), (IMAGE,)),
    "adaptive_avg_pool2d": (lambda x: F.adaptive_avg_pool2d(x, (3, 2)), (IMAGE,)),
    "sliding_window": (lambda x: F.sliding_window(x, 3, 1, 2), (IMAGE,)),
    "batch_norm": (
        lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True),
        (normal(4, 3, 2, 2), normal(3), normal(3)),
    ),
    "batch_norm inference": (
        lambda x, w, b: F.batch_norm(x, F.zeros(4), F.ones(4), w, b),
        (IMAGE, normal(4), normal(4)),
    ),
    "layer_norm": (
        lambda x, w, b: F.layer_norm(x, 5, True, w, b),
        (normal(2, 3, 5), normal(5), normal(5)),
    ),
    "group_norm": (
        lambda x, w, b: F.group_norm(x, 2, True, w, b),
        (normal(2, 4, 3, 3), normal(4), normal(4)),
    ),
    "general_norm": (lambda x: F.general_norm(x, (0, 2), False), (normal(2, 3, 4),)),
    "local_response_norm": (lambda x: F.local_response_norm(x, alpha=0.1), (IMAGE,)),
    "pixel_shuffle": (lambda x: F.pixel_shuffle(x, 2), (IMAGE,)),
    "attention": (attention, (normal(2, 3, 6), normal(2, 4, 6), normal(4 * 36 + 24))),
    "ctc_loss": (
        lambda p: F.loss.ctc_loss(F.softmax(p, axis=2), [4, 3], [1, 1, 2], [2, 1]),
        (normal(4, 2, 3),),
    ),
    "remap": (lambda x, p: V.remap(x, p), (IMAGE, PLACES)),
    "remap cubic": (lambda x: V.remap(x, Tensor(PLACES), interp_mode="cubic"), (IMAGE,)),
    "remap constant": (lambda x: V.remap(x, Tensor(PLACES - 2), "constant", 1.5), (IMAGE,)),
    "warp_perspective": (lambda x: V.warp_perspective(x, Tensor(MATRICES), (4, 4)), (IMAGE,)),
    "interpolate": (lambda x: V.interpolate(x, size=(9, 4)), (IMAGE,)),
    "interpolate cubic": (lambda x: V.interpolate(x, scale_factor=1.7, mode="bicubic"), (IMAGE,)),
    "interpolate nearest": (lambda x: V.interpolate(x, scale_factor=2, mode="nearest"), (IMAGE,)),
    "roi_align": (lambda x: V.roi_align(x, ROIS, (2, 3)), (IMAGE,)),
    "roi_pooling average": (lambda x: V.roi_pooling(x, ROIS, 2, mode="average"), (IMAGE,)),
    "deformable_psroi_pooling": (
        lambda x: F.deformable_psroi_pooling(
            x, ROIS, F.zeros((2, 2, 2, 2)), False, 2, 2, 2, 2, 1.0
        ),
        (IMAGE,),
    ),
    "correlation": (
        lambda a, b: V.correlation(a, b, 3, max_displacement=1, pad_size=2),
        (IMAGE, normal(2, 4, 6, 5)),
    ),
    "cvt_color": (lambda x: V.cvt_color(x, "RGB2YUV"), (normal(1, 2, 2, 3),)),
    "scatter": (
        lambda x, s: F.scatter(x, 1, Tensor([[1, 0], [3, 2]]), s),
        (normal(2, 4), normal(2, 2)),
    ),
    "setitem by index": (lambda x, v: written(x, [2, 0], v), (normal(3, 4), normal(2, 4))),
    "mask": (lambda x: x[MASK] ** 2, (normal(3, 4),)),
    "einsum": (
        lambda a, b, c: F.einsum("ij,jk,k->i", a, b, c),
        (normal(2, 3), normal(3, 4), normal(4)),
    ),
    "svd": (lambda x: F.svd(x)[1], (normal(4, 3),)),
    "svd's factors": (lambda x: recombined(*F.svd(x)), (normal(4, 3),)),
    "svd's factors of a wide matrix": (lambda x: recombined(*F.svd(x)), (normal(2, 5),)),
    "svd's factors of a square matrix": (lambda x: recombined(*F.svd(x)), (normal(4, 4),)),
    "cond_take": (lambda x: F.cond_take(MASK, x)[0] * 3, (normal(3, 4),)),
}


def recombined(u, s, vh):
    """Functions of the three factors that do not depend on the signs of the vectors: of all, of U, and of Vh."""
    weights = Tensor(np.arange(1, s.shape[0] + 1, dtype=np.float32))
    parts = [(u * F.exp(0.5 * s)) @ vh, (u * weights) @ u.T, (vh.T * weights) @ vh]
    return F.concat([part.flatten() for part in parts])


def written(x, index, value):
    x = x * 1
    x[index] = value
    return x


@pytest.mark.parametrize("name", CASES)
def test_the_gradient_is_that_of_differences(name):
    function, arrays = CASES[name]
    inputs = [Tensor(a) for a in arrays]
    rng = np.random.default_rng(1)
    weights = rng.normal(size=function(*inputs)._tuple_shape)
    gm = autodiff.GradManager().attach(inputs)
    with gm:
        gm.backward(function(*inputs), Tensor(weights.astype(np.float32)))
    for i, x in enumerate(inputs):
        direction = rng.normal(size=arrays[i].shape)
        direction /= np.linalg.norm(direction)

        def value(by, i=i, direction=direction):
            moved = [Tensor(a) for a in arrays]
            moved[i] = Tensor((arrays[i] + by * direction).astype(np.float32))
            return (function(*moved).numpy().astype(np.float64) * weights).sum()

        near, far = ((value(step) - value(-step)) / (2 * step) for step in (4e-2, 8e-2))
        slope = (4 * near - far) / 3  # without the term of the step squared
        got = (x.grad.numpy().astype(np.float64) * direction).sum()
        assert abs(got - slope) < 3e-4 * (1 + abs(slope)), f"input {i}: {got} but {slope}"


@pytest.mark.parametrize("name", CASES)
def test_traced_is_eager(name):
    function, arrays = CASES[name]
    inputs = [Tensor(a) for a in arrays]
    want = function(*inputs).numpy()
    traced = jit.trace(function)
    for _ in range(3):
        np.testing.assert_allclose(traced(*inputs).numpy(), want, rtol=1e-4, atol=1e-5)


# -- where a norm is 0 -------------------------------------------------------------------------------


def rows(x):
    return F.reshape(x, (1, -1))


# name: (function, inputs, gradients). Where the original has NaN there is 0, as in torch; where it has a number that stays.
AT_ZERO = {
    "norm": (F.norm, [[0, 0, 0]], [[0, 0, 0]]),
    "norm along an axis": (lambda x: F.norm(rows(x), axis=1), [[0, 0, 0]], [[0, 0, 0]]),
    "squared norm": (lambda x: F.norm(x) ** 2, [[0, 0, 0]], [[0, 0, 0]]),
    "norm of 3": (lambda x: F.norm(x, 3), [[0, 0, 0]], [[0, 0, 0]]),
    "norm of 1.5": (lambda x: F.norm(x, 1.5), [[0, 0, 0]], [[0, 0, 0]]),
    "norm of 1/2": (lambda x: F.norm(x, 0.5), [[0, 0, 0]], [[0, 0, 0]]),
    "norm of 1/2 beside 0": (lambda x: F.norm(x, 0.5), [[0, 1]], [[0, 1]]),
    "norm of -1": (lambda x: F.norm(x, -1), [[0, 1]], [[0, 0]]),
    "norm of 1": (lambda x: F.norm(x, 1), [[0, 2]], [[-1, 1]]),
    "norm of infinity": (lambda x: F.norm(x, np.inf), [[0, 0]], [[-1, -1]]),
    "norm elsewhere": (F.norm, [[3, 4]], [[0.6, 0.8]]),
    "normalize": (lambda x: F.normalize(x, axis=0, eps=0.5), [[0, 0]], [[2, 2]]),
    "std": (F.std, [[2, 2, 2]], [[0, 0, 0]]),
    "std along an axis": (lambda x: F.std(rows(x), axis=1), [[2, 2]], [[0, 0]]),
    "var": (F.var, [[2, 2]], [[0, 0]]),
    "atan2": (F.atan2, [[0, 1], [0, 0]], [[0, 0], [0, -1]]),
    "abs": (F.abs, [[0]], [[-1]]),
}
WAYS = {
    "eager": None, "by value": {"symbolic": False}, "level 0": {"symbolic": True, "opt_level": 0}, "level 2": {"symbolic": True},
    "level 3": {"symbolic": True, "opt_level": 3}, "exact": {"symbolic": True, "opt_level": 3, "numerics": "exact"},
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:backward. y depends on none")  # where the first gradient is constant
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", AT_ZERO)
def test_gradients_at_zero(name, way):
    function, points, want = AT_ZERO[name]

    def both(*xs):
        """Gradients of the first order, and of their sum of squares."""
        with autodiff.GradManager().attach(xs) as outer:
            with autodiff.GradManager().attach(xs) as inner:
                inner.backward(function(*xs).sum())
            grads = [x.grad for x in xs]
            for x in xs:
                x.grad = None
            outer.backward(sum((grad * grad).sum() for grad in grads))
        second = [F.zeros_like(x) if x.grad is None else x.grad for x in xs]
        for x in xs:
            x.grad = None
        return [*grads, *second]

    xs = [Tensor(np.float32(each)) for each in points]
    fn = both if WAYS[way] is None else jit.trace(**WAYS[way])(both)
    for _ in range(3):
        found = [each.numpy() for each in fn(*xs)]
    for got, wanted in zip(found, want, strict=False):
        np.testing.assert_allclose(got, wanted, rtol=1e-6, atol=1e-7)
    assert all(np.isfinite(each).all() for each in found)


def test_what_was_zero_once_does_not_spoil_the_parameters():
    w = Tensor(np.float32([0, 0, 0]))
    gm = autodiff.GradManager().attach([w])
    for _ in range(3):
        w.grad = None
        with gm:
            gm.backward(F.norm(w) + ((w - 1) ** 2).sum())
        w[...] = w - 0.1 * w.grad
    assert np.isfinite(w.numpy()).all() and (w.numpy() > 0.1).all()


# shape of x, window, step, padding: some taps of the window lie in the padding at every place
IDLE_TAPS = {
    "1-d": ((2,), (3,), 3, 2),
    "2-d": ((2, 3), (3, 3), (3, 1), (2, 1)),
    "3-d": ((3, 3, 1), (3, 3, 5), (1, 1, 2), (1, 1, 2)),
}


# In bfloat16 oneDNN gave what was in memory as their gradients, NaN for one.
@pytest.mark.parametrize("level", [None, 3])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("name", IDLE_TAPS)
def test_a_tap_that_meets_padding_alone_has_no_gradient(name, dtype, level):
    space, window, stride, padding = IDLE_TAPS[name]
    conv = [F.conv1d, F.conv2d, F.conv3d][len(space) - 1]
    rng = np.random.RandomState(0)
    x = Tensor(rng.randn(2, 16, *space).astype("float32")).astype(dtype)

    def gradient(w):
        with autodiff.GradManager().attach([w]) as gm:
            y = conv(x, w, stride=stride, padding=padding)
            gm.backward((y * y).sum())
        grad, w.grad = w.grad, None
        return grad

    found = gradient if level is None else jit.trace(gradient, symbolic=True, opt_level=level)
    for _ in range(3):
        w = Tensor(rng.randn(16, 16, *window).astype("float32"))
        Tensor(np.full(1 << 14, np.nan, "float32"))  # what may be in memory afterwards
        got = found(w.astype(dtype)).numpy().astype("float32")
        assert np.isfinite(got).all()
        assert (np.abs(got).max(axis=(0, 1)) == 0).any()


def gradient_of_weights(x, dy, window, stride, padding):
    """The sums of products, tap by tap."""
    padded = np.pad(x, [(0, 0), (0, 0), *((each, each) for each in padding)])
    grad = np.zeros((dy.shape[1], x.shape[1], *window))
    for tap in np.ndindex(*window):
        places = [slice(t, t + s * (n - 1) + 1, s) for t, s, n in zip(tap, stride, dy.shape[2:], strict=True)]
        grad[(..., *tap)] = np.einsum("ncdhw,nodhw->oc", padded[(..., *places)], dy)
    return grad


# oneDNN's loops over channels-last images gave other gradients where the window reaches over the first axis.
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("channels", [3, 16])
@pytest.mark.parametrize(("extent", "window", "stride", "padding"), [(2, 3, 1, 1), (2, 5, 2, 4), (3, 5, 2, 3), (4, 5, 3, 4), (4, 3, 1, 1)])
def test_weights_of_three_axes_have_the_gradients_of_their_taps(extent, window, stride, padding, channels, dtype):
    rng = np.random.RandomState(0)
    geometry = {"stride": (stride, 1, 1), "padding": (padding, 1, 1)}
    x = Tensor(rng.randn(2, channels, extent, 4, 4).astype("float32")).astype(dtype)
    w = Tensor(rng.randn(channels, channels, window, 3, 3).astype("float32")).astype(dtype)
    dy = Tensor(rng.randn(*F.conv3d(x, w, **geometry).shape).astype("float32")).astype(dtype)

    def gradient(x, w, dy):
        with autodiff.GradManager().attach([w]) as gm:
            gm.backward(F.conv3d(x, w, **geometry), dy)
        return w.grad

    want = gradient_of_weights(*(each.numpy().astype("float64") for each in (x, dy)), (window, 3, 3), (stride, 1, 1), (padding, 1, 1))
    for laid in (lambda each: each, lambda each: each.to_mkldnn()):
        got = gradient(laid(x), w, laid(dy)).numpy().astype("float64")
        w.grad = None
        np.testing.assert_allclose(got, want, atol=0.02 * np.abs(want).max())
