"""G3: the inputs and outputs of a graph."""

import numpy as np
from nets import affine


def test_inputs_are_the_module_and_the_arguments():
    traced, graph, x, out = affine()
    assert [node.name for node in graph.inputs] == ["self", "x"]
    assert graph.inputs[0].owner is traced
    assert x.shape == (3,) and x.dtype == np.float32 and out.name == "add_out"
