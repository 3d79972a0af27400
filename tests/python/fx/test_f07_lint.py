"""F7: changed targets run after recompile; lint finds broken graphs."""

import operator

import numpy as np
import pytest
from small_modules import sum_of_two, tensor

import megengine.functional as F
import megengine.module as M
from megengine import fx


def test_a_changed_target_is_what_runs():
    gm = fx.symbolic_trace(lambda x, y: F.add(x, y))
    for node in gm.graph.nodes:
        if node.target is F.add:
            node.target = F.mul
    gm.graph.lint()
    assert "functional.mul" in gm.recompile()
    np.testing.assert_array_equal(gm(tensor(3), tensor(3)).numpy(), tensor(3).numpy() ** 2)


def break_order(graph, x, y, add):
    graph.move(add, before=y)


def break_by_cycle(graph, x, y, add):
    add.args = (add, y)


def break_by_erased_input(graph, x, y, add):
    neg = graph.call_function(operator.neg, (x,))
    graph.erase_node(neg)
    add.args = (neg, y)


def break_names(graph, x, y, add):
    add.name = "x"


def break_output(graph, x, y, add):
    graph.call_function(operator.neg, (x,))


def break_inputs(graph, x, y, add):
    graph.move(y, before=graph.following(add))
    add.args = (x, x)


def break_function(graph, x, y, add):
    add.target = "add"


def break_method(graph, x, y, add):
    with graph.inserting_after(add):
        graph.call_method("sum")


def break_attribute(graph, x, y, add):
    graph.inserting_after(y)
    graph.get_attr("nothing")


def break_module(graph, x, y, add):
    graph.inserting_after(y)
    graph.call_module("weight", (x,))


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (break_order, "'add' .*reads 'y' before it is made"),
        (break_by_cycle, "'add' .*reads its own result"),
        (break_by_erased_input, "'add' .*reads 'neg', which is not in this graph"),
        (break_names, "two nodes are called 'x'"),
        (break_output, "'neg' .*stands after the output"),
        (break_inputs, "the input 'y' .*stands after other nodes"),
        (break_function, "'add' .*calls 'add', which is not callable"),
        (break_method, "'sum_1' .*calls a method of nothing"),
        (break_attribute, "'nothing' .*the module has nothing at 'nothing'"),
        (break_module, "'weight' .*is a Parameter, not a module"),
    ],
)
def test_lint_finds_broken_graphs(damage, says):
    graph, *nodes = sum_of_two()
    graph.owning_module = M.Linear(2, 2)
    graph.lint()
    damage(graph, *nodes)
    with pytest.raises(fx.GraphError, match=says):
        graph.lint()


def test_code_of_a_cycle_is_refused():
    gm = fx.symbolic_trace(lambda x: F.exp(x))
    (exp,) = [node for node in gm.graph.nodes if node.op == "call_function"]
    exp.args = (exp,)
    with pytest.raises(
        fx.GraphError, match=r"'exp' \(.*(small_modules|test_f07_lint).py:\d+\) reads its own result"
    ):
        gm.recompile()
