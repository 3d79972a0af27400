"""G10 to G15: exprs found by what they call, owners, top graphs, flattening, fusion by hand."""

import numpy as np
import pytest
from nets import ConvNet, Scale, same, tensor

import megengine.functional as F
import megengine.module as M
import megengine.traced_module as tm
from megengine.traced_module.node import ModuleNode, TensorNode


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


def test_the_owner_of_a_module_node_is_the_live_module(traced):
    for node in traced.graph.get_module_by_type(M.Conv2d):
        assert isinstance(node, ModuleNode) and node.module_type is M.Conv2d
    first, second = traced.graph.get_module_by_type(M.Conv2d).as_list()
    assert first.owner is traced.conv and second.owner is getattr(traced.conv_bn, "0")
    assert second.top_graph.inputs[0].owner is traced.conv_bn
    assert second.owner._name == "0"


def test_filters_give_lists_dicts_counts_and_the_only_one(traced):
    relus = traced.graph.get_function_by_type(F.relu)
    expr = relus.as_unique()
    assert relus.as_dict() == {expr._id: expr} and relus.as_count() == 1
    with pytest.raises(AssertionError, match="there are 2 of these"):
        traced.graph.get_module_by_type(M.BatchNorm2d).as_unique()


def test_flattening_inlines_and_keeps_names_and_results(traced):
    x = tensor(1, 3, 4, 4)
    flat = traced.flatten()
    same(flat(x), traced(x))
    cat = flat.graph.get_function_by_type(F.concat).as_unique()
    assert [n.name for n in cat.inputs] == ["mul_out", "conv_bn_out"]
    assert [n._orig_name for n in cat.inputs] == ["mul_out", "conv_bn.1_out"]
    assert [n.qualname for n in cat.inputs] == ["ConvNet.[mul]", "ConvNet.conv_bn.1.[out]"]
    assert all(e.graph is None for e in flat.graph.get_method_by_type("__call__"))
    flat.graph.lint()


def test_flattening_twice_is_harmless(traced):
    flat = traced.flatten()
    assert repr(flat.flatten().graph) == repr(flat.graph)
    same(flat.flatten()(tensor(1, 3, 4, 4)), traced(tensor(1, 3, 4, 4)))


def test_a_child_called_twice_is_inlined_twice():
    class Net(M.Module):
        def __init__(self):
            super().__init__()
            self.child = M.Sequential(M.Linear(3, 3), M.ReLU())

        def forward(self, x):
            return self.child(self.child(x)) + self.child(x)

    traced = tm.trace_module(Net(), tensor(2, 3))
    flat = traced.flatten()
    assert flat.graph.get_method_by_type("__call__").as_count() == 6
    same(flat(tensor(2, 3)), traced(tensor(2, 3)))
    names = [node.name for node in flat.graph.nodes()]
    assert len(set(names)) == len(names)


def test_a_linear_layer_is_moved_to_half_precision():
    net = M.Sequential(M.Linear(8, 8), M.ReLU())
    traced, x = tm.trace_module(net, tensor(2, 8)), tensor(2, 8)
    wanted = net(x)
    node = traced.graph.get_module_by_type(M.Linear).as_unique()
    linear, expr = node.owner, node.users[0]
    linear.weight, linear.bias = linear.weight.astype("float16"), linear.bias.astype("float16")
    graph = expr.top_graph
    with graph.insert_exprs():
        half = expr.inputs[1].astype(np.float16)
    expr.replace_inputs({expr.inputs[1]: half})
    with graph.insert_exprs():
        whole = expr.outputs[0].astype(np.float32)
    graph.replace_node({expr.outputs[0]: whole})
    graph.compile()
    graph.lint()
    assert traced(x).dtype == np.float32
    same(traced(x), wanted, atol=5e-2)
