"""Shared by datasets whose boxes come from one JSON file in the format of COCO."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from .meta_vision import VisionDataset
from .utils import read_image, require


def has_valid_annotation(anno: Sequence[dict[str, Any]], order: Sequence[str]) -> bool:
    """Whether an image has something to learn from: a box with an area, or ten visible keypoints."""
    if not anno:
        return False
    if "boxes" in order or "boxes_category" in order:
        if all(any(edge <= 1 for edge in entry["bbox"][2:]) for entry in anno):
            return False
    if "keypoints" in order:
        return sum(1 for entry in anno for flag in entry["keypoints"][2::3] if flag > 0) >= 10
    return True


class AnnotatedImages(VisionDataset):
    """Images below ``root`` with the boxes of ``ann_file``; see COCO for the parts of a sample."""

    supported_order: tuple[str, ...] = ("image", "boxes", "boxes_category", "info")
    _default_order = ("image", "boxes", "boxes_category")

    def __init__(
        self,
        root: str | os.PathLike[str],
        ann_file: str | os.PathLike[str],
        remove_images_without_annotations: bool = False,
        *,
        order: Sequence[str] | None = None,
    ) -> None:
        super().__init__(root, order=order, supported_order=self.supported_order)
        data = _read_json(ann_file)
        self.imgs: dict[Any, dict[str, Any]] = {image["id"]: image for image in data["images"]}
        self.img_to_anns: dict[Any, list[dict[str, Any]]] = {number: [] for number in self.imgs}
        for entry in data.get("annotations", []):
            self.img_to_anns.setdefault(entry["image_id"], []).append(entry)
        self.cats: dict[int, dict[str, Any]] = {
            entry["id"]: entry for entry in data.get("categories", [])
        }
        self.ids = sorted(self.imgs)
        if remove_images_without_annotations:
            self.ids = [
                number
                for number in self.ids
                if has_valid_annotation(self._entries(number), self.order)
            ]
            kept = set(self.ids)
            self.imgs = {number: image for number, image in self.imgs.items() if number in kept}
        # 0 is the background
        self.json_category_id_to_contiguous_id = {
            number: i + 1 for i, number in enumerate(sorted(self.cats))
        }
        self.contiguous_category_id_to_json_id = {
            i: number for number, i in self.json_category_id_to_contiguous_id.items()
        }

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        number = self.ids[index]
        entries = self._entries(number)
        return tuple(getattr(self, f"_part_{name}")(index, entries) for name in self.order)

    def __len__(self) -> int:
        return len(self.ids)

    def get_img_info(self, index: int) -> dict[str, Any]:
        """Returns what the annotation file says about an image.

        Parameters
        ----------
        index : int
            Index of the sample.

        Returns
        -------
        dict of str
            Entries height, width, file_name and id.
        """
        return self.imgs[self.ids[index]]

    def _entries(self, number: Any) -> list[dict[str, Any]]:
        """Returns annotations of single objects; those of crowds are left out."""
        return [entry for entry in self.img_to_anns.get(number, []) if not entry.get("iscrowd", 0)]

    def _part_image(self, index: int, entries: list[dict[str, Any]]) -> np.ndarray:
        return read_image(os.path.join(str(self.root), self.get_img_info(index)["file_name"]))

    def _part_boxes(self, index: int, entries: list[dict[str, Any]]) -> np.ndarray:
        boxes = np.array([entry["bbox"] for entry in entries], dtype=np.float32).reshape(-1, 4)
        boxes[:, 2:] += boxes[:, :2]
        return boxes

    def _part_boxes_category(self, index: int, entries: list[dict[str, Any]]) -> np.ndarray:
        numbers = [
            self.json_category_id_to_contiguous_id[entry["category_id"]] for entry in entries
        ]
        return np.array(numbers, dtype=np.int32)

    def _part_keypoints(self, index: int, entries: list[dict[str, Any]]) -> np.ndarray:
        points = [
            np.array(entry["keypoints"], dtype=np.float32).reshape(-1, 3) for entry in entries
        ]
        return np.stack(points) if points else np.zeros((0, 0, 3), dtype=np.float32)

    def _part_info(self, index: int, entries: list[dict[str, Any]]) -> list[Any]:
        info = self.get_img_info(index)
        return [info["height"], info["width"], info["file_name"]]


def _read_json(path: str | os.PathLike[str]) -> dict[str, Any]:
    require(os.fspath(path), "annotation file")
    try:
        with open(path, encoding="utf-8") as file:
            data = json.load(file)
    except ValueError as error:
        raise ValueError(
            f"{path} is not a JSON file: {error}; is the download complete?"
        ) from error
    if not isinstance(data, dict) or "images" not in data:
        raise ValueError(
            f"{path} is not an annotation file in the format of COCO: it lists no images"
        )
    return data
