"""MGB_JIT_BACKEND on a CPU: the kernels of every compiler give the same bits, and live in one process with anything."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import megengine._core as core

PROGRAM = """
import hashlib, sys
import numpy as np, megengine as mge, megengine.functional as F
from megengine.jit import trace

@trace(symbolic=True, opt_level=3)
def elements(x, y):
    z = F.tanh(x * y + 1) * F.sigmoid(y) - F.gelu(x) / (F.abs(y) + 0.5)
    return z, F.where(z > 0, F.exp(-z), F.log1p(F.abs(z))).astype("float16"), F.floor(x * 100).astype("int32") // 7

@trace(symbolic=True, opt_level=3)
def rows(x):
    return F.softmax(x, axis=1), F.mean(x * x, axis=0)

@trace(symbolic=True, opt_level=3)
def scaled(x):
    return x * 2 + 1

@trace(symbolic=True, opt_level=3)
def weighed(x, y):  # three walks read the exponentials
    p = F.softmax(x * 2, axis=1)
    return p * (y - F.sum(p * y, axis=1, keepdims=True))

generator = np.random.RandomState(3)
x, y = (mge.tensor(generator.randn(37, 101).astype("float32") * 3) for _ in range(2))
for _ in range(2):
    bits = [z.numpy() for z in elements(x, y)]
    softmax, mean = rows(x)
a = x.numpy().astype("float64")
e = np.exp(a - a.max(1, keepdims=True))
np.testing.assert_allclose(softmax.numpy(), e / e.sum(1, keepdims=True), rtol=2e-6, atol=1e-9)
np.testing.assert_allclose(mean.numpy(), (a * a).mean(0), rtol=2e-6)
# Results that no cache keeps, which MLIR's kernels store past it; rows that are kept, and longer ones.
for shape in (8300, 1024), (3, 2800001), (850, 10007):
    x = mge.tensor(generator.rand(*shape).astype("float32"))
    np.testing.assert_array_equal(scaled(x).numpy(), x.numpy() * 2 + 1)
    bits += [softmax.numpy(), rows(x)[0].numpy(), weighed(x, x + 1).numpy()]
print(hashlib.sha256(b"".join(b.tobytes() for b in bits)).hexdigest())
print(*sorted({kernel.backend for f in (elements, rows, scaled, weighed) for kernel in f.kernels()}))
"""

needs_halide = pytest.mark.skipif("HALIDE" not in core.backends(), reason="no libHalide, or built without Halide")


def run(program, tmp_path, **environment):
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env={**os.environ, "MEGJIT_COMPILE": "sync", "MEGJIT_CACHE_DIR": str(tmp_path / "kernels"), **environment},
    )
    assert done.returncode == 0, done.stderr
    assert "warning" not in done.stderr
    return done.stdout.splitlines()


@needs_halide
def test_all_compilers_give_the_same_bits(tmp_path):
    halide, used = run(PROGRAM, tmp_path, MGB_JIT_BACKEND="HALIDE")
    assert used == "HALIDE"
    mlir, used = run(PROGRAM, tmp_path, MGB_JIT_BACKEND="MLIR")
    assert used == "MLIR"
    assert halide == mlir


def test_without_libhalide_one_warning_says_how_to_get_it(tmp_path):
    package = Path(core.__file__).parent
    if not (package / "libmegjit_halide.so").exists():
        pytest.skip("built without Halide")
    plugins = tmp_path / "megengine"  # a package without a neighbour `halide`
    plugins.mkdir()
    for plugin in package.glob("libmegjit_*.so"):
        (plugins / plugin.name).symlink_to(plugin)
    if (libraries := package.parent / "megjit.libs").exists():  # of an audited wheel
        (tmp_path / libraries.name).symlink_to(libraries)
    environment = {**os.environ, "MEGJIT_COMPILE": "sync", "MEGJIT_CACHE_DIR": str(tmp_path / "kernels")}
    environment |= {"MEGJIT_PLUGIN_DIR": str(plugins), "MGB_JIT_BACKEND": "HALIDE"}
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, env=environment)
    assert done.returncode == 0 and done.stdout.split()[-1] == "MLIR"
    assert done.stderr.count("\n") == 1 and "pip install 'megjit[halide]'; MLIR is used" in done.stderr


@needs_halide
def test_kernels_of_halide_come_back_from_disk(tmp_path):
    program = PROGRAM + "print(all(k.cached for f in (elements, rows) for k in f.kernels()))"
    assert run(program, tmp_path, MGB_JIT_BACKEND="HALIDE")[-1] == "False"
    assert run(program, tmp_path, MGB_JIT_BACKEND="HALIDE")[-1] == "True"


@needs_halide
@pytest.mark.parametrize("program", ["import halide\n" + PROGRAM, PROGRAM + "import halide\n"], ids=["before", "after"])
def test_the_python_package_halide_may_be_used_too(tmp_path, program):
    use = "x = halide.Var('x'); f = halide.Func('f'); f[x] = x * 2; assert f.realize([4])[3] == 6\n"
    assert run(program + use, tmp_path, MGB_JIT_BACKEND="HALIDE")[1] == "HALIDE"
