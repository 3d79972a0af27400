"""Edits that prove themselves."""

import pytest
from small_modules import tensor

import megengine.functional as F
import megengine.module as M
from megengine import fx
from megengine.fx.experimental.optimization import (
    fuse,
    remove_dropout,
)


def test_a_wrong_replacement_is_found_and_named():
    gm = fx.symbolic_trace(lambda x: F.exp(F.relu(F.abs(x) + 1) * 2))
    pattern, wrong = (lambda x: F.relu(x) * 2), (lambda x: F.relu(x) * 2.5)
    with pytest.raises(
        fx.VerificationError, match=r"first different value: 'mul_1' .*test_verify.py"
    ):
        fx.replace_pattern(gm, pattern, wrong, verify=tensor(3))


def test_a_right_replacement_passes():
    gm = fx.symbolic_trace(lambda x, y: F.relu(x) * 2 + y)
    right = lambda x: F.maximum(x + x, 0)  # noqa: E731
    fx.replace_pattern(gm, lambda x: F.relu(x) * 2, right, verify=(tensor(3), tensor(3)))


def test_bfloat16_is_compared_within_the_tolerance():
    before, after = fx.symbolic_trace(lambda x: x * 3), fx.symbolic_trace(lambda x: x * 3.02)
    fx.verify_same(before, after, tensor(3).astype("bfloat16"), tolerance=2e-2)


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        (lambda x: x, lambda x: (x, x), "2 values instead of 1"),
        (lambda x: x, lambda x: x[:2], r"shape \[2\] instead of \[3\]"),
        (lambda x: x.astype("int32"), lambda x: x.astype("int32") + 1, "other elements"),
        (lambda x: x.shape[0], lambda x: x.shape[0] + 1, "4 instead of 3"),
        (lambda x: x, lambda x: x * 1.01, "off by"),
        (lambda x: x, lambda x: x / 0, "off by inf"),
    ],
)
def test_differences_are_described(before, after, says):
    with pytest.raises(fx.VerificationError, match=says):
        fx.verify_same(fx.symbolic_trace(before), fx.symbolic_trace(after), tensor(3))


def test_passes_take_inputs_to_verify_with():
    net = M.Sequential(M.Conv2d(3, 4, 1), M.BatchNorm2d(4), M.Dropout(0.5))
    net.eval()
    fuse(net, verify=tensor(2, 3, 4, 4))
    remove_dropout(net, verify=tensor(2, 3, 4, 4))
    net[2].train()
    with pytest.raises(fx.VerificationError):
        remove_dropout(net, verify=tensor(2, 3, 4, 4))
