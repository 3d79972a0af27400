"""Random streams: repeatable, of the right distribution, shaped as documented."""

import itertools

import numpy as np
import pytest
from drawn import counts_follow, follows
from scipy import stats

import megengine as mge
import megengine.data.transform as T
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


DISTRIBUTIONS = {
    "uniform": (lambda: random.uniform(-1, 3, (N,)), stats.uniform(-1, 4)),
    "normal": (lambda: random.normal(2, 3, (N,)), stats.norm(2, 3)),
    "gamma": (lambda: random.gamma(2.0, 3.0, (N,)), stats.gamma(2, scale=3)),
    "gamma below one": (lambda: random.gamma(0.5, 1.0, (N,)), stats.gamma(0.5)),
    "gamma of a large shape": (lambda: random.gamma(80.0, 0.5, (N,)), stats.gamma(80, scale=0.5)),
    "beta": (lambda: random.beta(2.0, 3.0, (N,)), stats.beta(2, 3)),
    "beta below one": (lambda: random.beta(0.5, 0.7, (N,)), stats.beta(0.5, 0.7)),
    "exponential": (lambda: random.exponential(0.5, (N,)), stats.expon(scale=2)),
}


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_numbers_follow_their_distribution(name):
    draw, distribution = DISTRIBUTIONS[name]
    x = draw().numpy()
    assert x.shape == (N,) and follows(x, distribution)
    pairs = distribution.cdf(x.astype(np.float64)).reshape(-1, 2)
    assert follows((pairs[:, 0] + pairs[:, 1]) % 1, stats.uniform())  # neighbours are independent: so is a sum of their ranks


@pytest.mark.parametrize("rate", [0.3, 4.0, 50.0])
def test_poisson_counts_follow_their_distribution(rate):
    assert counts_follow(random.poisson(rate, (N,)).numpy(), stats.poisson(rate).pmf, range(200))


def test_a_wrong_distribution_is_found():
    """What tests of two moments miss: a uniform with the mean and the deviation of a normal."""
    uniform = random.uniform(-np.sqrt(3), np.sqrt(3), (N,)).numpy()
    assert uniform.std() == pytest.approx(1, rel=0.02) and not follows(uniform, stats.norm())
    assert not counts_follow(random.poisson(4.2, (N,)).numpy(), stats.poisson(4).pmf, range(40))


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


def test_every_order_is_as_likely():
    orders = np.array([random.permutation(4).numpy() for _ in range(1200)])
    assert counts_follow(orders @ [64, 16, 4, 1], lambda code: 1 / 24, [np.dot(p, [64, 16, 4, 1]) for p in itertools.permutations(range(4))])


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
    assert counts_follow(x[0], [0.25, 0.75, 0].__getitem__, range(3)) and (x[0] != 2).all()


def test_multinomial_without_replacement_repeats_nothing():
    assert sorted(random.multinomial(F.ones((5,)), 5).tolist()) == [0, 1, 2, 3, 4]
    with pytest.raises(AssertionError, match="3 samples without replacement from 2"):
        random.multinomial(Tensor([1.0, 0.0, 1.0]), 3)


def test_uniform_draws_stay_below_the_upper_bound():
    """Some of 2^24 draws that are scaled would be rounded to it."""
    x = random.uniform(1e6, 1e6 + 1, size=(4096,)).numpy()
    assert x.min() >= 1e6 and x.max() < 1e6 + 1
    x = random.uniform(-1.0, 1.0, size=(1 << 22,)).numpy()
    assert x.min() >= -1 and x.max() < 1
    with pytest.raises(AssertionError, match="Uniform is not defined when low >= high, got 5 and 1"):
        random.uniform(5, 1)


def test_a_state_brings_back_masks_weights_and_numpys_draws(tmp_path):
    def draws():
        return random.uniform(size=(3,)).tolist(), F.dropout(F.ones(64), 0.5).tolist(), np.random.uniform(size=3).tolist()

    random.uniform(size=(2,))
    mge.save(random.get_state(), tmp_path / "state.pkl")
    first = draws()
    assert draws() != first
    random.set_state(mge.load(tmp_path / "state.pkl"))
    assert draws() == first


def test_an_incomplete_state_changes_nothing():
    before = random.get_state()["counter"]
    with pytest.raises(KeyError):
        random.set_state({"seed": 1, "counter": 77, "masks": 0})
    assert random.get_state()["counter"] == before


def test_a_seed_starts_transforms_too_where_that_is_asked_for():
    image = np.arange(64, dtype=np.uint8).reshape(8, 8, 1)
    crop = T.RandomCrop(3)

    def crops():
        return [crop.apply(image).tolist() for _ in range(4)]

    random.seed(5, numpy=True)
    first = crops()
    random.seed(5)
    assert crops() != first
    random.seed(5, numpy=True)
    assert crops() == first
    with pytest.raises(ValueError):
        random.seed(2**40, numpy=True)
