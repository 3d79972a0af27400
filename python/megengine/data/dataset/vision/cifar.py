"""CIFAR-10 and CIFAR-100: 32x32 colour images of 10 or 100 classes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...._disk import cache_dir
from .meta_vision import DatasetInMemory
from .utils import calculate_md5, load_raw_data_from_url, untargz


class CIFAR10(DatasetInMemory):
    """Small photographs of 10 classes, Krizhevsky 2009: samples (image, label).

    image: uint8 (32, 32, 3) in BGR. label: int32, 0 to 9.

    root: folder with ``cifar-10-batches-py`` or its archive; default: the user's cache folder.
    train: the 50,000 training samples, or the 10,000 test samples.
    download: fetch the archive if it is missing. timeout: taken for compatibility.

    Raises FileNotFoundError for missing files, RuntimeError for damaged ones.

    >>> try:
    ...     CIFAR10("photos", download=False)
    ... except FileNotFoundError:
    ...     print("put cifar-10-python.tar.gz there, or let it be downloaded")
    put cifar-10-python.tar.gz there, or let it be downloaded
    """

    url_path = "http://www.cs.utoronto.ca/~kriz/"
    raw_file_name = "cifar-10-python.tar.gz"
    raw_file_md5 = "c58f30108f718f92721af3b95e74349a"
    raw_file_dir = "cifar-10-batches-py"
    train_batch = ["data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5"]
    test_batch = ["test_batch"]
    meta_info = {"name": "batches.meta"}

    _label_key = b"labels"
    _names_key = b"label_names"

    def __init__(
        self,
        root: str | os.PathLike[str] | None = None,
        train: bool = True,
        download: bool = True,
        timeout: int = 500,
    ) -> None:
        super().__init__(
            cache_dir("datasets", type(self).__name__) if root is None else root,
            order=("image", "image_category"),
        )
        self.timeout = timeout
        self.target_file = self.train_batch if train else self.test_batch
        if download:
            self.download()
        self.arrays = self.process()

    @property
    def meta(self) -> list[str]:
        """Names of the classes."""
        return self._names(self._names_key)

    def download(self) -> None:
        """Fetches and unpacks the archive unless its folder is there."""
        if os.path.isdir(self._folder()):
            return
        archive = os.path.join(str(self.root), self.raw_file_name)
        if not (os.path.exists(archive) and calculate_md5(archive) == self.raw_file_md5):
            load_raw_data_from_url(
                self.url_path + self.raw_file_name,
                self.raw_file_name,
                self.raw_file_md5,
                str(self.root),
            )
        self.untar(archive, str(self.root))

    def untar(self, file_path: str, dirs: str) -> None:
        """Unpacks the archive ``file_path`` into the folder ``dirs``."""
        untargz(file_path, dirs)

    def bytes2array(self, filenames: Sequence[str]) -> tuple[np.ndarray, ...]:
        """Returns (images, labels) of batch files, given by name."""
        images, labels = [], []
        for name in filenames:
            batch = self._read(name)
            images.append(np.asarray(batch[b"data"], dtype=np.uint8).reshape(-1, 3, 32, 32))
            labels.extend(batch[self._label_key])
        rgb = np.concatenate(images).transpose(0, 2, 3, 1)
        return np.ascontiguousarray(rgb[..., ::-1]), np.array(labels, dtype=np.int32)

    def process(self) -> tuple[np.ndarray, ...]:
        """Returns the arrays of the wanted part."""
        return self.bytes2array(self.target_file)

    def _folder(self) -> str:
        return os.path.join(str(self.root), self.raw_file_dir)

    def _names(self, key: bytes) -> list[str]:
        return [name.decode() for name in self._read(self.meta_info["name"])[key]]

    def _read(self, name: str) -> dict[bytes, Any]:
        from ....serialization import load_python2

        # root may be the folder of the batches itself
        for folder in (self._folder(), str(self.root)):
            path = os.path.join(folder, name)
            if os.path.exists(path):
                return load_python2(path)
        raise FileNotFoundError(
            f"{name} is missing in {self._folder()}; unpack {self.raw_file_name} in {self.root}, "
            "or pass download=True"
        )


class CIFAR100(CIFAR10):
    """Small photographs of 100 classes, Krizhevsky 2009: samples (image, label).

    image: uint8 (32, 32, 3) in BGR. label: int32, 0 to 99, of the fine class; ``coarse_meta`` and
    ``coarse_labels()`` give the 20 super-classes. Arguments and errors as of `CIFAR10`.

    >>> try:
    ...     CIFAR100("photos", download=False)
    ... except FileNotFoundError:
    ...     print("put cifar-100-python.tar.gz there, or let it be downloaded")
    put cifar-100-python.tar.gz there, or let it be downloaded
    """

    url_path = "http://www.cs.utoronto.ca/~kriz/"
    raw_file_name = "cifar-100-python.tar.gz"
    raw_file_md5 = "eb9058c3a382ffc7106e4002c42a8d85"
    raw_file_dir = "cifar-100-python"
    train_batch = ["train"]
    test_batch = ["test"]
    meta_info = {"name": "meta"}

    _label_key = b"fine_labels"
    _names_key = b"fine_label_names"

    @property
    def coarse_meta(self) -> list[str]:
        """Names of the super-classes."""
        return self._names(b"coarse_label_names")

    def coarse_labels(self) -> np.ndarray:
        """Returns the super-class of every sample, int32 (N,)."""
        return np.array(
            [label for name in self.target_file for label in self._read(name)[b"coarse_labels"]],
            np.int32,
        )
