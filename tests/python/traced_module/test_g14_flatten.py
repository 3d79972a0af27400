"""G14: one graph from a graph that calls others."""

import pytest
from nets import ConvNet, same, tensor

import megengine.functional as F
import megengine.module as M
import megengine.traced_module as tm


@pytest.fixture
def traced():
    net = ConvNet()
    net.eval()
    return tm.trace_module(net, tensor(1, 3, 4, 4))


def test_flattening_inlines_and_keeps_names_and_results(traced):
    x = tensor(1, 3, 4, 4)
    flat = traced.flatten()
    same(flat(x), traced(x))
    cat = flat.graph.get_function_by_type(F.concat).as_unique()
    assert [n.name for n in cat.inputs] == ["mul_out", "conv_bn_out"]
    assert [n._orig_name for n in cat.inputs] == ["mul_out", "conv_bn.1_out"]
    assert [n.qualname for n in cat.inputs] == ["ConvNet.[method_mul]", "ConvNet.conv_bn.1.[out]"]
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


def test_the_inputs_of_a_concat_are_named_by_what_made_them():
    class Net(M.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.bn = M.Conv2d(3, 16, 1, bias=False), M.BatchNorm2d(16)
            self.conv_bn = M.Sequential(M.Conv2d(16, 16, 1, bias=False), M.BatchNorm2d(16))

        def forward(self, x):
            x = self.bn(self.conv(x))
            return F.concat((x, self.conv_bn(x)), 1)

    flat = tm.trace_module(Net(), tensor(1, 3, 4, 4)).flatten()
    cat = flat.graph.get_function_by_type(F.concat).as_unique()
    assert repr(cat) == "%10:\tconcat_out = tensor.concat((bn_out, conv_bn_out), 1, )"
    assert cat.args[1:] == (1, None)  # held, though not given
    assert [node._orig_name for node in cat.inputs] == ["bn_out", "conv_bn.1_out"]
