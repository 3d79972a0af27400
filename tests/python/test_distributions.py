"""Distributions and the weight scaler."""

import numpy as np
import pytest
from drawn import follows
from scipy import stats

import megengine.functional as F
import megengine.module as M
from megengine import Tensor, random
from megengine.distributions import Distribution, Exponential
from megengine.experimental import get_scaled_model
from megengine.jit import trace


def test_the_moments_of_an_exponential():
    d = Exponential(Tensor([1.0, 2.0]))
    assert d.mean.tolist() == [1, 0.5] and d.variance.tolist() == [1, 0.25]
    assert d.stddev.tolist() == [1, 0.5] and d.batch_shape == (2,) and d.event_shape == ()


def test_samples_follow_their_distribution():
    random.seed(0)
    x = Exponential(Tensor([1.0, 2.0])).sample((50000,))
    assert x.shape == (50000, 2)
    assert follows(x[:, 0].numpy(), stats.expon()) and follows(x[:, 1].numpy(), stats.expon(scale=0.5))


def test_icdf_inverts_cdf_and_log_prob_is_its_slope():
    d, p = Exponential(3.0), Tensor([0.1, 0.5, 0.9])
    np.testing.assert_allclose(d.cdf(d.icdf(p)).numpy(), p.numpy(), rtol=1e-5)
    slope = (d.cdf(Tensor(0.5 + 1e-2)) - d.cdf(Tensor(0.5 - 1e-2))) / 2e-2
    np.testing.assert_allclose(F.exp(d.log_prob(Tensor(0.5))).item(), slope.item(), rtol=1e-3)


@pytest.mark.parametrize("rate", [-1.0, 0.0, [1.0, -2.0], float("nan")])
def test_a_rate_that_is_not_positive_is_refused(rate):
    with pytest.raises(AssertionError, match="Exponential: rate must be positive"):
        Exponential(Tensor(rate))


def test_a_trace_makes_a_distribution_of_an_argument():
    mean = trace(lambda rate: Exponential(rate).mean, symbolic=True)
    assert [mean(Tensor([2.0])).item() for _ in range(3)] == [0.5] * 3


def test_expand_broadcasts_the_parameters():
    d = Exponential(Tensor([1.0, 2.0])).expand((3, 2))
    assert d.batch_shape == (3, 2) and d.sample((4,)).shape == (4, 3, 2)


def test_a_family_says_what_it_does_not_define():
    with pytest.raises(TypeError, match="Distribution does not define sample"):
        Distribution().sample()


def test_scaled_weights_compute_the_same():
    random.seed(0)
    model = M.Sequential(M.Conv2d(3, 4, 3), M.BatchNorm2d(4), M.ReLU())
    model[1].running_var[...] = random.uniform(0.1, 2, (1, 4, 1, 1))
    scaled = get_scaled_model(model, lambda name, conv, norm: norm, input_shape=(1, 3, 8, 8))
    largest = np.abs(scaled[0].weight.numpy()).max((1, 2, 3))
    np.testing.assert_allclose(largest, 1, rtol=1e-5)
    assert not np.allclose(np.abs(model[0].weight.numpy()).max((1, 2, 3)), 1)
