"""F13: `fuse` folds what it may, in a copy of the model."""

import copy

import numpy as np
import pytest
from small_modules import Calls, close, norms, tensor, warmed

import megengine.functional as F
import megengine.module as M
from megengine.fx.experimental.optimization import (
    fuse,
)
from megengine.utils.fusion import fuse_conv_bn_eval


def test_the_model_stays_as_it_was():
    net = warmed(M.Sequential(M.Conv2d(3, 4, 1), M.BatchNorm2d(4)))
    before = copy.deepcopy(net.state_dict())
    for inplace in (False, True):
        fused = fuse(net, inplace)
        assert norms(net) == 1 and norms(fused) == 0
    for key, value in net.state_dict().items():
        np.testing.assert_array_equal(value, before[key])


def test_a_convolution_that_two_read_stays():
    def forward(self, x):
        y = self.conv(x)
        return self.bn(y) + y

    net = warmed(Calls(forward, conv=M.Conv2d(3, 4, 1), bn=M.BatchNorm2d(4)))
    x = tensor(2, 3, 4, 4)
    assert norms(fuse(net)) == 1
    close(fuse(net)(x), net(x))


def test_a_shared_convolution_is_folded_once_for_each_normalization():
    def forward(self, x):
        return self.b(self.conv(self.a(self.conv(x)))) + self.conv(x)

    net = warmed(Calls(forward, conv=M.Conv2d(3, 3, 1), a=M.BatchNorm2d(3), b=M.BatchNorm2d(3)))
    x, fused = tensor(2, 3, 4, 4), fuse(net)
    assert norms(fused) == 0
    close(fused(x), net(x))


def test_a_shared_pair_is_folded():
    def forward(self, x):
        return self.bn(self.conv(self.bn(self.conv(x))))

    net = warmed(Calls(forward, conv=M.Conv2d(3, 3, 1), bn=M.BatchNorm2d(3)))
    x, fused = tensor(2, 3, 4, 4), fuse(net)
    assert norms(fused) == 0
    close(fused(x), net(x))


def test_a_weight_that_is_read_elsewhere_keeps_its_value():
    def forward(self, x):
        return self.bn(self.conv(x)) + self.conv.weight.sum()

    net = warmed(Calls(forward, conv=M.Conv2d(3, 3, 1), bn=M.BatchNorm2d(3)))
    x, fused = tensor(2, 3, 4, 4), fuse(net)
    assert norms(fused) == 0
    close(fused(x), net(x))


@pytest.mark.parametrize("training", [False, True])
def test_functions_with_fixed_tensors_are_folded_once_training_has_ended(training):
    def forward(self, x):
        y = F.conv2d(x, self.conv.weight, padding=1)
        return F.batch_norm(y, self.bn.running_mean, self.bn.running_var, self.bn.weight, training=False)

    net = warmed(Calls(forward, conv=M.Conv2d(3, 4, 3, bias=False), bn=M.BatchNorm2d(4)))
    net.train(training)
    x, fused = tensor(2, 3, 4, 4), fuse(net)
    called = [node.target for node in fused.graph.nodes if node.op == "call_function"]
    assert called == ([F.conv2d, F.batch_norm] if training else [F.conv2d])
    assert [node.target for node in fused.graph.nodes if node.op == "get_attr"] == (
        ["conv.weight", "bn.running_mean", "bn.running_var", "bn.weight"] if training else ["conv2d_weight", "conv2d_bias"]
    )
    close(fused(x), net(x))


def test_a_function_whose_weight_is_computed_stays():
    def forward(self, x):
        return self.bn(F.conv2d(x, self.conv.weight * 2))

    net = warmed(Calls(forward, conv=M.Conv2d(3, 4, 3), bn=M.BatchNorm2d(4)))
    assert norms(fuse(net)) == 1


def test_a_normalization_without_statistics_stays():
    net = M.Sequential(M.Conv2d(3, 4, 1), M.BatchNorm2d(4, track_running_stats=False))
    net.eval()
    assert norms(fuse(net)) == 1
    with pytest.raises(ValueError, match="without running statistics"):
        fuse_conv_bn_eval(net[0], net[1])


def test_the_printed_model_has_no_normalization():
    block = Calls(
        lambda self, x: self.bn(self.conv(x)) + self.downsample(x),
        conv=M.Conv2d(3, 4, 1, bias=False),
        bn=M.BatchNorm2d(4),
        downsample=M.Sequential(M.Conv2d(3, 4, 1, bias=False), M.BatchNorm2d(4)),
    )
    assert repr(fuse(warmed(M.Sequential(block)))) == (
        "Sequential(\n  (0): Module(\n"
        "    (conv): Conv2d(3, 4, kernel_size=(1, 1))\n"
        "    (downsample): Module(\n"
        "      (0): Conv2d(3, 4, kernel_size=(1, 1))\n    )\n  )\n)"
    )
