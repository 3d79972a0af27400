"""Vision transforms: values, shapes, and annotations that move with the image."""

import numpy as np
import pytest

from megengine import Tensor
from megengine.data import transform as T
from megengine.data.transform.vision import functional as F

cv2 = pytest.importorskip("cv2")


@pytest.fixture(autouse=True)
def seed():
    import random

    np.random.seed(0)
    random.seed(0)


def image(height=8, width=12, channels=3):
    return np.random.randint(0, 256, (height, width, channels)).astype(np.uint8)


ALL = ("image", "coords", "boxes", "mask", "keypoints", "polygons", "boxes_category", "info")


def sample(height=8, width=12):
    picture = image(height, width)
    box = np.array([[1, 2, 5, 6]], np.float32)
    points = np.array([[1, 2], [5, 6]], np.float32)
    return (
        picture,
        points,
        box,
        picture[..., :1],
        np.array([[[1, 2, 1]]], np.float32),
        [points],
        np.array([3]),
        "info",
    )


def mark(height=20, width=30, y=6, x=9):
    """An image that is white in one pixel, and the point in the middle of that pixel."""
    picture = np.zeros((height, width, 1), np.uint8)
    picture[y, x] = 255
    return picture, np.array([[x + 0.5, y + 0.5]], np.float32)


@pytest.mark.parametrize(
    "make",
    [
        lambda: T.Pad((1, 2, 3, 4)),
        lambda: T.CenterCrop((16, 20)),
        lambda: T.RandomHorizontalFlip(1),
        lambda: T.RandomVerticalFlip(1),
        lambda: T.RandomCrop((18, 24), 2),
        lambda: T.RandomCrop((40, 50)),
    ],
)
def test_points_move_with_their_pixels(make):
    for _ in range(10):
        picture, points = mark()
        transform = make()
        transform.order = ("image", "coords", "mask")
        if isinstance(transform, T.RandomCrop):
            transform.pad.order = transform.order
        new, (point,), mask = transform.apply((picture, points, picture))
        found = np.argwhere(new[..., 0])
        np.testing.assert_array_equal(new, mask)
        inside = (0 <= point).all() and point[0] < new.shape[1] and point[1] < new.shape[0]
        assert len(found) == inside
        if inside:
            assert (point - 0.5).tolist() == found[0][::-1].tolist()


@pytest.mark.parametrize(
    "make, shape",
    [
        (lambda: T.Resize((16, 6)), (16, 6)),
        (lambda: T.Resize(16), (16, 24)),
        (lambda: T.RandomResize((2, 2)), (16, 24)),
        (lambda: T.ShortestEdgeResize(16, 100), (16, 24)),
        (lambda: T.ShortestEdgeResize(16, 18), (12, 18)),
        (lambda: T.ShortestEdgeResize((16, 16), 100, "range"), (16, 24)),
        (lambda: T.ShortestEdgeResize([4], 100, sample_style="choice"), (4, 6)),
        (lambda: T.RandomResizedCrop(5), (5, 5)),
        (lambda: T.RandomResizedCrop((5, 7)), (5, 7)),
        (lambda: T.RandomCrop(4), (4, 4)),
        (lambda: T.CenterCrop(4), (4, 4)),
        (lambda: T.Pad(1), (10, 14)),
        (lambda: T.Pad((1, 2)), (9, 14)),
    ],
)
def test_every_part_gets_the_new_size(make, shape):
    transform = make()
    transform.order = ALL
    new = transform.apply(sample())
    assert len(new) == len(ALL) and new[0].shape == (*shape, 3) and new[3].shape == (*shape, 1)
    assert new[2].shape == (1, 4) and new[4].shape == (1, 1, 3) and new[5][0].shape == (2, 2)
    assert new[6].tolist() == [3] and new[7] == "info" and new[0].dtype == np.uint8


def test_resizing_scales_coordinates():
    transform = T.Resize((16, 36), order=("image", "boxes"))
    assert transform.apply((image(), np.array([[1, 2, 3, 4]])))[1].tolist() == [[3, 4, 9, 8]]


def test_flipping_swaps_the_corners_of_boxes():
    transform = T.RandomHorizontalFlip(1, order=("image", "boxes"))
    picture = image(8, 10)
    new, boxes = transform.apply((picture, np.array([[1, 2, 4, 6]])))
    assert boxes.tolist() == [[6, 2, 9, 6]]
    np.testing.assert_array_equal(new, picture[:, ::-1])


def test_no_boxes_stay_no_boxes():
    transform = T.RandomHorizontalFlip(1, order=("image", "boxes"))
    assert transform.apply((image(), np.zeros((0, 4), np.float32)))[1].shape == (0, 4)


def test_normalize_works_per_channel_in_float32():
    new = T.Normalize([1, 2, 3], [2, 2, 4]).apply(np.full((1, 1, 3), 5, np.uint8))
    assert new.dtype == np.float32 and new.ravel().tolist() == [2, 1.5, 0.5]


def test_to_mode_moves_the_channels_of_image_and_mask():
    new, mask = T.ToMode("CHW", order=("image", "mask")).apply((image(), image(channels=1)))
    assert new.shape == (3, 8, 12) and mask.shape == (1, 8, 12) and new.flags.c_contiguous
    assert T.ToMode().apply(np.zeros((4, 5))).shape == (1, 4, 5)


def test_parts_beyond_order_stay():
    assert T.ToMode().apply((image(), 7))[1] == 7


@pytest.mark.parametrize(
    "make",
    [
        T.BrightnessTransform,
        T.ContrastTransform,
        T.SaturationTransform,
        T.HueTransform,
        lambda value: T.ColorJitter(value, value, value, value),
        T.Lighting,
        lambda value: T.GaussianNoise(0, 10 * value),
    ],
)
@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_colour_changes_keep_shape_and_dtype_and_do_nothing_at_strength_zero(make, dtype):
    picture = image().astype(dtype)
    new = make(0.4).apply(picture)
    assert new.shape == picture.shape and new.dtype == picture.dtype and (new != picture).any()
    np.testing.assert_array_equal(make(0).apply(picture), picture)


def test_colour_changes_leave_annotations():
    transform = T.ColorJitter(0.3, 0.3, 0.3, 0.3, order=("image", "coords", "mask"))
    coords, mask = np.zeros((1, 2)), np.zeros((8, 12, 1))
    assert transform.apply((image(), coords, mask))[1:] == (coords, mask)


def test_saturation_leaves_gray_gray():
    gray = np.repeat(image(channels=1), 3, axis=2)
    assert np.abs(T.SaturationTransform(0.9).apply(gray).astype(int) - gray).max() <= 1


def test_compose_hands_its_order_down():
    compose = T.Compose(
        [T.Compose([T.Resize(4)]), T.ToMode()], order=["image", "boxes", "boxes_category"]
    )
    new, boxes, category = compose.apply((image(8, 8), np.array([[2, 2, 4, 4]]), np.array([1])))
    assert new.shape == (3, 4, 4) and boxes.tolist() == [[1, 1, 2, 2]] and category.tolist() == [1]


def test_compose_shuffles_only_inside_of_groups():
    class Write(T.VisionTransform):
        def __init__(self, text):
            super().__init__()
            self.text = text

        def apply(self, input):
            return input + self.text

    compose = T.Compose([Write(c) for c in "abcd"], shuffle_indices=[(1, 3)])
    assert {compose.apply("") for _ in range(50)} == {"abcd", "cbad"}
    whole = T.Compose(
        [Write(c) for c in "abcd"], batch_compose=True, shuffle_indices=[(1, 2, 3, 4)]
    )
    assert all(len(set(whole.apply_batch([""] * 3))) == 1 for _ in range(20))


def test_pipelines_of_training_programs_run():
    train = T.Compose(
        [
            T.RandomResizedCrop(24),
            T.RandomHorizontalFlip(),
            T.ColorJitter(brightness=0.4, contrast=0.4, saturation=0.4),
            T.Lighting(0.1),
            T.Normalize(mean=128),
            T.ToMode("CHW"),
        ]
    )
    images = train.apply_batch([(image(40, 50), 3), (image(30, 30), 4)])
    assert [(part.shape, label) for part, label in images] == [((3, 24, 24), 3), ((3, 24, 24), 4)]
    test = T.Compose([T.Resize(28), T.CenterCrop(24), T.Normalize(mean=128), T.ToMode("CHW")])
    assert test.apply(image(40, 50)).shape == (3, 24, 24)


def test_gray_images_keep_their_channel_axis():
    picture = image(channels=1)
    for transform in (
        T.Resize(5),
        T.RandomCrop(6, 2),
        T.Pad(2, value=[1, 2, 3]),
        T.RandomResizedCrop(4),
        T.ColorJitter(1, 1, 1),
    ):
        assert transform.apply(picture).shape[2:] == (1,)


@pytest.mark.parametrize(
    "make",
    [
        lambda: T.VisionTransform("image"),
        lambda: T.VisionTransform([1]),
        lambda: T.ToMode("WHC"),
        lambda: T.Pad((1, 2, 3)),
        lambda: T.Pad(-1),
        lambda: T.CenterCrop(0),
        lambda: T.RandomHorizontalFlip(1.5),
        lambda: T.HueTransform(0.6),
        lambda: T.ShortestEdgeResize((1, 2, 3), 9),
        lambda: T.ShortestEdgeResize(1, 2, "some"),
        lambda: T.Normalize(0, [1, 0]),
        lambda: T.RandomResize((2, 1)),
        lambda: T.Compose([T.ToMode()], shuffle_indices=[(0,)]),
    ],
)
def test_senseless_options_are_refused(make):
    with pytest.raises(ValueError):
        make()


def test_cropping_more_than_there_is_is_refused():
    with pytest.raises(ValueError, match="20x20 out of an image of 8x12"):
        T.CenterCrop(20).apply(image())


def test_a_sample_shorter_than_order_is_refused():
    with pytest.raises(ValueError, match="1 parts but order names 2"):
        T.ToMode(order=("image", "mask")).apply(image())


def test_an_unknown_part_is_refused_unless_the_subclass_knows_it():
    class Depth(T.ToMode):
        def _apply_depth(self, depth):
            return -depth

    assert Depth(order=("image", "depth")).apply((image(), 4))[1] == -4
    with pytest.raises(NotImplementedError, match="_apply_depth"):
        T.ToMode(order=("image", "depth")).apply((image(), 4))


@pytest.mark.parametrize("dtype", ["uint8", "float32", "bool", "int32", "int64", "float16"])
@pytest.mark.parametrize("channels", [1, 3, 6])
def test_resize_takes_every_dtype(dtype, channels):
    ones = np.ones((4, 5, channels), dtype)
    new = F.resize(ones, (8, 3))
    assert new.dtype == dtype and new.shape == (8, 3, channels) and (new == 1).all()


def test_gray_and_back():
    picture = image()
    gray = F.to_gray(picture)
    assert gray.shape == (8, 12, 1) and F.to_bgr(gray).shape == (8, 12, 3)


@pytest.mark.parametrize("code", [0, 1, -1])
def test_flips_agree_with_opencv(code):
    picture = image()
    np.testing.assert_array_equal(F.flip(picture, flipCode=code), cv2.flip(picture, code))


def test_functions_of_torchvision_kind_see_rgb():
    pytest.importorskip("PIL")
    seen = []
    picture = image()
    new = T.TorchTransformCompose([lambda pil: seen.append(np.array(pil)) or pil]).apply(picture)
    np.testing.assert_array_equal(seen[0], picture[..., ::-1])
    np.testing.assert_array_equal(new, picture)


def test_a_transform_on_the_device_makes_tensors_of_arrays_in_any_structure():
    picture = image()
    found, (boxes, label) = T.CudaTransform().apply((picture, [np.float32([1, 2]), 7]))
    assert isinstance(found, Tensor) and found.numpy().tobytes() == picture.tobytes() and boxes.tolist() == [1, 2] and label == 7
