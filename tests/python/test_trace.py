"""trace: the rules of record and replay."""

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
import megengine.module as M
import megengine.optimizer as optim
from megengine import _core, jit
from megengine.autodiff import GradManager
from megengine.jit import TraceError, exclude_from_trace, trace

MODES = [False, True]
LEVELS = [0, 1, 2, 3]


def t(*values):
    return mge.tensor(np.array(values, np.float32))


class MLP(M.Module):
    def __init__(self, seed=0):
        super().__init__()
        self.l1, self.l2 = M.Linear(8, 16), M.Linear(16, 4)
        rng = np.random.RandomState(seed)
        for p in self.parameters():
            p[...] = mge.tensor(rng.randn(*p.shape).astype(np.float32) * 0.3)

    def forward(self, x):
        return self.l2(F.relu(self.l1(x)))


def make_optimizer(name, net):
    if name == "sgd":
        return optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-3)
    return optim.Adam(net.parameters(), lr=0.01)


def step(data, label, *, net, opt, gm):
    with gm:
        loss = F.loss.cross_entropy(net(data), label)
        gm.backward(loss)
        opt.step().clear_grad()
    return loss


def losses(function, optimizer="sgd", steps=6):
    net = MLP()
    opt, gm = make_optimizer(optimizer, net), GradManager().attach(net.parameters())
    rng = np.random.RandomState(1)
    found = []
    for _ in range(steps):
        data = mge.tensor(rng.randn(32, 8).astype(np.float32))
        label = mge.tensor(rng.randint(0, 4, 32).astype(np.int32))
        found.append(function(data, label, net=net, opt=opt, gm=gm).item())
    return np.array(found), [p.numpy() for p in net.parameters()]


# ---- both modes, every level


@pytest.mark.parametrize("symbolic", MODES)
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("opt_level", LEVELS)
def test_a_traced_training_step_is_the_eager_one(symbolic, optimizer, opt_level):
    expected, weights = losses(step, optimizer)
    got, traced_weights = losses(trace(step, symbolic=symbolic, opt_level=opt_level), optimizer)
    if opt_level <= 2:
        np.testing.assert_array_equal(got, expected)  # bit for bit
        for a, b in zip(traced_weights, weights):
            np.testing.assert_array_equal(a, b)
    else:
        np.testing.assert_allclose(got, expected, rtol=1e-5)


def test_an_imperative_function_runs_eagerly_after_the_first_call():
    seen = []

    @trace(symbolic=True, imperative=True)
    def f(x):
        y = x * 2
        if seen:  # another course than the record's, and a value that is there at once
            y = y + y.item()
        seen.append(_core.is_tracing())
        return y

    assert [f(t(k)).item() for k in (1.0, 2.0, 3.0)] == [2, 8, 12]
    assert seen == [True, False, False] and f.ops == 1


def test_bare_and_called_decorators_both_work():
    @trace
    def f(x):
        return x * 2

    @trace(symbolic=True)
    def g(x):
        return x * 2

    for _ in range(3):
        assert f(t(1, 2)).numpy().tolist() == g(t(1, 2)).numpy().tolist() == [2, 4]
    assert f.__wrapped__(t(3)).item() == 6


def test_the_structure_is_fixed_after_the_first_call():
    f = trace(lambda x: x * 2 + 1)
    f(t(1))
    count = f.ops
    for i in range(4):
        assert f(t(i)).item() == 2 * i + 1
        assert f.ops == count


@pytest.mark.parametrize("symbolic", MODES)
def test_any_nest_of_results_may_be_returned(symbolic):
    @trace(symbolic=symbolic)
    def f(x):
        return {"sum": x.sum(), "both": (x + 1, [x - 1])}, "text", 7

    for _ in range(3):
        result, text, number = f(t(1, 2))
        assert result["sum"].item() == 3
        assert result["both"][0].numpy().tolist() == [2, 3]
        assert result["both"][1][0].numpy().tolist() == [0, 1]
        assert (text, number) == ("text", 7)


def test_a_numpy_argument_of_a_body_that_is_skipped_later_is_refused_by_name():
    @trace(without_host=True)
    def f(image):
        return image * 2

    with pytest.raises(TypeError, match="'image'"):
        f(np.zeros(3))


@pytest.mark.parametrize("symbolic", MODES)
def test_new_shapes_and_dtypes_record_a_further_version(symbolic):
    f = trace(lambda x: x.reshape(-1) * 2, symbolic=symbolic)
    for shape in [(2, 3), (4, 3), (2, 3), (5,)]:
        assert f(mge.tensor(np.ones(shape, np.float32))).shape == (int(np.prod(shape)),)
    assert f(mge.tensor(np.ones(3, np.int32))).dtype == np.int32
    assert "4 versions" in f.explain()
    assert "f32[4, 3]" in f.explain()


RETYPING = {  # what stands before and behind the line in which a float16 state takes float32
    "plain": ("v = x * 1", "v = low * 2"),
    "read before": ("v = F.where(low > 0, low, x)", "v = v + low"),
    "of its shape": ("v = F.concat([low, F.zeros_like(low)])", "v = v * 2"),
    "cast to it": ("v = x.astype(low.dtype) + low", "v = v * 2"),
    "written into": ("v = x * 1", "low[0] = x[1]; v = low * v"),
    "between": ("v = x + low; low[...] = low.astype('float16')", "v = v * low"),
}


@pytest.mark.parametrize("options", [{}, {"symbolic": True}, {"without_host": True}, {"without_host": "auto"}], ids=str)
@pytest.mark.parametrize("name", RETYPING)
def test_a_state_that_takes_another_dtype_records_a_further_version(name, options):
    def made():
        source = "def f(x):\n    {}\n    low[...] = low * 0.5 + x\n    {}\n    return v".format(*RETYPING[name])
        scope = {"F": F, "low": mge.tensor(np.float16([1, -2, 3]))}
        exec(source, scope)
        return scope["f"], scope["low"]

    (plain, wanted), (body, found) = made(), made()
    traced = trace(body, **options)
    for k in range(5):
        x = t(1, 2, k)
        np.testing.assert_array_equal(traced(x).numpy(), plain(x).numpy())
        assert found.dtype == wanted.dtype
        np.testing.assert_array_equal(found.numpy(), wanted.numpy())


@pytest.mark.parametrize("options", [{}, {"symbolic": True}, {"symbolic": True, "opt_level": 3}, {"without_host": True}, {"without_host": "auto"}], ids=str)
@pytest.mark.parametrize("compute", [lambda x: F.sum(x, axis=0), lambda x: F.concat([x, x * 2]), lambda x: F.softmax(x, axis=0)], ids=["sum", "concat", "softmax"])
def test_a_state_that_takes_another_dtype_while_shapes_change(compute, options):
    """What began as another version did has the shapes of its own arguments."""
    low = mge.tensor(np.float16([1, -2, 3]))

    def body(x, y):
        low[...] = low * 0.5 + y
        return compute(x)

    traced = trace(body, **options)
    for rows in (3, 2, 3, 4, 2, 5):
        x = t(np.arange(4.0 * rows).reshape(rows, 4))
        np.testing.assert_allclose(traced(x, t(1.5)).numpy(), compute(x).numpy(), rtol=1e-6)


@pytest.mark.parametrize("options", [{}, {"symbolic": True}, {"without_host": True}, {"without_host": "auto"}], ids=str)
@pytest.mark.parametrize("make", [optim.Adam, optim.AdamW])
@pytest.mark.parametrize("order", ["aabab", "ababab", "baab", "bcabcab"])
def test_functions_that_train_by_one_optimizer(order, make, options):
    """Those of fewer parameters count their steps apart from then on, also for the others."""

    def run(wrap):
        params = [mge.Parameter(np.float32([0.5, 1.0 + k])) for k in range(3)]
        gm, opt = GradManager().attach(params), make(params, lr=0.1)

        def step(count):
            def body(x):
                with gm:
                    gm.backward(sum(F.sum(F.tanh(p) * x) for p in params[:count]))
                opt.step().clear_grad()
                return x * 1

            return wrap(body)

        steps = dict(zip("abc", map(step, (3, 1, 2)), strict=True))
        for name in order:
            steps[name](t(2, 3))
        return np.stack([p.numpy() for p in params])

    np.testing.assert_allclose(run(lambda body: trace(body, **options)), run(lambda body: body), rtol=1e-6)


@pytest.mark.parametrize("symbolic", MODES)
def test_forty_shapes_are_recorded_once_each(symbolic):
    bodies = []
    f = trace(lambda x: (bodies.append(_core.is_recording()), x * 2)[1], symbolic=symbolic)
    for _ in range(3):
        for n in range(1, 41):
            assert f(t(np.ones(n))).numpy().sum() == 2 * n
    assert sum(bodies) == 40 and f.explain().startswith("40 versions\n")


def test_versions_beyond_the_bound_are_dropped_oldest_first_and_one_warning_says_so(monkeypatch):
    monkeypatch.setenv("MEGJIT_VERSION_MEMORY", "100KB")
    f = trace(lambda x: x * 2, symbolic=True)
    with pytest.warns(UserWarning, match="(?s)dropped.*MEGJIT_VERSION_MEMORY") as warned:
        for _ in range(2):
            for n in range(1, 41):
                assert f(t(np.ones(n))).numpy().sum() == 2 * n
                f(t(np.ones(n)))
    assert len(warned) == 1 and "older ones were dropped" in f.explain()
    assert 1 < len(f.explain().splitlines()) - 1 < 20


@pytest.mark.parametrize("options", [{}, {"without_host": True}])
def test_sizes_that_come_once_make_room_for_each_other_and_others_stay(options):
    f = trace(lambda x: x * 2, symbolic=True, **options)

    def recorded(n):
        is_known = f"(f32[1, {n}])" in f.explain()
        assert f(t(np.ones(n))).numpy().sum() == 2 * n
        return not is_known

    assert recorded(1) and not recorded(1)
    for n in range(2, 402):
        assert recorded(n)
    assert 16 <= len(f.explain().splitlines()) - 1 < 400 and "that were called once were dropped" in f.explain()
    assert not recorded(1)  # it was in use
    assert recorded(2)  # it went; from now on it stays
    for n in range(402, 802):
        f(t(np.ones(n)))
    assert not recorded(1) and not recorded(2)


@pytest.mark.parametrize("symbolic", MODES)
def test_a_captured_tensor_may_change_its_value_and_its_shape(symbolic):
    scale = t(2)
    f = trace(lambda x: x * scale, symbolic=symbolic)
    assert f(t(1)).item() == f(t(1)).item() == 2
    scale[...] = t(5)
    assert f(t(1)).item() == 5
    scale[...] = t(1, 2, 3)
    assert f(t(1)).numpy().tolist() == [1, 2, 3]
    assert f(t(2)).numpy().tolist() == [2, 4, 6]


@pytest.mark.parametrize("symbolic", MODES)
def test_two_arguments_that_were_one_tensor_may_be_two_later(symbolic):
    f = trace(lambda x, y: x - y, symbolic=symbolic)
    x = t(3)
    assert f(x, x).item() == 0
    assert f(t(5), t(3)).item() == 2
    assert f(x, x).item() == 0


# ---- values on the host


def test_value_mode_reads_what_it_read_when_recorded():
    @trace
    def f(x):
        y = x * 2
        if y.numpy().sum() > 0:
            return y + 1
        return y - 1

    assert [f(t(v)).item() for v in (1, 2, 3)] == [3, 5, 7]


def test_another_branch_is_an_error_and_never_the_old_one():
    @trace
    def f(x):
        if x.sum().item() > 0:
            return x * 2
        return x - 1

    assert f(t(1)).item() == f(t(1)).item() == 2
    with pytest.raises(TraceError, match="(?s)sub in place of mul.*exclude_from_trace"):
        f(t(-1))
    assert f(t(4)).item() == 8


def test_a_value_that_was_not_read_when_recorded_cannot_be_read_later():
    read = []

    @trace
    def f(x):
        y = x * 2
        if read:
            y.numpy()
        return y + 1

    f(t(1)), f(t(1))
    read.append(1)
    with pytest.raises(TraceError, match="read"):
        f(t(1))
    read.clear()
    assert f(t(2)).item() == 5


def test_symbolic_mode_refuses_to_read_a_value_and_names_three_ways_out():
    @trace(symbolic=True)
    def f(x):
        if x.sum() > 0:
            return x * 2
        return x - 1

    with pytest.raises(ValueError) as caught:
        f(t(1))
    text = str(caught.value)
    assert "symbolic=False" in text and "exclude_from_trace" in text and "return the tensor" in text
    assert "test_trace.py:" in text and len(text.splitlines()) <= 6


def test_symbolic_mode_computes_nothing_while_recording():
    seen = []

    @trace(symbolic=True)
    def f(x):
        y = x * 2
        seen.append(y._has_data())
        return y

    f(t(1))
    assert seen == [False]


@pytest.mark.parametrize("symbolic", MODES)
def test_values_that_follow_from_constants_can_be_read(symbolic):
    @trace(symbolic=symbolic)
    def f(x):
        n = x.shape[0] * 2
        assert int(n) == 6
        return x.reshape(1, -1) + n

    for _ in range(3):
        assert f(t(1, 2, 3)).numpy().tolist() == [[7, 8, 9]]


# ---- excluded code


def test_excluded_code_runs_again_in_every_call():
    calls = []

    @trace
    def f(x):
        x = x + 1
        with exclude_from_trace():
            if len(calls) % 2 == 0:
                x = x + 1
            calls.append(x.item())
        return x * 1

    assert [f(t(1)).item() for _ in range(4)] == [3, 2, 3, 2]
    assert calls == [3, 2, 3, 2]


def test_the_seeds_program_prints_3_2_3():
    @jit.trace
    def f(x):
        x += 1
        with jit.exclude_from_trace():
            if i % 2 == 0:
                x += 1
        return x

    found = []
    for i in range(3):
        found.append(str(f(mge.tensor([1]))))
    assert found == [f"Tensor([{v}], dtype=int32, device=xpux:0)" for v in (3, 2, 3)]


def test_exclude_from_trace_does_nothing_outside_of_a_trace():
    with exclude_from_trace(), exclude_from_trace():
        assert (t(1) + 1).item() == 2


@pytest.mark.parametrize("symbolic", MODES)
def test_ops_whose_shape_depends_on_data_follow_the_data(symbolic):
    @trace(symbolic=symbolic)
    def f(x):
        return x[x > 0] * 2

    assert f(t(1, -1, 3)).numpy().tolist() == [2, 6]
    assert f(t(-1, -1, 3)).numpy().tolist() == [6]
    assert f(t(1, 2, 3)).numpy().tolist() == [2, 4, 6]


# ---- mismatches


def variants():
    yield "other op", lambda x, n: x + 1 if n == 0 else x - 1, "sub in place of add"
    yield "other attribute", lambda x, n: F.sum(x, axis=0) if n == 0 else F.sum(x, axis=1), "axes"
    yield "other constant", lambda x, n: x + float(n), "constant"
    yield "more ops", lambda x, n: (x + 1) * 2 if n else x + 1, "one more op"
    yield "fewer ops", lambda x, n: x + 1 if n else (x + 1) * 2, "ended before"
    yield "outside for inside", lambda x, n: (x + 1) * (x if n else (x + 2)), "."


@pytest.mark.parametrize("name, function, words", list(variants()), ids=[v[0] for v in variants()])
@pytest.mark.parametrize("symbolic", MODES)
def test_a_difference_is_a_trace_error_and_the_next_call_works(name, function, words, symbolic):
    state = [0]
    f = trace(lambda x: function(x, state[0]), symbolic=symbolic)
    x = mge.tensor(np.arange(6, dtype=np.float32).reshape(2, 3))
    expected = f(x).numpy()
    np.testing.assert_array_equal(f(x).numpy(), expected)
    state[0] = 1
    with pytest.raises(TraceError, match=words) as caught:
        f(x)
    assert len(str(caught.value).splitlines()) <= 6
    state[0] = 0
    np.testing.assert_array_equal(f(x).numpy(), expected)


@pytest.mark.parametrize("symbolic", MODES)
def test_an_exception_of_the_body_passes_through_and_harms_nothing(symbolic):
    weight = mge.Parameter(np.float32(1.0))
    fail = []

    @trace(symbolic=symbolic)
    def f(x):
        weight._reset(weight + x)
        if fail:
            raise KeyError("mine")
        return weight * 2

    assert f(t(1).sum()).item() == 4
    assert f(t(1).sum()).item() == 6
    fail.append(1)
    with pytest.raises(KeyError, match="mine"):
        f(t(1).sum())
    assert weight.item() == 4  # what the body did before it failed has happened, as in eager mode
    fail.clear()
    assert f(t(1).sum()).item() == 10


@pytest.mark.parametrize("symbolic", MODES)
def test_in_place_writes_rebind_the_callers_handle(symbolic):
    @trace(symbolic=symbolic)
    def f(x):
        x += 1
        x[0] = 7
        return x.sum()

    for _ in range(3):
        x = t(1, 2)
        assert f(x).item() == 10
        assert x.numpy().tolist() == [7, 3]


@pytest.mark.parametrize("symbolic", MODES)
def test_a_tensor_kept_only_later_still_gets_its_value(symbolic):
    kept, keep = [], []

    @trace(symbolic=symbolic)
    def f(x):
        y = x * 3
        if keep:
            kept.append(y)
        return y + 1

    f(t(1)), f(t(1))
    keep.append(1)
    assert f(t(2)).item() == 7
    assert kept[0].item() == 6


@pytest.mark.parametrize("symbolic", MODES)
def test_a_tensor_that_the_first_call_alone_kept_is_let_go_by_others(symbolic):
    kept = []

    @trace(symbolic=symbolic, without_host=False)
    def f(x):
        y = x * 3
        if not kept:
            kept.append(y)
        y = y + 1
        return y * 2

    assert [f(t(i)).item() for i in range(4)] == [2, 8, 14, 20]
    assert kept[0].item() == 0


@pytest.mark.parametrize("symbolic", MODES)
def test_gradients_stay_on_the_parameters_when_the_optimizer_is_outside(symbolic):
    net = MLP()
    gm = GradManager().attach(net.parameters())
    opt = optim.SGD(net.parameters(), lr=0.1)

    @trace(symbolic=symbolic)
    def f(data, label):
        with gm:
            loss = F.loss.cross_entropy(net(data), label)
            gm.backward(loss)
        return loss

    rng = np.random.RandomState(0)
    found = []
    for _ in range(4):
        data = mge.tensor(rng.randn(4, 8).astype(np.float32))
        label = mge.tensor(rng.randint(0, 4, 4).astype(np.int32))
        found.append(f(data, label).item())
        assert all(np.isfinite(p.grad.numpy()).all() for p in net.parameters())
        opt.step().clear_grad()
    assert np.isfinite(found).all()


@pytest.mark.parametrize("symbolic", MODES)
def test_a_learning_rate_schedule_works_between_traced_steps(symbolic):
    def run(function):
        net = MLP()
        opt, gm = make_optimizer("sgd", net), GradManager().attach(net.parameters())
        rng = np.random.RandomState(1)
        for i in range(5):
            for group in opt.param_groups:
                group["lr"] = 0.1 / (i + 1)
            data = mge.tensor(rng.randn(32, 8).astype(np.float32))
            label = mge.tensor(rng.randint(0, 4, 32).astype(np.int32))
            function(data, label, net=net, opt=opt, gm=gm)
        return [p.numpy() for p in net.parameters()]

    for a, b in zip(run(step), run(trace(step, symbolic=symbolic))):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("symbolic", MODES)
def test_random_numbers_are_those_of_eager_mode(symbolic):
    def draw(x):
        return F.dropout(x, 0.5) + mge.random.uniform(0, 1, (8,))

    def run(function):
        mge.random.seed(7)
        return [function(mge.tensor(np.ones(8, np.float32))).numpy() for _ in range(4)]

    np.testing.assert_array_equal(run(draw), run(trace(draw, symbolic=symbolic)))


def test_a_traced_function_called_inside_another_is_part_of_it():
    inner = trace(lambda x: x * 2)
    outer = trace(lambda x: inner(x) + 1)
    for v in (1, 2, 3):
        assert outer(t(v)).item() == 2 * v + 1
    assert "0 version" in inner.explain()


def test_a_method_can_be_traced():
    class Counter:
        def __init__(self):
            self.total = t(0)

        @trace
        def add(self, x):
            self.total += x
            return self.total * 1

    counter = Counter()
    assert [counter.add(t(2)).item() for _ in range(3)] == [2, 4, 6]


# ---- what a traced function tells


@pytest.mark.parametrize("opt_level", [2, 3])
def test_the_seeds_example_takes_32_of_40_bytes(opt_level):
    f = trace(lambda x, w, b: x * w + b, symbolic=True, opt_level=opt_level)
    np.testing.assert_array_equal(f(t(1, 2), t(3, 4), t(5, 6)).numpy(), [8, 14])
    plan = f.memory_plan()
    assert (plan.unplanned_bytes, plan.planned_bytes) == (40, 32)


def test_a_chain_of_elementwise_ops_is_one_kernel():
    f = trace(lambda x: F.exp(x) * 2 + x, symbolic=True, opt_level=3)
    x = mge.tensor(np.linspace(-3, 3, 1001, dtype=np.float32))
    np.testing.assert_array_equal(f(x).numpy(), (F.exp(x) * 2 + x).numpy())
    (kernel,) = f.kernels()
    assert kernel.ops == ["exp", "mul", "add"] and kernel.backend in ("MLIR", "NVRTC") and kernel.source


def test_asking_before_the_first_call_is_a_clear_error():
    f = trace(lambda x: x)
    with pytest.raises(RuntimeError, match="no call of this function has run yet"):
        f.memory_plan()


def test_wrong_options_are_refused():
    with pytest.raises(ValueError, match="opt_level"):
        trace(lambda x: x, opt_level=7)
    with pytest.raises(TypeError):
        trace(3)


def test_options_are_fields_and_others_are_refused():
    options = _core.TraceOptions(name="f", pipeline=_core.PipelineOptions(opt_level=3))
    other = options.copy()
    other.pipeline.memory.limit = 5
    assert (options.name, options.pipeline.opt_level, options.pipeline.memory.limit, other.pipeline.memory.limit) == ("f", 3, 0, 5)
    with pytest.raises(AttributeError, match="level"):
        _core.PipelineOptions(level=3)
    with pytest.raises(TypeError):
        _core.TraceOptions(symbolic="yes")


def test_tracing_is_switched_off_for_all(monkeypatch):
    squared = trace(lambda x: (x * 2) * (x * 2).item(), symbolic=True)  # in a symbolic body that number is not there yet
    monkeypatch.setattr(trace, "enabled", False)
    assert squared(mge.Tensor(3.0)).item() == 36
    monkeypatch.undo()
    with pytest.raises(ValueError):
        squared(mge.Tensor(3.0))


@pytest.mark.filterwarnings("ignore:partial_trace. backend")
@pytest.mark.parametrize("backend", ["default", "xla"])
def test_a_partial_trace_skips_its_body_but_not_inside_a_gradient_manager(backend):
    calls, w = [], mge.Parameter([3.0])

    @jit.partial_trace(backend=backend)
    def forward(x):
        calls.append(1)
        return F.relu(x * w)

    x = mge.tensor([2.0])
    assert [forward(x).item() for _ in range(5)] == [6] * 5
    ran = len(calls)
    assert ran < 5  # without_host: the body is not run again
    with GradManager().attach(w) as gm:
        gm.backward(forward(x))
    assert w.grad.item() == 2 and len(calls) == ran + 1
    with pytest.raises(ValueError, match="partial_trace: backend must be 'default' or 'xla', got 'tvm'"):
        jit.partial_trace(abs, backend="tvm")


def test_a_function_of_a_file_whose_name_is_not_utf8_is_traced():
    scope = {}
    exec(compile("def double(x):\n    return x * 2\n", "caf\udce9.py", "exec"), scope)
    traced = trace(scope["double"], symbolic=True)
    assert traced(mge.Tensor([1.5])).item() == traced(mge.Tensor([1.5])).item() == 3.0
    assert "1 version" in traced.explain()


READS = {
    "item": lambda x, k: x * k.item(),
    "numpy": lambda x, k: x * k.numpy(),
    "int": lambda x, k: x * int(k),
    "float": lambda x, k: x + float(k),
    "tolist": lambda x, k: x + k.tolist(),
    "asarray": lambda x, k: x * np.asarray(k),
    "of a result": lambda x, k: x * (k + 1).item(),
    "index": lambda x, k: x[: int(k)] * 2,
    "count": lambda x, k: sum([x] * int(k), x),
    "branch": lambda x, k: x * 2 if k.item() > 1.5 else x * 3,
}


# A walked call matches operands where the Tensors hold them.
OPERANDS = {
    "one": lambda x, y: F.tanh(x) + y,
    "the same twice": lambda x, y: x * x + y * y,
    "a number": lambda x, y: x * 2.5 + (1 - y),
    "an array": lambda x, y: x + np.float32([1, 2, 3]) * y,
    "an attribute": lambda x, y: F.sum(x, axis=0, keepdims=True) + y,
    "more than four": lambda x, y: F.concat([x, y, x * 2, y * 2, x, y]),
    "several results": lambda x, y: sum(F.split(x * y, 3), y),
    "rebound": lambda x, y: (x + y) * _added(x, y),
    "of a subclass": lambda x, y: _Named(x) + y,
}


def _added(x, y):
    x += y
    return x


class _Named(mge.Tensor):
    pass


@pytest.mark.parametrize("captures", [False, True])
@pytest.mark.parametrize("name", OPERANDS)
def test_a_walked_call_reads_operands_of_every_kind(name, captures):
    traced = trace(OPERANDS[name], symbolic=True, opt_level=1, capture_as_const=captures)
    for k in range(4):
        x, y, again = t(1, 2, k), t(3, k, -1), t(1, 2, k)
        want = OPERANDS[name](again, y).numpy()
        np.testing.assert_allclose(traced(x, y).numpy(), want, rtol=1e-6)
        np.testing.assert_array_equal(x.numpy(), again.numpy())


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("name", READS)
def test_a_value_of_an_input_is_a_constant_of_the_record(name, symbolic):
    if symbolic and name == "of a result":
        return  # which has no value there
    traced = trace(READS[name], symbolic=symbolic)
    x = t(1, 2, 3)
    for k in (1.0, 1.0, 2.0, 1.0):
        want = READS[name](x, mge.tensor(k)).numpy()
        if k == 1.0:
            np.testing.assert_array_equal(traced(x, mge.tensor(k)).numpy(), want)
            continue
        with pytest.raises(TraceError) as caught:
            traced(x, mge.tensor(k))
        text = str(caught.value)
        assert "; the body reads a value at " in text and "test_trace.py:" in text.partition("; the body reads")[2]
        assert "pass what varies as a tensor" not in text and len(text.splitlines()) <= 6
        assert ("compute with the tensor itself" in text) == ("a constant of op" in text)
