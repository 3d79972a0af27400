"""Edits that a graph cannot take are refused, with the node and the user's line."""

import pytest
from nets import ConvNet, affine, tensor

import megengine.traced_module as tm


def test_a_node_of_another_graph_is_refused():
    _, graph, x, out = affine()
    with pytest.raises(AssertionError, match="not of Affine|is a node of"):
        with graph.insert_exprs():
            x + affine()[2]


def test_an_input_that_is_made_later_is_refused():
    _, graph, x, out = affine()
    with pytest.raises(ValueError, match="is made after"):
        graph.exprs().as_list()[0].replace_inputs({x: out})


def test_lint_names_an_attribute_that_is_gone():
    traced = tm.trace_module(ConvNet(), tensor(1, 3, 4, 4))
    del traced.conv
    with pytest.raises(RuntimeError, match='getattr\\(self, "conv"\\)|no such attribute'):
        traced.graph.lint()
