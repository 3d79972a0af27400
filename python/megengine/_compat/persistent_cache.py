"""A small key-value store of byte strings in one file, shared by processes.

In: category, key, value (bytes). Out: the bytes that some process put before, or None. The file is
written to a temporary name and renamed under a lock, so readers never see half of it; a file that
cannot be read counts as empty. ``python -m megengine.utils.persistent_cache`` shows or empties it.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import json
import os
import threading
from collections.abc import Iterator
from urllib.parse import urlsplit

from .._files.disk import cache_dir, written_whole


class _PersistentCache:
    """Bytes by category and key, in memory."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._entries: dict[str, dict[str, bytes]] = {}

    def get(self, category: str, key: bytes | str) -> bytes | None:
        """The value, or None."""
        with self._lock:
            return self._entries.get(category, {}).get(_key_text(key))

    def put(self, category: str, key: bytes | str, value: bytes) -> None:
        """Sets the value; an earlier one is replaced."""
        with self._lock:
            self._entries.setdefault(category, {})[_key_text(key)] = bytes(value)


class PersistentCacheOnServer(_PersistentCache):
    """The store in a file under ``MGE_FASTRUN_CACHE_DIR``, ``MGE_HOME`` or the user's cache folder.

    ``MGE_FASTRUN_CACHE_TYPE=MEMORY`` keeps it in memory only.
    """

    def __init__(self) -> None:
        super().__init__()
        kind = os.environ.get("MGE_FASTRUN_CACHE_TYPE", "FILE").upper()
        if kind not in ("FILE", "MEMORY"):
            raise ValueError(f"MGE_FASTRUN_CACHE_TYPE must be FILE or MEMORY, got {kind!r}")
        self._path = self.get_cache_file(self.get_cache_dir()) if kind == "FILE" else None
        if self._path is not None:
            self._entries = _read(self._path)

    def get_cache_dir(self) -> str:
        """Folder of the cache file."""
        explicit = os.environ.get("MGE_FASTRUN_CACHE_DIR")
        return os.path.expanduser(explicit) if explicit else cache_dir("persistent_cache")

    def get_cache_file(self, cache_dir: str) -> str:
        """Path of the cache file in ``cache_dir``."""
        return os.path.join(cache_dir, "cache.json")

    @contextlib.contextmanager
    def lock_cache_file(self, cache_dir: str) -> Iterator[None]:
        """Hold the lock of the cache file of ``cache_dir`` against other processes."""
        os.makedirs(cache_dir, mode=0o700, exist_ok=True)
        with open(self.get_cache_file(cache_dir) + ".lock", "a") as lock:
            try:
                import fcntl
            except ImportError:  # not a POSIX system: renaming must suffice
                yield
                return
            fcntl.flock(lock, fcntl.LOCK_EX)
            try:
                yield
            finally:
                fcntl.flock(lock, fcntl.LOCK_UN)

    def get_redis_config(self) -> dict[str, object] | None:
        """Host, port and password of ``MGE_FASTRUN_CACHE_URL=redis://[:password@]host[:port]``.

        None when it is not set. Raises ValueError for another scheme. This build talks to files
        only: the answer is for programs that have a client of their own.
        """
        url = os.environ.get("MGE_FASTRUN_CACHE_URL")
        if not url:
            return None
        parts = urlsplit(url)
        if parts.scheme != "redis" or not parts.hostname:
            raise ValueError(
                f"MGE_FASTRUN_CACHE_URL must look like redis://[:password@]host[:port], got {url!r}"
            )
        return {"hostname": parts.hostname, "port": parts.port or 6379, "password": parts.password}

    def put(self, category: str, key: bytes | str, value: bytes) -> None:
        """Sets the value, here and in the file."""
        super().put(category, key, value)
        self.flush()

    def flush(self) -> None:
        """Writes to the file what is not there yet, keeping what other processes have added."""
        if self._path is None:
            return
        with self._lock, self.lock_cache_file(os.path.dirname(self._path)):
            merged = _read(self._path)
            for category, entries in self._entries.items():
                merged.setdefault(category, {}).update(entries)
            self._entries = merged
            _write(self._path, merged)


def _key_text(key: bytes | str) -> str:
    """Texts and their bytes are one key."""
    return base64.b64encode(key.encode() if isinstance(key, str) else key).decode()


def _read(path: str) -> dict[str, dict[str, bytes]]:
    try:
        with open(path, encoding="utf-8") as file:
            stored = json.load(file)
        return {
            category: {key: base64.b64decode(text) for key, text in entries.items()}
            for category, entries in stored.items()
        }
    except (OSError, ValueError, AttributeError, TypeError):
        return {}


def _write(path: str, entries: dict[str, dict[str, bytes]]) -> None:
    text = {
        category: {key: base64.b64encode(value).decode() for key, value in inner.items()}
        for category, inner in entries.items()
    }
    with written_whole(path) as file:
        file.write(json.dumps(text).encode())


def main() -> None:
    """Command line: where the cache is, what it holds; ``--clear`` empties it."""
    parser = argparse.ArgumentParser(description="Show or empty the persistent cache.")
    parser.add_argument("--clear", action="store_true", help="remove the cache file")
    arguments = parser.parse_args()
    cache = PersistentCacheOnServer()
    path = cache.get_cache_file(cache.get_cache_dir())
    if arguments.clear:
        with contextlib.suppress(FileNotFoundError):
            os.remove(path)
    for category, entries in sorted(_read(path).items()):
        print(f"{category}: {len(entries)} entries, {sum(map(len, entries.values()))} bytes")
    print(f"file: {path}")


if __name__ == "__main__":
    main()
