"""Programs that cannot be traced are refused, with the node and the user's line."""

import pytest
from programs import Affine

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
        (lambda x: [item for item in x], "a loop over the items of 'x'"),
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
    with pytest.raises(NameError, match="Linear is called, but is no submodule"):
        fx.symbolic_trace(lambda x: outside(x))


def test_modules_are_no_arguments():
    net = Affine()
    with pytest.raises(fx.TraceError, match="a Affine is passed as an argument"):
        fx.symbolic_trace(lambda x: opaque(x, net))
