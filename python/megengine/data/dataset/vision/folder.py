"""Images in one folder per class."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np

from .meta_vision import VisionDataset
from .utils import is_img, read_image, require


class ImageFolder(VisionDataset):
    """Images in one folder per class, ``root/<class>/.../<image>``; a sample is (image, label).

    image: uint8 (H, W, 3), BGR. label: int, the number of the class; classes are numbered in the
    order of their names.

    Parameters
    ----------
    root : str or PathLike
        The folder that holds the folders of the classes.
    check_valid_func : callable or None
        Takes a path and tells whether it is a sample; None judges by its file name extension.
    class_name : bool
        Whether the label is the name of the class instead of its number.

    Raises
    ------
    FileNotFoundError
        If there are no samples.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> root = pathlib.Path(folder.name)
    >>> for name in ("cat/1.jpg", "dog/1.jpg", "dog/more/2.png"):
    ...     (root / name).parent.mkdir(parents=True, exist_ok=True)
    ...     (root / name).touch()
    >>> pets = ImageFolder(root)
    >>> len(pets), pets.class_dict
    (3, {'cat': 0, 'dog': 1})
    >>> folder.cleanup()
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        check_valid_func: Callable[[str], bool] | None = None,
        class_name: bool = False,
    ) -> None:
        super().__init__(root, order=("image", "image_category"))
        require(str(self.root), "image folder")
        self.class_name = class_name
        self.check_valid = check_valid_func if check_valid_func is not None else is_img
        self.class_dict = self.collect_class()
        self.samples = self.collect_samples()
        if not self.samples:
            raise FileNotFoundError(
                f"no images in folders of {self.root}; they are expected as <class>/<image>"
            )

    def collect_class(self) -> dict[str, int]:
        """Returns the number of each class by the name of its folder, a dict."""
        with os.scandir(str(self.root)) as entries:
            return {
                name: i
                for i, name in enumerate(sorted(entry.name for entry in entries if entry.is_dir()))
            }

    def collect_samples(self) -> list[tuple[str, Any]]:
        """Returns (path, label) of every image, a list sorted by class and path."""
        samples: list[tuple[str, Any]] = []
        for name, number in self.class_dict.items():
            for folder, folders, files in os.walk(
                os.path.join(str(self.root), name), followlinks=True
            ):
                folders.sort()
                samples.extend(
                    (os.path.join(folder, file), name if self.class_name else number)
                    for file in sorted(files)
                    if self.check_valid(os.path.join(folder, file))
                )
        return samples

    def __getitem__(self, index: int) -> tuple[np.ndarray, Any]:
        path, label = self.samples[index]
        return read_image(path), label

    def __len__(self) -> int:
        return len(self.samples)
