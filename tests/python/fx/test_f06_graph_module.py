"""F6: tracers of one's own, and GraphModule: a normal module around a graph."""

import copy
import pickle

import numpy as np
import pytest
from small_modules import Affine, same, tensor

import megengine as mge
import megengine.functional as F
import megengine.module as M
from megengine import fx


class Inner(M.Module):
    def __init__(self):
        super().__init__()
        self.conv = M.Conv2d(3, 4, 1)
        self.bn = M.BatchNorm2d(4)

    def forward(self, x):
        return self.bn(self.conv(x))


class Net(M.Module):
    def __init__(self):
        super().__init__()
        self.inner = Inner()
        self.unused = M.Linear(3, 3)
        self.shift = mge.Parameter(np.ones((1, 4, 1, 1), np.float32))

    def forward(self, x):
        return self.inner(x) + self.shift


def test_it_holds_what_the_graph_names_under_the_same_paths():
    net = Net()
    gm = fx.symbolic_trace(net)
    assert set(gm.state_dict()) == {key for key in net.state_dict() if "unused" not in key}
    assert gm.inner.conv is net.inner.conv and gm.shift is net.shift
    assert repr(gm) == (
        "Net(\n  (inner): Module(\n"
        "    (conv): Conv2d(3, 4, kernel_size=(1, 1))\n"
        "    (bn): BatchNorm2d(4, eps=1e-05, momentum=0.9, affine=True, track_running_stats=True)\n  )\n)"
    )


def test_it_trains_like_the_module():
    net, x = Net(), tensor(2, 3, 5, 5)
    gm = fx.symbolic_trace(net)
    manager = mge.autodiff.GradManager().attach(gm.parameters())
    with manager:
        manager.backward(gm(x).mean())
    assert net.shift.grad is not None and net.inner.conv.weight.grad is not None
    gm.eval()
    assert not gm.inner.bn.training


@pytest.mark.parametrize("travel", [copy.deepcopy, lambda gm: pickle.loads(pickle.dumps(gm))])
def test_copies_and_files_hold_the_graph_itself(travel):
    gm = fx.symbolic_trace(Net())
    for node in gm.graph.nodes:
        if node.op == "output":
            with gm.graph.inserting_before(node):
                node.args = (gm.graph.call_function(F.neg, node.args),)
    gm.recompile()
    moved = travel(gm)
    np.testing.assert_array_equal(moved(tensor(1, 3, 4, 4)).numpy(), gm(tensor(1, 3, 4, 4)).numpy())
    assert (
        moved.code == gm.code and moved.graph.owning_module is moved and moved.shift is not gm.shift
    )
    assert repr(moved) == repr(gm)


def test_a_new_graph_is_compiled():
    gm = fx.symbolic_trace(lambda x: x + 1)
    gm.graph = fx.symbolic_trace(lambda x: x * 2).graph
    assert gm(4) == 8
    with pytest.raises(TypeError, match="must be a Graph, got str"):
        gm.graph = "graph"


def test_a_dict_is_a_root():
    graph = fx.Graph()
    graph.output(graph.call_module("deep.relu", (graph.placeholder("x"),)))
    gm = fx.GraphModule({"deep.relu": M.ReLU()}, graph)
    assert gm(tensor(3)).numpy().min() >= 0
    with pytest.raises(KeyError, match="deep.relu"):
        fx.GraphModule({}, graph)
    with pytest.raises(AttributeError, match="deep.relu"):
        fx.GraphModule(M.Module(), graph)


def test_submodules_come_and_go():
    gm = fx.symbolic_trace(Net())
    assert gm.add_submodule("inner.head.relu", M.ReLU()) and not gm.add_submodule(
        "shift.x", M.ReLU()
    )
    gm.delete_all_unused_submodules()
    assert [path for path, _ in gm.named_modules()] == ["", "inner", "inner.bn", "inner.conv"]
    assert gm.delete_submodule("inner.bn") and not gm.delete_submodule("inner.bn")


def test_it_is_compiled_by_trace():
    gm, x = fx.symbolic_trace(Net()), tensor(1, 3, 4, 4)
    gm.eval()
    compiled = mge.jit.trace(lambda x: gm(x), symbolic=True)
    np.testing.assert_allclose(compiled(x).numpy(), gm(x).numpy(), rtol=1e-5, atol=1e-5)


def test_forward_has_the_inputs_of_the_graph():
    import inspect

    gm = fx.symbolic_trace(lambda x, scale=2: x * scale)
    assert list(inspect.signature(gm.forward).parameters) == ["x", "scale"]


def test_a_tracer_says_what_is_a_leaf():
    class Whole(fx.Tracer):
        def is_leaf_module(self, m, module_qualified_name):
            return isinstance(m, Affine)

    net = M.Sequential(Affine(), M.ReLU())
    graph = Whole().trace(net)
    assert graph.nodes.__len__() > 3 and ("call_module", "0") in [
        (n.op, n.target) for n in graph.nodes
    ]
    same(fx.GraphModule(net, graph)(tensor(2, 4)), net(tensor(2, 4)))


def test_a_tracer_may_answer_conditions():
    class Yes(fx.Tracer):
        def to_bool(self, obj):
            return True

    graph = Yes().trace(lambda x: F.relu(x) if x.sum() > 0 else x)
    assert F.relu in [node.target for node in graph.nodes]


def transform(m, tracer_class=fx.Tracer):
    graph = tracer_class().trace(m)
    for node in graph.nodes:
        if node.op == "call_function" and node.target is F.add:
            node.target = F.mul
    graph.lint()
    return fx.GraphModule(m, graph)


def test_a_transformation_takes_any_tracer():
    class Adds(M.Module):
        def __init__(self):
            super().__init__()
            self.scale = mge.Parameter([2.0, 3.0])

        def forward(self, x):
            return F.add(x, self.scale)

    class Own(fx.Tracer):
        """Like the one that it extends."""

    for module in (transform(Adds()), transform(Adds(), Own)):
        assert module(mge.tensor([5.0, 7.0])).numpy().tolist() == [10, 21]
        assert list(module.state_dict()) == ["scale"] and isinstance(module, M.Module)
