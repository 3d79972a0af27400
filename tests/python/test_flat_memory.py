"""A long run takes no more memory than a short one."""

import os
import re
from pathlib import Path

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
import megengine.module as M
import megengine.optimizer as optim
from megengine import _core
from megengine.autodiff import GradManager
from megengine.fx import symbolic_trace
from megengine.jit import exclude_from_trace, trace

STEPS = 10_000
MB = 1 << 20


def rss():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_all_shapes_of_a_function_take_one_arena():
    net = M.Sequential(M.Conv2d(3, 16, 3, padding=1), M.ReLU(), M.Conv2d(16, 16, 3, padding=1), M.ReLU())
    f = trace(lambda x: net(x).mean(), symbolic=True)

    def in_use_after(sizes):
        for size in sizes:
            x = F.ones((4, 3, size, size))
            for _ in range(2):
                f(x).item()
        return _core.memory_stats()["in_use"]

    before = _core.memory_stats()["in_use"]
    alone = in_use_after([128]) - before
    assert alone > f.memory_plan().arena_bytes > MB
    assert in_use_after([64, 80, 96, 112, 120, 128]) - before <= 1.05 * alone
    f._function.clear()
    assert _core.memory_stats()["in_use"] - before < MB


def test_segments_of_a_call_take_one_arena():
    def body(x):
        y = F.exp(F.sort(F.exp(x))[0]).sum(axis=1)
        with exclude_from_trace():
            y.numpy()
        return F.exp(F.sort(x - y.reshape(-1, 1))[0]).sum()

    f, x = trace(body, symbolic=True), F.ones((1024, 1024))
    before = _core.memory_stats()["in_use"]
    f(x), f(x)
    plan = f.memory_plan()
    assert plan.arena_bytes > 4 * MB
    assert _core.memory_stats()["in_use"] - before < plan.arena_bytes + MB


@pytest.mark.parametrize("is_module", [False, True], ids=["tensors", "module"])
def test_saving_copies_no_tensor(is_module, tmp_path):
    """A step within a limit may be followed by a checkpoint of its largest weight."""
    net = M.Linear(4096, 4096, bias=False)
    graph, state = symbolic_trace(net), net.state_dict(keep_var=True)
    Path("/proc/self/clear_refs").write_text("5")  # VmHWM counts from here
    before = rss()
    graph.save(tmp_path / "saved.mge") if is_module else mge.save(state, tmp_path / "saved.safetensors")
    most = re.search(r"VmHWM:\s*(\d+)", Path("/proc/self/status").read_text())
    assert int(most[1]) * 1024 - before < 16 * MB


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
