"""All vision transforms by one name, and those that combine others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .color import (
    BrightnessTransform,
    ColorJitter,
    ContrastTransform,
    GaussianNoise,
    HueTransform,
    Lighting,
    Normalize,
    SaturationTransform,
)
from .geometric import (
    CenterCrop,
    Pad,
    RandomCrop,
    RandomHorizontalFlip,
    RandomResize,
    RandomResizedCrop,
    RandomVerticalFlip,
    Resize,
    ShortestEdgeResize,
)
from .vision_transform import ColorTransform, VisionTransform

__all__ = [
    "VisionTransform",
    "ToMode",
    "Compose",
    "TorchTransformCompose",
    "Pad",
    "Resize",
    "ShortestEdgeResize",
    "RandomResize",
    "RandomCrop",
    "RandomResizedCrop",
    "CenterCrop",
    "RandomHorizontalFlip",
    "RandomVerticalFlip",
    "Normalize",
    "GaussianNoise",
    "BrightnessTransform",
    "SaturationTransform",
    "ContrastTransform",
    "HueTransform",
    "ColorJitter",
    "Lighting",
]


class ToMode(VisionTransform):
    """Sets the order of the axes of images; (H, W) gets a channel axis first.

    Masks are treated like images; coordinates stay.

    Parameters
    ----------
    mode : str
        "CHW" turns (H, W, C) into (C, H, W); "HWC" leaves it.
    order : sequence of str or None
        Names of the parts of a sample; see `VisionTransform`. None means ("image",).

    Raises
    ------
    ValueError
        For another mode.

    Examples
    --------
    >>> import numpy as np
    >>> ToMode("CHW").apply(np.zeros((4, 6, 3))).shape
    (3, 4, 6)
    """

    def __init__(self, mode: str = "CHW", *, order: Sequence[str] | None = None) -> None:
        super().__init__(order)
        if mode not in ("CHW", "HWC"):
            raise ValueError(f'unsupported mode: {mode}\n  fix: use "CHW" or "HWC"')
        self.mode = mode

    def _apply_image(self, image: np.ndarray) -> np.ndarray:
        if image.ndim == 2:
            image = image[..., np.newaxis]
        return np.ascontiguousarray(np.rollaxis(image, 2)) if self.mode == "CHW" else image

    def _apply_mask(self, mask: np.ndarray) -> np.ndarray:
        return self._apply_image(mask)

    def _apply_coords(self, coords: np.ndarray) -> np.ndarray:
        return coords


class Compose(VisionTransform):
    """Applies several transforms one after the other.

    Parameters
    ----------
    transforms : sequence of VisionTransform
        Transforms, in the order in which they are applied.
    batch_compose : bool
        Whether each transform is applied to the whole batch before the next one; False applies all
        transforms to one sample after the other.
    shuffle_indices : sequence of sequence of int or None
        Groups of positions, counted from 1 (ValueError for others), whose transforms change places
        at random, such as [(1, 2, 3)]; drawn for each sample, or once per batch with
        ``batch_compose``.
    order : sequence of str or None
        Names of the parts of a sample, for all transforms; they replace the ``order`` of each. None
        means ("image",).

    Raises
    ------
    TypeError
        If one of them is not a `Transform`.
    ValueError
        For a position that does not exist.

    Examples
    --------
    >>> import numpy as np
    >>> transform = Compose([CenterCrop(2), Normalize(mean=1.0, std=2.0), ToMode()])
    >>> transform.apply(np.full((4, 4, 1), 5)).tolist()
    [[[2.0, 2.0], [2.0, 2.0]]]
    """

    def __init__(
        self,
        transforms: Sequence[VisionTransform] = [],
        batch_compose: bool = False,
        shuffle_indices: Sequence[Sequence[int]] | None = None,
        *,
        order: Sequence[str] | None = None,
    ) -> None:
        super().__init__(order)
        self.transforms = list(transforms)
        for position, transform in enumerate(self.transforms, 1):
            if not hasattr(transform, "apply"):
                raise TypeError(
                    f"transform {position} of Compose is a {type(transform).__name__}, not a Transform; "
                    "wrap functions in a Transform, torchvision ones in TorchTransformCompose"
                )
        self.batch_compose = batch_compose
        self.shuffle_indices = (
            None if shuffle_indices is None else [tuple(group) for group in shuffle_indices]
        )
        for group in self.shuffle_indices or ():
            if any(not 1 <= position <= len(self.transforms) for position in group):
                raise ValueError(
                    f"shuffle_indices counts from 1 to {len(self.transforms)}, got {group!r}"
                )
        self._set_order(self.order)

    def _set_order(self, order: Sequence[str]) -> None:
        self.order = order
        for transform in self.transforms:
            if isinstance(transform, Compose):
                transform._set_order(order)
            elif isinstance(transform, VisionTransform):
                transform.order = order

    def apply_batch(self, inputs: Sequence[Any]) -> Any:
        """Transforms several samples.

        Parameters
        ----------
        inputs : sequence
            The samples of a batch.

        Returns
        -------
        object
            The transformed samples, as many as were given.
        """
        if not self.batch_compose:
            return tuple(self.apply(sample) for sample in inputs)
        for transform in self._shuffled():
            inputs = transform.apply_batch(inputs)
        return inputs

    def apply(self, input: object) -> Any:
        """Transforms one sample.

        Parameters
        ----------
        input : object
            The sample that is transformed.

        Returns
        -------
        object
            The transformed sample.
        """
        for transform in self._shuffled():
            input = transform.apply(input)
        return input

    def _shuffled(self) -> list[VisionTransform]:
        if not self.shuffle_indices:
            return self.transforms
        result = list(self.transforms)
        for group in self.shuffle_indices:
            for to, source in zip(group, np.random.permutation(group), strict=True):
                result[to - 1] = self.transforms[source - 1]
        return result


class TorchTransformCompose(ColorTransform):
    """Applies transforms of torchvision, or any functions of a PIL image, one after the other.

    Parameters
    ----------
    transforms : sequence of callable
        Functions; the first one gets an RGB PIL image (ImportError without Pillow), and the result
        of the last becomes a BGR array (H, W, C). A tensor, as ``ToTensor`` gives, keeps its layout
        (C, H, W), with blue first.
    order : sequence of str or None
        Names of the parts of a sample; see `VisionTransform`. None means ("image",).

    Examples
    --------
    >>> import importlib.util, numpy as np
    >>> turn = TorchTransformCompose([lambda image: image.rotate(180)])
    >>> if importlib.util.find_spec("PIL"):
    ...     image = turn.apply(np.arange(6, dtype=np.uint8).reshape(1, 2, 3))
    ...     assert image.tolist() == [[[3, 4, 5], [0, 1, 2]]]
    """

    def __init__(
        self, transforms: Sequence[Callable[[Any], Any]], *, order: Sequence[str] | None = None
    ) -> None:
        super().__init__(order)
        self.transforms = list(transforms)

    def _apply_image(self, image: np.ndarray) -> np.ndarray:
        value: Any = _to_pil(image)
        for transform in self.transforms:
            value = transform(value)
        is_tensor = not isinstance(value, np.ndarray) and hasattr(value, "numpy")
        array = np.array(value.numpy() if is_tensor else value)
        if array.ndim == 2:
            array = array[..., np.newaxis]
        if is_tensor:
            return np.ascontiguousarray(array[::-1]) if array.shape[0] == 3 else array
        return np.ascontiguousarray(array[..., ::-1]) if array.shape[-1] == 3 else array


def _to_pil(image: np.ndarray) -> Any:
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError(
            "TorchTransformCompose needs Pillow; install it with: pip install pillow"
        ) from error
    if image.ndim == 3 and image.shape[2] == 1:
        image = image[..., 0]
    return Image.fromarray(np.ascontiguousarray(image[..., ::-1]) if image.ndim == 3 else image)
