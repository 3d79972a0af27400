"""Programs that cannot be traced are refused, with the node and the user's line."""

import math

import numpy as np
import pytest
from small_modules import Affine

import megengine as mge
import megengine.functional as F
import megengine.module as M
from megengine import fx


@fx.wrap
def opaque(x):
    return x * 2 if x.sum() > 0 else x


@pytest.mark.parametrize(
    ("program", "asked"),
    [
        (lambda x: 1 if x else 2, "the truth of 'x'"),
        (lambda x: x if x.sum() > 0 else -x, "the truth of 'gt'"),
        (lambda x: x and 1, "the truth of 'x'"),
        (lambda x: max(x, 3), "the truth of 'lt'"),
        (lambda x: x in [1, 2], "the truth of 'eq'"),
        (lambda x: [item for item in x], "a loop over the items of 'x'"),
        (lambda x: F.concat([*x]), "a loop over the items of 'x'"),
        (lambda x: sum(x), "a loop over the items of 'x'"),
        (lambda x: [0 for _ in range(x.shape[0])], "a Python number of 'getitem'"),
        (lambda x: [1, 2][x], "a Python number of 'x'"),
        (lambda x: len(x.shape), "len\\(\\) of 'getattr_1'"),
        (lambda x: math.sin(x), "a Python number of 'x'"),
        (lambda x: np.sin(x), "numpy.sin of 'x'"),
        (lambda x: np.add.reduce(x), "numpy.add of 'x'"),
        (lambda x: np.array(x), "an array of NumPy of 'x'"),
        (lambda x: mge.tensor(x), "an array of NumPy of 'x'"),
        (lambda x: x.item(), "item\\(\\) of 'x'"),
        (lambda x: f"{x:.3f}", "a formatted text of 'x'"),
        (lambda x: range(x), "a Python number of 'x'"),
        (lambda x: 3 in x, "`in` of 'x'"),
        (lambda x: dict(**x), "the keys of 'x'"),
        (lambda x: x.numpy(), "numpy\\(\\) of 'x'"),
        (lambda x: float(F.relu(x)), "a Python number of 'relu'"),
    ],
)
def test_what_needs_a_value_is_refused_with_node_and_line(program, asked):
    with pytest.raises(fx.TraceError, match=asked) as caught:
        fx.symbolic_trace(program)
    assert f"at:  {__file__}:{program.__code__.co_firstlineno}" in str(caught.value)


def test_modules_outside_the_root_are_refused():
    outside = M.Linear(2, 2)
    with pytest.raises(NameError, match="Linear is called, but is not a submodule"):
        fx.symbolic_trace(lambda x: outside(x))


def test_modules_are_no_arguments():
    net = Affine()
    with pytest.raises(fx.TraceError, match="a Affine is passed as an argument"):
        fx.symbolic_trace(lambda x: opaque(x, net))
