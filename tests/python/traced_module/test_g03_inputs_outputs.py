"""G3: the inputs and outputs of a graph."""

import numpy as np
from nets import affine, tensor

import megengine.module as M
import megengine.traced_module as tm


def test_inputs_are_the_module_and_the_arguments():
    traced, graph, x, out = affine()
    assert [node.name for node in graph.inputs] == ["self", "x"]
    assert graph.inputs[0].owner is traced
    assert x.shape == (3,) and x.dtype == np.float32 and out.name == "add_out"


def test_outputs_are_nodes_each_once():
    class Twice(M.Module):
        def forward(self, x):
            y = x + 1
            return {"a": y, "b": [y, x, 3]}

    graph = tm.trace_module(Twice(), tensor(2)).graph
    assert [node.name for node in graph.outputs] == ["add_out", "x"]
    assert graph.outputs[1] is graph.inputs[1]
