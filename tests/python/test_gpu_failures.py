"""Calls of the driver that fail: each is told or made up for, and the next run gives what it gave."""

import gc
import os
import subprocess
import sys

import emulated
import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
from megengine import jit
from megengine import module as M
from megengine import optimizer as optim
from megengine.autodiff import GradManager

RNG = np.random.default_rng(0)
DATA, LABELS = RNG.standard_normal((8, 20)).astype("float32"), RNG.integers(0, 5, 8).astype("int32")
WEIGHTS = {shape: RNG.standard_normal(shape).astype("float32") * 0.1 for shape in [(32, 20), (32,), (5, 32), (5,)]}

# What a run can do without, at least once: memory is given up for it, or the work goes another way.
MADE_UP_FOR = ["cuMemAlloc_v2", "cuMemHostAlloc", "cuModuleLoadDataEx", "cuStreamBeginCapture_v2", "cuGraphInstantiateWithFlags", "cuEventQuery"]
TOLD = [
    "cuModuleGetFunction", "cuLaunchKernel", "cuLaunchHostFunc", "cuGraphLaunch", "cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2",
    "cuEventCreate", "cuEventRecord", "cuEventSynchronize", "cuStreamGetCaptureInfo_v2",
]  # fmt: skip


def train():
    """Losses of five steps of a fresh network."""
    network = M.Sequential(M.Linear(20, 32), M.ReLU(), M.Linear(32, 5))
    for parameter in network.parameters():
        parameter[...] = mge.tensor(WEIGHTS[parameter.numpy().shape])
    rule = optim.SGD(network.parameters(), 0.1, momentum=0.9)
    gm = GradManager().attach(network.parameters())

    @jit.trace(symbolic=True, opt_level=3)
    def step(x, labels):
        with gm:
            loss = F.nn.cross_entropy(network(x), labels)
            gm.backward(loss)
        rule.step().clear_grad()
        return loss

    return [step(mge.tensor(DATA), mge.tensor(LABELS)).item() for _ in range(5)]


@pytest.fixture(scope="module")
def losses():
    return train()


@pytest.mark.parametrize("nth", [1, 3])
@pytest.mark.parametrize("function", MADE_UP_FOR)
def test_a_failure_that_is_made_up_for(losses, function, nth):
    with emulated.failing(function, nth):
        assert train() == losses


@pytest.mark.parametrize("nth", [1, 2, 5])
@pytest.mark.parametrize("function", TOLD)
def test_a_failure_that_is_told_leaves_the_next_run_whole(losses, function, nth):
    calls = emulated.calls()
    with emulated.failing(function, nth):
        before = calls(function)
        try:
            assert train() == losses
        except (RuntimeError, MemoryError) as error:
            assert "out of memory" in str(error)
        else:
            assert calls(function) - before < nth
    gc.collect()
    assert train() == losses


@pytest.mark.parametrize("function, what", [("cuModuleLoadDataEx", "a kernel's code"), ("cuMemHostAlloc", "pinned memory")])
def test_no_memory_at_all_is_told_with_what_it_was_for(losses, function, what):
    if function == "cuMemHostAlloc":  # of a new stream
        run = lambda: (mge.tensor(DATA, device="gpu0:7") + 1).numpy()  # noqa: E731
    else:
        run = lambda: jit.trace(lambda x: F.tanh(x * 3) - x / 7, symbolic=True, opt_level=3)(mge.tensor(DATA)).numpy()  # noqa: E731
    with emulated.failing(function, 1, times=1000), pytest.raises(MemoryError, match=what) as caught:
        run()
    assert len(str(caught.value).splitlines()) <= 6
    run()
    assert train() == losses


@pytest.mark.parametrize("given, said", [("cuMemAlloc_v2:1", "2.0"), ("cuLaunchKernel:1", "out of memory"), ("cuLaunchKernel", "cuInit failed")])
def test_the_environment_lets_a_call_fail(given, said):
    program = "import megengine as mge; print((mge.tensor([1.0], device='gpu0') + 1).item())"
    environment = {**os.environ, **emulated.gpus(), "MEGJIT_CARD_FAIL": given}
    run = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=120)
    assert said in run.stdout + run.stderr and (run.returncode == 0) == (said == "2.0")
