"""F1: what a program does becomes nodes, without values of its inputs."""

import functools
import operator
import pickle
import threading

import numpy as np
import pytest
from small_modules import Affine, ops, same, tensor

import megengine as mge
import megengine.functional as F
import megengine.module as M
from megengine import fx
from megengine.functional import relu

fx.wrap("len")


@fx.wrap
def opaque(x):
    return x * 2 if x.sum() > 0 else x


def test_reads_calls_methods_and_operators_become_nodes():
    net, x = Affine(), tensor(2, 4)
    gm = fx.symbolic_trace(net)
    assert ops(gm) == [
        ("placeholder", "x"), ("placeholder", "flag"), ("call_module", "layers.0"), ("call_module", "layers.1"),
        ("get_attr", "scale"), ("call_method", "reshape"), ("call_function", operator.mul),
        ("get_attr", "shifts.0"), ("call_function", operator.add), ("call_method", "sum"), ("output", "output"),
    ]  # fmt: skip
    same(gm(x), net(x))


def test_functions_are_caught_by_whatever_name():
    fn = F.exp

    def program(x):
        return relu(x) + fn(x) + F.nn.relu(x)

    assert [target for op, target in ops(fx.symbolic_trace(program)) if target in (F.relu, F.exp)] == [
        F.relu, F.exp, F.relu,
    ]  # fmt: skip
    same(relu(tensor(3)), F.maximum(tensor(3), 0))  # and are themselves again


def test_tensors_made_while_tracing_are_kept_as_constants():
    gm = fx.symbolic_trace(lambda x: F.ones(3) + x)
    assert ops(gm)[1] == ("get_attr", "_tensor_constant0")
    same(gm(tensor(3)), tensor(3) + 1)


def test_numbers_and_arrays_on_the_left():
    program = lambda x: 2 - x / np.float32(2) + np.ones(3, np.float32) * x  # noqa: E731
    same(fx.symbolic_trace(program)(tensor(3)), program(tensor(3)))


def test_writes_in_place_stay_writes():
    def program(x):
        y = x * 1
        z = y
        y += 1
        y[0] = 5.0
        return z

    gm = fx.symbolic_trace(program)
    assert {operator.iadd, operator.setitem} <= {node.target for node in gm.graph.nodes}
    same(gm(tensor(3)), program(tensor(3)))
    gm.graph.eliminate_dead_code()
    gm.recompile()
    same(gm(tensor(3)), program(tensor(3)))


def test_results_unpack_when_their_number_is_written_down():
    def program(x):
        a, b = F.split(x, 2)
        return {"a": a, "rest": [b, (x.shape, 1)]}

    gm = fx.symbolic_trace(program)
    same(gm(tensor(4))["rest"][0], tensor(4)[2:])
    assert gm(tensor(4))["rest"][1] == ((4,), 1)


def test_concrete_args_decide_branches_and_are_checked():
    def program(x, double=False):
        return x * 2 if double else x

    gm = fx.symbolic_trace(program, concrete_args={"double": True})
    same(gm(tensor(3), True), tensor(3) * 2)
    same(gm(tensor(3)), tensor(3) * 2)
    with pytest.raises(ValueError, match="'double' is False, but the program was traced for True"):
        gm(tensor(3), False)
    with pytest.raises(ValueError, match="other"):
        fx.symbolic_trace(program, concrete_args={"other": 1})


def test_two_threads_that_trace_leave_wrapped_names_as_they_were():
    inside, may_end = threading.Event(), threading.Event()

    def slow(x):
        inside.set()
        assert may_end.wait(60)
        return x * len(x)

    graphs = []
    thread = threading.Thread(target=lambda: graphs.append(fx.symbolic_trace(slow)))
    thread.start()
    assert inside.wait(60)

    def ends_first_thread(x):  # which began first, and ends first
        may_end.set()
        thread.join(60)
        return x * len(x)

    graphs.append(fx.symbolic_trace(ends_first_thread))
    assert [node.target for gm in graphs for node in gm.graph.nodes if node.op == "call_function" and node.target is len] == [len, len]
    assert "len" not in globals()


def test_wrapped_functions_are_one_node():
    gm = fx.symbolic_trace(lambda x: opaque(x) * len(x))
    assert [target for _, target in ops(gm)[1:3]] == [opaque, len]
    same(gm(tensor(3)), opaque(tensor(3)) * 3)
    with pytest.raises(RuntimeError, match="top level"):
        fx.wrap("len")
    with pytest.raises(ValueError, match="the name of one"):
        fx.wrap(3)


def test_a_failed_trace_leaves_no_trace():
    net = Affine()
    with pytest.raises(fx.TraceError):
        fx.symbolic_trace(lambda x: bool(x))
    same(net(tensor(2, 4)), net.forward(tensor(2, 4)))
    assert isinstance(net.scale, mge.Parameter) and "__getattribute__" not in vars(M.Module)
    assert F.relu.__code__.co_varnames[0] == "x" or F.relu.__code__.co_argcount == 1


def test_other_threads_compute_while_one_traces():
    net, x, results, stop = Affine(), tensor(2, 4), [], threading.Event()
    want = net(x).numpy()

    def compute():
        while not stop.is_set():
            results.append(np.array_equal(net(x).numpy(), want))

    thread = threading.Thread(target=compute)
    thread.start()
    for _ in range(20):
        fx.symbolic_trace(Affine())
    stop.set()
    thread.join()
    assert results and all(results)


def test_a_graph_module_is_traced_again():
    gm = fx.symbolic_trace(Affine())
    again = fx.symbolic_trace(gm)
    assert again.code == gm.code


def test_a_chain_as_long_as_resnet_50_is_traced():
    class Block(M.Module):
        def __init__(self):
            super().__init__()
            self.body = M.Sequential(*(M.ReLU() for _ in range(9)))

        def forward(self, x):
            return x + self.body(x)

    net = M.Sequential(*(Block() for _ in range(17)))
    gm = fx.symbolic_trace(net)
    assert len(gm.graph.nodes) == 172


def test_partial_functions_and_bound_methods_are_traced():
    import functools

    gm = fx.symbolic_trace(functools.partial(F.sum, axis=0))
    same(gm(tensor(2, 3)), tensor(2, 3).sum(axis=0))
    net = Affine()
    same(fx.symbolic_trace(lambda x: F.exp(x)).forward(tensor(3)), F.exp(tensor(3)))
    with pytest.raises(NameError, match="not a submodule"):
        fx.symbolic_trace(net.forward)


def test_two_threads_trace_at_once():
    codes = []
    threads = [
        threading.Thread(target=lambda: codes.append(fx.symbolic_trace(Affine()).code))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(codes) == 4 and len(set(codes)) == 1


def test_keyword_only_inputs():
    gm = fx.symbolic_trace(lambda x, *, scale=2: x * scale)
    same(gm(tensor(3), scale=3), tensor(3) * 3)


class Joined(M.Module):
    def __init__(self):
        super().__init__()
        self.relu = M.ReLU()

    def forward(self, first, *others, axis=0):
        return self.relu(F.concat([first, others[1]], axis)), F.stack(others, 0)


def test_a_forward_with_stars_takes_any_number_of_inputs():
    net, gm = Joined(), fx.symbolic_trace(Joined())
    inputs = [tensor(2, 3) for _ in range(4)]
    for actual, expected in zip(gm(*inputs, axis=1), net(*inputs, axis=1)):
        same(actual, expected)
    for actual, expected in zip(fx.Interpreter(gm).run(*inputs), net(*inputs)):
        same(actual, expected)


def test_how_many_inputs_there_are_is_not_known():
    with pytest.raises(fx.TraceError, match="how many|the length|a loop over the items"):
        fx.symbolic_trace(lambda *xs: sum(xs))
    with pytest.raises(TypeError, match="is not a plain function"):
        fx.symbolic_trace(functools.wraps(lambda *xs: xs)(lambda *xs: xs[0]))
    with pytest.raises(TypeError, match="is not a plain function"):
        fx.symbolic_trace(functools.partial(lambda *xs: xs[0]))


def test_random_numbers_are_drawn_in_each_run():
    gm = fx.symbolic_trace(lambda x: x + mge.random.normal(size=(3,)))
    assert "megengine.random.normal(size = (3,))" in gm.code
    assert not np.array_equal(gm(tensor(3)).numpy(), gm(tensor(3)).numpy())
    assert pickle.loads(pickle.dumps(gm)).code == gm.code
    own = mge.random.RNG(seed=3)
    drawn = fx.symbolic_trace(lambda x: x * own.uniform(size=(3,)))(F.ones(3))
    same(drawn, mge.random.RNG(seed=3).uniform(size=(3,)))


class Counts(M.Module):
    def __init__(self):
        super().__init__()
        self.count = mge.tensor(np.zeros(3, np.float32))

    def forward(self, x):
        self.count += 1
        self.count[...] = self.count + x
        return self.count * 2


class Rebinds(Counts):
    def forward(self, x):
        self.count = self.count + x
        return x


def test_writes_into_tensors_of_modules_are_kept_and_new_tensors_refused():
    net, reference = Counts(), Counts()
    gm = fx.symbolic_trace(net)
    for _ in range(2):
        same(gm(tensor(3)), reference(tensor(3)))
    same(net.count, reference.count)
    net = Rebinds()
    with pytest.raises(fx.TraceError, match="forward assigns 'add' .*to Rebinds.count"):
        fx.symbolic_trace(net)
    assert isinstance(net.count, mge.Tensor)


class Sum(M.Module):
    def __init__(self):
        super().__init__()
        self.param = mge.Parameter(np.ones((3, 4), np.float32))
        self.linear = M.Linear(4, 5)

    def forward(self, x):
        return self.linear(x + self.param).sum(axis=1, keepdims=True)


def test_the_graph_is_printed_without_a_value_of_the_input():
    assert str(fx.symbolic_trace(Sum()).graph) == (
        "graph():\n"
        "    %x : [#users=1] = placeholder[target=x]\n"
        "    %param : [#users=1] = get_attr[target=param]\n"
        "    %add : [#users=1] = call_function[target=operator.add](args = (%x, %param), kwargs = {})\n"
        "    %linear : [#users=1] = call_module[target=linear](args = (%add,), kwargs = {})\n"
        "    %sum_1 : [#users=1] = call_method[target=sum](args = (%linear,), kwargs = {axis: 1, keepdims: True})\n"
        "    return sum_1"
    )


def test_what_a_program_sees_is_a_proxy_of_a_node():
    seen = []

    def program(x):
        seen.append(x)
        return F.exp(x)

    graph = fx.symbolic_trace(program).graph
    (proxy,) = seen
    assert isinstance(proxy, fx.Proxy) and proxy.node is next(iter(graph.nodes)) and repr(proxy) == "Proxy(x)"
    with pytest.raises(AttributeError):
        proxy.__array_struct__
