"""G15: convolutions and normalizations become one module, by surgery, in evaluation and in training."""

import pytest
from nets import ConvNet, same, tensor
from surgeries import fuse_normalizations

import megengine as mge
import megengine.module as M
import megengine.traced_module as tm

X = tensor(4, 3, 4, 4)


def traced_net(training):
    net = ConvNet()
    net(X + 1)  # statistics that are not the initial ones
    net.train(training)
    return net, tm.trace_module(net, X)


@pytest.mark.parametrize("training", [False, True])
def test_both_in_the_graph_and_in_a_nested_sequential_are_fused(training):
    net, traced = traced_net(training)
    fuse_normalizations(traced)
    traced.graph.lint()
    count = lambda kind: traced.graph.get_module_by_type(kind).as_count()  # noqa: E731
    assert count(M.BatchNorm2d) == 0 and count(M.ConvBn2d if training else M.Conv2d) == 2
    fused = M.ConvBn2d if training else M.Conv2d
    assert type(traced.conv) is type(getattr(traced.conv_bn, "0")) is fused
    tolerance = {"rtol": 0, "atol": 0} if training else {}  # folded weights are rounded, those in training are not touched
    same(traced(X), net(X), **tolerance)


def test_what_was_fused_in_training_is_trained():
    net, traced = traced_net(True)
    fuse_normalizations(traced)
    weight = traced.conv.conv.weight
    before = traced.conv.bn.running_mean.numpy()
    with mge.autodiff.GradManager().attach(traced.parameters()) as manager:
        manager.backward(traced(X).sum())
    assert weight.grad is not None and (traced.conv.bn.running_mean.numpy() != before).any()


def test_a_convolution_that_two_read_stays():
    class Shared(M.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.bn = M.Conv2d(3, 3, 1), M.BatchNorm2d(3)

        def forward(self, x):
            y = self.conv(x)
            return self.bn(y) + y

    net = Shared()
    net.eval()
    traced = tm.trace_module(net, X)
    fuse_normalizations(traced)
    assert traced.graph.get_module_by_type(M.BatchNorm2d).as_count() == 1
    same(traced(X), net(X))
