"""G3 to G9: inputs and outputs, inserted exprs, replaced nodes, example values, compile."""

import numpy as np
import pytest
from nets import Affine, ConvNet, Scale, same, tensor

import megengine.functional as F
import megengine.module as M
import megengine.traced_module as tm
from megengine.traced_module.expr import CallFunction, CallMethod, Constant


def affine():
    """exp(x) + 1, its graph, and its nodes x and exp(x) + 1."""
    traced = tm.trace_module(Affine(), tensor(3))
    return traced, traced.graph, traced.graph.inputs[1], traced.graph.outputs[0]


def test_inputs_are_the_module_and_the_arguments():
    traced, graph, x, out = affine()
    assert [node.name for node in graph.inputs] == ["self", "x"]
    assert graph.inputs[0].owner is traced
    assert x.shape == (3,) and x.dtype == np.float32 and out.name == "add_out"


def test_an_added_input_is_one_more_argument():
    traced, graph, x, out = affine()
    y = graph.add_input_node(shape=(3,), name="y")
    with graph.insert_exprs():
        total = out + y
    graph.reset_outputs(total)
    same(traced(tensor(3), tensor(3, seed=1)), Affine()(tensor(3)) + tensor(3, seed=1))
    same(traced(tensor(3), y=tensor(3, seed=1)), Affine()(tensor(3)) + tensor(3, seed=1))


def test_inputs_and_outputs_change_on_the_top_graph_only():
    traced = tm.trace_module(ConvNet(), tensor(1, 3, 4, 4))
    inner = traced.conv_bn.graph
    for edit in (
        lambda: inner.add_input_node((1,)),
        lambda: inner.reset_inputs(tensor(1)),
        lambda: inner.add_output_node(inner.outputs[0]),
        lambda: inner.reset_outputs(inner.outputs[0]),
    ):
        with pytest.raises(AssertionError, match="change the top graph"):
            edit()


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
    first, second = graph.exprs(recursive=False)
    with graph.insert_exprs():
        a = x + 2
        b = x + 3
    order = list(graph.exprs())
    assert order == [a.expr, b.expr, first, second]
    with graph.insert_exprs(second):
        c = x + 4
    assert list(graph.exprs())[-1] is c.expr
    with pytest.raises(AssertionError, match="is made after"):
        with graph.insert_exprs(first):
            out + 1


def test_a_node_of_another_graph_is_refused():
    _, graph, x, out = affine()
    with pytest.raises(AssertionError, match="not of Affine|is a node of"):
        with graph.insert_exprs():
            x + affine()[2]


def test_replacing_never_makes_a_loop():
    traced, graph, x, out = affine()
    with graph.insert_exprs():
        doubled = x * 2
    graph.replace_node({x: doubled})
    assert doubled.expr.inputs == [x]
    graph.lint()
    same(traced(tensor(3)), Affine()(tensor(3) * 2))


def test_an_input_that_is_made_later_is_refused():
    _, graph, x, out = affine()
    with pytest.raises(ValueError, match="is made after"):
        graph.exprs().as_list()[0].replace_inputs({x: out})


def test_the_example_value_is_what_insertions_compute_with(recwarn):
    traced, graph, x, out = affine()
    x.value = tensor(3)
    seen = []

    def look(value):
        seen.append(value)
        return value

    with graph.insert_exprs():
        quotient = x / x
    assert quotient.shape == (3,) and x.value is not None
    x.value = None
    assert x.value is None


def test_outputs_become_pairs():
    traced, graph, x, out = affine()
    graph.add_output_node(out.expr.inputs[0])
    first, second = traced(tensor(3))
    same(first, second + 1)


def test_inputs_are_arranged_anew():
    traced, graph, x, out = affine()
    graph.reset_inputs({"a": tensor(3)})
    same(traced({"a": tensor(3)}), Affine()(tensor(3)))
    with pytest.raises(AssertionError, match="2 tensors for the 1 inputs"):
        graph.reset_inputs(tensor(3), tensor(3))


def test_compile_removes_what_no_output_needs_and_does_no_more_the_second_time():
    _, graph, x, out = affine()
    with graph.insert_exprs():
        F.exp(F.exp(x))
    kept = out.expr
    assert graph.exprs().as_count() == 4
    for _ in range(2):
        graph.compile()
        assert graph.exprs().as_count() == 2 and kept in list(graph.exprs())


def test_an_expr_can_be_kept_through_compile():
    _, graph, x, out = affine()
    with graph.insert_exprs():
        unused = F.cos(x)
    unused.expr.disable_remove()
    graph.compile()
    assert graph.get_function_by_type(F.cos).as_unique() is unused.expr
    unused.expr.enable_remove()
    graph.compile()
    assert graph.get_function_by_type(F.cos).as_count() == 0


def test_compile_merges_reads_of_one_attribute():
    traced = tm.trace_module(M.Sequential(M.ReLU()), tensor(2))
    graph = traced.graph
    with graph.insert_exprs():
        out = getattr(graph.inputs[0], "0")(graph.outputs[0])
    graph.replace_node({graph.outputs[0]: out})
    graph.compile()
    assert graph.get_module_by_type(M.ReLU).as_count() == 1
    assert len(graph.get_module_by_type(M.ReLU).as_unique().users) == 2


def test_lint_names_an_attribute_that_is_gone():
    traced = tm.trace_module(ConvNet(), tensor(1, 3, 4, 4))
    del traced.conv
    with pytest.raises(RuntimeError, match='getattr\\(self, "conv"\\)|no such attribute'):
        traced.graph.lint()


def test_the_kinds_of_exprs_say_what_they_are():
    _, graph, x, out = affine()
    exp, add = graph.exprs()
    assert isinstance(exp, CallFunction) and exp.func is F.exp
    assert isinstance(add, CallMethod) and add.method == "__add__" and add.args[1] == 1
    assert add.named_args and exp.named_args == {"x": x}
    exp.set_arg("x", x)
    assert exp.source.rpartition(":")[0].endswith("nets.py")
