"""G4: a graph takes one more argument."""

import pytest
from nets import Affine, ConvNet, affine, same, tensor

import megengine.traced_module as tm


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
