"""Files of image datasets: read an image, check, fetch and unpack an archive."""

from __future__ import annotations

import hashlib
import os
import tarfile

import numpy as np

from ...._files.disk import replaced
from ....utils._opencv import opencv
from ....utils.http_download import download_from_url

IMG_EXT = (".jpg", ".png", ".jpeg", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")


def require(path: str, what: str) -> str:
    """``path``, which must exist. Raises FileNotFoundError that says what is missing."""
    if not os.path.exists(path):
        raise FileNotFoundError(
            f"{what} is missing: {path} does not exist; check root, or put the files there"
        )
    return path


def read_image(path: str, color: bool = True) -> np.ndarray:
    """Image of a file as uint8: BGR (H, W, 3), or as it is stored with color=False.

    Raises FileNotFoundError, and ValueError for a file that is not an image.
    """
    cv2 = opencv()
    require(path, "image")
    # imdecode and not imread: it takes any file name, and it can tell "missing" from "damaged"
    data = np.fromfile(path, dtype=np.uint8)
    image = (
        cv2.imdecode(data, cv2.IMREAD_COLOR if color else cv2.IMREAD_UNCHANGED)
        if data.size
        else None
    )
    if image is None:
        raise ValueError(f"{path} is not an image that can be decoded; is the file damaged?")
    return image


def calculate_md5(filename: str | os.PathLike[str]) -> str:
    """MD5 of a file, in hexadecimal digits."""
    digest = hashlib.md5(usedforsecurity=False)
    with open(filename, "rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def is_img(filename: str) -> bool:
    """Whether the name ends like an image's."""
    return filename.lower().endswith(IMG_EXT)


def load_raw_data_from_url(url: str, filename: str, target_md5: str, raw_data_dir: str) -> str:
    """Path of ``filename`` in ``raw_data_dir``, downloaded from ``url`` if it is not there or damaged.

    Raises RuntimeError when the MD5 of what was downloaded is not ``target_md5``.
    """
    path = os.path.join(raw_data_dir, filename)
    if os.path.exists(path) and calculate_md5(path) == target_md5:
        return path
    with replaced(path) as unchecked:
        download_from_url(url, unchecked)
        found = calculate_md5(unchecked)
        if found != target_md5:
            raise RuntimeError(f"{url} gave a file with MD5 {found}, not {target_md5}; try again later")
    return path


def untar(path: str, to: str | None = None, remove: bool = False) -> None:
    """Unpack a tar archive into the folder ``to`` (default: where it lies); ``remove`` deletes it then."""
    _extract(path, to, remove)


def untargz(path: str, to: str | None = None, remove: bool = False) -> None:
    """Unpack a compressed tar archive, as ``untar``."""
    _extract(path, to, remove)


def _extract(path: str, to: str | None, remove: bool) -> None:
    target = to if to is not None else os.path.dirname(os.path.abspath(path))
    with tarfile.open(path) as archive:
        safe_extract(archive, target)
    if remove:
        os.remove(path)


def safe_extract(archive: tarfile.TarFile, target: str) -> None:
    """Unpack, refusing members that would land outside of ``target``."""
    if hasattr(tarfile, "data_filter"):  # early patch releases of Python 3.11 lack it
        archive.extractall(target, filter="data")
        return
    base = os.path.realpath(target)
    for member in archive.getmembers():
        place = os.path.realpath(os.path.join(base, member.name))
        if not (member.isfile() or member.isdir()) or os.path.commonpath([base, place]) != base:
            raise tarfile.TarError(f"{member.name!r} would be unpacked outside of {target}")
    archive.extractall(target)
