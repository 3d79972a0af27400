"""Edits that a graph cannot take, and runs that fail, name the node and the user's line."""

import copy
import math

import numpy as np
import pytest
from nets import ConvNet, affine, same, tensor

import megengine as mge
import megengine.functional as F
import megengine.module as M
import megengine.traced_module as tm
from megengine._graph.core import GraphError

LINE = r"(?s:.*)at:  .*test_bad_edits.py:\d+"


@pytest.mark.parametrize(
    ("program", "asked"),
    [
        (lambda x: x if x else -x, "the truth of 'x'"),
        (lambda x: x if x.sum() > 0 else -x, "the truth of 'gt_out' \\(.*test_bad_edits.py"),
        (lambda x: max(x, 3), "the truth of 'lt_out'"),
        (lambda x: len(x), "len\\(\\) of 'x'"),
        (lambda x: range(x), "a Python number of 'x'"),
        (lambda x: int(x), "a Python number of 'x'"),
        (lambda x: math.sin(x), "a Python number of 'x'"),
        (lambda x: 3 in x, "`in` of 'x'"),
        (lambda x: np.sin(x), "numpy.sin of 'x'"),
        (lambda x: np.array(x), "an array of NumPy of 'x'"),
        (lambda x: mge.tensor(x), "an array of NumPy of 'x'"),
        (lambda x: x.numpy(), "numpy\\(\\) of 'x'"),
        (lambda x: x.item(), "item\\(\\) of 'x'"),
    ],
)
def test_what_needs_a_value_is_refused_while_exprs_are_inserted(program, asked):
    _, graph, x, _ = affine()
    with pytest.raises(GraphError, match=asked + LINE):
        with graph.insert_exprs():
            program(x)


def test_functions_of_nodes_outside_of_insertions_are_refused():
    for use in (F.exp, M.ReLU()):
        with pytest.raises(GraphError, match="of 'x'.*\n.*with graph.insert_exprs" + LINE):
            use(affine()[2])
    assert affine()[2], "a node may be asked for there"


def test_an_array_on_the_left_is_an_operand():
    traced, graph, x, out = affine()
    with graph.insert_exprs():
        new = np.float32(2) * (np.ones(3, np.float32) - out) / np.full(3, 4, np.float32)
    graph.replace_node({out: new})
    same(traced(tensor(3)), (1 - F.exp(tensor(3)) - 1) / 2)


@pytest.mark.parametrize(
    ("program", "says", "told"),
    [
        (
            lambda x, traced: x + tensor(7),
            "cannot broadcast",
            "__add__ into Affine, with x: float32[3]",
        ),
        (
            lambda x, traced: F.matmul(x, tensor(7, 2)),
            "matmul",
            "matmul into Affine, with x: float32[3]",
        ),
        (
            lambda x, traced: F.concat([x, tensor(2, 2)]),
            "concat",
            "concat into Affine, with x: float32[3]",
        ),
        (lambda x, traced: x.reshape(7, 7), "reshape", "reshape into Affine, with x: float32[3]"),
        (lambda x, traced: traced.fc(x), "matmul", "fc into Affine, with x: float32[3]"),
        (lambda x, traced: x[9], "out of range", "__getitem__ into Affine, with x: float32[3]"),
        (
            lambda x, traced: F.relu(x, 1),
            "takes 1 positional",
            "relu into Affine, with x: float32[3]",
        ),
    ],
)
def test_shapes_that_do_not_match_are_named_where_they_are_inserted(program, says, told):
    traced, graph, x, _ = affine()
    traced.fc = M.Linear(7, 2)
    with pytest.raises(Exception, match=says) as caught:  # noqa: PT011 (whatever the function raises)
        with graph.insert_exprs():
            program(x, traced)
    (note,) = caught.value.__notes__
    assert note.startswith(f"while inserting {told}") and "test_bad_edits.py:" in note
    graph.compile()
    assert graph.exprs().as_count() == 4, "nothing of it stays"


EDITS = {
    "erase a used expr": (
        lambda g, x, out: g.erase(out.expr.inputs[0].expr), GraphError,
        r"cannot erase %2 exp_out = .*\(.*nets.py:\d+\): it is used by %3 add_out = .*\(.*nets.py:\d+\)",
    ),
    "erase what the graph gives": (
        lambda g, x, out: g.erase(out.expr), GraphError, "cannot erase %3 add_out = .*: it is used by the result of Affine\n",
    ),
    "read a later node": (
        lambda g, x, out: x.users[0].set_args_kwargs(out), ValueError, "'add_out' is made after %2 exp_out" + LINE,
    ),
    "read a later node by name": (
        lambda g, x, out: x.users[0].set_arg("x", out), ValueError, "'add_out' is made after %2 exp_out" + LINE,
    ),
    "read a later node instead": (
        lambda g, x, out: x.users[0].replace_inputs({x: out}), ValueError, "'add_out' is made after" + LINE,
    ),
    "read a node of another graph": (
        lambda g, x, out: x.users[0].set_args_kwargs(affine()[2]), ValueError, "'x' is not in the graph of %2" + LINE,
    ),
    "replace by a node of another graph": (
        lambda g, x, out: g.replace_node({x: affine()[2]}), AssertionError, "x is not a node of Affine",
    ),
    "replace a tensor by a module": (
        lambda g, x, out: g.replace_node({x: g.inputs[0]}), AssertionError, "x and self are not both tensors",
    ),
    "replace by a number": (
        lambda g, x, out: x.users[0].replace_inputs({x: 3}), AssertionError, "takes nodes, got x: 3",
    ),
    "give a node of another graph": (
        lambda g, x, out: g.reset_outputs(affine()[2]), AssertionError, "x is not a node of Affine",
    ),
    "give a number more": (
        lambda g, x, out: g.add_output_node(3), AssertionError, "takes a TensorNode, got 3",
    ),
    "an argument that is not there": (
        lambda g, x, out: x.users[0].set_arg("y", x), AssertionError, "%2 exp_out = .* has no argument 'y'\n.*one of x",
    ),
    "an input whose shape is none": (
        lambda g, x, out: g.add_input_node("abc"), TypeError, "'args': a shape is a tuple of int, got 'abc'",
    ),
    "a value that is no tensor": (
        lambda g, x, out: setattr(x, "value", 3), TypeError, "'x': value must be a Tensor or None, got 3",
    ),
    "insert after nothing": (
        lambda g, x, out: g.insert_exprs(3), AssertionError, "3 is not an expr of Affine",
    ),
    "call no function": (
        lambda g, x, out: setattr(x.users[0], "func", 3), TypeError, "calls a function, got 3",
    ),
    "look for no class": (
        lambda g, x, out: g.get_module_by_type(3), AssertionError, "3 is not a class of modules",
    ),
    "measure with no tensor": (
        lambda g, x, out: g.html("a"), TypeError, "Affine takes tensors, got 'a'",
    ),
    "copy a node": (
        lambda g, x, out: copy.deepcopy(x), TypeError, "'x': a node is part of its graph",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", EDITS)
def test_an_edit_is_refused(what):
    edit, error, says = EDITS[what]
    traced, graph, x, out = affine()
    with pytest.raises(error, match=says):
        edit(graph, x, out)
    graph.lint()
    same(traced(tensor(3)), F.exp(tensor(3)) + 1)


def test_a_run_that_fails_names_the_expr_of_each_graph():
    traced = tm.trace_module(M.Sequential(M.Sequential(M.Linear(3, 2))), tensor(1, 3))
    with pytest.raises(ValueError, match="matmul") as caught:
        traced(tensor(1, 5))
    inner, outer = caught.value.__notes__
    assert inner.startswith("while running %7 _0_out = _0(inp, )") and "test_bad_edits.py:" in inner
    assert outer.startswith("while running %3 _0_out = _0(inp, )")


def test_arguments_that_the_module_does_not_take_are_refused():
    traced = affine()[0]
    with pytest.raises(
        TypeError, match="Affine: too many positional arguments\n.*it takes \\(x\\)"
    ):
        traced(tensor(3), tensor(3))


def test_lint_names_what_is_missing_or_of_another_kind():
    for damage, says in (
        (lambda net: delattr(net, "conv"), "%2 conv = getattr.*nothing at 'conv'"),
        (lambda net: setattr(net, "conv", 3), "%2 conv = getattr.*is of type int, not a Module"),
        (
            lambda net: setattr(net.graph.outputs[0].expr, "method", "foo"),
            "a Tensor has no method 'foo'",
        ),
    ):
        traced = tm.trace_module(ConvNet(), tensor(1, 3, 4, 4))
        traced.graph.lint()
        damage(traced)
        with pytest.raises(GraphError, match=says):
            traced.graph.lint()
        assert "conv" in traced.graph.html() and "conv" in traced.graph.dot()


def test_a_node_of_another_graph_is_refused():
    _, graph, x, out = affine()
    with pytest.raises(AssertionError, match="not of Affine|is a node of"):
        with graph.insert_exprs():
            x + affine()[2]
