"""Edits that prove themselves, and programs with aliases (F21)."""

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
import megengine.module as M
from megengine import fx
from megengine.fx.experimental.optimization import fuse, remove_dropout


def tensor(*shape):
    return mge.tensor(np.random.RandomState(0).randn(*shape).astype(np.float32))


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


class ConvBn(M.Module):
    def __init__(self, program):
        super().__init__()
        self.conv, self.bn = M.Conv2d(3, 3, 1), M.BatchNorm2d(3)
        self.bn.running_mean += 2
        self.__dict__["_program"] = program
        self.eval()

    def forward(self, x):
        return self._program(self, x)


def input_is_written(net, x):
    x += 1
    return net.bn(net.conv(x)) + x


def input_is_written_after(net, x):
    y = net.bn(net.conv(x))
    x[0] = 0.0
    return y + x


def result_is_written(net, x):
    y = net.bn(net.conv(x))
    y *= 2
    return y


def convolution_is_written(net, x):
    y = net.conv(x)
    y *= 2
    return net.bn(y)


def alias_is_written(net, x):
    y = net.conv(x)
    z = y
    z += 1
    return net.bn(y)


def alias_is_written_after(net, x):
    y = net.conv(x)
    z = net.bn(y)
    y -= 1
    return z + y


def part_is_written(net, x):
    y = net.conv(x)
    y[:, 0] = 5.0
    return net.bn(y) * y


def weight_is_read(net, x):
    return net.bn(net.conv(x)) * net.conv.weight.mean() + net.conv.bias


@pytest.mark.parametrize(
    "program",
    [
        input_is_written, input_is_written_after, result_is_written, convolution_is_written,
        alias_is_written, alias_is_written_after, part_is_written, weight_is_read,
    ],
)  # fmt: skip
def test_programs_with_aliases_stay_right(program):
    net, x = ConvBn(program), tensor(2, 3, 4, 4)
    want = net(mge.Tensor(x))
    np.testing.assert_array_equal(fx.symbolic_trace(net)(mge.Tensor(x)).numpy(), want.numpy())
    fused = fuse(net, verify=x)
    np.testing.assert_allclose(fused(mge.Tensor(x)).numpy(), want.numpy(), rtol=1e-4, atol=1e-4)


def test_what_a_rewriting_pass_may_not_move_past_a_write_stays():
    def program(x):
        y = F.exp(x)
        z = y * 2
        y += 1
        return z + y

    gm = fx.symbolic_trace(program)
    fx.replace_pattern(gm, lambda x: F.exp(x) * 2, lambda x: F.exp(x) + F.exp(x), verify=tensor(3))
