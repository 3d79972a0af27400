"""Collective operations on NumPy arrays, through one server on the host.

In: an array from every process of a group. Out: to each process its part of the result. A client numbers its
operations in each group, so the n-th call of every member meets the n-th calls of the others; members that call
different operations get an error instead of wrong numbers, and a member that is gone ends the wait of the rest.

On the wire: 8 bytes with the lengths of header and content, a JSON header, the array's bytes. No pickles.
"""

from __future__ import annotations

import functools
import json
import math
import socket
import struct
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

_LENGTHS = struct.Struct(">IQ")
_HEADER_LIMIT = 1 << 20  # bytes; a longer header is not ours


class CollectiveServer:
    """Listens on ``host`` at any free port; ``start`` serves from daemon threads."""

    def __init__(self, host: str) -> None:
        self._socket = socket.create_server((host, 0), backlog=128)
        self.port = self._socket.getsockname()[1]
        self._changed = threading.Condition()
        self._rounds: dict[str, _Round] = {}
        self._mail: dict[str, list[np.ndarray]] = {}
        self._gone: set[int] = set()

    def start(self) -> None:
        """Accept connections from now on."""
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Stop accepting."""
        self._socket.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:  # closed
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        rank = None
        try:
            with connection:
                while True:
                    header, array = _receive(connection)
                    if rank is None:  # a new process may have the rank of one that ended
                        rank = header["rank"]
                        with self._changed:
                            self._gone.discard(rank)
                    try:
                        reply = self._answer(header, array)
                    except (
                        Exception
                    ) as error:  # whatever is wrong with a request, its sender is told
                        _send(connection, {"error": f"{type(error).__name__}: {error}"}, None)
                    else:
                        _send(connection, {}, reply)
        except (OSError, EOFError, ValueError, KeyError):
            pass  # the process has ended, or it does not speak our protocol
        finally:
            if rank is not None:
                with self._changed:
                    self._gone.add(rank)
                    self._changed.notify_all()

    def _answer(self, header: dict[str, Any], array: np.ndarray | None) -> np.ndarray | None:
        if header["mode"] == "send":
            with self._changed:
                self._mail.setdefault(header["key"], []).append(array)  # type: ignore[arg-type]  # who sends has one
                self._changed.notify_all()
            return None
        if header["mode"] == "recv":
            return self._take_mail(header["key"], header["source"])
        return self._join_round(header, array)

    def _take_mail(self, key: str, source: int) -> np.ndarray:
        with self._changed:
            self._changed.wait_for(lambda: self._mail.get(key) or source in self._gone)
            if not self._mail.get(key):
                raise RuntimeError(f"process {source} ended before it sent anything")
            return self._mail[key].pop(0)

    def _join_round(self, header: dict[str, Any], array: np.ndarray | None) -> np.ndarray | None:
        key, members = header["key"], header["members"]
        with self._changed:
            turn = self._rounds.setdefault(key, _Round(members))
            turn.add(header, array)
            if turn.complete:
                del self._rounds[key]
                turn.finish()
                self._changed.notify_all()
            self._changed.wait_for(lambda: turn.done or turn.missing & self._gone)
            if not turn.done:
                raise RuntimeError(
                    f"process {min(turn.missing & self._gone)} ended before it joined {header['mode']}"
                )
        return turn.result_for(header["rank"])


class _Round:
    """One collective operation: what came so far, and the results."""

    def __init__(self, members: Sequence[int]) -> None:
        self.members = list(members)
        self.arrays: dict[int, np.ndarray | None] = {}
        self.options: dict[int, tuple[Any, ...]] = {}
        self.done = False
        self._results: list[np.ndarray | None] = []
        self._error: str | None = None

    @property
    def complete(self) -> bool:
        return len(self.arrays) == len(self.members)

    @property
    def missing(self) -> set[int]:
        return set(self.members) - set(self.arrays)

    def add(self, header: dict[str, Any], array: np.ndarray | None) -> None:
        self.arrays[header["rank"]] = array
        self.options[header["rank"]] = (header["mode"], header["axis"], header["concat_axis"])

    def finish(self) -> None:
        try:
            if len(set(self.options.values())) > 1:
                raise ValueError(f"the processes called different operations: {self.options}")
            mode, axis, concat_axis = self.options[self.members[0]]
            self._results = combine(
                mode, [self.arrays[rank] for rank in self.members], axis, concat_axis
            )
        except Exception as error:  # told to every member
            self._error = f"{type(error).__name__}: {error}"
        self.done = True

    def result_for(self, rank: int) -> np.ndarray | None:
        if self._error is not None:
            raise RuntimeError(self._error)
        return self._results[self.members.index(rank)]


def combine(
    mode: str, arrays: Sequence[Any], axis: int, concat_axis: int
) -> list[np.ndarray | None]:
    """Results of one operation for each member, given their arrays. Raises ValueError for shapes that do not fit."""
    count = len(arrays)
    if mode == "barrier":
        return [None] * count
    if mode in ("broadcast", "scatter"):
        root = arrays[0]
        return [root] * count if mode == "broadcast" else list(_split(root, count, axis))
    if mode == "all_to_all":
        parts = [_split(array, count, axis) for array in arrays]
        return [np.concatenate([part[i] for part in parts], axis=concat_axis) for i in range(count)]
    if mode in ("gather", "all_gather"):
        whole = np.concatenate(arrays, axis=axis)
        return [whole] + [whole if mode == "all_gather" else None] * (count - 1)
    shapes = {array.shape for array in arrays}
    if len(shapes) > 1:
        raise ValueError(f"{mode} needs equal shapes in all processes, got {sorted(shapes)}")
    if mode in ("all_reduce_max", "all_reduce_min"):
        function = np.maximum if mode == "all_reduce_max" else np.minimum
        return [functools.reduce(function, arrays)] * count
    total = functools.reduce(np.add, arrays)
    if mode == "reduce_sum":
        return [total] + [None] * (count - 1)
    if mode == "all_reduce_sum":
        return [total] * count
    if mode == "reduce_scatter_sum":
        return list(_split(total, count, axis))
    raise ValueError(f"there is no collective operation {mode!r}")


def _split(array: np.ndarray, count: int, axis: int) -> list[np.ndarray]:
    if array.ndim == 0 or array.shape[axis] % count:
        raise ValueError(
            f"shape {array.shape} cannot be cut into {count} equal parts along axis {axis}"
        )
    return np.split(array, count, axis=axis)


class CollectiveClient:
    """Connection of one process to the server."""

    def __init__(self, address: tuple[str, int], rank: int) -> None:
        self._socket = socket.create_connection(address)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._rank = rank
        self._turns: dict[str, int] = {}
        self._lock = threading.Lock()

    def collective(
        self,
        mode: str,
        members: Sequence[int],
        array: np.ndarray | None,
        axis: int = 0,
        concat_axis: int = 0,
    ) -> np.ndarray | None:
        """Take part in one operation; this process's part of the result. Raises RuntimeError when it fails."""
        group = ",".join(map(str, members))
        with self._lock:
            turn = self._turns[group] = self._turns.get(group, 0) + 1
            return self._ask(
                {
                    "mode": mode,
                    "key": f"{group}#{turn}",
                    "members": list(members),
                    "axis": axis,
                    "concat_axis": concat_axis,
                },
                array,
            )

    def send(self, array: np.ndarray, target: int) -> None:
        """Leave an array for process ``target``."""
        with self._lock:
            self._ask({"mode": "send", "key": f"{self._rank}>{target}"}, array)

    def receive(self, source: int) -> np.ndarray:
        """Wait for the next array that process ``source`` left for this one."""
        with self._lock:
            return self._ask(  # type: ignore[return-value]  # what was sent is an array
                {"mode": "recv", "key": f"{source}>{self._rank}", "source": source}, None
            )

    def _ask(self, header: dict[str, Any], array: np.ndarray | None) -> np.ndarray | None:
        try:
            _send(self._socket, {**header, "rank": self._rank}, array)
            reply, result = _receive(self._socket)
        except (OSError, EOFError) as error:
            raise RuntimeError(
                f"the server for collective operations is gone ({error}); "
                "did the process that started it end?"
            ) from error
        if "error" in reply:
            raise RuntimeError(f"{header['mode']} failed: {reply['error']}")
        return result


def _send(connection: socket.socket, header: dict[str, Any], array: np.ndarray | None) -> None:
    content = memoryview(b"")
    if array is not None:
        plain = np.ascontiguousarray(array)
        header = {**header, "dtype": plain.dtype.name, "shape": np.shape(array)}
        content = memoryview(plain.reshape(-1).view(np.uint8).data)
    text = json.dumps(header).encode()
    connection.sendall(_LENGTHS.pack(len(text), content.nbytes) + text)
    connection.sendall(content)


def _receive(connection: socket.socket) -> tuple[dict[str, Any], np.ndarray | None]:
    header_bytes, content_bytes = _LENGTHS.unpack(_receive_exactly(connection, _LENGTHS.size))
    if header_bytes > _HEADER_LIMIT:
        raise ValueError("not a message of this protocol")
    header = json.loads(bytes(_receive_exactly(connection, header_bytes)))
    if "dtype" not in header:
        return header, None
    dtype, shape = _dtype(header["dtype"]), tuple(header["shape"])
    if math.prod(shape) * dtype.itemsize != content_bytes:
        raise ValueError("not a message of this protocol")
    content = _receive_exactly(connection, content_bytes)
    return header, np.frombuffer(content, np.uint8).view(dtype).reshape(shape)


def _receive_exactly(connection: socket.socket, count: int) -> bytearray:
    data = bytearray(count)
    view, got = memoryview(data), 0
    while got < count:
        step = connection.recv_into(view[got:])
        if step == 0:
            raise EOFError("connection closed")
        got += step
    return data


def _dtype(name: str) -> np.dtype:
    try:
        return np.dtype(name)
    except TypeError:
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, name))
