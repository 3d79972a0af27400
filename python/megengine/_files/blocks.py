"""Tensors in blocks of integers that have few bits, and their scales, as GGUF files store them.

Formats and formulas are those of ggml's documentation. A block is a record, whose parts have ggml's
names: ``d`` (scale), ``m`` (least value), ``qs`` (integers), ``qh`` (their high bits). Formats with
a K in their names also have ``scales`` (6 or 8 bits for each part of the block) and ``dmin``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from .. import _core
from ..tensor import Tensor

_AT_ONCE = 1 << 18  # elements converted at once, which bounds the memory beside the result


class BlockFormat(NamedTuple):
    """elements: the number of elements of a block. record: its bytes. values: turns records into
    float32 (blocks, elements).
    """

    elements: int
    record: np.dtype
    values: Callable[[np.ndarray], np.ndarray]


class QuantizedBlocks:
    """A tensor that is stored as blocks of integers with few bits, each with its scales.

    Parameters
    ----------
    format : str
        Name of the format, such as "Q4_0".
    shape : tuple of int
        Shape of the tensor; blocks lie along its last axis.
    content : ndarray of uint8
        Bytes of all blocks, which are not copied.

    Attributes
    ----------
    format : str
        Name of the format.
    shape : tuple of int
        Shape of the tensor.
    group : int
        Number of elements of a block.
    blocks : ndarray
        The blocks, of shape (..., last extent / group): a view of the file's bytes as records.
        ``blocks["d"]`` are the scales (float16), ``blocks["qs"]`` the integers; see Notes.

    Raises
    ------
    ValueError
        For an unknown format, an extent that no blocks fill, or bytes of another length.

    Notes
    -----
    With x(i) for element i of a block, and integers in the order of the file:

    * Q8_0: x(i) = d * qs[i], with 32 int8.
    * Q4_0: x(i) = d * (q(i) - 8), where q(i) are the low four bits of qs[i], and q(i + 16) the high
      ones; i from 0 to 15.
    * Q4_1: x(i) = d * q(i) + m.
    * Q5_0, Q5_1: a fifth bit of q(i) is bit i of qh; x(i) = d * (q(i) - 16) and d * q(i) + m.
    * Q4_K, Q5_K, Q6_K: 256 elements, whose parts have scales of 6 or 8 bits.

    NumPy takes such an object for its values, so that ``load_state_dict`` does, too; layers of
    blocks take the blocks as they are.

    References
    ----------
    GGUF and the structs of its blocks: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md

    Examples
    --------
    >>> import numpy as np
    >>> from megengine.serialization import QuantizedBlocks
    >>> content = np.concatenate([np.float16([0.5]).view(np.uint8), np.full(16, 0x9A, np.uint8)])
    >>> weight = QuantizedBlocks("Q4_0", (1, 32), content)
    >>> weight.blocks["d"], weight.blocks["qs"].shape
    (array([[0.5]], dtype=float16), (1, 1, 16))
    >>> weight.dequantize()[0, [0, 15, 16, 31]].tolist()
    [1.0, 1.0, 0.5, 0.5]
    """

    __module__ = "megengine.serialization"  # where programs import it from

    def __init__(self, format: str, shape: tuple[int, ...], content: np.ndarray) -> None:
        if format not in FORMATS:
            raise ValueError(
                f"QuantizedBlocks: unknown format {format!r}\n  fix: one of {', '.join(FORMATS)}"
            )
        elements, record, _ = FORMATS[format]
        if not shape or shape[-1] % elements:
            raise ValueError(
                f"QuantizedBlocks: blocks of {format} have {elements} elements, "
                f"which do not fill the last axis of {shape}"
            )
        rows = (*shape[:-1], shape[-1] // elements)
        size = math.prod(rows) * record.itemsize
        if content.nbytes != size:
            raise ValueError(
                f"QuantizedBlocks: {shape} takes {size} bytes as {format}, got {content.nbytes}"
            )
        self.format, self.shape, self.group = format, tuple(shape), elements
        self.blocks: np.ndarray = content.reshape(-1).view(record).reshape(rows)

    @property
    def nbytes(self) -> int:
        """Bytes of all blocks."""
        return self.blocks.nbytes

    def dequantize(self) -> np.ndarray:
        """Computes the values of all elements.

        Returns
        -------
        ndarray
            Values of dtype float32, in the tensor's shape.
        """
        values = np.empty(self.shape, np.float32)
        rows, records = values.reshape(-1, self.group), self.blocks.reshape(-1)
        step, of_records = _AT_ONCE // self.group, FORMATS[self.format].values
        with np.errstate(all="ignore"):  # a scale that is NaN may give any result
            for begin in range(0, len(records), step):
                rows[begin : begin + step] = of_records(records[begin : begin + step])
        return values

    def as_tensor(self) -> Tensor:
        """Returns the bytes of the blocks as a tensor, which layers of blocks read.

        Returns
        -------
        Tensor
            uint8 (..., last extent / group, bytes of a block), on the host. It lies where the blocks
            lie, so that a mapped file stays unread; a write gives it memory of its own.

        See Also
        --------
        module.quantized.BlockwiseLinear.from_blocks : Makes a layer of Q4_0 or Q8_0.
        """
        return _core.borrow(self.blocks[..., None].view(np.uint8))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if copy is False:
            raise ValueError("QuantizedBlocks: its values are computed, so an array is a copy")
        values = self.dequantize()
        return values if dtype is None else values.astype(dtype, copy=False)

    def __repr__(self) -> str:
        return f"QuantizedBlocks({self.format}, {list(self.shape)}, {self.nbytes} bytes)"


# ---- values of records


def _column(scales: np.ndarray) -> np.ndarray:
    return scales.astype(np.float32)[:, None]


def _nibbles(packed: np.ndarray) -> np.ndarray:
    """The low four bits of all bytes of the last axis, and behind them the high ones."""
    return np.concatenate([packed & 15, packed >> 4], axis=-1)


def _fifth_bits(records: np.ndarray) -> np.ndarray:
    """Returns 16 for each element whose bit in qh is set, else 0."""
    return np.unpackbits(records["qh"], axis=-1, bitorder="little") << 4


def _q4_0(records: np.ndarray) -> np.ndarray:
    return _column(records["d"]) * (_nibbles(records["qs"]).astype(np.int8) - 8)


def _q4_1(records: np.ndarray) -> np.ndarray:
    return _column(records["d"]) * _nibbles(records["qs"]) + _column(records["m"])


def _q5_0(records: np.ndarray) -> np.ndarray:
    integers = _nibbles(records["qs"]) | _fifth_bits(records)
    return _column(records["d"]) * (integers.astype(np.int8) - 16)


def _q5_1(records: np.ndarray) -> np.ndarray:
    integers = _nibbles(records["qs"]) | _fifth_bits(records)
    return _column(records["d"]) * integers + _column(records["m"])


def _q8_0(records: np.ndarray) -> np.ndarray:
    return _column(records["d"]) * records["qs"]


def _scales_and_least(records: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Scales and least values of the eight parts of a block (Q4_K, Q5_K): 6 bits each, in 12 bytes.

    Bytes 0 to 3 have the first four scales, bytes 4 to 7 the first four least values. Of the last
    four, bytes 8 to 11 have the low four bits, and the high bits of the bytes before them the rest.
    """
    low, middle, high = np.split(records["scales"], 3, axis=-1)
    scales = np.concatenate([low & 63, high & 15 | low >> 6 << 4], axis=-1)
    least = np.concatenate([middle & 63, high >> 4 | middle >> 6 << 4], axis=-1)
    return _column(records["d"]) * scales, _column(records["dmin"]) * least


def _fours(records: np.ndarray) -> np.ndarray:
    """The integers of four bits, (blocks, 8, 32): two parts lie in 32 bytes."""
    return _nibbles(records["qs"].reshape(-1, 4, 32)).reshape(-1, 8, 32)


def _by_parts(records: np.ndarray, integers: np.ndarray) -> np.ndarray:
    scales, least = _scales_and_least(records)
    return (scales[..., None] * integers - least[..., None]).reshape(len(records), 256)


def _q4_k(records: np.ndarray) -> np.ndarray:
    return _by_parts(records, _fours(records))


def _q5_k(records: np.ndarray) -> np.ndarray:
    """Bit j of byte i of qh is the fifth bit of element i of part j."""
    high = np.unpackbits(records["qh"][:, None, :], axis=1, bitorder="little")
    return _by_parts(records, _fours(records) | high << 4)


def _q6_k(records: np.ndarray) -> np.ndarray:
    """Half of a block is four rows of 32 elements, sharing 32 bytes of qh, two bits for each."""
    low = _nibbles(records["ql"].reshape(-1, 2, 64)).reshape(-1, 2, 4, 32)
    high = records["qh"].reshape(-1, 2, 1, 32) >> np.array([[0], [2], [4], [6]], np.uint8) & 3
    integers = (low | high << 4).astype(np.int8) - 32
    scales = _column(records["d"]) * records["scales"]
    return (scales[..., None] * integers.reshape(-1, 16, 16)).reshape(len(records), 256)


def _format(elements: int, values: Any, *parts: tuple[Any, ...]) -> BlockFormat:
    return BlockFormat(elements, np.dtype(list(parts)), values)


_D, _M, _QS = ("d", "<f2"), ("m", "<f2"), ("qs", "u1", 16)
_K = (_D, ("dmin", "<f2"), ("scales", "u1", 12))
_Q6 = (("ql", "u1", 128), ("qh", "u1", 64), ("scales", "i1", 16), _D)

FORMATS: dict[str, BlockFormat] = {
    "Q4_0": _format(32, _q4_0, _D, _QS),
    "Q4_1": _format(32, _q4_1, _D, _M, _QS),
    "Q5_0": _format(32, _q5_0, _D, ("qh", "u1", 4), _QS),
    "Q5_1": _format(32, _q5_1, _D, _M, ("qh", "u1", 4), _QS),
    "Q8_0": _format(32, _q8_0, _D, ("qs", "i1", 32)),
    "Q4_K": _format(256, _q4_k, *_K, ("qs", "u1", 128)),
    "Q5_K": _format(256, _q5_k, *_K, ("qh", "u1", 32), ("qs", "u1", 128)),
    "Q6_K": _format(256, _q6_k, *_Q6),
}
