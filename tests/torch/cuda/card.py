"""What the emulated card counts; on a GPU these tests are skipped."""

import contextlib
import ctypes
import os

import pytest

IS_EMULATED = int(os.environ.get("MEGJIT_EMULATED_GPUS") or 0) > 0
emulated = pytest.mark.skipif(not IS_EMULATED, reason="what only the emulated card counts")
_DRIVER = ctypes.CDLL(os.environ["MEGJIT_CUDA_DRIVER"]) if IS_EMULATED else None
if _DRIVER:
    _DRIVER.megjit_card_calls.restype = ctypes.c_uint64
WAITS = "cuStreamSynchronize", "cuEventSynchronize", "cuCtxSynchronize", "a pageable copy"
MAKES = "cuStreamBeginCapture_v2", "cuGraphInstantiateWithFlags", "cuModuleLoadDataEx", "cuMemAlloc_v2", "cuMemHostAlloc"


def calls(*names):
    return {name: _DRIVER.megjit_card_calls(name.encode()) for name in names}


@contextlib.contextmanager
def none_of(*names):
    """Within a block these functions of the driver are not called."""
    before = calls(*names)
    yield
    after = calls(*names)
    assert after == before, {name: after[name] - before[name] for name in names if after[name] != before[name]}
