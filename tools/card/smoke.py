"""gpu_rungs.py: the smallest programs that show whether a GPU works, each in a process of its own, one after the other.

The first that fails says where to look. `gpu_rungs.py NAME` is one of them.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np

import megengine as mge
import megengine.functional as F
from megengine.autodiff import GradManager
from megengine.jit import trace
from megengine.optimizer import SGD

SECONDS = 100  # of a rung; on an emulated card, too
RNG = np.random.default_rng(0)


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape)


def on_gpu(array: np.ndarray, dtype: str = "float32") -> mge.Tensor:
    return mge.Parameter(array.astype(dtype), device="gpu0")


def expect(value: mge.Tensor, wanted: np.ndarray, error: float) -> None:
    """Norms are compared: what a sum of float32 may lose is a matter of its terms."""
    found = value.numpy().astype("float64")
    distance = np.linalg.norm(found - wanted) / np.linalg.norm(wanted)
    print(f"    error {distance:.2g}, at most {error:g}")
    assert distance <= error


def copy() -> None:
    x = normal(1024).astype("float32")
    assert np.array_equal(mge.tensor(x, device="gpu0").numpy(), x)


def kernel(backend: str) -> None:
    os.environ["MGB_JIT_BACKEND"] = backend
    x = normal(100_000)
    sums = trace(lambda t: F.sum(F.exp(t) + t * 2), symbolic=True)
    for _ in range(4):  # as a CUDA graph from the third on
        expect(sums(on_gpu(x)), (np.exp(x) + 2 * x).sum(), 1e-6)


def product() -> None:
    a, b = normal(512, 300), normal(300, 776)
    steps = trace(lambda a, b: F.relu(F.matmul(a, b)), symbolic=True, opt_level=3)
    for dtype, error in (("float32", 1e-5), ("bfloat16", 1e-2)):
        for _ in range(3):
            expect(steps(on_gpu(a, "float32").astype(dtype), on_gpu(b, "float32").astype(dtype)).astype("float32"),
                   np.maximum(a @ b, 0), error)  # fmt: skip


def convolution() -> None:
    """In a second process cuDNN's plan comes from the cache."""
    arrays = normal(8, 16, 32, 32), normal(32, 16, 3, 3)
    results = {}
    for device in ("gpu0", "cpu0"):
        x, w = (mge.Parameter(array.astype("float32"), device=device) for array in arrays)
        with GradManager().attach([w]) as gm:
            y = F.conv2d(x, w, padding=1)
            gm.backward(F.sum(y * y))
        results[device] = y, w.grad
    for ours, host in zip(results["gpu0"], results["cpu0"], strict=True):
        expect(ours, host.numpy(), 2e-3)


def attention() -> None:
    q, k, v = (normal(2, 2, 64, 64) for _ in range(3))
    scores = q @ k.swapaxes(2, 3) / 8
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    y = weights @ v
    pulled = 2 * y @ v.swapaxes(2, 3)
    of_scores = weights * (pulled - (pulled * weights).sum(-1, keepdims=True)) / 8
    wanted = y, of_scores @ k, of_scores.swapaxes(2, 3) @ q, weights.swapaxes(2, 3) @ (2 * y)
    for dtype, error in (("float32", 2e-3), ("float16", 1e-2)):
        inputs = [on_gpu(array, dtype) for array in (q, k, v)]
        with GradManager().attach(inputs) as gm:
            out = F.nn.scaled_dot_product_attention(*inputs)
            gm.backward(F.sum(out.astype("float32") ** 2))
        for value, exact in zip([out, *(x.grad for x in inputs)], wanted, strict=True):
            expect(value, exact, error)


def training() -> None:
    w, x, y = (
        on_gpu(0.1 * normal(64, 10)),
        on_gpu(normal(32, 64)),
        mge.tensor(np.arange(32) % 10, dtype="int32", device="gpu0"),
    )
    gm, descent = GradManager().attach([w]), SGD([w], lr=0.5)

    @trace(symbolic=True)
    def step(x: mge.Tensor, y: mge.Tensor) -> mge.Tensor:
        with gm:
            loss = F.nn.cross_entropy(F.matmul(x, w), y)
            gm.backward(loss)
        descent.step().clear_grad()
        return loss

    losses = [step(x, y).item() for _ in range(30)]
    print(f"    loss {losses[0]:.3g} to {losses[-1]:.3g}")
    assert losses[-1] < losses[0] / 3


def fork() -> None:
    """A child that leaves by sys.exit, and the GPU after it."""
    x = on_gpu(np.ones(4))
    pid = os.fork()
    if pid == 0:
        sys.exit(3)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 3
    expect(x + 1, np.full(4, 2.0), 0)


def memory() -> None:
    """More than there is; and the GPU after the error."""
    held = []
    try:
        for _ in range(1000):
            held.append(F.zeros((2**28,), device="gpu0") + 1)
    except MemoryError as error:
        print("    " + str(error).splitlines()[0])
    else:
        raise AssertionError("a terabyte was there")
    held.clear()
    expect(on_gpu(np.ones(4)) + 1, np.full(4, 2.0), 0)


RUNGS: dict[str, Callable[[], None]] = {
    "copy": copy,
    "nvrtc": lambda: kernel("NVRTC"),
    "mlir": lambda: kernel("MLIR"),
    "product": product,
    "convolution": convolution,
    "convolution_again": convolution,
    "attention": attention,
    "training": training,
    "fork": fork,
    "memory": memory,
}


def main() -> int:
    if len(sys.argv) > 1:
        RUNGS[sys.argv[1]]()
        return 0
    failed = 0
    for name in RUNGS:
        if name == "memory" and os.environ.get("MEGJIT_EMULATED_GPUS"):
            continue  # it has the host's
        begin = time.perf_counter()
        code = subprocess.run(["timeout", str(SECONDS), sys.executable, __file__, name]).returncode
        print(
            f"{name}: {'ok' if code == 0 else f'status {code}'}, {time.perf_counter() - begin:.1f} s",
            flush=True,
        )
        failed += code != 0
    print(f"{failed} rungs failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
