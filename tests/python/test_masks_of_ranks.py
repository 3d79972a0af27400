"""In a world of processes weights are the same everywhere, and each process has its own dropout masks."""

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
import megengine.module as M
from megengine import distributed as dist
from megengine import jit
from megengine.autodiff import GradManager
from megengine.core import random_state
from megengine.jit import trace


def draws(seeds):
    """What one process draws: first weights, three masks, what is drawn behind them, and what a traced function draws."""

    @dist.launcher(n_gpus=2, device_type="cpu")
    def main():
        if seeds is not None:
            mge.random.seed(seeds[dist.get_rank()])
        weight = M.Linear(8, 8).weight.numpy()
        ones = F.ones((64,))
        drop = trace(lambda x: F.dropout(x, 0.5), without_host=True)
        masks = [F.dropout(ones, 0.5).numpy() for _ in range(3)] + [drop(ones).numpy() for _ in range(4)]
        return weight, np.array(masks), mge.random.normal(size=(8,)).numpy()

    return main()


def same(a, b):
    return np.array_equal(a, b)


@pytest.mark.parametrize("seeds", [None, (3, 3)], ids=["no seed", "one seed"])
def test_ranks_share_weights_and_have_masks_of_their_own(seeds):
    (weight, masks, behind), (other_weight, other_masks, other_behind) = draws(seeds)
    assert same(weight, other_weight) and same(behind, other_behind)
    assert not any(same(a, b) for a, b in zip(masks, other_masks, strict=True))
    assert len({mask.tobytes() for mask in [*masks, *other_masks]}) == 14
    if seeds:
        again = draws(seeds)
        assert all(same(a, b) for rank, once in zip(again, [(weight, masks, behind), (other_weight, other_masks, other_behind)], strict=True) for a, b in zip(rank, once, strict=True))


def test_a_program_that_seeds_each_rank_keeps_its_seeds():
    (weight, masks, _), (other_weight, other_masks, _) = draws((3, 4))
    assert not same(weight, other_weight) and not same(masks, other_masks)


def test_one_process_draws_as_without_a_world():
    mge.random.seed(5)
    before = F.dropout(F.ones((64,)), 0.5).numpy()

    @dist.launcher(n_gpus=1, device_type="cpu")
    def main():
        mge.random.seed(5)
        return F.dropout(F.ones((64,)), 0.5).numpy()

    assert same(main()[0], before)


def test_a_function_that_was_traced_before_the_world_began_draws_this_ranks_masks():
    drop, ones = trace(lambda x: F.dropout(x, 0.5), without_host=True), F.ones((64,))
    for _ in range(3):
        drop(ones)

    def in_rank(rank):
        random_state.enter_world(rank, lambda text: ["5", "5"])
        mge.random.seed(5)
        return [drop(ones).numpy() for _ in range(3)]

    try:
        first, second = in_rank(0), in_rank(1)
        assert not any(same(a, b) for a, b in zip(first, second, strict=True))
        assert all(same(a, b) for a, b in zip(in_rank(1), second, strict=True))
    finally:
        random_state.enter_world(None)
    assert drop._guards is not None


@pytest.mark.parametrize("options", [{"sublinear_memory_config": jit.SublinearMemoryConfig()}, {"memory_limit": "64MB"}, {}], ids=["sublinear", "limit", "plain"])
def test_a_mask_that_is_computed_again_is_the_same(options):
    """Gradients of a rank's dropout belong to its results, recomputed or not."""
    w = mge.Parameter(np.ones((64, 64), "float32"))
    gm = GradManager().attach(w)

    @trace(symbolic=True, **options)
    def step(x):
        with gm:
            y = x
            for _ in range(4):
                y = F.dropout(F.relu(y * w), 0.5)
            gm.backward(y.sum())
        return y, w.grad

    random_state.enter_world(1, lambda text: ["7", "7"])
    try:
        for _ in range(3):
            w.grad = None
            y, grad = step(F.ones((64, 64)))
            np.testing.assert_allclose(grad.numpy(), 4 * y.numpy())  # y is 16 w^4 where all four masks kept it, else 0
    finally:
        random_state.enter_world(None)
