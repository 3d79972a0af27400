"""Writes at places of what a traced step keeps (a cache of keys and values, say) happen in place, and a step that fails keeps all of it."""

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
from megengine.jit import trace

LENGTH = 6
MiB = 1 << 20


class Caches:
    def __init__(self, *capacities):
        self.all = [mge.tensor(np.zeros((2, capacity, 4), np.float32)) for capacity in capacities]

    def step(self, x, place):
        """Each cache takes what was made of the one before it."""
        for i in range(len(self.all)):
            self.all[i][:, place] = x
            x = F.sum(self.all[i], axis=1, keepdims=True) + 1
        return x

    def numpy(self):
        return [cache.numpy().copy() for cache in self.all]


def traced(caches, **options):
    return trace(caches.step, symbolic=True, opt_level=3, **options)


def call(step, place):
    return step(mge.tensor(np.ones((2, 1, 4), np.float32)), mge.tensor(np.array([place], np.int32)))


@pytest.mark.parametrize("without_host", [False, True])
def test_all_caches_are_written_in_place(without_host):
    caches = Caches(*[MiB // 32] * 5)  # 1 MiB each
    step = traced(caches, without_host=without_host)
    for place in range(3):
        call(step, place)
    assert step.memory_plan().planned_bytes < 5.1 * MiB


@pytest.mark.parametrize("without_host", [False, True])
def test_steps_give_what_eager_mode_gives(without_host):
    caches, plain = Caches(LENGTH, LENGTH, 2 * LENGTH), Caches(LENGTH, LENGTH, 2 * LENGTH)
    step = traced(caches, without_host=without_host)
    for place in [0, 1, 2, -1, 2, 5, -6]:
        np.testing.assert_array_equal(call(step, place).numpy(), call(plain.step, place).numpy())
        for mine, wanted in zip(caches.numpy(), plain.numpy(), strict=True):
            np.testing.assert_array_equal(mine, wanted)


@pytest.mark.parametrize("without_host", [False, True])
@pytest.mark.parametrize("capacities", [(LENGTH, LENGTH), (LENGTH + 2, LENGTH), (LENGTH, LENGTH + 2), (LENGTH + 4, LENGTH + 2, LENGTH)])
def test_a_step_that_fails_leaves_whole_caches(capacities, without_host):
    """Even where its first writes are right, for their axes are longer: none without the body, else those that eager mode leaves."""
    caches, plain = Caches(*capacities), Caches(*capacities)
    step = traced(caches, without_host=without_host)
    for place in (0, 1, 2):
        call(step, place), call(plain.step, place)
    before = plain.numpy()
    for place in (LENGTH, -LENGTH - 1, 1 << 30):
        for one in (step, plain.step):
            with pytest.raises(IndexError, match="out of range"):
                call(one, place).numpy()
    for mine, wanted in zip(caches.numpy(), before if without_host else plain.numpy(), strict=True):
        np.testing.assert_array_equal(mine, wanted)
    call(step, 3)
    assert (caches.all[0].numpy()[:, 3] == 1).all()
