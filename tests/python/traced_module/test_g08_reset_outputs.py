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
