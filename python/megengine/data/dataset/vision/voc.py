"""Pascal VOC: 20 kinds of objects with boxes, and classes of pixels."""

from __future__ import annotations

import os
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from typing import Any

import numpy as np

from .meta_vision import VisionDataset
from .utils import read_image, require


def _palette(count: int) -> list[list[int]]:
    """Returns the colour (red, green, blue) of each class in the mask images: bits of its number in
    turn.
    """
    colors = []
    for number in range(count):
        color = [0, 0, 0]
        for shift in range(8):
            for channel in range(3):
                color[channel] |= (number >> (3 * shift + channel) & 1) << (7 - shift)
        colors.append(color)
    return colors


class PascalVOC(VisionDataset):
    """Pascal VOC (Everingham et al. 2010): scenes with boxes and masks of objects of 20 classes; a
    sample has the parts of ``order``.

    image: uint8 (H, W, 3), BGR. boxes: float32 (N, 4), x1, y1, x2, y2 in pixels. boxes_category:
    int32 (N,), the index in ``class_names`` plus 1 (0 is the background). mask: uint8 (H, W, 1),
    such a number for each pixel, or 255 for borders. info: [height, width, file name].

    Parameters
    ----------
    root : str or PathLike
        A folder such as VOC2012, which holds JPEGImages, Annotations, SegmentationClass and
        ImageSets.
    image_set : str
        Name of a list in ImageSets/Main (for boxes) or ImageSets/Segmentation (for masks), such as
        "train", "val" or "trainval".
    order : sequence of str or None
        Names of the parts of a sample; None means ("image", "mask").

    Raises
    ------
    FileNotFoundError
        For missing files.
    ValueError
        For unknown parts.

    Examples
    --------
    >>> PascalVOC.class_names.index("cat") + 1  # in boxes_category and masks
    8
    """

    supported_order = ("image", "boxes", "boxes_category", "mask", "info")

    class_names = tuple((
        "aeroplane, bicycle, bird, boat, bottle, bus, car, cat, chair, cow, diningtable, dog, horse, motorbike, person, pottedplant, "
        "sheep, sofa, train, tvmonitor"
    ).split(", "))
    # The colors of the background and of each class in the masks.
    class_colors = _palette(21)

    _default_order = ("image", "mask")
    _border = (224, 224, 192)

    def __init__(
        self, root: str | os.PathLike[str], image_set: str, *, order: Sequence[str] | None = None
    ) -> None:
        super().__init__(root, order=order, supported_order=self.supported_order)
        self.image_set = image_set
        task = "Segmentation" if "mask" in self.order else "Main"
        listing = os.path.join(str(self.root), "ImageSets", task, image_set + ".txt")
        with open(require(listing, f"list of images {image_set!r}")) as file:
            self.file_names = [line.split()[0] for line in file if line.strip()]
        self.images = [self._path("JPEGImages", name + ".jpg") for name in self.file_names]
        self.annotations = [self._path("Annotations", name + ".xml") for name in self.file_names]
        self.masks = (
            [self._mask_path(name) for name in self.file_names] if "mask" in self.order else []
        )
        self.img_infos: dict[int, list[Any]] = {}

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        index = range(len(self))[index]
        parts: list[Any] = []
        objects = self._objects(index) if {"boxes", "boxes_category"} & set(self.order) else []
        for name in self.order:
            if name == "image":
                parts.append(read_image(self.images[index]))
            elif name == "boxes":
                parts.append(np.array([box for _, box in objects], dtype=np.float32).reshape(-1, 4))
            elif name == "boxes_category":
                parts.append(np.array([label for label, _ in objects], dtype=np.int32))
            elif name == "mask":
                parts.append(self._mask(self.masks[index]))
            else:
                image = (
                    parts[list(self.order).index("image")]
                    if "image" in self.order[: len(parts)]
                    else None
                )
                parts.append(self.get_img_info(index, image))
        return tuple(parts)

    def __len__(self) -> int:
        return len(self.images)

    def get_img_info(self, index: int, image: np.ndarray | None = None) -> list[Any]:
        """Returns [height, width, file name] of an image.

        Parameters
        ----------
        index : int
            Index of the sample.
        image : numpy.ndarray or None
            The image, if it was read before; None reads it.

        Returns
        -------
        list
            Height, width and file name.
        """
        if index not in self.img_infos:
            image = read_image(self.images[index]) if image is None else image
            self.img_infos[index] = [*image.shape[:2], self.file_names[index] + ".jpg"]
        return self.img_infos[index]

    def parse_voc_xml(self, node: ElementTree.Element) -> dict[str, Any]:
        """Returns an annotation as nested dicts; ``object`` is always a list.

        Parameters
        ----------
        node : Element
            The element of the XML file.

        Returns
        -------
        dict of str
            Tags to texts or, for elements with children, to dicts.
        """
        children = list(node)
        if not children:
            return {node.tag: (node.text or "").strip()}
        merged: dict[str, Any] = {}
        for child in children:
            for tag, value in self.parse_voc_xml(child).items():
                merged.setdefault(tag, []).append(value)
        return {
            node.tag: {
                tag: values if tag == "object" or len(values) > 1 else values[0]
                for tag, values in merged.items()
            }
        }

    def _path(self, folder: str, name: str) -> str:
        return os.path.join(str(self.root), folder, name)

    def _mask_path(self, name: str) -> str:
        """The extended masks, if they were put next to the original ones."""
        extended = self._path("SegmentationClassAug", name + ".png")
        return (
            extended if os.path.exists(extended) else self._path("SegmentationClass", name + ".png")
        )

    def _objects(self, index: int) -> list[tuple[int, list[float]]]:
        path = require(self.annotations[index], "annotation")
        try:
            root = ElementTree.parse(path).getroot()
        except ElementTree.ParseError as error:
            raise ValueError(f"{path} is not a complete XML file: {error}") from error
        found = self.parse_voc_xml(root)["annotation"]
        objects = found.get("object", []) if isinstance(found, dict) else []
        return [
            (
                self.class_names.index(entry["name"]) + 1,
                [float(entry["bndbox"][key]) for key in ("xmin", "ymin", "xmax", "ymax")],
            )
            for entry in objects
        ]

    def _mask(self, path: str) -> np.ndarray:
        stored = read_image(path, color=False)
        if stored.ndim == 2:  # numbers of classes, as in the extended masks
            return stored[..., np.newaxis]
        code = (
            stored[..., 2].astype(np.int32) << 16
            | stored[..., 1].astype(np.int32) << 8
            | stored[..., 0]
        )
        mask = np.zeros(code.shape, dtype=np.uint8)
        for number, (red, green, blue) in enumerate(self.class_colors):
            mask[code == (red << 16 | green << 8 | blue)] = number
        red, green, blue = self._border
        mask[code == (red << 16 | green << 8 | blue)] = 255
        return mask[..., np.newaxis]
