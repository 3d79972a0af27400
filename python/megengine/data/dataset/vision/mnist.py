"""MNIST: 28x28 gray digits. Also reads other datasets in the same format (Fashion-MNIST)."""

from __future__ import annotations

import gzip
import os
import struct
from typing import Any

import numpy as np

from ...._files.disk import cache_dir
from .meta_vision import DatasetInMemory
from .utils import load_raw_data_from_url


class MNIST(DatasetInMemory):
    """MNIST (LeCun et al. 1998): 70,000 handwritten digits; a sample is (image, label).

    image: uint8 (28, 28, 1). label: int32, 0 to 9. Other data in the same format, such as
    Fashion-MNIST, can be read, too.

    Parameters
    ----------
    root : str, PathLike or None
        The folder of the four ``*-ubyte.gz`` files, or of the unpacked ones; None: the user's cache
        folder.
    train : bool
        True for the 60,000 training images, False for the 10,000 test images.
    download : bool
        Whether to fetch files that are missing.

    Raises
    ------
    FileNotFoundError
        For missing files.
    ValueError
        For damaged files.

    Examples
    --------
    >>> import pathlib, struct, tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> def put(name, data):
    ...     _ = pathlib.Path(folder.name, name).write_bytes(data)
    >>> put("t10k-images-idx3-ubyte", struct.pack(">4i", 0x803, 1, 28, 28) + bytes(28 * 28))
    >>> put("t10k-labels-idx1-ubyte", struct.pack(">2i", 0x801, 1) + bytes([7]))
    >>> digits = MNIST(folder.name, train=False, download=False)
    >>> digits[0][0].shape, int(digits[0][1])
    ((28, 28, 1), 7)
    >>> folder.cleanup()
    """

    url_path = "https://ossci-datasets.s3.amazonaws.com/mnist/"
    raw_file_name = [
        "train-images-idx3-ubyte.gz",
        "train-labels-idx1-ubyte.gz",
        "t10k-images-idx3-ubyte.gz",
        "t10k-labels-idx1-ubyte.gz",
    ]
    raw_file_md5 = [
        "f68b3c2dcbeaaa9fbdd348bbdeb94873",
        "d53e105ee54ea40749a09fcbcd1e9432",
        "9fb629c4189551a2d022fa330f9573f3",
        "ec29112dd5afa0611ce80d1b7f02629c",
    ]

    def __init__(
        self, root: str | os.PathLike[str] | None = None, train: bool = True, download: bool = True
    ) -> None:
        super().__init__(
            cache_dir("datasets", "MNIST") if root is None else root,
            order=("image", "image_category"),
        )
        self._train = bool(train)
        if download:
            self.download()
        self.arrays, self._meta = self.process(self._train)

    @property
    def meta(self) -> dict[str, Any]:
        """Numbers from the headers of the files, a dict with imgs, height, width and labels."""
        return self._meta

    def download(self) -> None:
        """Fetches the files that are missing."""
        for name, md5 in zip(self.raw_file_name, self.raw_file_md5, strict=True):
            if self._path_of(name) is None:
                load_raw_data_from_url(self.url_path + name, name, md5, str(self.root))

    def process(self, train: bool) -> tuple[tuple[np.ndarray, np.ndarray], dict[str, Any]]:
        """Reads the files; returns the tuple ((images, labels), numbers from their headers).

        Parameters
        ----------
        train : bool
            Whether to read the training images; False reads the test images.

        Returns
        -------
        ((numpy.ndarray, numpy.ndarray), dict of str)
            The images and labels, and the numbers from their headers.

        Raises
        ------
        ValueError
            For a damaged file.
        """
        images_file, labels_file = self.raw_file_name[:2] if train else self.raw_file_name[2:]
        images = parse_idx3(self._require(images_file))
        labels = parse_idx1(self._require(labels_file))
        if len(images) != len(labels):
            raise ValueError(
                f"{len(images)} images but {len(labels)} labels in {self.root}; are the files damaged?"
            )
        meta = {
            "imgs": len(images),
            "height": images.shape[1],
            "width": images.shape[2],
            "labels": len(labels),
        }
        return (images, labels), meta

    def _path_of(self, name: str) -> str | None:
        for candidate in (name, name.removesuffix(".gz")):
            path = os.path.join(str(self.root), candidate)
            if os.path.exists(path):
                return path
        return None

    def _require(self, name: str) -> str:
        path = self._path_of(name)
        if path is None:
            raise FileNotFoundError(
                f"{name} is missing in {self.root}; put it there, or pass download=True"
            )
        return path


def parse_idx3(idx3_file: str | os.PathLike[str]) -> np.ndarray:
    """Images of an IDX3 file, uint8 (N, H, W, 1). Raises ValueError for another or a damaged file."""
    data = _content(idx3_file)
    magic, count, height, width = _header(data, 4, idx3_file)
    if magic != 0x803 or len(data) - 16 != count * height * width:
        raise ValueError(f"{idx3_file} is not a complete IDX file of images")
    return np.frombuffer(data, np.uint8, offset=16).reshape(count, height, width, 1).copy()


def parse_idx1(idx1_file: str | os.PathLike[str]) -> np.ndarray:
    """Labels of an IDX1 file, int32 (N,). Raises ValueError for another or a damaged file."""
    data = _content(idx1_file)
    magic, count = _header(data, 2, idx1_file)
    if magic != 0x801 or len(data) - 8 != count:
        raise ValueError(f"{idx1_file} is not a complete IDX file of labels")
    return np.frombuffer(data, np.uint8, offset=8).astype(np.int32)


def _content(path: str | os.PathLike[str]) -> bytes:
    with open(path, "rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
    try:
        with gzip.open(path) if packed else open(path, "rb") as file:
            return file.read()
    except (EOFError, gzip.BadGzipFile) as error:
        raise ValueError(f"{path} is damaged: {error}; delete it and download it again") from error


def _header(data: bytes, count: int, path: Any) -> tuple[int, ...]:
    if len(data) < 4 * count:
        raise ValueError(f"{path} is too short for an IDX file")
    return struct.unpack(f">{count}i", data[: 4 * count])
