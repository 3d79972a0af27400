"""Random streams: repeatable, of the right distribution, shaped as documented."""

import numpy as np
import pytest

import megengine.functional as F
from megengine import Tensor, autodiff, random
from megengine.random import RNG

N = 20000


@pytest.fixture(autouse=True)
def fixed_seed():
    random.seed(20)


def test_the_same_seed_gives_the_same_numbers():
    random.seed(3)
    first = [random.uniform(size=(4,)).tolist(), random.normal(size=(4,)).tolist()]
    random.seed(3)
    assert [random.uniform(size=(4,)).tolist(), random.normal(size=(4,)).tolist()] == first


def test_every_draw_differs_from_the_one_before():
    assert random.uniform(size=(4,)).tolist() != random.uniform(size=(4,)).tolist()


def test_a_stream_of_its_own_does_not_move_the_global_one():
    random.seed(3)
    want = random.uniform(size=(4,)).tolist()
    random.seed(3)
    mine = RNG(seed=1)
    assert mine.uniform(size=(4,)).tolist() == RNG(seed=1).uniform(size=(4,)).tolist()
    assert random.uniform(size=(4,)).tolist() == want


def test_streams_without_a_seed_differ():
    assert RNG().uniform(size=(4,)).tolist() != RNG().uniform(size=(4,)).tolist()


def test_a_negative_seed_is_refused():
    with pytest.raises(ValueError, match="-1 is negative"):
        random.seed(-1)


MOMENTS = {
    "uniform": (lambda: random.uniform(-1, 3, (N,)), 1, 16 / 12),
    "normal": (lambda: random.normal(2, 3, (N,)), 2, 9),
    "gamma": (lambda: random.gamma(2.0, 3.0, (N,)), 6, 18),
    "gamma below one": (lambda: random.gamma(0.5, 1.0, (N,)), 0.5, 0.5),
    "beta": (lambda: random.beta(2.0, 3.0, (N,)), 0.4, 0.04),
    "poisson": (lambda: random.poisson(4.0, (N,)), 4, 4),
    "poisson of a large rate": (lambda: random.poisson(50.0, (N,)), 50, 50),
    "exponential": (lambda: random.exponential(0.5, (N,)), 2, 4),
}


@pytest.mark.parametrize("name", MOMENTS)
def test_mean_and_variance(name):
    draw, mean, variance = MOMENTS[name]
    x = draw().numpy().astype(np.float64)
    assert x.shape == (N,) and abs(x.mean() - mean) < 5 * np.sqrt(variance / N)
    assert abs(x.var() / variance - 1) < 0.12


def test_uniform_stays_in_its_half_open_range():
    x = random.uniform(size=(N,)).numpy()
    assert x.min() >= 0 and x.max() < 1 and x.dtype == np.float32


def test_sizes():
    assert random.uniform().shape == (1,) and random.normal(size=()).shape == ()
    assert random.normal(size=Tensor([2, 3])).shape == (2, 3)


def test_parameters_broadcast_behind_the_size():
    assert random.gamma(F.ones((2, 1)), F.ones((3,)), size=(4,)).shape == (4, 2, 3)
    assert random.poisson(F.ones((2,))).shape == (2,)


@pytest.mark.parametrize(
    "draw",
    [
        lambda: random.gamma(0.0),
        lambda: random.beta(1.0, -1.0),
        lambda: random.poisson(Tensor([1.0, 0.0])),
        lambda: random.exponential(-1.0),
    ],
)
def test_parameters_must_be_positive(draw):
    with pytest.raises(AssertionError, match="must be positive"):
        draw()


def test_a_permutation_has_every_number_once():
    p = random.permutation(100)
    assert p.dtype == np.int32 and sorted(p.tolist()) == list(range(100)) != p.tolist()
    assert random.permutation(3, dtype="float32").dtype == np.float32


def test_a_tensor_is_permuted_along_its_first_axis():
    x = np.arange(40).reshape(20, 2)
    y = random.permutation(Tensor(x)).numpy()
    assert sorted(y[:, 0]) == list(x[:, 0]) and (y[:, 1] - y[:, 0] == 1).all()


def test_shuffle_works_in_place_and_passes_gradients():
    x = Tensor(np.arange(10, dtype=np.float32))
    gm = autodiff.GradManager().attach(x)
    with gm:
        y = x * 1
        random.shuffle(y)
        gm.backward((y * Tensor(np.arange(10, dtype=np.float32))).sum())
    assert sorted(y.tolist()) == list(range(10)) != y.tolist()
    np.testing.assert_array_equal(x.grad.numpy()[y.numpy().astype(int)], np.arange(10))


def test_multinomial_follows_the_weights():
    weights = Tensor([[1.0, 3.0, 0.0], [0.0, 0.0, 2.0]])
    x = random.multinomial(weights, N, replacement=True).numpy()
    assert x.shape == (2, N) and x.dtype == np.int32 and (x[1] == 2).all()
    assert abs((x[0] == 1).mean() - 0.75) < 0.02 and (x[0] != 2).all()


def test_multinomial_without_replacement_repeats_nothing():
    assert sorted(random.multinomial(F.ones((5,)), 5).tolist()) == [0, 1, 2, 3, 4]
    with pytest.raises(AssertionError, match="3 samples without replacement from 2"):
        random.multinomial(Tensor([1.0, 0.0, 1.0]), 3)
