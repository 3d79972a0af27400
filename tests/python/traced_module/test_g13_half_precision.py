"""G13: layers are moved to half precision, with casts around them."""

import numpy as np
import pytest
from nets import ConvNet, same, tensor

import megengine.module as M
import megengine.traced_module as tm


@pytest.fixture
def traced():
    net = ConvNet()
    net.eval()
    return tm.trace_module(net, tensor(1, 3, 4, 4))


def test_a_linear_layer_is_moved_to_half_precision():
    net = M.Sequential(M.Linear(8, 8), M.ReLU())
    traced, x = tm.trace_module(net, tensor(2, 8)), tensor(2, 8)
    wanted = net(x)
    node = traced.graph.get_module_by_type(M.Linear).as_unique()
    linear, expr = node.owner, node.users[0]
    linear.weight, linear.bias = linear.weight.astype("float16"), linear.bias.astype("float16")
    graph = expr.top_graph
    with graph.insert_exprs():
        half = expr.inputs[1].astype(np.float16)
    expr.replace_inputs({expr.inputs[1]: half})
    with graph.insert_exprs():
        whole = expr.outputs[0].astype(np.float32)
    graph.replace_node({expr.outputs[0]: whole})
    graph.compile()
    graph.lint()
    assert traced(x).dtype == np.float32
    same(traced(x), wanted, atol=5e-2)
