"""G2: a pickled traced module is one that can be changed like the original."""

import copy
import pickle

import numpy as np
import pytest
from nets import ConvNet, Scale, same, tensor
from surgeries import SURGERIES, Net

import megengine.functional as F
import megengine.module as M
import megengine.traced_module as tm

COPIES = [lambda m: pickle.loads(pickle.dumps(m)), copy.deepcopy]


@pytest.mark.parametrize("copied", COPIES)
def test_a_copy_computes_the_same_and_prints_the_same(copied):
    x = tensor(1, 3, 4, 4)
    traced = tm.trace_module(ConvNet(), x)
    traced.eval()
    other = copied(traced)
    same(other(x), traced(x))
    assert repr(other.graph) == repr(traced.graph)
    assert repr(other.flatten().graph) == repr(traced.flatten().graph)
    other.graph.lint()


@pytest.mark.parametrize("copied", COPIES)
def test_surgery_on_a_copy_leaves_the_original(copied):
    x = tensor(4)
    traced = tm.trace_module(Scale(), x)
    other = copied(traced)
    graph = other.graph
    with graph.insert_exprs():
        doubled = graph.outputs[0] * 2
    graph.replace_node({graph.outputs[0]: doubled})
    same(other(x), traced(x) * 2)
    same(traced(x), Scale()(x))


def test_a_long_chain_is_pickled():
    class Long(M.Module):
        def forward(self, x):
            for _ in range(3000):
                x = x + 1
            return x

    traced = tm.trace_module(Long(), tensor(2))
    same(pickle.loads(pickle.dumps(traced))(tensor(2)), tensor(2) + 3000)


def test_a_function_that_is_gone_is_a_name_until_it_is_called():
    traced = tm.trace_module(M.Sequential(Scale()), tensor(2))
    graph = traced.graph
    with graph.insert_exprs():
        out = F.softplus(graph.outputs[0])
    graph.replace_node({graph.outputs[0]: out})
    data = pickle.dumps(traced).replace(b"softplus", b"softplux")
    loaded = pickle.loads(data)
    with pytest.raises(AttributeError, match="softplux"):
        loaded(tensor(2))


@pytest.mark.parametrize("name", SURGERIES)
def test_edits_of_a_pickled_copy_are_those_of_the_original(name):
    edit, arguments = SURGERIES[name]
    net = Net()
    net.eval()
    wanted = net(arguments[0])
    traced = tm.trace_module(net, arguments[0])
    copied = pickle.loads(pickle.dumps(traced))
    edit(traced)
    edit(copied)
    copied.graph.lint()
    assert repr(copied.flatten().graph) == repr(traced.flatten().graph)
    np.testing.assert_array_equal(copied(*arguments).numpy(), traced(*arguments).numpy())
    same(traced(*arguments), wanted, atol=1e-4 if name == "halve_large_layers" else 1e-6)
