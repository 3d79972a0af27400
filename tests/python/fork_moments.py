"""A process that forks while another thread is in the midst of something; the child uses megjit and leaves.

    python fork_moments.py MOMENT LEAVE

Exit status 0 when parent and child have ended well; test_fork.py runs it for each moment and way to leave.
"""

import os
import sys
import threading
import time

import numpy as np

import megengine as mge
import megengine.functional as F
from megengine import Tensor
from megengine.jit import trace

moment, leave = sys.argv[1:]
begun, stop = threading.Event(), threading.Event()
data = Tensor(np.ones((256, 256), np.float32), device="cpu0")

large = Tensor(np.ones((512, 512), np.float32), device="cpu0")  # 1 MiB: DTR evicts it


@trace(symbolic=True)
def traced(x):
    for _ in range(20):
        x = F.matmul(x, x) / 256
    return x


@trace(symbolic=True, without_host=True)
def direct(x):
    for _ in range(20):
        x = F.matmul(x, x) / 256
    return x


def compile_anew(number):
    @trace(symbolic=True, opt_level=3)
    def fresh(x):
        return F.exp(x * number) + F.tanh(x - number)

    fresh(data)
    fresh.kernels()


def eager(_):
    x = data
    for _ in range(5):
        x = F.matmul(x, x) / 256


def evicting(_):
    x = [large * i for i in range(16)]
    sum(x).numpy()


def loading(_):
    from megengine.data import DataLoader, RandomSampler
    from megengine.data.dataset import ArrayDataset

    dataset = ArrayDataset(np.ones((8, 4), np.float32), np.ones(8, np.int32))
    for _ in DataLoader(dataset, RandomSampler(dataset, 4), num_workers=1):
        pass


def on_gpu(_):
    x = Tensor(np.ones((64, 64), np.float32), device="gpu0")
    traced(x).numpy()


WORK = {
    "traced": lambda _: traced(data),
    "without_host": lambda _: direct(data),
    "eager": eager,
    "compile": compile_anew,
    "dtr": evicting,
    "data_loader": loading,
    "gpu": on_gpu,
}


def work():
    number = 0
    while not stop.is_set():
        WORK[moment](number)
        number += 1
        begun.set()


def in_child():
    """What a forked child may do: compute by itself; what was in use says so, and nothing hangs."""
    here = Tensor(np.full(1000, 2.0, np.float32), device="cpu0")
    assert (here * 3).numpy().sum() == 6000

    @trace(symbolic=True)
    def own(x):
        return x * 2 + 1

    assert own(here).numpy()[0] == own(here).numpy()[0] == 5
    if moment == "gpu":
        return
    for function in (traced, direct):
        try:
            np.testing.assert_allclose(function(data).numpy(), 1, rtol=1e-4)
        except RuntimeError as error:
            assert "when this process was forked" in str(error) or "fork of one" in str(error), error


if moment == "dtr":
    mge.dtr.eviction_threshold = "8MB"
    mge.dtr.enable()
traced(data), direct(data), direct(data)
thread = threading.Thread(target=work, daemon=True)
thread.start()
begun.wait()
for delay in (0, 0.003, 0.007):
    time.sleep(delay)
    child = os.fork()
    if child == 0:
        in_child()
        if leave == "_exit":
            os._exit(0)
        if leave == "sys.exit":
            sys.exit(0)
        break
    _, status = os.waitpid(child, 0)
    assert status == 0, f"the child left with status {status}"
else:
    stop.set()
    thread.join()
