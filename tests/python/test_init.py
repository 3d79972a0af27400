"""Initialisers: in place, with the right spread."""

import math

import numpy as np
import pytest
from drawn import follows
from scipy import stats

import megengine as mge
import megengine.module as M
from megengine import Parameter, Tensor
from megengine.module import init


def weight(*shape, dtype=np.float32):
    return Parameter(np.zeros(shape, dtype))


def test_constants_fill_in_place_and_keep_dtype():
    p = weight(2, 3, dtype=np.float16)
    handle = p
    init.fill_(p, 1.5)
    assert handle is p and p.dtype == np.float16 and p.shape == (2, 3)
    np.testing.assert_array_equal(p.numpy(), 1.5)
    init.ones_(p)
    np.testing.assert_array_equal(p.numpy(), 1)
    init.zeros_(p)
    np.testing.assert_array_equal(p.numpy(), 0)


def test_uniform_and_normal():
    mge.random.seed(1)
    p = weight(200, 300)
    init.uniform_(p, -2.0, 4.0)
    assert follows(p.numpy(), stats.uniform(-2, 6))
    init.normal_(p, 3.0, 0.5)
    assert follows(p.numpy(), stats.norm(3, 0.5))


def skipped_layers():
    with init.skipped():
        return M.Sequential(
            M.Linear(8, 8), M.LayerNorm(8), M.Embedding(5, 8), M.Conv2d(2, 2, 3), M.LSTM(8, 8),
            M.MultiHeadAttention(8, 2, add_bias_kv=True),
        )  # fmt: skip


def test_skipped_weights_are_zeros_and_draw_nothing():
    mge.random.seed(3)
    wanted = M.Linear(8, 8).weight.numpy()
    mge.random.seed(3)
    values = {path: each.numpy() for path, each in skipped_layers().named_parameters()}
    np.testing.assert_array_equal(M.Linear(8, 8).weight.numpy(), wanted)
    assert (values.pop("1.weight") == 1).all() and not any(each.any() for each in values.values())


def test_skipping_ends_with_its_block():
    with pytest.raises(ZeroDivisionError), init.skipped():
        1 / 0
    assert M.Linear(8, 8).weight.numpy().any()


def test_draws_keep_the_dtype():
    p = weight(4, 5, dtype=np.float16)
    init.normal_(p)
    assert p.dtype == np.float16 and p.shape == (4, 5)


@pytest.mark.parametrize(
    ("nonlinearity", "param", "gain"),
    [("linear", None, 1), ("conv2d", None, 1), ("sigmoid", None, 1), ("tanh", None, 5 / 3),
     ("relu", None, math.sqrt(2)), ("leaky_relu", None, math.sqrt(2 / (1 + 1e-4))),
     ("leaky_relu", 0.2, math.sqrt(2 / 1.04))],
)  # fmt: skip
def test_gains(nonlinearity, param, gain):
    assert init.calculate_gain(nonlinearity, param) == pytest.approx(gain)


def test_unknown_names_are_value_errors():
    with pytest.raises(ValueError, match="swish"):
        init.calculate_gain("swish")
    with pytest.raises(ValueError, match="slope"):
        init.calculate_gain("leaky_relu", "steep")
    with pytest.raises(ValueError, match="fan_sideways"):
        init.calculate_correct_fan(weight(2, 3), "fan_sideways")


def test_fans():
    assert init.calculate_fan_in_and_fan_out(weight(6, 4)) == (4, 6)
    assert init.calculate_fan_in_and_fan_out(weight(6, 4, 3, 3)) == (36, 54)
    assert init.calculate_fan_in_and_fan_out(weight(2, 6, 4, 3, 3)) == (36, 54)
    assert init.calculate_correct_fan(weight(6, 4), "FAN_OUT") == 6
    with pytest.raises(ValueError, match="2 axes"):
        init.calculate_fan_in_and_fan_out(weight(3))


def test_xavier_and_msra_have_the_published_spread():
    mge.random.seed(2)
    p = weight(100, 50, 3, 3)
    fan_in, fan_out = 450, 900
    cases = [
        (init.xavier_uniform_, {"gain": 2.0}, 2 * math.sqrt(2 / (fan_in + fan_out))),
        (init.xavier_normal_, {}, math.sqrt(2 / (fan_in + fan_out))),
        (init.msra_uniform_, {"nonlinearity": "relu"}, math.sqrt(2 / fan_in)),
        (init.msra_normal_, {"mode": "fan_out", "nonlinearity": "relu"}, math.sqrt(2 / fan_out)),
        (init.msra_uniform_, {"a": math.sqrt(5)}, math.sqrt(1 / 3 / fan_in)),
    ]
    for fill, options, std in cases:
        fill(p, **options)
        bound = math.sqrt(3) * std
        assert follows(p.numpy(), stats.uniform(-bound, 2 * bound) if "uniform" in fill.__name__ else stats.norm(0, std)), fill.__name__


def test_the_global_seed_repeats_draws():
    p = Tensor(np.zeros(8, np.float32))
    mge.random.seed(5)
    init.normal_(p)
    first = p.numpy()
    mge.random.seed(5)
    init.normal_(p)
    np.testing.assert_array_equal(p.numpy(), first)
