"""The base class of image transforms, which knows which part of a sample is an image, which are
boxes, and so on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..meta_transform import Transform


class VisionTransform(Transform):
    """The base class of transforms of images together with their annotations.

    Parameters
    ----------
    order : sequence of str or None
        Names of the parts of a sample, as below; None means ("image",). Parts after the named ones
        stay as they are, so a sample (image, label) needs no order.

    Raises
    ------
    ValueError
        Unless it is a sequence of names.

    Notes
    -----
    * "image": (H, W, C)
    * "coords": points (N, 2), x before y
    * "boxes": (N, 4), corners x1, y1, x2, y2
    * "mask": (H, W) or (H, W, 1)
    * "keypoints": (N, K, 3), x, y and a label, for N instances of K points
    * "polygons": a list of point arrays (N_i, 2)
    * "category" and names that end with "_category": labels, unchanged
    * "info": anything, unchanged

    A subclass defines ``_apply_image``, ``_apply_coords`` and ``_apply_mask``; boxes, keypoints and
    polygons follow from coords. It may define ``_apply_<name>`` for names of its own. Random
    transforms draw in ``_prepare``, so that all parts of a sample see the same draw.

    Examples
    --------
    >>> import numpy as np
    >>> class ShiftRight(VisionTransform):
    ...     def _apply_image(self, image):
    ...         return np.roll(image, 1, axis=1)
    ...     def _apply_coords(self, coords):
    ...         return coords + [1, 0]
    >>> sample = np.array([[1, 2, 3]]), np.array([[0, 0, 2, 1]])
    >>> [part.tolist() for part in ShiftRight(order=("image", "boxes")).apply(sample)]
    [[[3, 1, 2]], [[1, 0, 3, 1]]]
    """

    def __init__(self, order: Sequence[str] | None = None) -> None:
        if order is None:
            order = ("image",)
        if isinstance(order, str) or not isinstance(order, Sequence):
            raise ValueError(
                f'order must be a sequence of names such as ("image", "boxes"), got {order!r}'
            )
        for name in order:
            if not isinstance(name, str):
                raise ValueError(f"order must hold names, got {name!r} in {order!r}")
        self.order = order

    def apply(self, input: Any) -> Any:
        """Transforms a sample.

        Parameters
        ----------
        input : object
            A tuple of parts, or the only part.

        Returns
        -------
        object
            A tuple if it is one, else an array.

        Raises
        ------
        ValueError
            When it has fewer parts than ``order``.
        """
        single = not isinstance(input, (tuple, list))
        parts = (input,) if single else input
        if len(parts) < len(self.order):
            raise ValueError(
                f"the sample has {len(parts)} parts but order names {len(self.order)}: {self.order!r}"
            )
        self._prepare(parts)
        output = [
            self._function_for(name)(part) for name, part in zip(self.order, parts, strict=False)
        ]
        output.extend(parts[len(self.order) :])
        return output[0] if single else tuple(output)

    def _prepare(self, parts: Sequence[Any]) -> None:
        """Looks at the sample and draws random numbers, before any part is transformed."""

    def _function_for(self, name: str) -> Any:
        function = getattr(self, f"_apply_{name}", None)
        if function is None:
            if name in ("info", "category") or name.endswith("_category"):
                return lambda part: part
            raise NotImplementedError(
                f"{type(self).__name__} does not know how to transform a part called {name!r}; "
                f"define _apply_{name} in a subclass, or take the name out of order"
            )
        return function

    def _image_size(self, parts: Sequence[Any]) -> tuple[int, int]:
        """Returns (height, width) of the image of a sample."""
        for name in ("image", "mask"):
            if name in self.order:
                shape = np.shape(parts[list(self.order).index(name)])
                if len(shape) < 2:
                    raise ValueError(f"{type(self).__name__}: the {name} of a sample has shape {shape}, not (height, width, channels)")
                return shape[:2]
        raise ValueError(
            f"{type(self).__name__} needs an image in the sample, but order is {self.order!r}"
        )

    def _apply_image(self, image: np.ndarray) -> np.ndarray:
        raise self._missing("image")

    def _apply_coords(self, coords: np.ndarray) -> np.ndarray:
        raise self._missing("coords")

    def _apply_mask(self, mask: np.ndarray) -> np.ndarray:
        raise self._missing("mask")

    def _missing(self, name: str) -> Exception:
        return NotImplementedError(
            f"{type(self).__name__} does not define _apply_{name}, which order asks for"
        )

    def _apply_boxes(self, boxes: np.ndarray) -> np.ndarray:
        """Each box becomes the upright box around its four transformed corners."""
        boxes = np.asarray(boxes)
        corners = boxes[..., [0, 1, 2, 1, 0, 3, 2, 3]].reshape(-1, 2)
        moved = np.asarray(self._apply_coords(corners)).reshape(*boxes.shape[:-1], 4, 2)
        if moved.size == 0:
            return boxes
        return np.concatenate([moved.min(axis=-2), moved.max(axis=-2)], axis=-1)

    def _apply_keypoints(self, keypoints: np.ndarray) -> np.ndarray:
        keypoints = np.asarray(keypoints)
        points = self._apply_coords(keypoints[..., :2].reshape(-1, 2)).reshape(
            *keypoints.shape[:-1], 2
        )
        return np.concatenate([points, keypoints[..., 2:]], axis=-1)

    def _apply_polygons(self, polygons: Sequence[np.ndarray]) -> list[np.ndarray]:
        return [self._apply_coords(np.asarray(polygon)) for polygon in polygons]


class ColorTransform(VisionTransform):
    """Base class of transforms that change the colours of the image alone: coordinates and masks stay."""

    def _apply_coords(self, coords: np.ndarray) -> np.ndarray:
        return coords

    def _apply_mask(self, mask: np.ndarray) -> np.ndarray:
        return mask
