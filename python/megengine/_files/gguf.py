"""GGUF files: metadata by key, and tensors by name, plain or in blocks.

    "GGUF", version, number of tensors, number of keys
    metadata   key, kind of value, value
    tensors    name, extents (that of the last axis first), number of the format, place
    data       begins at a multiple of general.alignment (32), as each tensor in it does

Everything is checked against the length of the file before memory is asked for.
Source: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import math
import os
import struct
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import ml_dtypes
import numpy as np

from .blocks import FORMATS
from .container import VALUES, Damaged, Stored, not_held

if TYPE_CHECKING:
    from .mapped import MappedFile

MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_DIMENSIONS, _DEPTH = 8, 4  # the most axes of a tensor, and the deepest nesting of lists
_ALIGNMENT_KEY = "general.alignment"

# Numbers of kinds of metadata: numbers by struct's letters, and the others.
_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 10: "Q", 11: "q", 12: "d"}
_BOOL, _TEXT, _LIST = 7, 8, 9
_FORMS = {code: struct.Struct("<" + code) for code in _NUMBERS.values()}
_PIECE_BYTES = 1 << 18

# Numbers of formats of tensors: plain ones, those in blocks, and those that are not read.
_PLAIN: dict[int, tuple[str, Any]] = {
    0: ("F32", "float32"),
    1: ("F16", "float16"),
    24: ("I8", "int8"),
    25: ("I16", "int16"),
    26: ("I32", "int32"),
    27: ("I64", "int64"),
    28: ("F64", "float64"),
    30: ("BF16", ml_dtypes.bfloat16),
}
_BLOCKS = {
    2: "Q4_0", 3: "Q4_1", 6: "Q5_0", 7: "Q5_1", 8: "Q8_0", 12: "Q4_K", 13: "Q5_K", 14: "Q6_K",
}  # fmt: skip
_NOT_READ = {
    9: "Q8_1", 10: "Q2_K", 11: "Q3_K", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS",
    19: "IQ1_S", 20: "IQ4_NL", 21: "IQ3_S", 22: "IQ2_S", 23: "IQ4_XS", 29: "IQ1_M", 34: "TQ1_0",
    35: "TQ2_0", 39: "MXFP4",
}  # fmt: skip


class Place(NamedTuple):
    """The place of one tensor, counted from the first byte of the data. dtype: None for a tensor in
    blocks.
    """

    format: str
    dtype: np.dtype | None
    shape: tuple[int, ...]
    begin: int
    end: int


class GGUF(Stored):
    """A GGUF file. Its metadata are numbers, texts, arrays of numbers, and lists."""

    entries: dict[str, Place]
    metadata: dict[str, Any]

    def __init__(self, file: IO[bytes], mapped: MappedFile | None = None) -> None:
        super().__init__(file, mapped)
        header = _Header(file)
        tensors, keys = header.counts()
        self.metadata = {}
        for _ in range(keys):
            key = header.text()
            if key in self.metadata:
                raise Damaged(f"its metadata has the key {key!r} twice")
            self.metadata[key] = header.value(header.number("I"))
        alignment = self.metadata.get(_ALIGNMENT_KEY, 32)
        if type(alignment) is not int or not 0 < alignment <= 1 << 20:
            raise Damaged(f"its {_ALIGNMENT_KEY} is {alignment!r}")
        self.entries = {}
        for _ in range(tensors):
            name = header.text()
            if name in self.entries:
                raise Damaged(f"it has the tensor {name!r} twice")
            self.entries[name] = _place(name, header, alignment)
        begin = -(-header.place // alignment) * alignment
        self._data = header.start + begin
        self._check_places(header.length - begin)

    def _check_places(self, length: int) -> None:
        end = 0
        by_place = sorted(self.entries.items(), key=lambda item: (item[1].begin, item[1].end))
        for name, entry in by_place:
            if entry.begin < end:
                raise Damaged(f"{name!r} overlaps another tensor at byte {entry.begin} of its data")
            end = entry.end
            if end > length:
                has = max(length, 0)
                raise Damaged(f"{name!r} ends at byte {end} of its data, of which it has {has}")


def _place(name: str, header: _Header, alignment: int) -> Place:
    """Reads the next entry of the header, that of a tensor."""
    axes = header.number("I")
    if axes > _DIMENSIONS:
        raise Damaged(f"{name!r} has {axes} axes; {_DIMENSIONS} are the limit")
    shape = tuple(header.number("Q") for _ in range(axes))[::-1]
    number, begin = header.number("I"), header.number("Q")
    if begin % alignment:
        raise Damaged(f"{name!r} begins at byte {begin} of its data, no multiple of {alignment}")
    if number in _PLAIN:
        word, dtype = _PLAIN[number][0], np.dtype(_PLAIN[number][1])
        return Place(word, dtype, shape, begin, begin + math.prod(shape) * dtype.itemsize)
    if number not in _BLOCKS:
        raise not_held(name, _NOT_READ.get(number, f"number {number}"))
    word = _BLOCKS[number]
    elements, record, _ = FORMATS[word]
    if not shape or shape[-1] % elements:
        raise Damaged(f"{name!r} is {word} of {list(shape)}: blocks of {elements} do not fill rows")
    return Place(word, None, shape, begin, begin + math.prod(shape) // elements * record.itemsize)


class _Header:
    """Reads what stands before the data, one value after the other.

    The file begins at ``start`` and has ``length`` bytes. A vocabulary has hundreds of thousands of
    texts, so the file is read in pieces.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.start = file.tell()
        self.length = file.seek(0, os.SEEK_END) - self.start
        file.seek(self.start)
        self._piece, self._piece_begin, self._at = b"", 0, 0
        self._values = 0

    @property
    def place(self) -> int:
        """The number of bytes that have been read."""
        return self._piece_begin + self._at

    def counts(self) -> tuple[int, int]:
        """Numbers of tensors and of keys. Damaged for a file of another version."""
        self._take(len(MAGIC), "")
        version = self.number("I")
        if version not in _VERSIONS:
            is_swapped = version >> 24 in _VERSIONS
            why = "its numbers are big-endian" if is_swapped else f"it has version {version}"
            raise Damaged(f"{why}; versions 2 and 3, little-endian, can be read")
        tensors, keys = self.number("Q"), self.number("Q")
        self._count(tensors + keys)
        return tensors, keys

    def number(self, code: str) -> Any:
        """A number of one of struct's kinds."""
        form = _FORMS[code]
        return form.unpack(self._take(form.size, "a number"))[0]

    def text(self) -> str:
        """Reads a text and its length before it."""
        content = self._take(self.number("Q"), "a text")
        try:
            return content.decode()
        except UnicodeDecodeError as error:
            raise Damaged(f"a text of its header is no UTF-8: {error}") from None

    def value(self, kind: int, depth: int = 0) -> Any:
        """A value of metadata: int, float, bool, str, an array of numbers, or a list."""
        if kind == _TEXT:
            return self.text()
        if kind == _BOOL:
            return bool(self.number("B"))
        if kind in _NUMBERS:
            return self.number(_NUMBERS[kind])
        if kind != _LIST:
            raise Damaged(f"its metadata has a value of the unknown kind {kind}")
        if depth == _DEPTH:
            raise Damaged(f"its metadata has lists that are nested more than {_DEPTH} deep")
        kind, count = self.number("I"), self.number("Q")
        if kind in _NUMBERS:
            dtype = np.dtype(_FORMS[_NUMBERS[kind]].format)
            return np.frombuffer(self._take(count * dtype.itemsize, "a list"), dtype)
        self._count(count)
        return [self.value(kind, depth + 1) for _ in range(count)]

    def _count(self, more: int) -> None:
        self._values += more
        if self._values > VALUES:
            raise Damaged(f"its header holds {self._values} values; {VALUES} are the limit")

    def _take(self, size: int, what: str) -> bytes:
        begin = self._at
        if begin + size > len(self._piece):
            end = self.place + size
            if end > self.length:
                raise Damaged(f"it has {self.length} bytes, {what} in its header ends at {end}")
            self._piece_begin += begin
            rest, begin = self._piece[begin:], 0
            self._piece = rest + self._file.read(max(size - len(rest), _PIECE_BYTES))
            if len(self._piece) < size:
                raise Damaged("it ended while its header was read")
        self._at = begin + size
        return self._piece[begin : self._at]
