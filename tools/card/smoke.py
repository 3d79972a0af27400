"""What machine this is, and whether the smallest programs give the right numbers, each in a process of its own, all at once.

`smoke.py NAME` is one of these programs.
"""

import importlib.metadata
import os
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np
from results import IS_EMULATED, Part, run

import megengine as mge
import megengine.functional as F
from megengine.autodiff import GradManager
from megengine.jit import trace
from megengine.optimizer import SGD

PACKAGES = ("megjit", "numpy", "torch", "triton", "jax", "jaxlib")
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


PROGRAMS: dict[str, Callable[[], None]] = {
    "copy": copy,
    "nvrtc": lambda: kernel("NVRTC"),
    "mlir": lambda: kernel("MLIR"),
    "product": product,
    "convolution": convolution,
    "attention": attention,
    "training": training,
    "fork": fork,
}


def output(*command: str) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=20).stdout
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)


def versions() -> dict[str, str]:
    names = {each.metadata["Name"] for each in importlib.metadata.distributions()}
    wanted = sorted(name for name in names if name in PACKAGES or (name or "").startswith("nvidia-"))
    return {"python": sys.version.split()[0], **{name: importlib.metadata.version(name) for name in wanted}}


def main(part: Part) -> str:
    begin = time.monotonic()
    running = {name: subprocess.Popen([sys.executable, __file__, name], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
               for name in PROGRAMS}  # fmt: skip
    part.note(
        versions=versions(),
        nvidia_smi="" if IS_EMULATED else output("nvidia-smi").splitlines(),
        info=output(sys.executable, "-m", "megengine", "info").splitlines(),
    )
    faults, seconds = {}, {}
    for name, process in running.items():
        try:
            said, _ = process.communicate(timeout=max(1.0, part.left() - 2))
        except subprocess.TimeoutExpired:
            process.kill()
            said = "it did not end in time"
        seconds[name] = round(time.monotonic() - begin, 1)
        if process.returncode != 0:
            faults[name] = (said or f"status {process.returncode}").splitlines()[-8:]
        part.note(faults=faults, ended_after=seconds)
    assert not faults, f"{', '.join(faults)}: {'; '.join(lines[-1] for lines in faults.values())}"
    return f"{part.card()['name']}: {len(PROGRAMS)} programs are right"


if __name__ == "__main__":
    if sys.argv[1:2] and sys.argv[1] in PROGRAMS:
        PROGRAMS[sys.argv[1]]()
    else:
        sys.exit(run("smoke", 45, main))
