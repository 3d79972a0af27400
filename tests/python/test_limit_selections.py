"""Bodies that select by their data under a memory limit. Data says how much is selected, so a call is planned in parts; each part counts what the call holds
meanwhile, and a selection is refused before it takes memory that the limit has no room for."""

import re

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
from megengine import device, jit, optimizer
from megengine.autodiff import GradManager

COUNT = 4096


def read_behind(x):
    held = F.exp(x)
    return F.sin(x)[x > 0], held * 2


def selected_twice(x):
    kept = F.sqrt(F.abs(x[x > -0.5]) + 1)
    shown = F.exp(kept) * F.sin(kept)
    return shown[shown > 1], kept.sum()


def places(x):
    return F.non_zero(F.sin(x) > 0)


def unique(x):
    return F.unique(F.floor(x * 20))


def large_result(x):
    kept = (F.exp(x) + F.sin(x) * F.cos(x))[x > 0.9]
    return F.matmul(kept.reshape(-1, 1), kept.reshape(1, -1))


def held_throughout(x):
    powers = [F.exp(x * k) for k in range(4)]
    chosen = x[x > 0.9].sum()
    return chosen + sum(power.sum() for power in powers)


def boxes_that_stay(x):
    corners = F.abs(x.reshape(-1, 4))
    boxes = F.concat([corners[:, :2], corners[:, :2] + corners[:, 2:]], axis=1)
    areas = (boxes[:, 2:] - boxes[:, :2]).prod(axis=1)
    return F.vision.nms(boxes, areas, 0.5), areas


def gradient(x):
    with GradManager().attach(x) as manager:
        loss = (F.exp(x)[x > 0.5] ** 2).sum() + F.sin(x).sum()
        manager.backward(loss)
    return loss, x.grad


def step():
    weight = mge.Parameter(np.linspace(0.5, 1, COUNT, dtype="float32"))
    manager, adam = GradManager().attach(weight), optimizer.Adam([weight], lr=0.01)

    def train(x):
        with manager:
            y = F.exp(x * weight)
            loss = (y[y > 1] ** 2).mean()
            manager.backward(loss)
        adam.step().clear_grad()
        return loss

    return train


def values(result):
    return [np.asarray(each) for each in (result if isinstance(result, tuple) else (result,))]


def taken(function, x):
    """The result of a call, and the bytes that it took beside what was there."""
    x.grad = None
    before = device.get_allocated_memory()
    device.reset_max_memory_stats()
    try:
        return function(x), device.get_max_allocated_memory() - before
    except MemoryError as error:
        error.taken = device.get_max_allocated_memory() - before
        raise


@pytest.mark.parametrize("level", [0, 2, 3])
@pytest.mark.parametrize(
    "body", [read_behind, selected_twice, places, unique, large_result, held_throughout, boxes_that_stay, gradient, step()], ids=lambda body: getattr(body, "__name__", "")
)
def test_the_least_limit_is_kept_to_the_byte(body, level):
    x = mge.tensor(np.linspace(-1, 1, COUNT, dtype="float32"))
    is_step = body.__name__ == "train"
    wanted = None if is_step else values(body(x))
    limit, refusals = 1, 0
    while True:
        function = jit.trace(body, memory_limit=limit, opt_level=level)
        try:
            result, bytes_taken = taken(function, x)
        except MemoryError as error:
            assert error.taken <= limit
            least = int(re.search(r"at least (\d+) bytes", str(error)).group(1))
            assert least == error.needed > limit and error.limit == limit
            limit, refusals = least, refusals + 1
            assert refusals < 9
            continue
        again, bytes_again = taken(function, x)
        break
    assert refusals and max(bytes_taken, bytes_again) <= limit
    plan = function.memory_plan()
    kinds = plan.by_kind()
    assert sum(kinds.values()) == plan.planned_bytes <= limit and min(kinds.values()) >= 0
    assert "planned" in repr(plan)
    if not is_step:
        for one in (result, again):
            for mine, eager in zip(values(one), wanted, strict=True):
                np.testing.assert_allclose(mine, eager, rtol=1e-5)


def test_a_refused_selection_says_what_it_selects_beside():
    x = mge.tensor(np.linspace(-1, 1, COUNT, dtype="float32"))
    positive = jit.trace(lambda x: x[x > 0], memory_limit=5 * COUNT + 8)
    with pytest.raises(MemoryError, match=r"(?s)mask_select gives 16.0 KiB: as much as the data selects\s+fix: raise the limit to \d+\s+at: .*test_limit_selections.py"):
        positive(x)
    assert positive(-F.abs(x)).shape == (0,)
