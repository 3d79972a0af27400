"""The bytes of a file: tensors by name and text by key, in the safetensors format.

    8 bytes   length of the header, little endian
    header    JSON: {"__metadata__": {key: text}, name: {"dtype", "shape", "data_offsets": [begin, end]}, ...}
    data      the tensors, one after the other, without gaps

Everything that the header says is checked against the length of the file before memory is asked for.
The bytes of a tensor are read when they are asked for, or are pages of a mapped file (`mapped.py`).
"""

from __future__ import annotations

import json
import math
import os
import struct
from collections.abc import Mapping
from typing import IO, TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from .._core import host_bytes
from ..tensor import Tensor

if TYPE_CHECKING:
    from .mapped import MappedFile

HEADER_BYTES = 64 << 20  # the largest header of a file
VALUES = 1 << 21  # the most values in the JSON of a file; reading one takes up to 100 bytes
_DIMENSIONS = 32

_DTYPES = {
    "BOOL": "bool", "U8": "uint8", "I8": "int8", "U16": "uint16", "I16": "int16", "U32": "uint32",
    "I32": "int32", "U64": "uint64", "I64": "int64", "F16": "float16", "F32": "float32",
    "F64": "float64", "C64": "complex64",
}  # fmt: skip
_BY_NAME = {key: np.dtype(name) for key, name in _DTYPES.items()}
_BY_NAME["BF16"] = np.dtype(ml_dtypes.bfloat16)
_NAMES = {dtype: key for key, dtype in _BY_NAME.items()}


class ModelFileError(ValueError):
    """A model file that cannot be read, or a model that cannot be written.

    The message says why, which file, and what to do.

    Examples
    --------
    >>> import io
    >>> from megengine import fx
    >>> try:
    ...     fx.load(io.BytesIO(b"short"))
    ... except fx.ModelFileError as error:
    ...     print(str(error).splitlines()[0])
    cannot read BytesIO: it has 5 bytes
    """

    __module__ = "megengine.fx"  # where programs import it from, which tracebacks print


class Damaged(Exception):
    """An exception that says what is wrong with a file; callers add its name.

    ``fix`` says what to do, where writing the file again is no help.
    """

    def __init__(self, why: str, fix: str = "") -> None:
        super().__init__(why)
        self.fix = fix


def can_hold(dtype: np.dtype) -> bool:
    """Whether arrays of ``dtype`` can be written."""
    return np.dtype(dtype) in _NAMES


# -- writing -------------------------------------------------------------------------------------


def write(
    file: IO[bytes], texts: Mapping[str, str], arrays: Mapping[str, np.ndarray | Tensor]
) -> None:
    """Write texts and arrays. Large items go first, so that all are aligned.

    Values of tensors on the host are written from where they lie; others are copied one by one.
    """
    ordered = sorted(arrays.items(), key=lambda item: -item[1].dtype.itemsize)
    header: dict[str, Any] = {"__metadata__": dict(texts)}
    end = 0
    for name, array in ordered:
        begin, end = end, end + math.prod(array.shape) * array.dtype.itemsize
        header[name] = {
            "dtype": _NAMES[array.dtype],
            "shape": list(array.shape),
            "data_offsets": [begin, end],
        }
    text = json.dumps(header, separators=(",", ":"))  # ASCII
    text += " " * (-len(text) % 8)
    if len(text) > HEADER_BYTES or _values_in(text) > VALUES:
        raise Damaged(f"its header is too large: {len(text)} bytes of text")
    file.write(struct.pack("<Q", len(text)))
    file.write(text.encode())
    for _, array in ordered:
        if isinstance(array, Tensor):
            file.write(host_bytes(array).data)
        else:
            file.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)


# -- reading -------------------------------------------------------------------------------------


def _values_in(text: str) -> int:
    """Returns a bound of the values that reading ``text`` as JSON makes: one for each separator."""
    return sum(map(text.count, ",:[{"))


def decoded(text: bytes) -> str:
    """The text of UTF-8."""
    try:
        return text.decode()
    except UnicodeDecodeError as error:
        raise Damaged(f"its header is not JSON: {error}") from None


def _no_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise Damaged("its header has a key twice")
    return found


def _no_constant(text: str) -> Any:
    raise Damaged(f"its header holds {text}, which is not JSON")


def parse(text: str) -> Any:
    """The value of a JSON text."""
    if _values_in(text) > VALUES:
        raise Damaged(f"its header holds more than {VALUES} values")
    try:
        return json.loads(text, object_pairs_hook=_no_twice, parse_constant=_no_constant)
    except RecursionError:
        raise Damaged("its header is nested too deeply") from None
    except ValueError as error:  # also raised for numbers of too many digits
        raise Damaged(f"its header is not JSON: {error}") from None


def is_count(value: Any) -> bool:
    """Whether ``value`` is an int, not a bool, from 0 to the largest address."""
    return type(value) is int and 0 <= value < 1 << 62


def not_held(name: str, dtype: Any) -> Damaged:
    """The error for a tensor of a dtype that is not known."""
    why = f"{name!r} has the dtype {dtype!r}, which this version does not know"
    return Damaged(why, "convert the tensor with the program that wrote it")


class Entry:
    """The place of one tensor, counted from the first byte of the data.

    ``format`` is the file's word for its dtype.
    """

    def __init__(self, name: str, said: Any) -> None:
        if not isinstance(said, dict) or said.keys() != {"dtype", "shape", "data_offsets"}:
            raise Damaged(f"its entry for {name!r} is not one of a tensor")
        shape, place = said["shape"], said["data_offsets"]
        dtype = _BY_NAME.get(said["dtype"]) if isinstance(said["dtype"], str) else None
        if dtype is None:
            raise not_held(name, said["dtype"])
        if not isinstance(shape, list) or len(shape) > _DIMENSIONS or not all(map(is_count, shape)):
            raise Damaged(f"{name!r} has no shape that a tensor can have")
        if not isinstance(place, list) or len(place) != 2 or not all(map(is_count, place)):
            raise Damaged(f"{name!r} does not say where it lies")
        self.format, self.dtype, self.shape = said["dtype"], dtype, tuple(shape)
        self.begin, self.end = place
        if self.end - self.begin != math.prod(shape) * dtype.itemsize:
            raise Damaged(
                f"{name!r} has {self.end - self.begin} bytes, its shape {shape} and dtype {dtype} have another size"
            )


class Stored:
    """The tensors of an open file: ``entries`` by name, and what else it says, ``metadata``.

    ``mapped`` has the file's pages, or is None if bytes are to be read.
    """

    entries: Mapping[str, Any]
    metadata: Mapping[str, Any]
    _data: int  # the place in the file where the data begins

    def __init__(self, file: IO[bytes], mapped: MappedFile | None) -> None:
        self._file, self.mapped = file, mapped

    def content(self, name: str) -> np.ndarray:
        """The bytes of one tensor: pages of a mapped file, which are not read; else read now."""
        if self.mapped is None:
            return self.read(name)
        entry = self._entry(name)
        return self.mapped.part(self._data + entry.begin, self._data + entry.end)

    def read(self, name: str) -> np.ndarray:
        """The bytes of one tensor, read now into memory of their own."""
        entry = self._entry(name)
        content = np.empty(entry.end - entry.begin, np.uint8)
        if len(content):
            self._file.seek(self._data + entry.begin)
            # Type checkers know no readinto of IO[bytes]; every file open for reading has it.
            if self._file.readinto(content) != len(content):  # type: ignore[attr-defined]
                raise Damaged(f"it ended while {name!r} was read")
        return content

    def _entry(self, name: str) -> Any:
        entry = self.entries.get(name)
        if entry is None:
            raise Damaged(f"it names the tensor {name!r}, which it does not hold")
        return entry


class Container(Stored):
    """A safetensors file. Its metadata are texts."""

    entries: dict[str, Entry]
    metadata: dict[str, str]

    def __init__(self, file: IO[bytes], mapped: MappedFile | None = None) -> None:
        super().__init__(file, mapped)
        start = file.tell()
        length = file.seek(0, os.SEEK_END) - start
        file.seek(start)
        if length < 8:
            raise Damaged(f"it has {length} bytes")
        (header,) = struct.unpack("<Q", file.read(8))
        if header > length - 8:
            raise Damaged(f"it has {length} bytes, its header alone would have {header}")
        if header > HEADER_BYTES:
            raise Damaged(f"its header has {header} bytes; {HEADER_BYTES} are the limit")
        self._data = start + 8 + header
        said = self._parsed(decoded(file.read(header)))
        self.metadata = _texts(said.pop("__metadata__", {}))
        self.entries = {name: Entry(name, entry) for name, entry in said.items()}
        self._check_places(length - 8 - header)

    @staticmethod
    def _parsed(text: str) -> dict[str, Any]:
        if not text.startswith("{"):
            raise Damaged("it does not begin like a model file")
        said: dict[str, Any] = parse(text)
        return said

    def _check_places(self, length: int) -> None:
        end = 0
        for entry in sorted(self.entries.values(), key=lambda entry: (entry.begin, entry.end)):
            if entry.begin != end:
                raise Damaged(f"its tensors overlap, or leave a gap, at byte {entry.begin} of its data")
            end = entry.end
        if end != length:
            raise Damaged(f"its tensors take {end} bytes, it has {length} for them")

    def array(self, name: str) -> np.ndarray:
        """One tensor, read now."""
        return as_array(name, self._entry(name), self.read(name))

    def pages(self, name: str) -> np.ndarray:
        """One tensor of a mapped file, read-only."""
        return as_array(name, self._entry(name), self.content(name))


def as_array(name: str, entry: Any, content: np.ndarray) -> np.ndarray:
    """The bytes of a tensor as elements."""
    if entry.dtype == np.bool_ and content.max(initial=0) > 1:
        raise Damaged(f"{name!r} is {entry.format} and has bytes other than 0 and 1")
    return content.view(entry.dtype).reshape(entry.shape)


def _texts(said: Any) -> dict[str, str]:
    if not isinstance(said, dict) or not all(isinstance(text, str) for text in said.values()):
        raise Damaged("its metadata is not text by key")
    return said
