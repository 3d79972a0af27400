"""G5: functions, methods, operators and modules that are applied to nodes insert exprs."""

import pytest
from nets import Affine, Scale, affine, same, tensor

import megengine.functional as F
import megengine.module as M
import megengine.traced_module as tm
from megengine.traced_module.expr import CallFunction, CallMethod, Constant


def test_functions_methods_operators_and_modules_insert_exprs():
    traced, graph, x, out = affine()
    traced.act = M.Sigmoid()
    with graph.insert_exprs():
        new = F.concat((out, 2 - out.astype("float32")), axis=0)[1:]
        new = graph.inputs[0].act(new)
        new = traced.act(new) * tensor(5)
    graph.replace_node({out: new})
    wanted = Affine()(tensor(3))
    wanted = F.sigmoid(F.sigmoid(F.concat((wanted, 2 - wanted))[1:])) * tensor(5)
    same(traced(tensor(3)), wanted)
    graph.lint()
    assert not any(type(e) is Constant for e in graph.get_dep_exprs(out))


def test_an_inserted_module_that_is_not_built_in_is_traced():
    traced, graph, x, out = affine()
    traced.scale = M.Sequential(Scale(), M.ReLU())
    with graph.insert_exprs():
        new = graph.inputs[0].scale(out)
    graph.replace_node({out: new})
    graph.compile()
    same(traced(tensor(3)), Scale()(Affine()(tensor(3))))
    assert isinstance(traced.scale, tm.TracedModule)
    assert graph.get_method_by_type("__truediv__").as_count() == 1
    same(traced.flatten()(tensor(3)), traced(tensor(3)))


def test_nodes_compute_only_while_exprs_are_inserted():
    _, graph, x, out = affine()
    with pytest.raises(AttributeError, match="with graph.insert_exprs"):
        x + 1


def test_exprs_go_right_after_what_they_read_or_after_the_one_that_is_given():
    _, graph, x, out = affine()
    *inputs, first, second = graph.exprs(recursive=False)
    with graph.insert_exprs():
        a = x + 2
        b = x + 3
    order = list(graph.exprs())
    assert order == [*inputs, a.expr, b.expr, first, second]
    with graph.insert_exprs(second):
        c = x + 4
    assert list(graph.exprs())[-1] is c.expr
    with pytest.raises(AssertionError, match="is made after"):
        with graph.insert_exprs(first):
            out + 1


def test_the_kinds_of_exprs_say_what_they_are():
    _, graph, x, out = affine()
    *_, exp, add = graph.exprs()
    assert isinstance(exp, CallFunction) and exp.func is F.exp
    assert isinstance(add, CallMethod) and add.method == "__add__" and add.args[1] == 1
    assert add.named_args and exp.named_args == {"x": x}
    exp.set_arg("x", x)
    assert exp.source.rpartition(":")[0].endswith("nets.py")
