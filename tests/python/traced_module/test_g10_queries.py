"""G10: exprs are found by what they call."""

import pytest
from nets import ConvNet, Scale, tensor

import megengine.functional as F
import megengine.module as M
import megengine.traced_module as tm
from megengine.traced_module.node import TensorNode


@pytest.fixture
def traced():
    net = ConvNet()
    net.eval()
    return tm.trace_module(net, tensor(1, 3, 4, 4))


def test_methods_are_found_in_inner_graphs(traced):
    outer = tm.trace_module(M.Sequential(M.ReLU(), Scale()), tensor(3))
    (div,) = outer.graph.get_method_by_type("__truediv__").as_list()
    assert div.top_graph is getattr(outer, "1").graph
    assert outer.graph.get_method_by_type("__truediv__", recursive=False).as_count() == 0
    node, number = div.args
    assert isinstance(node, TensorNode) and number == 128
    assert node.expr.method == "__mul__" and node.expr.outputs == [node] and node.users[0] is div


def test_filters_give_lists_dicts_counts_and_the_only_one(traced):
    relus = traced.graph.get_function_by_type(F.relu)
    expr = relus.as_unique()
    assert relus.as_dict() == {expr._id: expr} and relus.as_count() == 1
    with pytest.raises(AssertionError, match="there are 2 of these"):
        traced.graph.get_module_by_type(M.BatchNorm2d).as_unique()
