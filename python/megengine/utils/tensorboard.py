"""Graphs, texts and numbers for TensorBoard: event files that need neither TensorFlow nor tensorboardX to be written.

The messages are those of TensorFlow's public .proto files (event, summary, graph, node_def, attr_value, tensor_shape), encoded here
as Protocol Buffers' wire format says.

>>> import os, tempfile
>>> with tempfile.TemporaryDirectory() as folder, SummaryWriterExtend(folder) as writer:
...     writer.add_scalar("loss", 0.5, 1)
...     len(os.listdir(folder))
1
"""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Iterable, Sequence
from typing import Any, Self, SupportsFloat

__all__ = [
    "NodeRaw", "SummaryWriterExtend", "attr_value_proto", "graph", "node", "node_proto", "tensor_shape_proto", "text",
]  # fmt: skip

# -- Protocol Buffers: https://protobuf.dev/programming-guides/encoding ----------------------------


def _varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _field(number: int, value: int | float | str | bytes) -> bytes:
    """An int as varint, a float as 32 bits, text and messages with their length."""
    if isinstance(value, float):
        return _varint(number << 3 | 5) + struct.pack("<f", value)
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    data = value.encode() if isinstance(value, str) else value
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _entry(number: int, key: str, value: bytes) -> bytes:
    return _field(number, _field(1, key) + _field(2, value))  # a map is a list of pairs


# Numbers of TensorFlow's DataType.
_DTYPES = {"float32": 1, "float64": 2, "int32": 3, "uint8": 4, "int16": 5, "int8": 6, "int64": 9, "bool": 10, "float16": 19}


def tensor_shape_proto(shape: Iterable[int]) -> bytes:
    """A TensorShapeProto."""
    return b"".join(_field(2, _field(1, int(extent))) for extent in shape)


def attr_value_proto(shape: Iterable[int] | None, dtype: object, attr: dict[str, Any]) -> dict[str, bytes]:
    """AttrValues by name: ``_output_shapes``, ``dtype`` if there are some, and ``attr`` as text."""
    values = {}
    if shape is not None:
        values["_output_shapes"] = _field(1, _field(7, tensor_shape_proto(shape)))
    if dtype is not None:
        values["dtype"] = _field(6, _DTYPES.get(str(dtype), 0))
    return values | {name: _field(2, str(value)) for name, value in attr.items()}


def node_proto(
    name: str,
    op: str = "UnSpecified",
    input: str | Sequence[str] | None = None,
    outputshape: Iterable[int] | None = None,
    dtype: object = None,
    attributes: dict[str, Any] = {},  # noqa: B006  (never written; the default is part of the interface)
) -> bytes:
    """A NodeDef. input: names of the nodes that it reads."""
    inputs = [input] if isinstance(input, str) else input or []
    head = _field(1, name) + _field(2, op) + b"".join(_field(3, one) for one in inputs)
    values = attr_value_proto(outputshape, dtype, attributes)
    return head + b"".join(_entry(5, key, value) for key, value in values.items())


node = node_proto


def graph(node_list: Iterable[bytes]) -> bytes:
    """A GraphDef of nodes."""
    versions = _field(4, _field(1, 22))
    return b"".join(_field(1, one) for one in node_list) + versions


def text(tag: str, text: str | Sequence[str]) -> bytes:
    """A Summary with one text, or a list of texts."""
    texts = [text] if isinstance(text, str) else list(text)
    plugin = _field(1, _field(1, "text"))
    shape = b"" if isinstance(text, str) else _field(2, tensor_shape_proto([len(texts)]))
    tensor = _field(1, 7) + shape + b"".join(_field(8, one) for one in texts)
    return _field(1, _field(1, tag) + _field(9, plugin) + _field(8, tensor))


class NodeRaw:
    """A node that is still being described; see `SummaryWriterExtend.add_node_raw`."""

    def __init__(
        self, name: str, op: str, input: Any, outputshape: Any, dtype: Any, attributes: dict[str, Any]
    ) -> None:
        self.name, self.op, self.input = name, op, input
        self.outputshape, self.dtype, self.attributes = outputshape, dtype, attributes


# -- event files: records with lengths and masked checksums ----------------------------------------


def _crc_table() -> list[int]:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)  # Castagnoli's polynomial, reflected
        table.append(byte)
    return table


_CRC = _crc_table()


def _masked_crc(data: bytes) -> bytes:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _CRC[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


class SummaryWriterExtend:
    """Writes an event file into ``logdir`` (None: ``runs/<time>_<host><comment>``).

    purge_step: what an earlier run wrote from this step on is not shown. max_queue, flush_secs: events wait until so many are
    there, or so much time has passed. write_to_disk False: nothing is written. log_dir: an older name of logdir.
    """

    def __init__(
        self,
        logdir: str | None = None,
        comment: str = "",
        purge_step: int | None = None,
        max_queue: int = 10,
        flush_secs: float = 120,
        filename_suffix: str = "",
        write_to_disk: bool = True,
        log_dir: str | None = None,
        **kwargs: Any,
    ) -> None:
        if kwargs:
            raise TypeError(f"SummaryWriterExtend: unknown arguments {', '.join(kwargs)}")
        started = time.strftime("%b%d_%H-%M-%S")
        self.logdir = logdir or log_dir or os.path.join("runs", f"{started}_{socket.gethostname()}{comment}")
        self.node_raw_dict: dict[str, NodeRaw] = {}
        self._max_queue, self._flush_secs = max_queue, flush_secs
        self._queue: list[bytes] = []
        self._flushed = time.monotonic()
        self._file = None
        if write_to_disk:
            os.makedirs(self.logdir, exist_ok=True)
            name = f"events.out.tfevents.{int(time.time())}.{socket.gethostname()}.{os.getpid()}.{id(self)}{filename_suffix}"
            self._file = open(os.path.join(self.logdir, name), "wb")
        self._add(_field(3, "brain.Event:2"))
        if purge_step is not None:
            self._add(_field(7, _field(1, 1)), purge_step)  # SessionLog: START
        self.flush()

    def _add(self, what: bytes, step: int | None = None, walltime: float | None = None) -> None:
        when = _varint(1 << 3 | 1) + struct.pack("<d", time.time() if walltime is None else walltime)
        event = when + (b"" if step is None else _field(2, int(step))) + what
        length = struct.pack("<Q", len(event))
        self._queue.append(length + _masked_crc(length) + event + _masked_crc(event))
        if len(self._queue) >= self._max_queue or time.monotonic() - self._flushed > self._flush_secs:
            self.flush()

    def add_scalar(
        self, tag: str, scalar_value: SupportsFloat, global_step: int | None = None, walltime: float | None = None
    ) -> None:
        """One number of the curve ``tag``."""
        value = _field(1, tag) + _field(2, float(scalar_value))
        self._add(_field(5, _field(1, value)), global_step, walltime)

    def add_text(
        self,
        tag: str,
        text_string_list: str | Sequence[str],
        global_step: int | None = None,
        walltime: float | None = None,
    ) -> None:
        """A text, or a list of texts."""
        self._add(_field(5, text(tag, text_string_list)), global_step, walltime)

    def add_node_raw(
        self,
        name: str,
        op: str = "UnSpecified",
        input: str | Sequence[str] = [],  # noqa: B006  (copied; the default is part of the interface)
        outputshape: Sequence[int] | None = None,
        dtype: object = None,
        attributes: dict[str, Any] = {},  # noqa: B006
    ) -> None:
        """Adds a node to the graph that `add_graph_by_node_raw_list` writes; parameters as for `node`."""
        inputs = [input] if isinstance(input, str) else list(input)
        self.node_raw_dict[name] = NodeRaw(name, op, inputs, outputshape, dtype, dict(attributes))

    def add_node_raw_name_suffix(self, name: str, suffix: str) -> None:
        """Shows the node ``name`` as name + suffix, for its readers, too. KeyError for an unknown one."""
        self.node_raw_dict[name].name += suffix

    def add_node_raw_attributes(self, name: str, attributes: dict[str, Any]) -> None:
        """More attributes of the node ``name``. KeyError for an unknown one."""
        self.node_raw_dict[name].attributes.update(attributes)

    def add_graph_by_node_raw_list(self) -> None:
        """Writes the graph of the nodes that were added."""
        names = {name: raw.name for name, raw in self.node_raw_dict.items()}
        nodes = [
            node(raw.name, raw.op, [names.get(i, i) for i in raw.input], raw.outputshape, raw.dtype, raw.attributes)
            for raw in self.node_raw_dict.values()
        ]
        self._add(_field(4, graph(nodes)))

    def flush(self) -> None:
        """Writes what waits."""
        if self._file is not None:
            self._file.write(b"".join(self._queue))
            self._file.flush()
        self._queue.clear()
        self._flushed = time.monotonic()

    def close(self) -> None:
        """Writes what waits, and closes the file."""
        self.flush()
        if self._file is not None:
            self._file.close()
            self._file = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()
