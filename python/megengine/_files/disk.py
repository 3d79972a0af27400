"""Files that appear whole or not at all, and the cache folder, whose files can be fetched or made
again.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import threading
from collections.abc import Iterator
from typing import IO


def cache_dir(*parts: str) -> str:
    """A folder in the package's cache: MGE_HOME, else ``megengine`` in the user's cache folder."""
    home = os.environ.get("MGE_HOME") or os.path.join(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "megengine")
    return os.path.join(os.path.expanduser(home), *parts)


@contextlib.contextmanager
def one_process_at_a_time(name: str) -> Iterator[None]:
    """Lets one process of the user on this machine run a block of this name at a time; others wait.
    """
    path = cache_dir("locks", name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # held until it is closed, or the process ends
        yield


@contextlib.contextmanager
def naming(path: str) -> Iterator[None]:
    """Gives errors of writing and closing, such as that of a full disk, the name of the file."""
    try:
        yield
    except OSError as error:
        if error.errno is not None and error.filename is None:
            error.filename = path
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                error.add_note("  fix: make room, or write to another disk")
        raise


@contextlib.contextmanager
def replaced(path: str | os.PathLike[str]) -> Iterator[str]:
    """Gives a path to write to. It replaces ``path``, with its mode, if the block ends without an
    error; else it is removed.
    """
    target = os.path.realpath(path)
    if not os.path.isdir(os.path.dirname(target)):
        raise FileNotFoundError(errno.ENOENT, "there is no such folder to write into", os.path.dirname(target))
    partial = f"{target}.{os.getpid()}.{threading.get_ident()}.part"
    try:
        with naming(target):
            yield partial
        with contextlib.suppress(FileNotFoundError):
            os.chmod(partial, stat.S_IMODE(os.stat(target).st_mode))
        os.replace(partial, target)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.remove(partial)


@contextlib.contextmanager
def written_whole(f: str | os.PathLike[str] | IO[bytes]) -> Iterator[IO[bytes]]:
    """Gives a file to write to. A path gets its new content at once, by `replaced`; a device or a
    pipe is written directly.
    """
    if not isinstance(f, (str, os.PathLike)):
        yield f
        return
    path = os.path.realpath(f)
    if os.path.exists(path) and not stat.S_ISREG(os.stat(path).st_mode):
        with naming(path), open(path, "wb") as file:
            yield file
        return
    with replaced(path) as partial, open(partial, "wb") as file:
        yield file


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Writes a text as `written_whole` does."""
    with written_whole(path) as file:
        file.write(text.encode("utf-8"))
