"""What is said of NVIDIA's libraries, found or not; nothing of it concerns work on the CPU."""

import os
import subprocess
import sys

import emulated
import pytest

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


@pytest.mark.parametrize(
    ("setting", "dtype", "words"),
    [
        ("benchmark_kernel", "float16", b", by time"),
        ("deterministic_kernel", "float16", b", deterministic"),
        ("tf32", "float32", b", tf32"),
    ],
)
def test_rules_of_products_make_other_plans(setting, dtype, words, tmp_path):
    """What cuDNN planned for the emulated card lies in the cache, with the rules in its key."""
    script = f"""
import numpy as np
import megengine as mge
import megengine.functional as F

x, w = (mge.tensor(np.ones(shape, "{dtype}"), device="gpu0") for shape in ((2, 16, 8, 8), (16, 16, 3, 3)))
plain = F.conv2d(x, w).numpy()
mge.config.{setting} = True
np.testing.assert_array_equal(F.conv2d(x, w).numpy(), plain)
"""
    run("-c", script, **emulated.gpus(), MEGJIT_CACHE_DIR=str(tmp_path))
    assert any(words in file.read_bytes() for file in tmp_path.iterdir())


@pytest.mark.parametrize("steps", ["relu(y + b)", "y + b + r", "relu(y + b + r)"])
def test_steps_behind_a_convolution_that_cudnn_refuses_are_generated(steps):
    """As on cards before Blackwell, it refuses all three of them together in float32."""
    script = f"""
import numpy as np
import megengine as mge
from megengine.functional import conv2d, relu
from megengine.jit import trace

def f(x, w, b, r):
    y = conv2d(x, w, padding=1)
    return {steps}

rng = np.random.default_rng(0)
arrays = [rng.normal(size=s).astype("float32") for s in ((2, 4, 6, 6), (8, 4, 3, 3), (1, 8, 1, 1), (2, 8, 6, 6))]
traced = trace(f, symbolic=True, opt_level=3)
for place in ("gpu0", "gpu0", "cpu0"):
    there = [mge.tensor(a, device=place) for a in arrays]
    y = traced(*there)
    if place == "gpu0":
        assert any("conv_epilogue" in step for step in traced.memory_plan().steps), traced.memory_plan().steps
    result = y.numpy()
    np.testing.assert_allclose(result, f(*(mge.tensor(a, device="cpu0") for a in arrays)).numpy(), rtol=1e-4, atol=1e-4)
"""
    run("-c", script, **emulated.gpus())


def test_products_are_generated_without_cublaslt():
    """In eager mode, with their gradients, and in traces; what has one row or one column says which library is missing."""
    script = """
import numpy as np
import megengine as mge
import megengine.functional as F
from megengine.autodiff import GradManager
from megengine.jit import trace

rng = np.random.default_rng(0)
shapes = [((33, 17), (17, 20), {}), ((2, 3, 8, 5), (3, 5, 16), {}), ((40, 33), (40, 64), {"transpose_a": True}),
          ((33, 40), (64, 40), {"transpose_b": True}), ((2, 7), (7, 9), {})]
for dtype, tolerance in (("float32", 1e-5), ("float16", 1e-2)):
    for a, b, how in shapes:
        x, y = (rng.standard_normal(s).astype(dtype) for s in (a, b))
        results = []
        for place in ("gpu0", "cpu0"):
            left, right = mge.tensor(x, device=place), mge.tensor(y, device=place)
            manager = GradManager().attach([left, right])
            with manager:
                z = F.matmul(left, right, **how)
                manager.backward(F.sum(z * z))
            traced = trace(lambda p, q: F.matmul(p, q, **how), symbolic=True)
            results.append([t.numpy() for t in (z, left.grad, right.grad, traced(left, right), traced(left, right))])
        for here, there in zip(*results):
            np.testing.assert_allclose(here, there, rtol=tolerance, atol=tolerance * np.abs(there).max())
try:
    F.matmul(mge.tensor(np.ones((1, 5), "float32"), device="gpu0"), mge.tensor(np.ones((5, 3), "float32"), device="gpu0"))
except TypeError as error:
    assert "no /nowhere/libcublasLt.so was found" in str(error)
"""
    run("-c", script, MEGJIT_CUBLASLT="/nowhere/libcublasLt.so", MEGJIT_COMPILE="sync", **emulated.gpus())


def test_batch_normalization_needs_no_cudnn():
    script = """
import numpy as np
import megengine as mge
from megengine.autodiff import GradManager
from megengine.module import BatchNorm1d, BatchNorm2d

rng = np.random.default_rng(0)
for layer, shape in [(BatchNorm1d, (16, 32)), (BatchNorm2d, (2, 8, 5, 3))]:
    x, dy = (rng.normal(size=shape).astype("float32") for _ in range(2))
    results = []
    for place in ("gpu0", "cpu0"):
        mge.set_default_device(place)
        bn, gm, given = layer(shape[1]), GradManager(), mge.Tensor(x)
        with gm.attach([given, *bn.parameters()]):
            y = bn(given)
            gm.backward(y, mge.tensor(dy))
        results.append([y.numpy(), given.grad.numpy(), bn.weight.grad.numpy(), bn.running_var.numpy()])
    for got, right in zip(*results):
        np.testing.assert_allclose(got, right, rtol=1e-4, atol=1e-5)
"""
    run("-c", script, **emulated.gpus(), MEGJIT_CUDNN="/nowhere/libcudnn.so.9")


@pytest.mark.skipif(not mge.device.get_cuda_version(), reason="there is no NVRTC")
def test_libraries_of_a_later_cuda_than_the_drivers_are_not_taken(tmp_path):
    """On a card they would plan, and then fail at the first run."""
    older = {"MEGJIT_EMULATED_GPUS": "1", "MEGJIT_CARD_DRIVER": "12.4", "MEGJIT_CACHE_DIR": str(tmp_path)}
    table = run("-m", "megengine", "info", **older)
    refused = [line for line in table.splitlines() if "it is of CUDA 13, the driver of CUDA 12.4; pip install 'megjit[cuda12]'" in line]
    assert {line.split()[0] for line in refused} >= {"NVRTC", "cuDNN"}
    script = """
import os
import numpy as np
import megengine as mge
import megengine.functional as F

x = mge.tensor(np.ones((64, 64), "float32"), device="gpu0")
f = mge.jit.trace(lambda x: F.exp(x * 0) + x, symbolic=True)
print(*(f(x)[0, 0].item() for _ in range(3)))
os.dup2(1, 2)
print((F.matmul(x, x) + F.matmul(x, x)).numpy()[0, 0], flush=True)
"""
    numbers, *words, product = run("-u", "-c", script, **older, MEGJIT_COMPILE="sync").splitlines()
    assert numbers == "2.0 2.0 2.0" and product == "128.0"
    assert "\n".join(words).count("matmul is computed by generated code") == 1
    assert "it is of CUDA 13, the driver of CUDA 12.4; pip install 'megjit[cuda12]'" in "\n".join(words)
