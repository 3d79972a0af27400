"""Programs of tests that compute on emulated GPUs."""

from pathlib import Path

import pytest

import megengine as mge


def gpus(count: int = 1) -> dict[str, str]:
    """The environment of a process that has ``count`` of them."""
    if not Path(mge.__file__).with_name("libmegjit_card.so").exists():
        pytest.skip("there is no emulated GPU beside the package: make card")
    return {"MEGJIT_EMULATED_GPUS": str(count)}
