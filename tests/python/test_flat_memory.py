"""A long run takes no more memory than a short one."""

import os

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
import megengine.module as M
import megengine.optimizer as optim
from megengine import _core
from megengine.autodiff import GradManager
from megengine.jit import trace

STEPS = 10_000
MB = 1 << 20


def rss():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize("options", [None, {"symbolic": True}, {"without_host": True}], ids=["eager", "traced", "without_host"])
def test_rss_of_ten_thousand_steps_stays_flat(options):
    net = M.Sequential(M.Linear(16, 16), M.ReLU(), M.Linear(16, 4))
    opt, gm = optim.SGD(net.parameters(), lr=0.01, momentum=0.9), GradManager().attach(net.parameters())

    def step(x):
        with gm:
            loss = F.softplus(net(x)).mean()
            gm.backward(loss)
        opt.step().clear_grad()
        return loss

    call, array = step if options is None else trace(step, **options), np.ones((8, 16), np.float32)
    for _ in range(STEPS // 10):
        call(mge.tensor(array))
    in_use, growth = _core.memory_stats()["in_use"], []
    while len(growth) < 3 and (not growth or growth[-1] >= MB):  # what leaks grows each time, pages of others once
        before = rss()
        for _ in range(STEPS):
            call(mge.tensor(array))
        growth.append(rss() - before)
    assert growth[-1] < MB, growth
    assert _core.memory_stats()["in_use"] == in_use
