"""G1: modules are traced, called in other ways and shapes, and traced again inside of others."""

from collections import namedtuple
from typing import NamedTuple

import numpy as np
import pytest
from nets import Affine, ConvNet, Scale, same, tensor

import megengine as mge
import megengine.functional as F
import megengine.module as M
import megengine.traced_module as tm
from megengine.jit import trace


def test_a_traced_module_computes_what_the_module_does():
    net, x = ConvNet(), tensor(1, 3, 8, 8)
    traced = tm.trace_module(net, x)
    same(traced(x), net(x))


def test_the_graph_holds_for_other_shapes():
    net = ConvNet()
    net.eval()
    traced, x = tm.trace_module(net, tensor(1, 3, 8, 8)), tensor(5, 3, 4, 6)
    same(traced(x), net(x))


def test_a_traced_module_can_be_traced_again():
    net, x = ConvNet(), tensor(1, 3, 8, 8)
    again = tm.trace_module(tm.trace_module(net, x), x)
    same(again(x), net(x))


def test_a_traced_module_is_a_child_of_a_module_that_is_traced():
    class Outer(M.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def forward(self, x, y):
            return self.inner(x * y) / y

    inner, x = tm.trace_module(ConvNet(), tensor(2, 3, 4, 4)), tensor(2, 3, 4, 4)
    outer = Outer(inner)
    y = mge.tensor(2.0)
    traced = tm.trace_module(outer, x, y)
    same(traced(x, y), outer(x, y))
    assert traced.inner.graph.top_graph is traced.graph
    assert inner.graph.top_graph is inner.graph, "the child that was given is left as it was"


def test_the_tree_and_the_names_of_the_state_stay():
    net = ConvNet()
    traced = tm.trace_module(net, tensor(1, 3, 8, 8))
    assert traced.state_dict().keys() == net.state_dict().keys()
    assert traced.conv is net.conv and traced.scale is net.scale
    assert isinstance(traced.conv_bn, tm.TracedModule)


def test_arguments_by_position_or_keyword_are_one_signature():
    class Net(M.Module):
        def forward(self, x, y, flag=False):
            return x - y if flag else x + y

    traced = tm.trace_module(Net(), tensor(2), tensor(2, seed=1))
    same(traced(y=tensor(2, seed=1), x=tensor(2)), traced(tensor(2), tensor(2, seed=1)))
    with pytest.raises(AssertionError, match="was not traced for arguments like"):
        traced(tensor(2), tensor(2), flag=True)


def test_each_signature_of_a_child_has_a_graph():
    class Child(M.Module):
        def forward(self, x, double=False):
            return x * 2 if double else x + 1

    class Net(M.Module):
        def __init__(self):
            super().__init__()
            self.child = Child()

        def forward(self, x):
            return self.child(self.child(x), double=True)

    net, x = Net(), tensor(3)
    traced = tm.trace_module(net, x)
    same(traced(x), net(x))
    assert len(traced.child.argdef_graph_map) == 2
    with pytest.raises(AssertionError, match="has 2 graphs"):
        traced.child.graph


def test_a_module_used_twice_has_one_traced_copy():
    class Net(M.Module):
        def __init__(self):
            super().__init__()
            self.a = Scale()
            self.b = self.a

        def forward(self, x):
            return self.b(self.a(x))

    with pytest.warns(UserWarning, match="'b' is the module"):
        net = Net()
    x = tensor(3)
    traced = tm.trace_module(net, x)
    same(traced(x), net(x))
    assert traced.a is traced.b and len(traced.a.argdef_graph_map) == 1


def test_lists_and_dicts_of_modules_are_traced():
    class Net(M.Module):
        def __init__(self):
            super().__init__()
            self.layers = [M.Linear(3, 3), Scale()]
            self.heads = {"a": M.Linear(3, 2)}

        def forward(self, x):
            for layer in self.layers:
                x = layer(x)
            return {"a": self.heads["a"](x), "n": 3}

    net, x = Net(), tensor(2, 3)
    traced = tm.trace_module(net, x)
    same(traced(x)["a"], net(x)["a"])
    assert traced(x)["n"] == 3
    assert traced.state_dict().keys() == net.state_dict().keys()


def test_modules_among_other_things_are_refused():
    net = Affine()
    net.mixed = [M.ReLU(), 3]
    with pytest.raises(ValueError, match="holds modules and also a int"):
        tm.trace_module(net, tensor(2))


def test_lists_and_named_tuples_go_in_and_out():
    Pair = namedtuple("Pair", "a b")

    class Net(M.Module):
        def forward(self, xs):
            return Pair(xs[0] + xs[1], [xs[0]])

    traced = tm.trace_module(Net(), [tensor(2), tensor(2, seed=1)])
    result = traced([tensor(2), tensor(2)])
    assert type(result) is Pair
    same(result.a, tensor(2) * 2)


def test_an_unsupported_type_is_refused():
    class Net(M.Module):
        def forward(self, x, o):
            return x

    with pytest.raises(AssertionError, match="register_supported_type"):
        tm.trace_module(Net(), tensor(2), object())


def test_what_is_written_in_place_is_written_again():
    class Net(M.Module):
        def __init__(self):
            super().__init__()
            self.count = mge.tensor(np.zeros(1, np.float32))

        def forward(self, x):
            self.count += 1
            y = x * 2
            y[0] = 5
            return y

    net, x = Net(), tensor(3)
    traced = tm.trace_module(net, x)
    assert net.count.numpy() == 1, "as if it had run once"
    same(traced(x), net(x))
    assert traced.count.numpy() == 3


def test_statistics_are_as_after_one_run():
    net, twin = M.BatchNorm2d(3), M.BatchNorm2d(3)
    twin(tensor(2, 3, 4, 4))
    tm.trace_module(M.Sequential(net), tensor(2, 3, 4, 4))
    same(net.running_mean, twin.running_mean)


def test_assigning_a_tensor_to_an_attribute_is_refused():
    class Net(M.Module):
        def forward(self, x):
            self.last = x
            return x

    with pytest.raises(AssertionError, match="last is assigned in forward"):
        tm.trace_module(Net(), tensor(2))


def test_a_tensor_of_the_caller_must_be_an_argument():
    held = []

    class Child(M.Module):
        def forward(self, x):
            return x + held[0]

    class Net(M.Module):
        def __init__(self):
            super().__init__()
            self.child = Child()

        def forward(self, x):
            held.append(x * 2)
            return self.child(x)

    with pytest.raises(AssertionError, match="not one of its arguments"):
        tm.trace_module(Net(), tensor(2))


def test_random_numbers_are_drawn_at_each_call():
    class Net(M.Module):
        def forward(self, x):
            return F.dropout(x, 0.5, True) + mge.random.uniform(size=(100,))

    traced = tm.trace_module(Net(), tensor(100))
    assert (traced(tensor(100)).numpy() != traced(tensor(100)).numpy()).any()


def test_functions_are_seen_under_any_name():
    relu = F.relu

    class Net(M.Module):
        def forward(self, x, act=relu):
            return act(x)

    traced = tm.trace_module(Net(), tensor(2))
    assert traced.graph.get_function_by_type(F.relu).as_count() == 1


def test_nothing_is_left_behind():
    add, code = mge.Tensor.__add__, F.relu.__code__
    names = set(vars(mge.Tensor))
    tm.trace_module(ConvNet(), tensor(1, 3, 4, 4))
    assert mge.Tensor.__add__ is add and F.relu.__code__ is code
    assert set(vars(mge.Tensor)) == names


def test_nothing_is_left_behind_after_an_error():
    class Net(M.Module):
        def forward(self, x):
            raise ValueError("no")

    code = F.relu.__code__
    with pytest.raises(ValueError, match="no"):
        tm.trace_module(Net(), tensor(2))
    assert F.relu.__code__ is code
    same(F.relu(tensor(2)), tensor(2))


def test_a_traced_module_is_compiled():
    net, x = ConvNet(), tensor(2, 3, 4, 4)
    net.eval()
    traced = tm.trace_module(net, x)
    compiled = trace(symbolic=True)(lambda x: traced(x))
    for _ in range(3):
        same(compiled(x), net(x))


def test_a_traced_module_is_trained():
    net, x = M.Sequential(M.Linear(3, 4), M.ReLU(), M.Linear(4, 1)), tensor(8, 3)
    traced = tm.trace_module(net, x)
    optimizer = mge.optimizer.SGD(traced.parameters(), lr=0.1)
    manager = mge.autodiff.GradManager().attach(traced.parameters())
    losses = []
    for _ in range(20):
        with manager:
            loss = ((traced(x) - 1) ** 2).mean()
            manager.backward(loss)
        optimizer.step().clear_grad()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]


def test_fx_traces_while_exprs_are_inserted_and_the_other_way_round():
    from megengine import fx

    traced = tm.trace_module(Affine(), tensor(3))
    with traced.graph.insert_exprs():
        gm = fx.symbolic_trace(ConvNet())
        new = F.cos(traced.graph.outputs[0])
    traced.graph.reset_outputs(new)
    same(traced(tensor(3)), F.cos(Affine()(tensor(3))))
    assert "concat" in gm.code
    again = tm.trace_module(M.Sequential(Affine()), tensor(3))
    assert again.graph.get_function_by_type(F.exp).as_count() == 1


class Parts(NamedTuple):
    body: M.Module
    head: M.Module


class InANamedTuple(M.Module):
    def __init__(self):
        super().__init__()
        self.parts = Parts(M.Sequential(M.Linear(3, 2)), M.ReLU())

    def forward(self, x):
        return self.parts.head(self.parts.body(x))


def test_modules_in_a_named_tuple_are_traced():
    net, x = InANamedTuple(), tensor(4, 3)
    traced = tm.trace_module(net, x)
    same(traced(x), net(x))
    assert isinstance(traced.parts, Parts) and isinstance(traced.parts.body, tm.TracedModule)


class Around(M.Module):
    """Something before, a traced module, and something behind it."""

    def __init__(self, traced):
        super().__init__()
        self.traced = traced

    def forward(self, x, y):
        return self.traced(x * y) / y


def test_tracing_again_with_more_around_it_changes_no_bit():
    inner, x, y = (
        tm.trace_module(ConvNet(), tensor(2, 3, 4, 4)),
        tensor(2, 3, 4, 4),
        mge.tensor(2.0),
    )
    inner.eval()
    for net in (Around(inner), Around(tm.trace_module(Around(inner), x, y).traced)):
        traced = tm.trace_module(net, x, y)
        np.testing.assert_array_equal(traced(x, y).numpy(), (inner(x * y) / y).numpy())


def test_a_built_in_module_is_traced_when_it_is_the_root():
    net, x = M.Linear(3, 2), tensor(4, 3)
    traced = tm.trace_module(net, x)
    same(traced(x), net(x))
    assert traced.graph.get_function_by_type(F.linear).as_count() == 1
    assert traced.state_dict().keys() == net.state_dict().keys()
