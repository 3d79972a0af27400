"""Cityscapes: street scenes with a class for every pixel."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from .meta_vision import VisionDataset
from .utils import read_image, require

# Label id of the files -> number of the training class; the other ids are not trained on (255).
_TRAIN_IDS = {label: train for train, label in enumerate((7, 8, 11, 12, 13, 17, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 31, 32, 33))}


class Cityscapes(VisionDataset):
    """Cityscapes (Cordts et al. 2016): street scenes with a class for each pixel; a sample has the
    parts of ``order``.

    image: uint8 (H, W, 3), BGR. mask: uint8 (H, W, 1), an index of ``class_names``, or 255 for no
    class. info: [height, width, path of the image].

    Parameters
    ----------
    root : str or PathLike
        The folder that holds ``leftImg8bit`` and ``gtFine`` or ``gtCoarse``.
    image_set : str
        "train", "val" or "test"; for gtCoarse "train", "train_extra" or "val".
    mode : str
        Kind of the annotations: "gtFine" or "gtCoarse".
    order : sequence of str or None
        Names of the parts of a sample; None means ("image", "mask").

    Raises
    ------
    ValueError
        For unknown sets.
    FileNotFoundError
        For missing folders or masks.

    Examples
    --------
    >>> len(Cityscapes.class_names), Cityscapes.class_names[0]
    (19, 'road')
    """

    supported_order = ("image", "mask", "info")
    class_names = tuple((
        "road, sidewalk, building, wall, fence, pole, traffic light, traffic sign, vegetation, terrain, sky, person, rider, car, truck, "
        "bus, train, motorcycle, bicycle"
    ).split(", "))

    _sets = {"gtFine": ("train", "val", "test"), "gtCoarse": ("train", "train_extra", "val")}
    _default_order = ("image", "mask")

    def __init__(
        self,
        root: str | os.PathLike[str],
        image_set: str,
        mode: str,
        *,
        order: Sequence[str] | None = None,
    ) -> None:
        super().__init__(root, order=order, supported_order=self.supported_order)
        if mode not in self._sets:
            raise ValueError(f"mode must be gtFine or gtCoarse, got {mode!r}")
        if image_set not in self._sets[mode]:
            raise ValueError(
                f"image_set of {mode} must be one of {', '.join(self._sets[mode])}, got {image_set!r}"
            )
        self.mode = mode
        self.images_dir = require(
            os.path.join(str(self.root), "leftImg8bit", image_set), "folder of images"
        )
        self.masks_dir = os.path.join(str(self.root), mode, image_set)
        if "mask" in self.order:
            require(self.masks_dir, "folder of masks")
        self.images: list[str] = []
        self.masks: list[str] = []
        self._collect()

    def _collect(self) -> None:
        for city in sorted(os.listdir(self.images_dir)):
            for name in sorted(os.listdir(os.path.join(self.images_dir, city))):
                stem = name.split("_leftImg8bit")[0]
                self.images.append(os.path.join(self.images_dir, city, name))
                self.masks.append(
                    os.path.join(self.masks_dir, city, f"{stem}_{self.mode}_labelIds.png")
                )

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        parts: list[Any] = []
        for name in self.order:
            if name == "image":
                parts.append(read_image(self.images[index]))
            elif name == "mask":
                parts.append(self._mask(self.masks[index]))
            else:
                height, width = read_image(self.images[index]).shape[:2]
                parts.append([height, width, self.images[index]])
        return tuple(parts)

    def __len__(self) -> int:
        return len(self.images)

    def _mask(self, path: str) -> np.ndarray:
        prepared = path.replace("_labelIds.png", "_labelTrainIds.png")
        if os.path.exists(prepared):
            return read_image(prepared, color=False)[..., np.newaxis]
        table = np.full(256, 255, dtype=np.uint8)
        table[list(_TRAIN_IDS)] = list(_TRAIN_IDS.values())
        return table[read_image(path, color=False)][..., np.newaxis]
