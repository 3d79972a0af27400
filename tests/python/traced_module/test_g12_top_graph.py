"""G12: getters search the graphs that are called, and say in which one something was found."""

import numpy as np
from nets import Scale, same, tensor

import megengine.module as M
import megengine.traced_module as tm


class Deep(M.Module):
    def __init__(self):
        super().__init__()
        self.body = M.Sequential(M.Sequential(Scale(), M.ReLU()), Scale())

    def forward(self, x):
        return self.body(x) * 3


def test_each_expr_and_node_knows_its_graph():
    traced = tm.trace_module(Deep(), tensor(3))
    for graph in traced._inner_graphs():
        for expr in graph:
            assert expr.top_graph is graph
            assert all(node.top_graph is graph for node in expr.outputs)
    assert traced.body.graph.top_graph is traced.graph and traced.graph.top_graph is traced.graph


def test_a_pattern_in_a_nested_module_is_edited_in_its_own_graph():
    traced, x = tm.trace_module(Deep(), tensor(3)), tensor(3)
    text = repr(traced.graph)
    divisions = traced.graph.get_method_by_type("__truediv__").as_list()
    assert [div.top_graph.qualname for div in divisions] == ["Deep.body.0.0", "Deep.body.1"]
    for div in divisions:
        graph = div.top_graph
        with graph.insert_exprs():
            product = div.args[0].expr.args[0] * (8 / 128)
        graph.replace_node({div.outputs[0]: product})
        graph.compile()
    assert traced.graph.get_method_by_type("__truediv__").as_count() == 0
    assert repr(traced.graph) == text
    same(traced(x), Deep()(x))


def test_a_shared_module_is_edited_once():
    class Shared(M.Module):
        def __init__(self):
            super().__init__()
            self.scale = Scale()

        def forward(self, x):
            return self.scale(self.scale(x))

    traced = tm.trace_module(Shared(), tensor(3))
    (mul,) = traced.graph.get_method_by_type("__mul__").as_list()
    mul.set_args_kwargs(mul.args[0], 16)
    np.testing.assert_allclose(traced(tensor(3)).numpy(), tensor(3).numpy() / 64, rtol=1e-6)
