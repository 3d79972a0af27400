"""Transforms that move pixels: resize, crop, flip, pad. Coordinates and masks move with the image."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from . import functional as F
from .vision_transform import VisionTransform


class Pad(VisionTransform):
    """Adds a border.

    Parameters
    ----------
    size : int or sequence of int
        Width in pixels: one number for all sides, (bottom, right) or (top, bottom, left, right).
    value : float or sequence of float
        Value of the image's border: one number, or one per channel.
    mask_value : float or sequence of float
        Value of the mask's border.
    order : sequence of str or None
        Names of the parts of a sample; see `VisionTransform`. None means ("image",).

    Examples
    --------
    >>> import numpy as np
    >>> Pad((1, 0, 1, 1), value=9).apply(np.zeros((1, 2), np.uint8)).tolist()
    [[9, 9, 9, 9], [9, 0, 0, 9]]
    """

    def __init__(
        self,
        size: int | Sequence[int] = 0,
        value: float | Sequence[float] = 0,
        mask_value: float | Sequence[float] = 0,
        *,
        order: Sequence[str] | None = None,
    ) -> None:
        super().__init__(order)
        self.size = F._pad_sides(size)
        self.value = value
        self.mask_value = mask_value

    def _apply_image(self, image: np.ndarray) -> np.ndarray:
        return F.pad(image, self.size, _value_for(image, self.value))

    def _apply_coords(self, coords: np.ndarray) -> np.ndarray:
        top, _, left, _ = self.size
        return _shifted(coords, left, top)

    def _apply_mask(self, mask: np.ndarray) -> np.ndarray:
        return F.pad(mask, self.size, self.mask_value)


class _Resizing(VisionTransform):
    """Base: ``_target`` says the new (height, width); the image and its coordinates follow."""

    interpolation: int
    _from = _to = (1, 1)

    def _target(self, height: int, width: int) -> tuple[int, int]:
        return height, width

    def _prepare(self, parts: Sequence[Any]) -> None:
        self._from = self._image_size(parts)
        self._to = self._target(*self._from)

    def _apply_image(self, image: np.ndarray) -> np.ndarray:
        return F.resize(image, self._to, self.interpolation)

    def _apply_coords(self, coords: np.ndarray) -> np.ndarray:
        (height, width), (new_height, new_width) = self._from, self._to
        return _as_float(coords) * np.array(
            [new_width / width, new_height / height], dtype=_as_float(coords).dtype
        )

    def _apply_mask(self, mask: np.ndarray) -> np.ndarray:
        return F.resize(mask, self._to, F.INTER_NEAREST)


class Resize(_Resizing):
    """Resizes images; coordinates and masks follow.

    Needs OpenCV.

    Parameters
    ----------
    output_size : int or sequence of int
        Extents (height, width); or one number, the length of the shorter edge. Then the aspect
        ratio is kept, and the longer edge is cut to whole pixels.
    interpolation : int
        An interpolation constant of OpenCV; masks take the nearest value.
    order : sequence of str or None
        Names of the parts of a sample; see `VisionTransform`. None means ("image",).

    Examples
    --------
    >>> import importlib.util, numpy as np
    >>> image, boxes = np.zeros((4, 6, 3), np.uint8), np.array([[0, 0, 3, 2]])
    >>> if importlib.util.find_spec("cv2"):
    ...     image, boxes = Resize(8, order=("image", "boxes")).apply((image, boxes))
    ...     assert image.shape == (8, 12, 3) and boxes.tolist() == [[0, 0, 6, 4]]
    """

    def __init__(
        self,
        output_size: int | Sequence[int],
        interpolation: int = F.INTER_LINEAR,
        *,
        order: Sequence[str] | None = None,
    ) -> None:
        super().__init__(order)
        self.output_size: Any = (  # a number, or (height, width)
            output_size if _is_int(output_size) else _pair("output_size", output_size)
        )
        self.interpolation = interpolation

    def _target(self, height: int, width: int) -> tuple[int, int]:
        if not _is_int(self.output_size):
            return self.output_size
        scale = self.output_size / min(height, width)
        return max(1, int(height * scale)), max(1, int(width * scale))


class ShortestEdgeResize(_Resizing):
    """Resizes the shorter edge to a random length and keeps the aspect ratio; the longer edge has
    at most ``max_size`` pixels.

    Parameters
    ----------
    min_size : int or sequence of int
        Length of the shorter edge in pixels: one number; (low, high), both included, with
        sample_style "range"; or the lengths to choose from with "choice".
    max_size : int
        Most pixels that the longer edge may have.
    sample_style : str
        How the length is chosen: "range" or "choice".
    interpolation : int
        An interpolation constant of OpenCV; masks take the nearest value.
    order : sequence of str or None
        Names of the parts of a sample; see `VisionTransform`. None means ("image",).

    Raises
    ------
    ValueError
        For another style, and for a range that is not two numbers.

    Notes
    -----
    Needs OpenCV.

    Examples
    --------
    >>> import importlib.util, numpy as np
    >>> image = np.zeros((4, 8, 3), np.uint8)
    >>> if importlib.util.find_spec("cv2"):
    ...     assert ShortestEdgeResize(8, max_size=12).apply(image).shape == (6, 12, 3)
    """

    def __init__(
        self,
        min_size: int | Sequence[int],
        max_size: int,
        sample_style: str = "range",
        interpolation: int = F.INTER_LINEAR,
        *,
        order: Sequence[str] | None = None,
    ) -> None:
        super().__init__(order)
        if sample_style not in ("range", "choice"):
            raise ValueError(f'sample_style must be "range" or "choice", got {sample_style!r}')
        self.sample_style = sample_style
        sizes: Any = min_size
        self.min_size: tuple[int, ...] = (sizes, sizes) if _is_int(sizes) else tuple(sizes)
        if sample_style == "range" and len(self.min_size) != 2:
            raise ValueError(f'sample_style "range" needs min_size=(low, high), got {min_size!r}')
        self.max_size = max_size
        self.interpolation = interpolation

    def _target(self, height: int, width: int) -> tuple[int, int]:
        if self.sample_style == "range":
            size = int(np.random.randint(self.min_size[0], self.min_size[1] + 1))
        else:
            size = int(np.random.choice(self.min_size))
        short, long = min(height, width), max(height, width)
        return _scaled(height, width, min(size / short, self.max_size / long))


class RandomResize(_Resizing):
    """Scales both edges by one random factor.

    Needs OpenCV.

    Parameters
    ----------
    scale_range : sequence of float
        (low, high), between which the factor is drawn.
    interpolation : int
        An interpolation constant of OpenCV; masks take the nearest value.
    order : sequence of str or None
        Names of the parts of a sample; see `VisionTransform`. None means ("image",).

    Examples
    --------
    >>> import importlib.util, numpy as np
    >>> image = np.zeros((4, 8, 3), np.uint8)
    >>> if importlib.util.find_spec("cv2"):
    ...     assert RandomResize((2.0, 2.0)).apply(image).shape == (8, 16, 3)
    """

    def __init__(
        self,
        scale_range: Sequence[float],
        interpolation: int = F.INTER_LINEAR,
        *,
        order: Sequence[str] | None = None,
    ) -> None:
        super().__init__(order)
        self.scale_range = _range("scale_range", scale_range)
        self.interpolation = interpolation

    def _target(self, height: int, width: int) -> tuple[int, int]:
        return _scaled(height, width, np.random.uniform(*self.scale_range))


class _Crop(VisionTransform):
    """Base: cuts out ``output_size`` (height, width) at ``_corner`` (y, x)."""

    output_size: tuple[int, int]
    _corner = (0, 0)

    def _apply_image(self, image: np.ndarray) -> np.ndarray:
        return _cropped(image, self._corner, self.output_size)

    def _apply_mask(self, mask: np.ndarray) -> np.ndarray:
        return _cropped(mask, self._corner, self.output_size)

    def _apply_coords(self, coords: np.ndarray) -> np.ndarray:
        return _shifted(coords, -self._corner[1], -self._corner[0])


class RandomCrop(_Crop):
    """Adds a border, then crops at a random position; an image that is smaller than the crop is
    padded first.

    Parameters
    ----------
    output_size : int or sequence of int
        Extents (height, width) of the crop, or one number for a square.
    padding_size : int or sequence of int
        Width of the border in pixels, as ``size`` of `Pad`.
    padding_value : float or sequence of float
        Value of the image's border: one number, or one per channel.
    padding_maskvalue : float or sequence of float
        Value of the mask's border.
    order : sequence of str or None
        Names of the parts of a sample; see `VisionTransform`. None means ("image",).

    Examples
    --------
    >>> import numpy as np
    >>> RandomCrop(32, padding_size=4).apply(np.zeros((32, 32, 3), np.uint8)).shape
    (32, 32, 3)
    """

    def __init__(
        self,
        output_size: int | Sequence[int],
        padding_size: int | Sequence[int] = 0,
        padding_value: float | Sequence[float] = [0, 0, 0],  # noqa: B006  -- documented default, never changed
        padding_maskvalue: float | Sequence[float] = 0,
        *,
        order: Sequence[str] | None = None,
    ) -> None:
        super().__init__(order)
        self.output_size = _pair("output_size", output_size)
        self.pad = Pad(padding_size, padding_value, padding_maskvalue, order=self.order)
        self.padding_value = padding_value
        self.padding_maskvalue = padding_maskvalue
        self._fill = (0, 0)  # rows below and columns to the right that are missing

    def apply(self, input: object) -> Any:
        """Crops a sample.

        Parameters
        ----------
        input : object
            The sample that is transformed.

        Returns
        -------
        object
            The cropped sample.
        """
        self.pad.order = self.order
        return super().apply(self.pad.apply(input))

    def _prepare(self, parts: Sequence[Any]) -> None:
        height, width = self._image_size(parts)
        rows, columns = self.output_size
        self._fill = (max(rows - height, 0), max(columns - width, 0))
        left = _random_start(width, columns)
        self._corner = (_random_start(height, rows), left)

    def _apply_image(self, image: np.ndarray) -> np.ndarray:
        return super()._apply_image(self._filled(image, _value_for(image, self.padding_value)))

    def _apply_mask(self, mask: np.ndarray) -> np.ndarray:
        return super()._apply_mask(self._filled(mask, self.padding_maskvalue))

    def _filled(self, image: np.ndarray, value: Any) -> np.ndarray:
        return F.pad(image, self._fill, value) if any(self._fill) else image


class RandomResizedCrop(VisionTransform):
    """Crops a random part of random area and aspect ratio, and resizes it.

    Needs OpenCV.

    Parameters
    ----------
    output_size : int or sequence of int
        Extents (height, width) of the result, or one number for a square.
    scale_range : sequence of float
        Smallest and largest share of the image's area.
    ratio_range : sequence of float
        Smallest and largest width / height of the part.
    interpolation : int
        An interpolation constant of OpenCV; masks take the nearest value.
    order : sequence of str or None
        Names of the parts of a sample; see `VisionTransform`. None means ("image",).

    Notes
    -----
    If ten draws do not fit into the image, the part is taken from its centre.

    References
    ----------
    Szegedy et al., 2015, "Going Deeper with Convolutions", section 6.

    Examples
    --------
    >>> import importlib.util, numpy as np
    >>> image = np.zeros((375, 500, 3), np.uint8)
    >>> if importlib.util.find_spec("cv2"):
    ...     assert RandomResizedCrop(224).apply(image).shape == (224, 224, 3)
    """

    def __init__(
        self,
        output_size: int | Sequence[int],
        scale_range: Sequence[float] = (0.08, 1.0),
        ratio_range: Sequence[float] = (3.0 / 4, 4.0 / 3),
        interpolation: int = F.INTER_LINEAR,
        *,
        order: Sequence[str] | None = None,
    ) -> None:
        super().__init__(order)
        self.output_size = _pair("output_size", output_size)
        self.scale_range = _range("scale_range", scale_range)
        self.ratio_range = _range("ratio_range", ratio_range)
        self.interpolation = interpolation
        self._part = (0, 0, 1, 1)  # y, x, height, width

    def _prepare(self, parts: Sequence[Any]) -> None:
        self._part = self._draw(*self._image_size(parts))

    def _draw(self, height: int, width: int) -> tuple[int, int, int, int]:
        low, high = (math.log(ratio) for ratio in self.ratio_range)
        for _ in range(10):
            area = height * width * np.random.uniform(*self.scale_range)
            ratio = math.exp(np.random.uniform(low, high))
            columns, rows = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
            if 0 < columns <= width and 0 < rows <= height:
                left = _random_start(width, columns)
                return _random_start(height, rows), left, rows, columns
        ratio = min(max(width / height, self.ratio_range[0]), self.ratio_range[1])
        columns, rows = min(width, round(height * ratio)), min(height, round(width / ratio))
        rows, columns = max(rows, 1), max(columns, 1)
        return (height - rows) // 2, (width - columns) // 2, rows, columns

    def _apply_image(self, image: np.ndarray) -> np.ndarray:
        return F.resize(
            _cropped(image, self._part[:2], self._part[2:]), self.output_size, self.interpolation
        )

    def _apply_mask(self, mask: np.ndarray) -> np.ndarray:
        return F.resize(
            _cropped(mask, self._part[:2], self._part[2:]), self.output_size, F.INTER_NEAREST
        )

    def _apply_coords(self, coords: np.ndarray) -> np.ndarray:
        y, x, rows, columns = self._part
        moved = _as_float(_shifted(coords, -x, -y))
        return moved * np.array(
            [self.output_size[1] / columns, self.output_size[0] / rows], dtype=moved.dtype
        )


class CenterCrop(_Crop):
    """Crops the centre of an image.

    Parameters
    ----------
    output_size : int or sequence of int
        Extents (height, width) of the crop, or one number for a square.
    order : sequence of str or None
        Names of the parts of a sample; see `VisionTransform`. None means ("image",).

    Raises
    ------
    ValueError
        When the image is smaller than the crop.

    Examples
    --------
    >>> import numpy as np
    >>> image = np.arange(16).reshape(4, 4)
    >>> CenterCrop(2).apply(image).tolist()
    [[5, 6], [9, 10]]
    """

    def __init__(
        self, output_size: int | Sequence[int], *, order: Sequence[str] | None = None
    ) -> None:
        super().__init__(order)
        self.output_size = _pair("output_size", output_size)

    def _prepare(self, parts: Sequence[Any]) -> None:
        height, width = self._image_size(parts)
        rows, columns = self.output_size
        if rows > height or columns > width:
            raise ValueError(
                f"cannot cut {rows}x{columns} out of an image of {height}x{width}; resize or pad it first"
            )
        self._corner = ((height - rows) // 2, (width - columns) // 2)


class _RandomFlip(VisionTransform):
    """Base: mirror with probability ``prob``. ``_axis`` 0 is up-down, 1 left-right."""

    _axis = 1

    def __init__(self, prob: float = 0.5, *, order: Sequence[str] | None = None) -> None:
        super().__init__(order)
        if not 0 <= prob <= 1:
            raise ValueError(f"prob must be from 0 to 1, got {prob!r}")
        self.prob = prob
        self._flipped = False
        self._edge = 0  # length of the axis that is mirrored

    def _prepare(self, parts: Sequence[Any]) -> None:
        self._flipped = np.random.random() < self.prob
        self._edge = self._image_size(parts)[self._axis]

    def _apply_image(self, image: np.ndarray) -> np.ndarray:
        return F.flip(image, flipCode=self._axis) if self._flipped else image

    def _apply_mask(self, mask: np.ndarray) -> np.ndarray:
        return self._apply_image(mask)

    def _apply_coords(self, coords: np.ndarray) -> np.ndarray:
        if not self._flipped:
            return coords
        coords = np.array(coords)
        column = 1 - self._axis  # x is mirrored left-right, y up-down
        coords[:, column] = self._edge - coords[:, column]
        return coords


class RandomHorizontalFlip(_RandomFlip):
    """Mirrors images left to right at random.

    Parameters
    ----------
    prob : float
        The probability, 0 to 1.
    order : sequence of str or None
        Names of the parts of a sample; see `VisionTransform`. None means ("image",).

    Raises
    ------
    ValueError
        For another prob.

    Examples
    --------
    >>> import numpy as np
    >>> flip = RandomHorizontalFlip(prob=1.0, order=("image", "boxes"))
    >>> [part.tolist() for part in flip.apply((np.array([[1, 2, 3]]), np.array([[0, 0, 1, 1]])))]
    [[[3, 2, 1]], [[2, 0, 3, 1]]]
    """

    _axis = 1


class RandomVerticalFlip(_RandomFlip):
    """Mirrors images upside down at random.

    Parameters
    ----------
    prob : float
        The probability, 0 to 1.
    order : sequence of str or None
        Names of the parts of a sample; see `VisionTransform`. None means ("image",).

    Raises
    ------
    ValueError
        For another prob.

    Examples
    --------
    >>> import numpy as np
    >>> RandomVerticalFlip(prob=1.0).apply(np.array([[1, 2], [3, 4]])).tolist()
    [[3, 4], [1, 2]]
    """

    _axis = 0


def _is_int(value: Any) -> bool:
    return isinstance(value, (int, np.integer))


def _pair(name: str, value: int | Sequence[int]) -> tuple[int, int]:
    given: Any = value
    pair: tuple[int, ...] = (given, given) if _is_int(given) else tuple(given)
    if len(pair) != 2 or any(edge < 1 for edge in pair):
        raise ValueError(f"{name} must be one positive number or (height, width), got {value!r}")
    return int(pair[0]), int(pair[1])


def _range(name: str, value: Sequence[float]) -> tuple[float, float]:
    if len(value) != 2 or not 0 < value[0] <= value[1]:
        raise ValueError(f"{name} must be (low, high) with 0 < low <= high, got {value!r}")
    return float(value[0]), float(value[1])


def _scaled(height: int, width: int, scale: float) -> tuple[int, int]:
    return max(1, round(height * scale)), max(1, round(width * scale))


def _random_start(length: int, part: int) -> int:
    return int(np.random.randint(0, length - part + 1)) if length > part else 0


def _cropped(image: np.ndarray, corner: Sequence[int], size: Sequence[int]) -> np.ndarray:
    return image[corner[0] : corner[0] + size[0], corner[1] : corner[1] + size[1]]


def _value_for(image: np.ndarray, value: Any) -> Any:
    """Returns the border value for an image: one of three channels also serves a gray image."""
    channels = image.shape[2] if image.ndim == 3 else 1
    flat = np.ravel(value)
    return value if flat.size in (1, channels) else flat[0]


def _as_float(coords: np.ndarray) -> np.ndarray:
    coords = np.asarray(coords)
    return coords if coords.dtype.kind == "f" else coords.astype(np.float32)


def _shifted(coords: np.ndarray, x: int, y: int) -> np.ndarray:
    coords = np.asarray(coords)
    return coords + np.array([x, y], dtype=coords.dtype if coords.dtype.kind in "if" else np.int64)
