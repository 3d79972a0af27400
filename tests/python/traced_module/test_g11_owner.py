"""G11: the owner of a node is the live module, whose weights can be changed."""

import pickle

import numpy as np
import pytest
from nets import ConvNet, same, tensor
from surgeries import absorb_constants

import megengine.functional as F
import megengine.module as M
import megengine.traced_module as tm
from megengine.traced_module.node import ModuleNode


@pytest.fixture
def traced():
    net = ConvNet()
    net.eval()
    return tm.trace_module(net, tensor(1, 3, 4, 4))


def test_the_owner_of_a_module_node_is_the_live_module(traced):
    for node in traced.graph.get_module_by_type(M.Conv2d):
        assert isinstance(node, ModuleNode) and node.module_type is M.Conv2d
    first, second = traced.graph.get_module_by_type(M.Conv2d).as_list()
    assert first.owner is traced.conv and second.owner is getattr(traced.conv_bn, "0")
    assert second.top_graph.inputs[0].owner is traced.conv_bn
    assert second.owner._name == "0"


def test_constants_are_absorbed_to_the_bit():
    class Scaled(M.Module):
        def __init__(self):
            super().__init__()
            self.conv = M.Conv2d(3, 16, 1)

        def forward(self, x):
            return self.conv(x) * 8 / 128

    net, x = Scaled(), tensor(1, 3, 16, 16)
    traced = pickle.loads(pickle.dumps(tm.trace_module(net, x)))
    absorb_constants(traced)
    assert traced.graph.get_method_by_type("__mul__").as_count() == 0
    assert traced.graph.exprs().as_count() == 4, "two inputs, the read of the convolution, and its call"
    np.testing.assert_array_equal(traced(x).numpy(), net(x).numpy())


def test_a_module_that_is_put_in_its_place_is_the_owner():
    traced = tm.trace_module(M.Sequential(M.ReLU()), tensor(2))
    node = traced.graph.get_module_by_type(M.ReLU).as_unique()
    setattr(traced, "0", M.Sigmoid())
    assert node.module_type is M.Sigmoid
    same(traced(tensor(2)), F.sigmoid(tensor(2)))
