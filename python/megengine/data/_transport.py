"""Move a batch from a worker process to its parent without copying the arrays through a pipe.

In: any picklable batch and a connection. Out: an equal batch on the other side. The pickle stream goes
through the connection; array contents go through an anonymous memory file (Linux), which the kernel
frees when the last process that maps it is gone: a killed process leaves nothing behind.
"""

from __future__ import annotations

import mmap
import os
import pickle
from multiprocessing import reduction
from multiprocessing.connection import Connection
from typing import Any

# Below this, one trip through the socket is cheaper than a memory file (both about 50 us).
_INLINE_BYTES = 64 * 1024
_ALIGN = 64  # bytes: an alignment for vector instructions


def dump(message: object) -> tuple[bytes, list[memoryview]]:
    """The pickle stream, and the array contents that were kept out of it."""
    buffers: list[pickle.PickleBuffer] = []
    stream = pickle.dumps(message, protocol=5, buffer_callback=buffers.append)
    raws = [buffer.raw() for buffer in buffers]
    if sum(raw.nbytes for raw in raws) < _INLINE_BYTES or not hasattr(os, "memfd_create"):
        return pickle.dumps(message, protocol=5), []
    return stream, raws


def send(connection: Connection, stream: bytes, raws: list[memoryview]) -> None:
    """Sends what ``dump`` gave. Raises OSError when the other side is gone."""
    descriptor = _memory_file(raws) if raws else None
    try:
        connection.send_bytes(pickle.dumps((stream, [raw.nbytes for raw in raws])))
        if descriptor is not None:
            reduction.send_handle(connection, descriptor, None)
    finally:
        if descriptor is not None:
            os.close(descriptor)


def receive(connection: Connection) -> Any:
    """The message that the other side sent. Raises EOFError or OSError when it died on the way."""
    stream, sizes = pickle.loads(connection.recv_bytes())
    if not sizes:
        return pickle.loads(stream)
    descriptor = reduction.recv_handle(connection)
    try:
        view = memoryview(mmap.mmap(descriptor, _offsets(sizes)[-1]))
    finally:
        os.close(descriptor)
    parts = [
        view[start : start + size] for start, size in zip(_offsets(sizes), sizes, strict=False)
    ]
    return pickle.loads(stream, buffers=parts)


def _offsets(sizes: list[int]) -> list[int]:
    """Returns the offset of each part; the last number is the size of the file (never 0)."""
    offsets = [0]
    for size in sizes:
        offsets.append(offsets[-1] + max(_ALIGN, -(-size // _ALIGN) * _ALIGN))
    return offsets


def _memory_file(raws: list[memoryview]) -> int:
    descriptor = os.memfd_create("megengine_batch")
    try:
        offsets = _offsets([raw.nbytes for raw in raws])
        os.ftruncate(descriptor, offsets[-1])
        for start, raw in zip(offsets, raws, strict=False):
            written = 0
            while written < raw.nbytes:
                written += os.pwrite(descriptor, raw[written:], start + written)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor
