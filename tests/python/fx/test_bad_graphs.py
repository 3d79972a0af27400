"""Edits that a graph cannot take, and runs that fail, name the node and the user's line."""

import copy
import pickle

import pytest
from small_modules import tensor

import megengine.functional as F
import megengine.module as M
import megengine.traced_module as tm
from megengine import fx

HERE = r"\(.*test_bad_graphs.py:\d+\)"


def traced():
    """relu(exp(x) + y), and its nodes."""
    gm = fx.symbolic_trace(lambda x, y: F.relu(F.exp(x) + y))
    return gm, *gm.graph.nodes


def cyclic():
    gm, x, y, exp, add, relu, out = traced()
    exp.args = (add,)
    return gm


CYCLE = f"'exp' {HERE} reads 'add'"


@pytest.mark.parametrize(
    "use",
    [
        lambda gm: gm.graph.lint(),
        lambda gm: gm.recompile(),
        lambda gm: gm.graph.eliminate_dead_code(),
        lambda gm: copy.deepcopy(gm.graph),
        lambda gm: copy.deepcopy(gm),
        lambda gm: pickle.dumps(gm.graph),
        lambda gm: fx.GraphModule(gm, gm.graph),
        lambda gm: fx.Interpreter(gm).run(tensor(2), tensor(2)),
        lambda gm: fx.Transformer(gm).transform(),
        lambda gm: gm.graph.html(tensor(2), tensor(2)),
        lambda gm: fx.replace_pattern(gm, lambda x: F.relu(x), lambda x: F.exp(x)),
    ],
)
def test_a_cycle_is_named_by_whatever_meets_it(use):
    with pytest.raises(RuntimeError, match=CYCLE):
        use(cyclic())


def test_a_cycle_can_be_looked_at():
    assert "exp" in cyclic().graph.html() and '"add" -> "exp"' in cyclic().graph.dot()


EDITS = {
    "unknown opcode": (
        lambda gm, x, y, exp, *_: setattr(exp, "op", "call"),
        ValueError, "node 'exp': unknown opcode 'call'(?s:.*)call_function(?s:.*)test_bad_graphs.py",
    ),
    "erase a used node": (
        lambda gm, x, y, exp, add, *_: gm.graph.erase_node(exp),
        fx.GraphError, f"cannot erase 'exp' {HERE}: it is used by 'add' {HERE}",
    ),
    "erase a node twice": (
        lambda gm, x, y, exp, add, relu, out: (gm.graph.erase_node(out), gm.graph.erase_node(out)),
        fx.GraphError, f"'output' {HERE} is not in this graph",
    ),
    "erase a node of another graph": (
        lambda gm, *_: gm.graph.erase_node(traced()[1]), fx.GraphError, f"'x' {HERE} is not in this graph",
    ),
    "read a node of another graph": (
        lambda gm, x, y, exp, *_: setattr(exp, "args", (traced()[1],)),
        fx.GraphError, f"'exp' {HERE} cannot read x: that is a node of another graph",
    ),
    "read a node of a traced module": (
        lambda gm, x, y, exp, *_: exp.update_arg(0, tm.trace_module(M.ReLU(), tensor(2)).graph.inputs[1]),
        fx.GraphError, f"'exp' {HERE} cannot read x: that is a node of another graph",
    ),
    "insert beside a node of another graph": (
        lambda gm, *_: gm.graph.inserting_after(traced()[1]), fx.GraphError, f"beside 'x' {HERE}: it is not in",
    ),
    "an argument that is not there": (
        lambda gm, x, y, exp, *_: exp.update_arg(3, y), IndexError, f"'exp' {HERE} has 1 positional .* none at 3",
    ),
    "args that are none": (
        lambda gm, x, y, exp, *_: setattr(exp, "args", 3), TypeError, f"'exp' {HERE}: args must be a tuple",
    ),
    "kwargs without names": (
        lambda gm, x, y, exp, *_: setattr(exp, "kwargs", {1: y}), TypeError, f"'exp' {HERE}: the keys .* must be str",
    ),
    "two nodes of one name": (
        lambda gm, x, y, exp, *_: (setattr(exp, "name", "x"), gm.recompile()),
        fx.GraphError, f"two nodes are called 'x' {HERE}",
    ),
    "a method of nothing": (
        lambda gm, x, y, exp, *_: (setattr(exp, "op", "call_method"), setattr(exp, "args", ()), gm.recompile()),
        fx.GraphError, f"'exp' {HERE} calls a method of nothing",
    ),
    "a graph that is none": (
        lambda gm, *_: fx.GraphModule(gm, 3), TypeError, "must be a Graph, got int",
    ),
    "a module without a graph": (
        lambda *_: fx.Interpreter(M.ReLU()), TypeError, "got ReLU(?s:.*)symbolic_trace",
    ),
    "a picture of a module": (
        lambda gm, *_: gm.graph.html(before=gm), TypeError, "before must be a graph, got GraphModule",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", EDITS)
def test_an_edit_is_refused(what):
    edit, error, says = EDITS[what]
    with pytest.raises(error, match=says):
        edit(*traced())


@pytest.mark.parametrize(
    "run",
    [
        lambda gm, *args: gm(*args),
        lambda gm, *args: fx.Interpreter(gm).run(*args),
        lambda gm, *args: gm.graph.html(*args),
    ],
)
def test_a_run_that_fails_names_the_node_and_its_line(run):
    with pytest.raises(ValueError, match="cannot broadcast") as caught:
        run(traced()[0], tensor(2), tensor(3))
    (note,) = caught.value.__notes__
    assert note.startswith("while running 'add' (") and "test_bad_graphs.py:" in note
    assert "(args = (%exp, %y)" in note


def test_a_module_that_is_gone_is_named():
    gm = fx.symbolic_trace(M.Sequential(M.Linear(2, 2)))
    delattr(gm, "0")
    with pytest.raises(AttributeError) as caught:
        gm(tensor(1, 2))
    assert "call_module[target=0]" in caught.value.__notes__[0]
    with pytest.raises(fx.GraphError, match="the module has nothing at '0'"):
        gm.graph.lint()
