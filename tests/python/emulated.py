"""Programs of tests that compute on emulated GPUs."""

import ctypes
import os
from collections.abc import Callable
from pathlib import Path

import pytest

import megengine as mge

CARD = Path(mge.__file__).with_name("libmegjit_card.so")


def gpus(count: int = 1) -> dict[str, str]:
    """The environment of a process that has ``count`` of them."""
    if not CARD.exists():
        pytest.skip("there is no emulated GPU beside the package: make card")
    return {"MEGJIT_EMULATED_GPUS": str(count)}


def launches() -> Callable[[], int]:
    """Counts launches of kernels and graphs since its last call, in a process that has emulated GPUs."""
    if "MEGJIT_EMULATED_GPUS" not in os.environ:
        pytest.skip("no emulated GPU")
    count = ctypes.CDLL(str(CARD)).megjit_card_launches
    count.restype = ctypes.c_uint64
    return count
