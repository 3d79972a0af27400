"""G13: layers are moved to half precision, with casts around them."""

import pickle

import numpy as np
import pytest
from nets import ConvNet, same, tensor
from surgeries import halve_large_layers

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
    same(traced(x), wanted, atol=2e-3)


def test_only_large_layers_are_moved():
    net = M.Sequential(M.Linear(3, 8), M.Sequential(M.ReLU(), M.Linear(8, 64)))
    x = tensor(2, 3)
    wanted = net(x)
    traced = pickle.loads(pickle.dumps(tm.trace_module(net, x)))
    halve_large_layers(traced, 256)
    small, large = (node.owner for node in traced.graph.get_module_by_type(M.Linear))
    assert small.weight.dtype == np.float32 and large.weight.dtype == large.bias.dtype == np.float16
    assert traced.graph.get_method_by_type("astype").as_count() == 2
    assert traced(x).dtype == np.float32
    same(traced(x), wanted, atol=2e-3)
