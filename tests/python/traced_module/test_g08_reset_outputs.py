"""G8: other outputs and inputs."""

import pytest
from nets import Affine, affine, same, tensor


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


def test_it_does_what_replacing_the_output_does():
    (one, first, _, out), (two, second, _, other) = affine(), affine()
    for graph, node in ((first, out), (second, other)):
        with graph.insert_exprs():
            new = node * 2
        if graph is first:
            graph.replace_node({node: new})
        else:
            graph.reset_outputs(new)
        graph.compile()
    assert repr(first) == repr(second)
    same(one(tensor(3)), two(tensor(3)))


def test_outputs_become_any_tree():
    traced, graph, x, out = affine()
    graph.reset_outputs({"in": x, "both": [out, out]})
    result = traced(tensor(3))
    same(result["in"], tensor(3))
    same(result["both"][1], Affine()(tensor(3)))
