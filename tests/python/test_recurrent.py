"""Recurrent layers are one op each: they give what their cells give step by step, in every mode."""

import io

import numpy as np
import pytest
import reference_layers as R

import megengine as mge
import megengine.functional as F
import megengine.module as M
from megengine import _core, amp
from megengine.autodiff import GradManager
from megengine.core import ops
from megengine.jit import SublinearMemoryConfig, trace
from megengine.module import rnn
from megengine.utils.comp_graph_tools import GraphInference

KINDS = {
    "lstm": (M.LSTM, {}), "gru": (M.GRU, {}), "tanh": (M.RNN, {}), "relu": (M.RNN, {"nonlinearity": "relu"}),
    "deep": (M.LSTM, {"num_layers": 2, "bidirectional": True, "batch_first": True}),
    "deep_gru": (M.GRU, {"num_layers": 2, "bidirectional": True, "batch_first": True, "bias": False}),
    "deep_rnn": (M.RNN, {"num_layers": 2, "bidirectional": True, "bias": False}),
}  # fmt: skip
kinds = pytest.mark.parametrize("kind", KINDS)


def normal(*shape, seed=0):
    return np.random.default_rng(seed + sum(shape)).normal(size=shape).astype(np.float32)


def network(kind, *sizes):
    make, options = KINDS[kind]
    net = make(*sizes, **options)
    for i, parameter in enumerate(net.parameters()):
        parameter[...] = 0.5 * normal(*parameter.shape, seed=i)
    return net


def first_states(net, n):
    shape = (net.num_layers * net.num_directions, n, net.hidden_size)
    states = tuple(mge.tensor(normal(*shape, seed=k)) for k in range(2))
    return states if isinstance(net, M.LSTM) else states[0]


def flat(result):
    """Output and last states in one list."""
    output, last = result
    return [output, *(last if isinstance(last, tuple) else (last,))]


def step_by_step(monkeypatch):
    """From here the cells run one step after the other."""
    monkeypatch.setattr(rnn, "_mode_of", lambda cell: None)


def gradients(net, x, hx, order=1):
    """Gradients of a sum that all results take part in, by everything; order 2: those of the sum of their squares."""
    states = hx if isinstance(hx, tuple) else (hx,)
    wanted = [x, *states, *net.parameters()]

    def first():
        with GradManager().attach(wanted) as gm:
            parts = flat(net(x, hx))
            gm.backward(sum((p * mge.tensor(normal(*p.shape, seed=k))).sum() for k, p in enumerate(parts)))
        grads = [p.grad for p in wanted]
        for p in wanted:
            p.grad = None
        return grads

    if order == 1:
        return [grad.numpy() for grad in first()]
    with GradManager().attach(wanted) as gm:
        gm.backward(sum((grad**2).sum() for grad in first()))
    second = [p.grad.numpy() for p in wanted]
    for p in wanted:
        p.grad = None
    return second


def all_close(found, wanted, rtol=1e-4):
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol * max(1, np.abs(b).max()))


@pytest.mark.parametrize("shape", [(5, 3, 4, 7), (1, 2, 3, 4), (4, 1, 5, 17), (3, 40, 6, 33)], ids=str)
@kinds
def test_a_layer_gives_what_its_cells_give(monkeypatch, kind, shape):
    steps, n, features, hidden = shape
    net = network(kind, features, hidden)
    x = mge.tensor(normal(*((n, steps) if net.batch_first else (steps, n)), features))
    hx = first_states(net, n)
    found = [[part.numpy() for part in flat(net(x, state))] for state in (None, hx)], gradients(net, x, hx)
    step_by_step(monkeypatch)
    for state, parts in zip((None, hx), found[0]):
        all_close(parts, [part.numpy() for part in flat(net(x, state))], 1e-5)
    all_close(found[1], gradients(net, x, hx))


@pytest.mark.parametrize("kind", ["lstm", "gru", "tanh", "deep", "deep_gru"])
def test_second_gradients_are_those_of_the_cells(monkeypatch, kind):
    net = network(kind, 3, 4)
    x, hx = mge.tensor(normal(3, 3, 3)), first_states(net, 3)
    found = gradients(net, x, hx, order=2)
    step_by_step(monkeypatch)
    all_close(found, gradients(net, x, hx, order=2), 1e-3)


@pytest.mark.parametrize("options", [{"opt_level": level} for level in range(4)] + [{"numerics": "exact"}], ids=str)
@pytest.mark.parametrize("kind", ["lstm", "gru", "relu", "deep"])
def test_a_traced_step_is_the_eager_one(kind, options):
    net = network(kind, 4, 7)
    hx = first_states(net, 3)
    manager = GradManager().attach(net.parameters())

    def step(x):
        with manager:
            output, _ = net(x, hx)
            manager.backward((output**2).sum())
        grads = [p.grad for p in net.parameters()]
        for p in net.parameters():
            p.grad = None
        return [output, *grads]

    traced = trace(step, symbolic=True, **options)
    for call in range(3):  # a GPU repeats the second one with other operands
        x = mge.tensor(normal(3, 3, 4, seed=call))
        wanted = [part.numpy() for part in step(x)]
        found = [part.numpy() for part in traced(x)]
        all_close(found, wanted, 1e-5)
        if "numerics" in options:
            assert all(a.tobytes() == b.tobytes() for a, b in zip(found, wanted))


def training_step(net, **options):
    """Traced: the gradients of all parameters."""
    manager = GradManager().attach(net.parameters())

    def step(x):
        with manager:
            manager.backward((net(x)[0] ** 2).sum())
        grads = [p.grad for p in net.parameters()]
        for p in net.parameters():
            p.grad = None
        return grads

    return trace(step, symbolic=True, **options)


@pytest.mark.parametrize("level", [0, 2, 3])
@pytest.mark.parametrize("kind", ["lstm", "gru", "tanh", "deep"])
def test_a_plan_has_as_many_steps_for_any_number_of_time_steps(kind, level):
    """Devices without a kernel for the layer loop over a body: what was unrolled took ten steps for each time step."""
    plans = []
    for length in (2, 9):
        traced = training_step(network(kind, 4, 7), opt_level=level)
        traced(mge.tensor(normal(*((3, length) if kind == "deep" else (length, 3)), 4)))
        plans.append(traced.memory_plan())
    few, many = plans
    assert [step.split()[1] for step in few.steps] == [step.split()[1] for step in many.steps]
    is_gpu = "gpu" in mge.tensor(0).device.physical_name
    assert any(" scan " in step for step in many.steps) == (is_gpu and level == 3)


@pytest.mark.parametrize("kind", ["lstm", "gru", "deep"])
def test_recomputation_changes_no_bit(kind):
    wanted, found = [], []
    x = mge.tensor(normal(8, 8, 4))
    for results, options in ((wanted, {}), (found, {"sublinear_memory_config": SublinearMemoryConfig()})):
        net = network(kind, 4, 8)
        traced = training_step(net, opt_level=3, **options)
        for _ in range(2):
            results[:] = [grad.numpy() for grad in traced(x)]
    assert all(a.tobytes() == b.tobytes() for a, b in zip(found, wanted, strict=True))


@pytest.mark.host("counts ops of the host")
@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_a_layer_is_one_product_and_one_op(kind):
    net, x = network(kind, 4, 7), mge.tensor(normal(6, 3, 4))
    _core.start_call_log(False)
    net(x)
    called = [row[0].split()[0] for row in _core.stop_call_log()]
    assert called.count(kind) == 1 and called.count("matmul") == 1 and len(called) < 20


@pytest.mark.parametrize("kind", ["lstm", "gru"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_halves_are_computed_in_float32(dtype, kind):
    rows, last = {"lstm": (20, (3, 5)), "gru": (15, (15,))}[kind]
    inputs = [normal(4, 3, rows), 0.3 * normal(rows, 5), normal(3, 5), normal(*last, seed=1)]
    halves = [mge.tensor(x).astype(dtype) for x in inputs]
    wanted = getattr(R, kind)(*(x.astype("float32").numpy().astype(np.float64) for x in halves))
    with GradManager().attach(halves) as gm:
        found = getattr(ops, kind)(*halves)
        gm.backward(found[0].sum())
    rounding = {"float16": 2.0**-11, "bfloat16": 2.0**-8}[dtype]
    # A CPU rounds once, the result; a GPU keeps the states between steps as halves.
    rounds_states = "gpu" in halves[0].device.physical_name
    allowed = {"atol": 4 * rounding} if rounds_states else {"rtol": 1.01 * rounding, "atol": 1e-6}
    for part, want in zip(found, wanted, strict=True):
        assert part.dtype.name == dtype
        np.testing.assert_allclose(part.astype("float32").numpy(), want, **{"rtol": 0, **allowed})
    wholes = [x.astype("float32") for x in halves]
    with GradManager().attach(wholes) as gm:
        gm.backward(getattr(ops, kind)(*wholes)[0].sum())
    for half, whole in zip(halves, wholes, strict=True):
        assert half.grad.dtype.name == dtype
        allowed = (16 if rounds_states else 3) * rounding
        np.testing.assert_allclose(half.grad.astype("float32").numpy(), whole.grad.numpy(), rtol=allowed, atol=allowed)


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_autocasting_leaves_states_in_float32(monkeypatch, kind):
    net, x = network(kind, 4, 7), mge.tensor(normal(3, 3, 4))
    with amp.autocast(low_prec_dtype="bfloat16"):
        found = flat(net(x))
        step_by_step(monkeypatch)
        wanted = flat(net(x))
    for a, b in zip(found, wanted, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a.astype("float32").numpy(), b.astype("float32").numpy(), rtol=0, atol=2 * 2.0**-8)  # two roundings of about 1


def test_an_empty_batch_and_empty_states():
    for n, hidden, kind in ((0, 3, "lstm"), (2, 0, "lstm"), (0, 3, "gru"), (2, 0, "gru")):
        rows, last = {"lstm": (4 * hidden, (n, hidden)), "gru": (3 * hidden, (3 * hidden,))}[kind]
        inputs = [mge.tensor(np.zeros(shape, np.float32)) for shape in ((4, n, rows), (rows, hidden), (n, hidden), last)]
        with GradManager().attach(inputs) as gm:
            found = getattr(ops, kind)(*inputs)
            gm.backward(found[0].sum() + found[1].sum())
        assert found[0]._tuple_shape == (4, n, hidden)
        for x in inputs:
            assert x.grad._tuple_shape == x._tuple_shape and not x.grad.numpy().any()


@pytest.mark.parametrize(
    ("shapes", "what"),
    [
        (((3, 2, 20), (20, 4), (2, 5), (2, 5)), "gates are .steps, n, "), (((3, 2, 15), (15, 5), (2, 5), (2, 5)), "gates are .steps, n, "),
        (((0, 2, 20), (20, 5), (2, 5), (2, 5)), "there is no step"), (((3, 2, 20), (20, 5), (1, 5), (2, 5)), "h is"),
        (((3, 2, 20), (20, 5), (2, 5), (2, 4)), "c is"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(shapes, what):
    with pytest.raises(ValueError, match=what):
        ops.lstm(*(mge.tensor(np.zeros(shape, np.float32)) for shape in shapes))
    with pytest.raises(ValueError, match="b_hh is .* and should be"):
        ops.gru(*(mge.tensor(np.zeros(shape, np.float32)) for shape in ((3, 2, 15), (15, 5), (2, 5), (5,))))
    with pytest.raises(ValueError, match="sin"):
        ops.rnn(*(mge.tensor(np.zeros(s, np.float32)) for s in ((3, 2, 5), (5, 5), (2, 5))), nonlinearity="sin")


@kinds
def test_a_dumped_network_computes_the_same(kind):
    net, x = network(kind, 4, 7), mge.tensor(normal(3, 3, 4))
    net.eval()
    traced = trace(lambda x: net(x)[0], symbolic=True, capture_as_const=True)
    wanted = traced(x).numpy()
    file = io.BytesIO()
    traced.dump(file)
    (found,) = GraphInference(io.BytesIO(file.getvalue())).run(x.numpy()).values()
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def test_cells_of_a_class_of_ones_own_are_used():
    class Doubled(M.LSTMCell):
        def _advance(self, from_input, state):
            h, c = super()._advance(from_input, state)
            return 2 * h, c

    class Net(M.LSTM):
        def create_cell(self, layer):
            return Doubled(4, 7)

    net, plain, x = Net(4, 7), M.LSTM(4, 7), mge.tensor(normal(1, 3, 4))
    plain.load_state_dict(net.state_dict())
    np.testing.assert_allclose(net(x)[0].numpy(), 2 * plain(x)[0].numpy(), rtol=1e-5)


def test_a_state_of_one_row_serves_a_batch():
    net, x = network("lstm", 4, 7), mge.tensor(normal(3, 3, 4))
    np.testing.assert_allclose(net(x, net.init_hidden(1))[0].numpy(), net(x)[0].numpy(), rtol=1e-6)
    assert F.mean(net(x)[0]).ndim == 0
