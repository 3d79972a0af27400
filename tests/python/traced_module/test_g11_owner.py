"""G11: the owner of a node is the live module, whose weights can be changed."""

import pytest
from nets import ConvNet, tensor

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
