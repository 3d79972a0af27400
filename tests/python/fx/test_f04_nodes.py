"""F4: six opcodes, and what a node knows of itself."""

import operator

import pytest
from small_modules import sum_of_two

import megengine as mge
import megengine.functional as F
import megengine.module as M
from megengine import fx


def test_unknown_opcodes_and_wrong_targets_are_refused():
    graph = fx.Graph()
    with pytest.raises(
        ValueError, match="unknown opcode 'call'.*\n.*placeholder, get_attr, call_function"
    ):
        graph.create_node("call", "f")
    with pytest.raises(ValueError, match="must be callable, got 'f'"):
        graph.call_function("f")
    with pytest.raises(ValueError, match="must be a str"):
        graph.call_module(F.relu)
    assert len(graph) == 0


def test_arguments_cannot_be_changed_behind_the_graph():
    graph, x, y, _ = sum_of_two()
    node = graph.call_function(F.concat, ([x, y],))
    with pytest.raises(TypeError, match="assign a new tree"):
        node.args[0].append(x)


class AllKinds(M.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.shift = M.Linear(3, 3), mge.Parameter([1.0, 2.0, 3.0])

    def forward(self, x):
        return F.relu(self.fc(x) + self.shift).sum(axis=0)


def test_there_are_six_opcodes_and_each_has_a_use():
    graph = fx.symbolic_trace(AllKinds()).graph
    assert {node.op for node in graph.nodes} == set(fx.node.OPCODES) and len(fx.node.OPCODES) == 6


def test_a_node_knows_its_call_its_inputs_and_its_users():
    x, fc, shift, add, relu, total, output = fx.symbolic_trace(AllKinds()).graph.nodes
    assert (add.op, add.name, add.target) == ("call_function", "add", operator.add)
    assert add.args == (fc, shift) and add.kwargs == {} and add.all_input_nodes == [fc, shift]
    assert list(add.users) == [relu] and list(x.users) == [fc] and not output.users
    assert (total.op, total.target, total.kwargs) == ("call_method", "sum", {"axis": 0})
    assert shift.target == "shift" and fc.target == "fc" and output.args == (total,)
