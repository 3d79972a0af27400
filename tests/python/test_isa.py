"""Levels of the instruction set: MEGJIT_ISA bounds them, and promised bits are the same at each."""

import os
import shutil
import subprocess
import sys

import pytest

from megengine import _core

LEVELS = ("avx2", "avx512", "avx512_vnni", "amx")
HERE = LEVELS[: LEVELS.index(_core.machine_isa()) + 1]

DIGESTS = """
import hashlib
import numpy as np
import megengine as mge
import megengine.functional as F
from megengine.autodiff import GradManager
from megengine.core import ops
from megengine.jit import trace

def note(name, *results):
    digest = hashlib.sha256(b"".join(r.numpy().tobytes() for r in results))
    print(name, digest.hexdigest()[:16])

rng = np.random.RandomState(0)
x = mge.tensor(rng.randn(37, 211).astype(np.float32))
y = mge.tensor(rng.randn(37, 211).astype(np.float32) * 20)
def elements(x, y):
    z = F.gelu(x) * F.exp(-y * y) + F.tanh(y) / (1 + F.sigmoid(x)) - F.sin(y) * F.cos(x * 7)
    return z, F.floor(y) + F.round(x * 3), F.log1p(F.abs(z)), F.maximum(z, x).astype("float16"), (y * 3).astype("int32")
note("eager", *elements(x, y))
exact = trace(elements, symbolic=True, opt_level=3, numerics="exact")
note("eager", *exact(x, y))  # the same name: the same bits
with GradManager().attach([x]) as gm:
    gm.backward(sum(r.sum() for r in elements(x, y)[:1]))
note("gradient", x.grad)
note("sums", x.sum(), x.sum(axis=0), x.sum(axis=1), F.mean(y), F.var(y), F.cumsum(x, 1), F.prod(x, axis=0))
note("order", F.sort(y)[0], F.argsort(y), F.topk(x, 5)[0], F.argmax(y, axis=1), y.max(axis=0))
mge.random.seed(7)
note("random", mge.random.normal(size=(999,)), mge.random.uniform(size=(999,)), mge.random.gamma(mge.tensor([0.5, 2.0]), 1.0))
note("halves", (x.astype("float16") * y.astype("float16")), x.astype("bfloat16").astype("float32") + y)

# Kernels with sums: of every compiler the same bits; and those of eager mode, where the axes are the same.
def sums(x, y):
    z = x * y
    return z.sum(axis=1), z.sum(axis=0), z.sum(), F.mean(z, axis=1), F.mean(z, axis=0), F.prod(z + 1, axis=0)
fused = trace(sums, symbolic=True, opt_level=3)(x, y)
for got, want in zip(fused[:-1], sums(x, y)):
    assert got.numpy().tobytes() == want.numpy().tobytes()
note("sums of products", *fused)
weight, bias = mge.tensor(rng.randn(211).astype(np.float32)), mge.tensor(rng.randn(211).astype(np.float32))
def rows(x):
    z = x * 2
    return F.softmax(z, axis=1), F.softmax(z, axis=0), F.logsoftmax(z, axis=1), F.layer_norm(z, (211,), True, weight, bias), F.var(z, axis=1), F.var(z, axis=0)
note("rows", *rows(x))
note("fused rows", *trace(rows, symbolic=True, opt_level=3)(x))
image = mge.tensor(rng.randn(5, 3, 9, 11).astype(np.float32))
ones = mge.tensor(np.ones((1, 3, 1, 1), np.float32))
def normalized(image):
    return F.batch_norm(image, weight=ones, bias=ones, training=True)
with GradManager().attach([image, x, weight]) as gm:
    gm.backward((normalized(image) * image).sum() + (rows(x)[3] * y).sum())
note("normalized", normalized(image), image.grad, x.grad, weight.grad)

def integers(*shape, low=-128, high=128, dtype=np.int8):
    return mge.tensor(rng.randint(low, high, shape).astype(dtype))
def quantized(x, w, groups=1):
    oc = w.shape[0]
    scale = mge.tensor(rng.uniform(0.5, 2, oc).astype(np.float32) / (100 * np.sqrt(w.size / oc)).astype(np.float32))
    bias = mge.tensor(rng.randn(oc).astype(np.float32))
    (result,) = [ops.quantized_conv(x, w, scale, bias, stride=[1], padding=[w.shape[2] // 2], dilation=[1], groups=groups, relu=0, dtype="int8")]
    return result
note("convolution", quantized(integers(2, 48, 9, 9), integers(40, 48, 3, 3)), quantized(integers(2, 16, 9, 9), integers(16, 1, 3, 3), 16))
blocks = mge.tensor(rng.randint(0, 60, (33, 4, 18)).astype(np.uint8))  # the scales are positive and small
note("blocks of 4 bits", ops.dequantize_blocks(blocks, bits=4), ops.matmul_of_blocks(mge.tensor(rng.randn(5, 128).astype(np.float32)), blocks, bits=4))
note("linear", quantized(integers(5, 200, 1, 1), integers(33, 200, 1, 1)))
"""


def run(program, level=None, **more):
    environment = {**os.environ, "MEGJIT_COMPILE": "sync", **more}
    environment.pop("MEGJIT_ISA", None)
    if level is not None:
        environment["MEGJIT_ISA"] = level
    return subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)


def digests(level, **more):
    done = run(DIGESTS, level, **more)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.splitlines())


@pytest.fixture(scope="module")
def natural():
    return digests(None)


@pytest.mark.parametrize("backend", ["MLIR", "HALIDE"])
@pytest.mark.parametrize("level", HERE)
def test_promised_bits_are_the_same_at_each_level(natural, level, backend, tmp_path):
    assert digests(level, MGB_JIT_BACKEND=backend, MEGJIT_CACHE_DIR=str(tmp_path)) == natural


def test_the_level_is_the_one_that_is_asked_for():
    for level in HERE:
        assert run("from megengine import _core; print(_core.isa())", level).stdout.strip() == level


@pytest.mark.parametrize("level", ["sse9", *LEVELS[len(HERE) :]])
def test_a_level_that_is_not_there_is_one_error_with_those_that_are(level):
    done = run("import megengine", level)
    assert done.returncode == 1
    assert level in done.stderr and ", ".join(HERE) in done.stderr and "MEGJIT_ISA" in done.stderr


KERNEL = """
import numpy as np
import megengine as mge
from megengine.jit import trace
f = trace(lambda x: x * 2 + x / 3, symbolic=True, opt_level=3)
f(mge.tensor(np.ones(100, np.float32)))
print(f.kernels()[0].cached)
"""


@pytest.mark.skipif(len(HERE) == 1, reason="this machine has one level")
def test_kernels_of_another_level_are_never_run(tmp_path):
    def is_cached(level):
        return run(KERNEL, level, MEGJIT_CACHE_DIR=str(tmp_path)).stdout.strip()

    assert [is_cached(level) for level in ("avx2", HERE[-1], "avx2", HERE[-1])] == ["False", "False", "True", "True"]


@pytest.mark.skipif(not shutil.which("qemu-x86_64"), reason="needs Debian's qemu-user")
@pytest.mark.parametrize("cpu, fault", [("Nehalem", "this processor has no AVX2"), ("Haswell", "")])
def test_a_cpu_below_avx2_is_one_clear_error_at_import(cpu, fault):
    program = "import megengine as mge; print(int((mge.tensor([1, 2]) + 1).sum().item()))"
    command = ["qemu-x86_64", "-cpu", cpu, sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "MEGJIT_ISA": "", "OMP_NUM_THREADS": "1"})
    if fault:
        assert done.returncode == 1 and fault in done.stderr and "fix: " in done.stderr
        assert "ImportError" in done.stderr
    else:
        assert done.stdout.strip() == "5", done.stderr
