"""Whichever allocation of ten training steps fails: MemoryError, the next step works, no byte is lost."""

import gc

import numpy as np
import pytest

import megengine as mge
import megengine.module as M
import megengine.optimizer as optim
from megengine import _core
from megengine.autodiff import GradManager
from megengine.jit import SublinearMemoryConfig, trace

STEPS = 10
MODES = {
    "eager": None,
    "symbolic": {"symbolic": True},
    "value": {},
    "sublinear": {"symbolic": True, "sublinear_memory_config": SublinearMemoryConfig()},
}


class Training:
    """Ten steps of a small network with dropout, and the step in which the next allocation that fails lies."""

    def __init__(self, options):
        mge.random.seed(3)
        self.net = M.Sequential(M.Linear(16, 32), M.ReLU(), M.Dropout(0.5), M.Linear(32, 16))
        self.opt = optim.SGD(self.net.parameters(), lr=0.01, momentum=0.9)
        self.gm = GradManager().attach(self.net.parameters())
        self.call = self.step if options is None else trace(self.step, **options)

    def step(self, x):
        with self.gm:
            loss = (self.net(x) ** 2).mean()
            self.gm.backward(loss)
        self.opt.step().clear_grad()
        return loss

    def run(self, steps=STEPS):
        """Returns how many steps failed; each must work when it is tried again."""
        failures = 0
        for i in range(steps):
            try:
                self.call(mge.tensor(np.full((8, 16), 0.1 * i + 0.1, np.float32)))
            except MemoryError as error:
                failures += 1
                text = str(error)
                assert "out of memory" in text and "bytes" in text and len(text.splitlines()) <= 6, text
                self.opt.clear_grad()
                assert np.isfinite(self.call(mge.tensor(np.ones((8, 16), np.float32))).item())
        return failures


def in_use():
    return _core.memory_stats()["in_use"]


def is_back_at(before):
    if in_use() != before:
        gc.collect()  # takes its time: only when something may wait for it
    return in_use() == before


def allocations_of(training):
    before = _core.memory_stats()["allocations"]
    training.run()
    return _core.memory_stats()["allocations"] - before


@pytest.fixture(autouse=True)
def nothing_is_to_fail():
    yield
    _core.fail_allocation(after=-1)


@pytest.mark.parametrize("options", MODES.values(), ids=MODES)
def test_every_allocation_of_ten_running_steps_may_fail(options):
    training = Training(options)
    training.run()
    count = allocations_of(training)
    gc.collect()
    before = in_use()
    assert count > 0
    for n in range(count):
        _core.fail_allocation(after=n)
        assert training.run() == 1, f"allocation {n} of {count}"
        assert is_back_at(before), f"allocation {n} of {count}"
    assert all(np.isfinite(p.numpy()).all() for p in training.net.parameters())


@pytest.mark.parametrize("options", MODES.values(), ids=MODES)
def test_every_allocation_of_the_first_steps_may_fail(options):
    """Recording and compiling are among them."""
    Training(options).run(3)
    gc.collect()
    before = in_use()
    n, failures = 0, 1
    while failures:
        training = Training(options)
        _core.fail_allocation(after=n)
        failures = training.run(3)
        _core.fail_allocation(after=-1)
        del training
        assert is_back_at(before), f"allocation {n}"
        n += 1
    assert n > 3
