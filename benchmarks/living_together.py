"""One process, several compilers: megengine's kernels beside torch, jax, numba and the halide module.

Each of them brings an LLVM, an OpenMP or a thread pool. For a number of import orders a fresh process imports
all, uses each, uses megengine (MLIR and HALIDE, before and after the others, and in a forked child), and compares
the results with NumPy. Run by `make test-peers`; `--orders N` (default 8), `--all` for every order.
"""

from __future__ import annotations

import argparse
import itertools
import random
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PARTIES = ("torch", "jax", "numba", "halide", "megengine")

PROGRAM = r'''
import os, sys
sys.path.append(sys.argv[1])
os.environ["MEGJIT_COMPILE"] = "sync"
import numpy as np

x = np.linspace(-3, 3, 4096, dtype=np.float32).reshape(64, 64)
want = np.tanh(x) * 2 + x


def check(got, who):
    np.testing.assert_allclose(np.asarray(got), want, rtol=1e-5, atol=1e-5, err_msg=who)


def use_torch():
    import torch
    try:
        import triton
    except ImportError:
        pass
    t = torch.from_numpy(x)
    check(torch.tanh(t) * 2 + t, "torch")
    (t @ t).sum().item()


def use_jax():
    os.environ["JAX_PLATFORMS"] = "cpu"
    import jax
    check(jax.jit(lambda v: jax.numpy.tanh(v) * 2 + v)(x), "jax")


def use_numba():
    import numba
    check(numba.njit(lambda v: np.tanh(v) * np.float32(2) + v)(x), "numba")


def use_halide():
    import halide
    i = halide.Var("i")
    f = halide.Func("f")
    f[i] = i * 2
    assert np.asarray(f.realize([8]))[3] == 6


def use_megengine(shift=0.0):
    import megengine as mge
    import megengine.functional as F
    from megengine.jit import trace
    for backend in ("MLIR", "HALIDE"):
        os.environ["MGB_JIT_BACKEND"] = backend
        mge._core.reload_debug()
        # Another number is another kernel: it is compiled afresh.
        f = trace(lambda v: F.softmax((F.tanh(v) * 2 + v + shift) * 1.0, axis=1), symbolic=True, opt_level=3)
        e = np.exp(want + shift - (want + shift).max(1, keepdims=True))
        for _ in range(2):
            np.testing.assert_allclose(f(mge.Tensor(x)).numpy(), e / e.sum(1, keepdims=True), rtol=1e-4, atol=1e-5, err_msg=backend)
        g = trace(lambda v: F.tanh(v) * 2 + v, symbolic=True, opt_level=3)
        check(g(mge.Tensor(x)).numpy(), backend)
    np.testing.assert_allclose((mge.Tensor(x) @ mge.Tensor(x)).numpy(), x @ x, rtol=1e-4, atol=1e-3, err_msg="oneDNN")


order = sys.argv[2].split(",")
for name in order:
    globals()["use_" + name]()
use_megengine(0.5)
pid = os.fork()
if pid == 0:
    use_megengine(0.5)
    use_megengine(0.25)
    sys.modules["megengine"].device.set_num_threads(2)
    use_megengine(0.125)
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0, "the forked child failed"
print("ok")
'''


def run(order: tuple[str, ...], site: str, timeout: float) -> str:
    """'' or what went wrong."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, site, ",".join(order)], capture_output=True, text=True, timeout=timeout
        )
    except subprocess.TimeoutExpired:
        return f"no end within {timeout:g} s"
    if done.returncode == 0 and done.stdout.strip().endswith("ok"):
        return ""
    return f"exit status {done.returncode}: {done.stderr.strip()[-600:]}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ours", default=str(ROOT / ".venv/bin/python"), help="the interpreter that has megengine")
    parser.add_argument("--orders", type=int, default=8)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    where = "import megengine, pathlib; print(pathlib.Path(megengine.__file__).parents[1])"
    site = subprocess.run([options.ours, "-c", where], capture_output=True, text=True, check=True).stdout.strip()
    orders = list(itertools.permutations(PARTIES))
    if not options.all:
        orders = random.Random(options.seed).sample(orders, options.orders)
    failed = 0
    for order in orders:
        fault = run(order, site, timeout=240)
        failed += bool(fault)
        print(f"{'FAIL' if fault else 'ok  '} {' '.join(order)} {fault}", flush=True)
    print(f"living together: {len(orders) - failed} of {len(orders)} orders work")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
