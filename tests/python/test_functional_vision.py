"""Vision functions: against plain loops, or against cases whose answer is known."""

import numpy as np
import pytest

import megengine.functional as F
from megengine import Tensor

V = F.vision
RNG = np.random.default_rng(1)
IMAGE = RNG.normal(size=(1, 2, 5, 6)).astype(np.float32)


def close(got, want, tolerance=1e-4):
    assert got.shape == np.shape(want)
    np.testing.assert_allclose(got.numpy(), want, rtol=tolerance, atol=tolerance)


def grid_of(h, w):
    rows, cols = np.mgrid[0:h, 0:w].astype(np.float32)
    return np.stack([cols, rows], -1)[None]


@pytest.mark.parametrize("interp", ["nearest", "linear", "cubic", "lanczos4"])
def test_the_identity_map_gives_the_image(interp):
    close(V.remap(Tensor(IMAGE), Tensor(grid_of(5, 6)), interp_mode=interp), IMAGE)


def test_remap_interpolates_linearly():
    y = V.remap(Tensor(IMAGE), Tensor([[[[1.5, 2.25]]]]))
    a, b = IMAGE[0, :, 2, 1:3].mean(-1), IMAGE[0, :, 3, 1:3].mean(-1)
    close(y, (0.75 * a + 0.25 * b).reshape(1, 2, 1, 1))


BORDERS = {
    "replicate": [0, 0, 0, 1, 2, 3, 3, 3],
    "reflect": [1, 0, 0, 1, 2, 3, 3, 2],
    "reflect_101": [2, 1, 0, 1, 2, 3, 2, 1],
    "wrap": [2, 3, 0, 1, 2, 3, 0, 1],
    "constant": [9, 9, 0, 1, 2, 3, 9, 9],
}


@pytest.mark.parametrize("mode", BORDERS)
def test_borders(mode):
    line = Tensor(np.arange(4, dtype=np.float32).reshape(1, 1, 1, 4))
    places = np.zeros((1, 1, 8, 2), np.float32)
    places[..., 0] = np.arange(-2, 6)
    y = V.remap(line, Tensor(places), border_mode=mode.upper(), scalar=9.0)
    assert y.numpy().reshape(-1).tolist() == BORDERS[mode]


def test_unknown_modes_are_value_errors():
    with pytest.raises(ValueError, match="reflect_101"):
        V.remap(Tensor(IMAGE), Tensor(grid_of(5, 6)), border_mode="mirror")
    with pytest.raises(ValueError, match="lanczos4"):
        V.remap(Tensor(IMAGE), Tensor(grid_of(5, 6)), interp_mode="spline")


def test_a_matrix_maps_output_to_input_places():
    shift = np.array([[[1, 0, 2], [0, 1, 1], [0, 0, 1]]], np.float32)
    close(V.warp_perspective(Tensor(IMAGE), Tensor(shift), (4, 4)), IMAGE[:, :, 1:5, 2:6])
    nhwc = Tensor(IMAGE.transpose(0, 2, 3, 1))
    y = V.warp_perspective(nhwc, Tensor(shift), (4, 4), format="NHWC")
    close(y, IMAGE[:, :, 1:5, 2:6].transpose(0, 2, 3, 1))
    y = V.warp_affine(nhwc, Tensor(shift[:, :2]), (4, 4))
    close(y, IMAGE[:, :, 1:5, 2:6].transpose(0, 2, 3, 1))


def test_mat_idx_chooses_images():
    images = Tensor(RNG.normal(size=(3, 1, 2, 2)).astype(np.float32))
    eyes = Tensor(np.tile(np.eye(3, dtype=np.float32), (2, 1, 1)))
    close(V.warp_perspective(images, eyes, (2, 2), mat_idx=[2, 0]), images.numpy()[[2, 0]])


def test_integer_images_are_rounded():
    image = np.array([[[[0, 255]]]], np.uint8)
    y = V.remap(Tensor(image), Tensor([[[[0.5, 0.0]]]]))
    assert y.dtype == np.uint8 and y.item() == 128


def test_flip_and_rot90_and_rotate():
    image = np.arange(12, dtype=np.float32).reshape(1, 3, 4, 1)
    close(V.flip(Tensor(image)), image[:, ::-1, ::-1])
    close(V.flip(Tensor(image), vertical=False), image[:, :, ::-1])
    close(V.rot90(Tensor(image)), np.rot90(image, -1, (1, 2)))
    close(V.rot90(Tensor(image), clockwise=False), np.rot90(image, 1, (1, 2)))
    square = np.arange(9, dtype=np.float32).reshape(1, 1, 3, 3)
    close(V.rotate(Tensor(square), 90.0), np.rot90(square, 1, (2, 3)), 1e-3)


def bilinear(x, size, align_corners):
    """Separable linear interpolation in float64."""
    for axis, n in zip((2, 3), size, strict=True):
        extent = x.shape[axis]
        if align_corners:
            place = np.arange(n) * ((extent - 1) / max(n - 1, 1))
        else:
            place = np.clip((np.arange(n) + 0.5) * extent / n - 0.5, 0, extent - 1)
        low = np.floor(place).astype(int)
        high = np.minimum(low + 1, extent - 1)
        shape = [-1 if a == axis else 1 for a in range(4)]
        t = (place - low).reshape(shape)
        x = np.take(x, low, axis) * (1 - t) + np.take(x, high, axis) * t
    return x


@pytest.mark.parametrize("align_corners", [None, False, True])
@pytest.mark.parametrize("size", [(8, 9), (3, 4), (5, 6)])
def test_bilinear_interpolation(size, align_corners):
    y = V.interpolate(Tensor(IMAGE), size=size, mode="BILINEAR", align_corners=align_corners)
    close(y, bilinear(IMAGE.astype(np.float64), size, align_corners))


def test_interpolation_by_a_factor_and_nearest():
    y = F.nn.interpolate(Tensor(IMAGE), scale_factor=2, mode="nearest")
    close(y, IMAGE.repeat(2, 2).repeat(2, 3))
    assert V.interpolate(Tensor(IMAGE), scale_factor=(0.5, 2.0)).shape == (1, 2, 2, 12)
    line = Tensor(np.array([[[0.0, 1.0, 2.0]]], np.float32))
    close(V.interpolate(line, size=5, mode="linear", align_corners=True), [[[0, 0.5, 1, 1.5, 2]]])


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"size": 3, "scale_factor": 2},
        {"size": 3, "mode": "area"},
        {"size": 3, "mode": "nearest", "align_corners": True},
        {"size": 3, "mode": "trilinear"},
    ],
    ids=repr,
)
def test_interpolation_that_cannot_be_is_a_value_error(options):
    with pytest.raises(ValueError, match="^interpolate: |^scale_factor must |^unsupported interpolate mode: area|^align_corners option can only be set"):
        V.interpolate(Tensor(IMAGE), **options)


def test_resize_keeps_the_ratio_for_one_number():
    assert V.resize(Tensor(IMAGE), 10).shape == (1, 2, 10, 12)
    assert V.resize(Tensor(IMAGE), 10, max_size=6).shape == (1, 2, 5, 6)
    assert V.resize(Tensor(IMAGE.transpose(0, 2, 3, 1)), (3, 4), format="NHWC").shape == (
        1,
        3,
        4,
        2,
    )


def test_nms_keeps_the_best_of_overlapping_boxes():
    boxes = Tensor([[0, 0, 10, 10], [1, 1, 10, 10], [20, 20, 30, 30], [0, 0, 9, 10.0]])
    scores = Tensor([0.5, 0.9, 0.1, 0.8])
    assert V.nms(boxes, scores, 0.5).tolist() == [1, 2]
    assert V.nms(boxes, scores, 0.5, max_output=1).tolist() == [1]
    with pytest.raises(AssertionError, match="3 scores"):
        V.nms(boxes, scores[:3], 0.5)


def test_roi_align_of_a_whole_pixel_grid_averages_it():
    image = np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4)
    rois = Tensor([[0, 0, 0, 4, 4.0]])
    y = V.roi_align(Tensor(image), rois, (2, 2), aligned=True, sample_points=2)
    close(y, image.reshape(1, 1, 2, 2, 2, 2).mean((3, 5)))
    y = V.roi_align(Tensor(image), rois, 2, mode="max", sample_points=2)
    close(y, image.reshape(1, 1, 2, 2, 2, 2).max((3, 5)))


def test_roi_align_chooses_the_image():
    images = np.stack([np.full((1, 3, 3), v, np.float32) for v in (1, 2)])
    rois = Tensor([[1, 0, 0, 2, 2], [0, 0, 0, 2, 2.0]])
    assert V.roi_align(Tensor(images), rois, 1).numpy().reshape(-1).tolist() == [2, 1]


def test_roi_pooling_takes_the_largest_of_each_bin():
    image = np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4)
    y = V.roi_pooling(Tensor(image), Tensor([[0, 0, 0, 3, 3], [0, 1, 1, 2, 2.0]]), (2, 2))
    close(y, np.array([[[[5, 7], [13, 15]]], [[[5, 6], [9, 10]]]], np.float32))
    y = V.roi_pooling(Tensor(image), Tensor([[0, 0, 0, 6, 6.0]]), (2, 2), mode="average", scale=0.5)
    close(y, image.reshape(1, 1, 2, 2, 2, 2).mean((3, 5)))


def test_deformable_psroi_pooling_of_a_constant_is_constant():
    image = F.full((1, 2, 8, 8), 3.0)
    rois, trans = Tensor([[0, 1, 1, 5, 5.0]]), F.zeros((1, 2, 2, 2))
    y = F.deformable_psroi_pooling(image, rois, trans, False, 2, 3, 3, 2, 1.0)
    close(y, np.full((1, 2, 3, 3), 3.0))


def test_correlation_with_itself_peaks_in_the_middle():
    y = V.correlation(Tensor(IMAGE), Tensor(IMAGE), max_displacement=1, pad_size=1).numpy()
    assert y.shape == (1, 9, 5, 6)
    np.testing.assert_allclose(y[:, 4], (IMAGE**2).mean(1), rtol=1e-5)
    y = V.correlation(
        Tensor(IMAGE), Tensor(IMAGE), max_displacement=1, pad_size=1, is_multiply=False
    )
    np.testing.assert_allclose(y.numpy()[:, 4], 0, atol=1e-6)


def test_the_published_example_of_cvt_color():
    x = Tensor(np.array([[[[-0.58675045, 1.7526233, 0.10702174]]]], np.float32))
    assert abs(V.cvt_color(x, mode="RGB2GRAY").item() - 0.86555195) < 1e-4


def test_colours_convert_there_and_back():
    rgb = RNG.integers(0, 255, (1, 4, 4, 3)).astype(np.uint8)
    np.testing.assert_array_equal(V.cvt_color(Tensor(rgb), "RGB2BGR").numpy(), rgb[..., ::-1])
    back = V.cvt_color(V.cvt_color(Tensor(rgb / 255.0), "RGB2YUV"), "YUV2RGB")
    np.testing.assert_allclose(back.numpy(), rgb / 255, atol=5e-3)
    gray = np.full((1, 6, 4, 1), 128, np.uint8)
    assert set(V.cvt_color(Tensor(gray), "YUV2RGB_NV12").numpy().reshape(-1)) == {130}
    with pytest.raises(ValueError, match="YUV2RGB"):
        V.cvt_color(Tensor(rgb), "RGB2CMYK")


def test_optical_flow_needs_its_engine():
    with pytest.raises(RuntimeError, match="correlation"):
        V.nvof(F.zeros((1, 2, 16, 16, 4), dtype="uint8"))
