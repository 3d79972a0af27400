"""Operations run in the order that needs the fewest bytes, with the same bits."""

import re

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
import megengine.module as M
import megengine.optimizer as optim
from megengine.autodiff import GradManager
from megengine.jit import trace

SIDE = 512
BYTES = 4 * SIDE * SIDE


def branches_stage_by_stage(x):
    heads = [F.sin(x * i) for i in range(8)]
    heads = [F.cumsum(head, 0) for head in heads]
    heads = [F.matmul(head, head) for head in heads]
    return sum(F.sum(head) for head in heads)


def losses_that_wait(x):
    gm = GradManager().attach([x])
    with gm:
        losses = [F.sum(F.exp(F.matmul(x, x) / (SIDE + i))) for i in range(4)]
        gm.backward(sum(losses))
    grad = x.grad
    x.grad = None
    return grad


def made():
    return mge.tensor(np.random.RandomState(0).rand(SIDE, SIDE).astype(np.float32))


@pytest.mark.parametrize("fn, most", [(branches_stage_by_stage, 3.2), (losses_that_wait, 8.2)])
def test_branches_run_one_after_the_other(fn, most):
    assert trace(symbolic=True, opt_level=2)(fn).plan(made()).arena_bytes <= most * BYTES


@pytest.mark.parametrize("fn", [branches_stage_by_stage, losses_that_wait])
@pytest.mark.parametrize("options", [{}, {"memory_limit": "12MB"}])
def test_the_order_changes_no_bit(fn, options, monkeypatch):
    monkeypatch.setenv("MEGJIT_CHECK", "1")
    want = fn(made()).numpy()
    np.testing.assert_array_equal(trace(symbolic=True, opt_level=2, **options)(fn)(made()).numpy(), want)


class Gated(M.Module):
    def __init__(self, width, inner):
        super().__init__()
        self.norm, self.gate, self.up, self.down = M.RMSNorm(width), M.Linear(width, inner), M.Linear(width, inner), M.Linear(inner, width)

    def forward(self, x):
        y = self.norm(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


@pytest.mark.parametrize(("optimizer", "bytes_a_number"), [(optim.SGD, 4), (optim.AdamW, 12), (optim.AdamW8bit, 6.1)])
def test_under_a_limit_no_gradient_waits_for_the_others(optimizer, bytes_a_number):
    """Each further layer adds its numbers, their states and its input to the least limit, and no gradient."""
    width, inner, rows = 128, 384, 256

    def least(layers):
        net = M.Sequential(*[Gated(width, inner) for _ in range(layers)])
        gm, opt = GradManager().attach(net.parameters()), optimizer(net.parameters(), lr=1e-3)

        @trace(symbolic=True, opt_level=3, memory_limit=1)
        def step(x):
            with gm:
                loss = F.square(net(x)).mean()
                gm.backward(loss)
            opt.step().clear_grad()
            return loss

        with pytest.raises(MemoryError) as refused:
            step.plan(F.zeros((rows, width)))
        return int(re.search(r"at least (\d+) bytes", str(refused.value))[1])

    numbers = 3 * width * inner
    allowed = numbers * bytes_a_number + 2 * rows * width * 4 + 0.25 * numbers * 4
    assert (least(16) - least(6)) / 10 < allowed
