"""Augmentation modules."""

import copy
import math
import pickle

import numpy as np
import pytest
from drawn import counts_follow, follows
from scipy import stats

import megengine.functional as F
import megengine.module as M
from megengine import Tensor
from megengine.module.vision import RandomHorizontalFlip, RandomVerticalFlip


def image(*shape, seed=0):
    return np.random.default_rng(seed).uniform(0, 1, shape).astype(np.float32)


def test_noise_follows_its_distribution_and_repeats_by_seed():
    x = Tensor(np.zeros((4, 3, 40, 40), np.float32))
    for make, distribution in (
        (M.AdditiveGaussianNoise, stats.norm(1, 2)),
        (M.AdditiveLaplaceNoise, stats.laplace(1, math.sqrt(2))),
    ):
        noise = make(1.0, 2.0, per_channel=True, seed=1)(x).numpy()
        assert follows(noise, distribution)
        np.testing.assert_array_equal(make(1.0, 2.0, per_channel=True, seed=1)(x).numpy(), noise)
    noise = M.AdditivePoissonNoise(4.0, per_channel=True, seed=1)(x).numpy()
    assert counts_follow(np.abs(noise), stats.poisson(4).pmf, range(40)), np.unique(noise)


def test_noise_is_shared_by_channels_unless_per_channel():
    layer = M.AdditiveGaussianNoise(seed=3)
    noise = layer(Tensor(np.zeros((2, 3, 4, 4), np.float32))).numpy()
    np.testing.assert_array_equal(noise[:, 0], noise[:, 2])
    layer.per_channel = True
    noise = layer(Tensor(np.zeros((2, 3, 4, 4), np.float32))).numpy()
    assert layer.per_channel and (noise[:, 0] != noise[:, 2]).any()


@pytest.mark.parametrize(
    "make",
    [
        lambda: M.AdditivePoissonNoise(seed=1),
        lambda: M.LinearContrast((0.5, 1.5), seed=2),
        lambda: M.Sharpen((0.1, 0.9), 1.0, seed=3),
    ],
)
def test_copies_and_pickles_start_from_the_seed(make):
    x = Tensor(image(2, 3, 4, 4))
    layer = make()
    first = layer(x).numpy()
    for twin in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        np.testing.assert_array_equal(twin(x).numpy(), first)
    assert copy.deepcopy(M.Mixup(1.0, seed=4)).beta == 1.0


def test_integer_images_are_clipped():
    x = Tensor(np.full((1, 1, 8, 8), 250, np.uint8))
    y = M.AdditiveGaussianNoise(100.0, 0.1)(x)
    assert y.dtype == np.uint8
    np.testing.assert_array_equal(y.numpy(), 255)


def test_linear_contrast():
    x = image(2, 3, 4, 4)
    np.testing.assert_allclose(M.LinearContrast(0.5)(Tensor(x)).numpy(), x * 0.5, rtol=1e-6)
    grey = Tensor(np.uint8([[[[27, 227]]]]))
    np.testing.assert_array_equal(M.LinearContrast(0.5)(grey).numpy().ravel(), [77, 177])
    y = M.LinearContrast((0.5, 2.0), per_channel=True, seed=1)(Tensor(x)).numpy() / x
    assert len(np.unique(y.round(3))) > 1 and y.min() >= 0.499 and y.max() <= 2.001


def correlate(x, kernel, mode):
    kh, kw = kernel.shape
    padded = np.pad(x, [(0, 0), (0, 0), (kh // 2, kh // 2), (kw // 2, kw // 2)], mode=mode)
    view = np.lib.stride_tricks.sliding_window_view(padded, (kh, kw), (2, 3))
    return np.einsum("nchwij,ij->nchw", view, kernel)


def test_sharpen_and_emboss_are_correlations():
    x = image(2, 3, 5, 6)
    keep = np.zeros((3, 3))
    keep[1, 1] = 1
    kernel = np.full((3, 3), -1.0)
    kernel[1, 1] = 8 + 1.5
    want = correlate(x, 0.75 * keep + 0.25 * kernel, "reflect")
    np.testing.assert_allclose(M.Sharpen(0.25, 1.5)(Tensor(x)).numpy(), want, rtol=1e-4, atol=1e-5)
    kernel = np.array([[-1.5, -0.5, 0], [-0.5, 1, 0.5], [0, 0.5, 1.5]])
    want = correlate(x, kernel, "reflect")
    np.testing.assert_allclose(M.Emboss(1.0, 0.5)(Tensor(x)).numpy(), want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("mode", "numpy_mode"),
    [("REPLICATE", "edge"), ("REFLECT", "symmetric"), ("REFLECT_101", "reflect"), ("WRAP", "wrap"), ("CONSTANT", "constant")],
)  # fmt: skip
def test_gaussian_blur(mode, numpy_mode):
    x = image(1, 2, 7, 6)
    g = [np.exp(-0.5 * ((np.arange(k) - k // 2) / s) ** 2) for k, s in ((5, 1.5), (3, 0.8))]
    kernel = np.outer(g[0] / g[0].sum(), g[1] / g[1].sum())
    layer = M.GaussianBlur((5, 3), sigma_x=0.8, sigma_y=1.5, border_mode=mode)
    got = layer(Tensor(x)).numpy()
    np.testing.assert_allclose(got, correlate(x, kernel, numpy_mode), rtol=1e-4, atol=1e-5)


def test_gaussian_blur_refuses_even_kernels_and_unknown_borders():
    with pytest.raises(ValueError, match="odd"):
        M.GaussianBlur(4)
    with pytest.raises(ValueError, match="mirror"):
        M.GaussianBlur(3, border_mode="mirror")


def test_dilation_takes_the_maximum_under_the_kernel():
    x = np.zeros((1, 1, 5, 5), np.float32)
    x[0, 0, 2, 2] = 1
    cross = np.uint8([[0, 1, 0], [1, 1, 1], [0, 1, 0]])
    got = M.Dilation()(Tensor(x), Tensor(cross)).numpy()[0, 0]
    want = np.zeros((5, 5))
    want[1:4, 2] = want[2, 1:4] = 1
    np.testing.assert_array_equal(got, want)
    twice = M.Dilation(iterations=2)(Tensor(x), Tensor(cross)).numpy()[0, 0]
    assert twice.sum() == 13


def test_flips_and_turns():
    x = image(2, 4, 5, 3)
    np.testing.assert_array_equal(M.Flip()(Tensor(x)).numpy(), x[:, ::-1, ::-1])
    np.testing.assert_array_equal(M.Flip(vertical=False)(Tensor(x)).numpy(), x[:, :, ::-1])
    np.testing.assert_array_equal(M.Rot90()(Tensor(x)).numpy(), np.rot90(x, -1, (1, 2)))
    np.testing.assert_array_equal(RandomHorizontalFlip(1.0)(Tensor(x)).numpy(), x[:, :, ::-1])
    np.testing.assert_array_equal(RandomVerticalFlip(1.0)(Tensor(x)).numpy(), x[:, ::-1])
    np.testing.assert_array_equal(RandomVerticalFlip(0.0)(Tensor(x)).numpy(), x)


def test_resize_and_rotate_and_remap():
    x = image(1, 2, 4, 4)
    y = M.Resize((8, 8))(Tensor(x))
    assert y.shape == (1, 2, 8, 8)
    np.testing.assert_allclose(M.Rotate(0.0)(Tensor(x)).numpy(), x, atol=1e-5)
    rows, cols = np.mgrid[0:4, 0:4].astype(np.float32)
    turned = M.Remap()(Tensor(x), Tensor(rows[None]), Tensor(cols[None])).numpy()
    np.testing.assert_allclose(turned, x.transpose(0, 1, 3, 2), atol=1e-6)


def test_crop_and_pad():
    x = image(2, 1, 8, 8)
    layer = M.CropAndPad()
    np.testing.assert_allclose(layer(Tensor(x), 0.0).numpy(), x, atol=1e-5)
    cropped = layer(Tensor(x), -0.25).numpy()
    want = F.vision.interpolate(Tensor(x[:, :, 2:6, 2:6]), size=(8, 8)).numpy()
    np.testing.assert_allclose(cropped[:, :, 1:-1, 1:-1], want[:, :, 1:-1, 1:-1], atol=1e-4)
    padded = layer(Tensor(x), (1.0, 0.0, 0.0, 0.0), pad_val=7.0).numpy()
    np.testing.assert_allclose(padded[:, :, :4], 7, atol=1e-5)
    assert padded[:, :, 4:].max() <= 1.001


def test_mixup_and_cutmix_weigh_labels_like_data():
    n = 6
    one, zero = np.ones((n, 3, 16, 16), np.float32), np.zeros((n, 3, 16, 16), np.float32)
    labels = np.ones((n, 2), np.float32), np.zeros((n, 2), np.float32)
    for make in (M.Mixup, M.Cutmix):
        data, label = make(1.0, seed=4)(*(Tensor(v) for v in (one, labels[0], zero, labels[1])))
        shares = data.numpy().mean((1, 2, 3))
        np.testing.assert_allclose(label.numpy()[:, 0], shares, atol=1e-5)
        assert len(np.unique(shares.round(4))) > 2 and 0 <= shares.min() <= shares.max() <= 1


def test_fill_poly_paints_the_inside_and_the_edge():
    img = Tensor(np.zeros((1, 3, 8, 8), np.float32))
    square = np.float32([[2, 2], [5, 2], [5, 5], [2, 5]])
    got = M.FillPoly()(img, Tensor(square), [1.0, 2.0, 3.0]).numpy()
    want = np.zeros((8, 8))
    want[2:6, 2:6] = 1
    for channel in range(3):
        np.testing.assert_array_equal(got[0, channel], want * (channel + 1))


def test_a_kernel_of_ones_own_filters_each_image():
    class Weighted(M.ActiveBlur):
        def get_kernel(self, inp, c):
            return Tensor(np.float32([[[0.25, 0.5, 0.25]], [[0, 0, 2]]]))  # one for each image

    x = Tensor(image(2, 3, 4, 5))
    padded = np.pad(x.numpy(), ((0, 0), (0, 0), (0, 0), (1, 1)), mode="reflect")
    want = np.stack([0.25 * padded[0, ..., :-2] + 0.5 * padded[0, ..., 1:-1] + 0.25 * padded[0, ..., 2:], 2 * padded[1, ..., 2:]])
    np.testing.assert_allclose(Weighted()(x).numpy(), want, rtol=1e-6)
    with pytest.raises(TypeError, match="ActiveBlur does not define get_kernel"):
        M.ActiveBlur()(x)


def test_noise_of_ones_own_is_added_and_stays_in_range():
    class Ramp(M.AdditiveElemwise):
        def sample(self, size):
            self.seen = size
            return F.arange(float(np.prod(size))).reshape(size)

    noise, x = Ramp(), Tensor(image(2, 3, 2, 2))
    np.testing.assert_allclose(noise(x).numpy(), x.numpy() + np.arange(8).reshape(2, 1, 2, 2), rtol=1e-6)
    noise.per_channel = True
    np.testing.assert_allclose(noise(x).numpy(), x.numpy() + np.arange(24).reshape(2, 3, 2, 2), rtol=1e-6)
    assert noise.seen == (2, 3, 2, 2)
    assert Ramp()(Tensor(np.uint8([[[[250, 254, 255]]]]))).tolist() == [[[[250, 255, 255]]]]
    with pytest.raises(TypeError, match="AdditiveElemwise does not define sample"):
        M.AdditiveElemwise()(x)
