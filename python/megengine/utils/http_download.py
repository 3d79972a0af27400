"""Fetch one file over HTTP(S) with a progress bar."""

from __future__ import annotations

import os
import shutil
import urllib.error
import urllib.request

from .._files.disk import replaced
from ..reports.progress import Progress

CHUNK_SIZE = 1024
HTTP_CONNECTION_TIMEOUT = 5  # seconds

_READ_BYTES = 64 * CHUNK_SIZE


class HTTPDownloadError(Exception):
    """The address cannot be read, or the file arrived incomplete."""


class Bar:
    """Progress bar over bytes, on a terminal alone. total: expected bytes; 0 or None when unknown."""

    def __init__(self, total: int | None = 100) -> None:
        self._progress = Progress("download", total or None, unit="B", unit_scale=True, unit_divisor=1024)

    def __call__(self, bytes_num: int) -> None:
        """Notes that ``bytes_num`` more bytes have come."""
        self._progress.update(bytes_num)

    def close(self) -> None:
        """Takes the bar off the screen."""
        self._progress.close()


def download_from_url(url: str, dst: str | os.PathLike[str], *, timeout: float | None = None) -> None:
    """Download ``url`` to the path ``dst``; nothing is left at ``dst`` unless all of it has come.

    timeout: seconds without any bytes; None for ``HTTP_CONNECTION_TIMEOUT``.
    Raises HTTPDownloadError with the address and the cause; ValueError unless url is http(s) or file.
    """
    if not url.startswith(("http://", "https://", "file://")):
        raise ValueError(f"can download http, https and file addresses only, got {url!r}")
    target = os.fspath(dst)
    os.makedirs(os.path.dirname(os.path.abspath(target)), exist_ok=True)
    try:
        with replaced(target) as partial:
            _fetch(url, partial, HTTP_CONNECTION_TIMEOUT if timeout is None else timeout)
    except (OSError, urllib.error.URLError, EOFError) as error:
        raise HTTPDownloadError(
            f"cannot download {url}: {error}; check the network, or put the file at {target} by hand"
        ) from error


def _fetch(url: str, path: str, timeout: float) -> None:
    request = urllib.request.Request(url, headers={"User-Agent": "megengine"})
    with (
        urllib.request.urlopen(request, timeout=timeout) as reply,
        open(path, "wb") as out,
    ):
        total = int(reply.headers.get("Content-Length") or 0)
        if shutil.disk_usage(os.path.dirname(os.path.abspath(path))).free < total:
            raise OSError(f"{total} bytes do not fit on the disk of {path}")
        bar, received = Bar(total), 0
        try:
            while chunk := reply.read(_READ_BYTES):
                out.write(chunk)
                received += len(chunk)
                bar(len(chunk))
        finally:
            bar.close()
    if total and received != total:
        raise EOFError(f"{received} of {total} bytes arrived")
