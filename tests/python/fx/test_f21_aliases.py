"""F21: programs whose values share memory stay right."""

import numpy as np
import pytest
from small_modules import Calls, close, tensor, warmed

import megengine as mge
import megengine.functional as F
import megengine.module as M
from megengine import fx
from megengine.fx.experimental.optimization import (
    fuse,
)


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


def test_a_convolution_written_in_place_is_not_folded_past_the_write():
    def forward(self, x):
        y = self.conv(x)
        y += 1
        return self.bn(y)

    net = warmed(Calls(forward, conv=M.Conv2d(3, 3, 1), bn=M.BatchNorm2d(3)))
    x = tensor(2, 3, 4, 4)
    close(fuse(net)(x), net(x))
