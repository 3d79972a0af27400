"""Operations run in the order that needs the fewest bytes, with the same bits."""

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
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
