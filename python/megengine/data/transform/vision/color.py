"""Transforms that change colours: normalization, noise, jitter. Images are BGR with values from 0 to 255."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ....utils._opencv import opencv
from .vision_transform import ColorTransform, VisionTransform


class Normalize(ColorTransform):
    """Normalizes images: ``(image - mean) / std``, in float32, or in float64 for images of float64
    or of wide integers.

    Parameters
    ----------
    mean : float or sequence of float
        Mean in the units of the image: one number, or one per channel.
    std : float or sequence of float
        Standard deviation in the units of the image: one number, or one per channel, not 0.
    order : sequence of str or None
        Names of the parts of a sample; see `VisionTransform`. None means ("image",).

    Raises
    ------
    ValueError
        For a std of 0.

    Examples
    --------
    >>> import numpy as np
    >>> image = np.array([[[0, 100, 200]]], np.uint8)  # a pixel: blue, green, red
    >>> Normalize(mean=100.0, std=[50.0, 50.0, 100.0]).apply(image).tolist()
    [[[-2.0, 0.0, 1.0]]]
    """

    def __init__(
        self,
        mean: float | Sequence[float] = 0.0,
        std: float | Sequence[float] = 1.0,
        *,
        order: Sequence[str] | None = None,
    ) -> None:
        super().__init__(order)
        self.mean = np.array(mean, dtype=np.float32)
        self.std = np.array(std, dtype=np.float32)
        if (self.std == 0).any():
            raise ValueError(f"std must not be 0, got {std!r}")

    def _apply_image(self, image: np.ndarray) -> np.ndarray:
        for name, given in (("mean", self.mean), ("std", self.std)):
            if given.ndim == 1 and given.size not in (1, image.shape[-1]):
                raise ValueError(
                    f"Normalize: {name} has {given.size} values, and the image of a sample has shape {image.shape}\n"
                    "  fix: give one number, or one for each channel, which are the last axis: ToMode('CHW') comes behind Normalize"
                )
        return (image.astype(np.result_type(image.dtype, np.float32)) - self.mean) / self.std


class GaussianNoise(ColorTransform):
    """Adds Gaussian noise to every value; the dtype stays, and integer images are clipped to its
    range.

    Parameters
    ----------
    mean : float
        Mean of the noise, in the units of the image.
    std : float
        Standard deviation of the noise, in the units of the image.
    order : sequence of str or None
        Names of the parts of a sample; see `VisionTransform`. None means ("image",).

    Raises
    ------
    ValueError
        For a negative std.

    Examples
    --------
    >>> import numpy as np
    >>> GaussianNoise(mean=300.0, std=1.0).apply(np.zeros((1, 2, 1), np.uint8)).tolist()
    [[[255], [255]]]
    """

    def __init__(
        self, mean: float = 0.0, std: float = 1.0, *, order: Sequence[str] | None = None
    ) -> None:
        super().__init__(order)
        if std < 0:
            raise ValueError(f"std must not be negative, got {std!r}")
        self.mean = float(mean)
        self.std = float(std)

    def _apply_image(self, image: np.ndarray) -> np.ndarray:
        noise = np.random.normal(self.mean, self.std, image.shape).astype(np.float32)
        result = image.astype(np.float32) + noise
        if image.dtype.kind in "iu":
            limits = np.iinfo(image.dtype)
            result = np.clip(np.rint(result), limits.min, limits.max)
        return result.astype(image.dtype)


class _Jitter(ColorTransform):
    """Base of a random change of strength up to ``value``."""

    _most = float("inf")

    def __init__(self, value: float, *, order: Sequence[str] | None = None) -> None:
        super().__init__(order)
        if not 0 <= value <= self._most:
            raise ValueError(
                f"value of {type(self).__name__} must be from 0 to {self._most}, got {value!r}"
            )
        self.value = value

    def _factor(self) -> float:
        return np.random.uniform(max(0.0, 1 - self.value), 1 + self.value)


class BrightnessTransform(_Jitter):
    """Changes the brightness: multiplies images by a random factor.

    Results are clipped to 0..255; the dtype stays.

    Parameters
    ----------
    value : float
        The factor is drawn from [max(0, 1 - value), 1 + value].
    order : sequence of str or None
        Names of the parts of a sample; see `VisionTransform`. None means ("image",).

    Raises
    ------
    ValueError
        For a negative value.

    Examples
    --------
    >>> import numpy as np
    >>> image = BrightnessTransform(0.5).apply(np.full((4, 4, 3), 100, np.uint8))
    >>> image.dtype, 50 <= int(image.min()) == int(image.max()) <= 150
    (dtype('uint8'), True)
    """

    def _apply_image(self, image: np.ndarray) -> np.ndarray:
        return image if self.value == 0 else _blended(image, 0.0, self._factor())


class ContrastTransform(_Jitter):
    """Changes the contrast: scales the distance of all values to the mean brightness by a random
    factor.

    Results are clipped to 0..255.

    Parameters
    ----------
    value : float
        The factor is drawn from [max(0, 1 - value), 1 + value].
    order : sequence of str or None
        Names of the parts of a sample; see `VisionTransform`. None means ("image",).

    Raises
    ------
    ValueError
        For a negative value.

    Examples
    --------
    >>> import numpy as np
    >>> image = np.full((4, 4, 3), 100, np.uint8)  # all at the mean: nothing to change
    >>> int(abs(ContrastTransform(0.5).apply(image).astype(int) - 100).max()) <= 1
    True
    """

    def _apply_image(self, image: np.ndarray) -> np.ndarray:
        if self.value == 0:
            return image
        mean = float(_gray(image).mean())
        return _blended(image, mean, self._factor())


class SaturationTransform(_Jitter):
    """Changes the saturation: scales the distance of colours to their gray by a random factor.

    Results are clipped to 0..255.

    Parameters
    ----------
    value : float
        The factor is drawn from [max(0, 1 - value), 1 + value].
    order : sequence of str or None
        Names of the parts of a sample; see `VisionTransform`. None means ("image",).

    Raises
    ------
    ValueError
        For a negative value.

    Notes
    -----
    Gray is 0.114 blue + 0.587 green + 0.299 red (ITU-R BT.601).

    Examples
    --------
    >>> import numpy as np
    >>> SaturationTransform(0.5).apply(np.zeros((4, 6, 3), np.uint8)).shape
    (4, 6, 3)
    """

    def _apply_image(self, image: np.ndarray) -> np.ndarray:
        return image if self.value == 0 else _blended(image, _gray(image), self._factor())


class HueTransform(_Jitter):
    """Rotates the hue by a random angle.

    Images without three channels stay as they are. Needs OpenCV.

    Parameters
    ----------
    value : float
        The largest angle, as a fraction of the circle, 0 to 0.5 (ValueError for others); 0.5
        reaches every hue.
    order : sequence of str or None
        Names of the parts of a sample; see `VisionTransform`. None means ("image",).

    Raises
    ------
    ValueError
        For a value outside of these bounds.

    Examples
    --------
    >>> import importlib.util, numpy as np
    >>> gray = np.full((1, 1, 3), 100, np.uint8)  # has no hue
    >>> if importlib.util.find_spec("cv2"):
    ...     assert HueTransform(0.5).apply(gray).tolist() == gray.tolist()
    """

    _most = 0.5

    def _apply_image(self, image: np.ndarray) -> np.ndarray:
        if self.value == 0 or image.ndim != 3 or image.shape[2] != 3:
            return image
        cv2 = opencv()
        hsv = cv2.cvtColor(np.clip(image, 0, 255).astype(np.uint8), cv2.COLOR_BGR2HSV_FULL)
        turn = int(np.random.uniform(-self.value, self.value) * 255)
        hsv[..., 0] = (hsv[..., 0].astype(np.int16) + turn) % 256
        return cv2.cvtColor(hsv, cv2.COLOR_HSV2BGR_FULL).astype(image.dtype)


class ColorJitter(ColorTransform):
    """Changes brightness, contrast, saturation and hue at random, in random order.

    Parameters
    ----------
    brightness, contrast, saturation, hue : float
        Range of each change: ``value`` of `BrightnessTransform`, `ContrastTransform`,
        `SaturationTransform` and `HueTransform`; 0 leaves a change out.
    order : sequence of str or None
        Names of the parts of a sample; see `VisionTransform`. None means ("image",).

    Examples
    --------
    >>> import numpy as np
    >>> jitter = ColorJitter(brightness=0.4, contrast=0.4, saturation=0.4)
    >>> jitter.apply(np.zeros((4, 6, 3), np.uint8)).shape
    (4, 6, 3)
    """

    def __init__(
        self,
        brightness: float = 0,
        contrast: float = 0,
        saturation: float = 0,
        hue: float = 0,
        *,
        order: Sequence[str] | None = None,
    ) -> None:
        super().__init__(order)
        parts = [
            (BrightnessTransform, brightness),
            (ContrastTransform, contrast),
            (SaturationTransform, saturation),
            (HueTransform, hue),
        ]
        self.transforms: list[VisionTransform] = [
            make(value) for make, value in parts if value != 0
        ]

    def _apply_image(self, image: np.ndarray) -> np.ndarray:
        for i in np.random.permutation(len(self.transforms)):
            image = self.transforms[i]._apply_image(image)
        return image


class Lighting(ColorTransform):
    """Adds one random colour to all pixels, along the principal components of ImageNet's colours.

    Results are clipped to 0..255.

    Parameters
    ----------
    scale : float
        Standard deviation of the random factors, 0.1 in the paper.
    order : sequence of str or None
        Names of the parts of a sample; see `VisionTransform`. None means ("image",).

    Raises
    ------
    ValueError
        For a negative scale.

    References
    ----------
    Krizhevsky et al. 2012, "ImageNet Classification with Deep Convolutional Neural Networks",
    section 4.1.

    Examples
    --------
    >>> import numpy as np
    >>> image = Lighting(0.1).apply(np.full((4, 6, 3), 100, np.uint8))
    >>> len(np.unique(image.reshape(-1, 3), axis=0))  # all pixels get the same colour
    1
    """

    def __init__(self, scale: float, *, order: Sequence[str] | None = None) -> None:
        super().__init__(order)
        if scale < 0:
            raise ValueError(f"scale must not be negative, got {scale!r}")
        self.scale = scale
        # Rows are blue, green, red; columns are the components, as computed on ImageNet for values from 0 to 1.
        self.eigvec = np.array(
            [[-0.5836, -0.6948, 0.4203], [-0.5808, -0.0045, -0.8140], [-0.5675, 0.7192, 0.4009]],
            dtype=np.float32,
        )
        self.eigval = np.array([0.2175, 0.0188, 0.0045], dtype=np.float32)

    def _apply_image(self, image: np.ndarray) -> np.ndarray:
        if self.scale == 0:
            return image
        amounts = np.random.normal(0, self.scale, 3).astype(np.float32)
        offset = self.eigvec @ (amounts * self.eigval) * 255
        return np.clip(image.astype(np.float32) + offset, 0, 255).astype(image.dtype)


def _gray(image: np.ndarray) -> np.ndarray:
    """Brightness (H, W, 1) as float32; a gray image itself."""
    plain = image.astype(np.float32)
    if image.ndim != 3 or image.shape[2] != 3:
        return plain
    return plain @ np.array(
        [[0.114], [0.587], [0.299]], dtype=np.float32
    )  # ITU-R BT.601 for blue, green, red


def _blended(image: np.ndarray, base: Any, factor: float) -> np.ndarray:
    """``base + factor * (image - base)``, clipped to 0..255, in the image's dtype."""
    result = image.astype(np.float32) * np.float32(factor)
    result += np.float32(1 - factor) * np.asarray(base, dtype=np.float32)
    return np.clip(result, 0, 255).astype(image.dtype)
