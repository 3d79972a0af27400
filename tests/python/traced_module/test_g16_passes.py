"""G16: passes keep what is computed, the tree of modules and the names of values."""

import copy
import pickle

import pytest
from nets import ConvNet, same, tensor

import megengine.functional as F
import megengine.module as M
import megengine.traced_module as tm
from megengine import fx
from megengine.traced_module import _passes

X = tensor(2, 3, 4, 4)


def traced(net):
    net.train()
    net(tensor(4, 3, 4, 4, seed=3))
    net.eval()
    return tm.trace_module(net, X)


def count(module, cls):
    return module.graph.get_module_by_type(cls).as_count()


def test_normalizations_are_fused_in_all_graphs():
    before = traced(ConvNet())
    after = tm.optimize(before, verify=X)
    same(after(X), before(X), atol=1e-4)
    assert count(before, M.BatchNorm2d) == 2 and count(after, M.BatchNorm2d) == 0
    assert after.conv.bias is not None and before.conv.bias is None
    assert not any("bn.running" in name for name in after.state_dict())
    assert (
        after.graph.get_node_by_name("ConvNet_bn_out").as_unique().expr.args[0].owner is after.conv
    )


def test_normalizations_in_training_mode_stay():
    net = traced(ConvNet())
    net.train()
    assert count(tm.optimize(net), M.BatchNorm2d) == 2


class Shared(M.Module):
    """The convolution has another use than the normalization."""

    def __init__(self, use):
        super().__init__()
        self.conv, self.bn, self.use = M.Conv2d(3, 3, 1), M.BatchNorm2d(3), use

    def forward(self, x):
        y = self.conv(x)
        if self.use == "called twice":
            return self.bn(self.conv(y))
        return self.bn(y) + (y if self.use == "result" else self.conv.weight.sum())


@pytest.mark.parametrize("use", ["result", "called twice", "weight"])
def test_a_convolution_with_another_use_stays(use):
    before = traced(Shared(use))
    after = tm.optimize(before, verify=X)
    assert count(after, M.BatchNorm2d) == 1
    same(after(X), before(X))


class Reading(M.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.bn = M.Conv2d(3, 3, 1), M.BatchNorm2d(3)

    def forward(self, x):
        return self.bn(self.conv(x)) + self.bn.running_var.sum()


def test_a_normalization_whose_statistics_are_read_stays_in_the_module():
    before = traced(Reading())
    after = tm.optimize(before, verify=X)
    assert count(after, M.BatchNorm2d) == 0
    same(after(X), before(X), atol=1e-4)


class Scaled(M.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.bn, self.fc = M.Conv2d(3, 4, 1), M.BatchNorm2d(4), M.Linear(4, 2)

    def forward(self, x):
        x = F.relu(self.bn(self.conv(x))) * 8 / 128
        x = F.flatten(F.avg_pool2d(x, 4), 1)
        return self.fc(x) * -3.0 + 1 - 4


def test_numbers_in_a_row_become_one():
    before = traced(Scaled())
    after = tm.optimize(before, ["FuseAddMul"], verify=X)
    methods = [e.method for e in after.graph.get_method_by_type()]
    assert sorted(methods) == ["__add__", "__mul__", "__mul__"]
    same(after(X), before(X), atol=1e-4)


def test_factors_go_into_the_layer_before():
    before = traced(Scaled())
    after = tm.optimize(before, ["BackwardFoldScale"], verify=X)
    assert count(after, M.BatchNorm2d) == 0
    assert [e.method for e in after.graph.get_method_by_type()] == ["__add__", "__sub__"]
    same(after(X), before(X), atol=1e-4)


def test_a_difference_names_the_node():
    before = traced(ConvNet())
    after = tm.optimize(before)
    after.conv.bias = after.conv.bias + 1
    with pytest.raises(ValueError, match="bn_out = conv.*gives another value"):
        _passes.verify_same(before, after, (X,))


def test_an_unknown_pass_is_refused():
    with pytest.raises(AssertionError, match="no pass 'Fuse'"):
        tm.optimize(traced(ConvNet()), ["Fuse"])


class Doubled(M.Module):
    def forward(self, x):
        return F.relu(F.exp(x)) + 1


def without_exp(graph):
    """A pass as people write them for `megengine.fx`; it knows no traced module."""
    for node in graph.nodes:
        if node.op == "call_function" and node.target is F.relu:
            node.target = F.square
        if node.op == "call_function" and node.target is F.exp:
            node.replace_all_uses_with(node.prev)
            assert not node.users
    graph.eliminate_dead_code()
    graph.lint()


def test_a_pass_of_fx_works_on_the_graph_of_a_traced_module():
    recorded, symbolic = tm.trace_module(Doubled(), X), fx.symbolic_trace(Doubled())
    for graph in (recorded.graph.fx_graph, symbolic.graph):
        without_exp(graph)
    symbolic.recompile()
    same(recorded(X), X * X + 1)
    same(symbolic(X), X * X + 1)
    assert [expr.func for expr in recorded.graph.get_function_by_type()] == [F.square]
    assert "square(x, )" in str(recorded.graph) and "square(x, )" in str(recorded.graph.fx_graph)


def test_exprs_stand_for_their_values_among_arguments():
    traced = tm.trace_module(Doubled(), X)
    *_, x, exp, relu, add, output = traced.graph.fx_graph.nodes
    assert exp.users == [relu] and add.users == [output] and relu.all_input_nodes == [exp] and exp.outputs[0].users == [relu]
    add.replace_input_with(relu, exp)
    assert not relu.users and add.inputs == exp.outputs
    same(traced(X), F.exp(X) + 1)
    add.args = (x, 2)
    traced.graph.fx_graph.erase_node(relu)
    assert traced.graph.fx_graph.eliminate_dead_code() and exp not in list(traced.graph) and traced.graph.lint() == []
    same(traced(X), X + 2)
    with pytest.raises(fx.GraphError, match="used by the result of Doubled"):
        traced.graph.fx_graph.erase_node(add)


def test_what_a_graph_shows_is_drawn_as_itself():
    graph = tm.trace_module(ConvNet(), X).graph
    assert graph.fx_graph.html() == graph.html() and graph.fx_graph.dot() == graph.dot()
    assert "call_module" in graph.fx_graph.tabular() and graph.fx_graph.html(X).count("float32[2, 4, 4, 4]") > 0


@pytest.mark.parametrize("edit", [lambda g: g.call_function(F.relu, ()), lambda g: g.python_code(), copy.deepcopy, pickle.dumps])
def test_what_only_an_internal_graph_can_do_is_refused_on_what_it_shows(edit):
    with pytest.raises(fx.GraphError, match="that of a traced module\n  fix: "):
        edit(tm.trace_module(Doubled(), X).graph.fx_graph)
