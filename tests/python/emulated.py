"""Programs of tests that compute on emulated GPUs."""

import ctypes
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import megengine as mge

CARD = Path(mge.__file__).with_name("libmegjit_card.so")


def gpus(count: int = 1) -> dict[str, str]:
    """The environment of a process that has ``count`` of them."""
    if not CARD.exists():
        pytest.skip("there is no emulated GPU beside the package: make card")
    return {"MEGJIT_EMULATED_GPUS": str(count)}


def _card() -> ctypes.CDLL:
    if "MEGJIT_EMULATED_GPUS" not in os.environ:
        pytest.skip("no emulated GPU")
    return ctypes.CDLL(str(CARD))


def calls() -> Callable[[str], int]:
    """Counts calls of a function of the driver, by its name, since the start; of all functions for an empty one."""
    count = _card().megjit_card_calls
    count.restype = ctypes.c_uint64
    return lambda name: int(count(name.encode()))


@contextmanager
def failing(function: str, nth: int, times: int = 1, result: int = 2) -> Iterator[None]:
    """So many calls of that function of the driver, from the nth on, do nothing and give that result: by default, that there is no memory."""
    fail = _card().megjit_card_fail
    fail.argtypes, fail.restype = [ctypes.c_char_p, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_int], None
    fail(function.encode(), nth, times, result)
    try:
        yield
    finally:
        fail(b"", 0, 0, 0)


def launches() -> Callable[[], int]:
    """Counts launches of kernels and graphs since its last call, in a process that has emulated GPUs."""
    count = _card().megjit_card_launches
    count.restype = ctypes.c_uint64
    return count
