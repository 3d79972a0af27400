"""What is said of NVIDIA's libraries, found or not; nothing of it concerns work on the CPU."""

import os
import subprocess
import sys

import megengine as mge
from megengine import _core


def run(*command, **variables):
    done = subprocess.run(
        [sys.executable, *command],
        env=dict(os.environ, MGE_DEFAULT_DEVICE="cpu0", **variables),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_library_is_a_row_with_a_place_or_a_reason():
    rows = _core.nvidia_libraries()
    assert [row[0] for row in rows] == ["CUDA driver", "NVRTC", "cuDNN", "cuBLASLt", "NCCL"]
    for name, number, version, path, why_not in rows:
        assert bool(path) == bool(number) == bool(version) == (not why_not), name
        assert "\n" not in why_not


def test_versions_are_those_of_the_rows():
    numbers = {row[0]: row[1] for row in _core.nvidia_libraries()}
    assert mge.device.get_cuda_version() == numbers["NVRTC"]
    assert mge.device.get_cuda_driver_version() == numbers["CUDA driver"]
    assert mge.device.get_cudnn_version() == numbers["cuDNN"]


def test_a_missing_library_is_told_in_one_line_and_harms_nothing():
    missing = {"MEGJIT_CUDNN": "/nowhere/libcudnn.so.9", "MEGJIT_CUBLASLT": "/nowhere/libcublasLt.so"}
    table = run("-m", "megengine", "info", **missing)
    assert "  cuDNN        none: no /nowhere/libcudnn.so.9 was found; pip install nvidia-cudnn-cu13\n" in table
    assert "  cuBLASLt     none: no /nowhere/libcublasLt.so was found; pip install nvidia-cublas\n" in table
    script = """
import numpy as np
import megengine as mge
import megengine.functional as F

x, w = np.ones((1, 3, 8, 8), "float32"), np.ones((4, 3, 3, 3), "float32")
print(F.conv2d(mge.tensor(x), mge.tensor(w)).numpy()[0, 0, 0, 0], mge.device.get_cudnn_version())
"""
    assert run("-c", script, **missing).split() == ["27.0", "0"]


def test_a_file_of_another_kind_is_told_by_what_it_lacks():
    table = run("-m", "megengine", "info", MEGJIT_CUDNN="libc.so.6")
    assert "it lacks cudnnGetVersion" in table
