"""The bytes of a file as memory: read-only pages, and tensors over them.

All processes that map the file share the pages. A page is read when it is first used, and the
system may drop it again: it is the file's. Nothing writes to it.
"""

from __future__ import annotations

import ctypes
import mmap
from typing import IO

import ml_dtypes
import numpy as np

from .. import _core
from ..tensor import Tensor
from .container import Damaged


class MappedFile:
    """A file that is mapped from its first byte to its last. It need not stay open."""

    def __init__(self, file: IO[bytes]) -> None:
        try:
            number = file.fileno()
        except (OSError, AttributeError):  # io.UnsupportedOperation is an OSError
            raise Damaged("only a file of the system's can be mapped") from None
        try:
            self._map = mmap.mmap(number, 0, access=mmap.ACCESS_READ)
        except ValueError:
            raise Damaged("it has 0 bytes") from None
        self._bytes = np.frombuffer(self._map, np.uint8)

    def part(self, begin: int, end: int) -> np.ndarray:
        """Returns the bytes of a part without reading them.

        It checks the file's length first: reading pages that the file no longer has would end the
        process.
        """
        length = min(self._map.size(), len(self._bytes))
        if length < end:
            raise Damaged(f"it has {length} bytes, and had {end} or more when it was opened")
        return self._bytes[begin:end]


# The capsule holds a DLTensor (dlpack.h): an address, a device of two int32, the rank as an int32,
# and then the code of the dtype.
_PLACE_OF_CODE = ctypes.sizeof(ctypes.c_void_p) + 3 * ctypes.sizeof(ctypes.c_int32)
_BFLOAT = bytes([4])
_address_of = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


def mapped_tensor(array: np.ndarray, device: str) -> Tensor:
    """A tensor of a mapped file: on the host over its pages, on another device a copy."""
    tensor = _lent(array)
    return tensor if _core.find_device(device) == tensor._device_name else tensor.to(device)


def _lent(array: np.ndarray) -> Tensor:
    """A tensor of the host over the memory of ``array``, which it keeps and does not write to.

    A write to the tensor gives it a new value elsewhere. Elements that do not lie at multiples of
    their size are copied.
    """
    if array.ctypes.data % array.itemsize:
        array = array.copy()
    if array.dtype != ml_dtypes.bfloat16:
        return _core.borrow(array)
    # Neither DLPack nor the buffer protocol of NumPy knows bfloat16: the capsule of the same memory
    # as uint16 gets the code of bfloat16.
    capsule = _core.lend(_core.borrow(array.view(np.uint16))).__dlpack__()
    ctypes.memmove(_address_of(capsule, b"dltensor") + _PLACE_OF_CODE, _BFLOAT, 1)
    return _core.borrow(capsule)
