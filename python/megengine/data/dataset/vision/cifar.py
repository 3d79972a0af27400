"""CIFAR-10 and CIFAR-100: 32x32 colour images of 10 or 100 classes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...._files.disk import cache_dir
from ....serialization import load_python2
from .meta_vision import DatasetInMemory
from .utils import calculate_md5, load_raw_data_from_url, untargz


class CIFAR10(DatasetInMemory):
    """CIFAR-10 (Krizhevsky 2009): 60,000 small photographs of 10 classes; a sample is (image,
    label).

    image: uint8 (32, 32, 3), BGR. label: int32, 0 to 9.

    Parameters
    ----------
    root : str, PathLike or None
        The folder that holds ``cifar-10-batches-py`` or its archive; None: the user's cache folder.
    train : bool
        True for the 50,000 training images, False for the 10,000 test images.
    download : bool
        Whether to fetch the archive if it is missing.
    timeout : int
        Has no effect; taken for compatibility.

    Raises
    ------
    FileNotFoundError
        For missing files.
    RuntimeError
        For damaged files.

    Examples
    --------
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

    _label_keys: tuple[bytes, ...] = (b"labels",)

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
    def meta(self) -> dict[bytes, Any]:
        """Metadata of the archive: ``meta[b"label_names"]`` are the names of the classes."""
        return self._read(self.meta_info["name"])

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
        """Unpacks an archive.

        Parameters
        ----------
        file_path : str
            Path of the archive.
        dirs : str
            The folder to unpack into.
        """
        untargz(file_path, dirs)

    def bytes2array(self, filenames: Sequence[str]) -> tuple[np.ndarray, ...]:
        """Reads batch files.

        Parameters
        ----------
        filenames : sequence of str
            Names of the files in the folder.

        Returns
        -------
        tuple of numpy.ndarray
            The images, and each kind of labels.
        """
        batches = [self._read(name) for name in filenames]
        rgb = np.concatenate([np.asarray(batch[b"data"], np.uint8).reshape(-1, 3, 32, 32) for batch in batches])
        labels = (np.concatenate([batch[key] for batch in batches]).astype(np.int32) for key in self._label_keys)
        return np.ascontiguousarray(rgb.transpose(0, 2, 3, 1)[..., ::-1]), *labels

    def process(self) -> tuple[np.ndarray, ...]:
        """Returns the arrays of the chosen part: images, and each kind of labels."""
        return self.bytes2array(self.target_file)

    def _folder(self) -> str:
        return os.path.join(str(self.root), self.raw_file_dir)

    def _read(self, name: str) -> dict[bytes, Any]:
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
    """CIFAR-100 (Krizhevsky 2009): 60,000 small photographs of 100 classes; a sample is (image,
    label, superclass).

    image: uint8 (32, 32, 3), BGR. label: int32, 0 to 99. superclass: int32, 0 to 19.
    ``meta[b"fine_label_names"]`` and ``meta[b"coarse_label_names"]`` name them.

    Parameters
    ----------
    root : str, PathLike or None
        The folder that holds ``cifar-100-python`` or its archive; None: the user's cache folder.
    train, download : bool
        True for the 50,000 training images, False for the 10,000 test images; and whether to fetch
        the archive if it is missing.
    timeout : int
        Has no effect; taken for compatibility.

    Raises
    ------
    FileNotFoundError, RuntimeError
        For missing files, and for damaged files.

    Examples
    --------
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

    _label_keys = (b"fine_labels", b"coarse_labels")
