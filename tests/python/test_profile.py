"""get_profile(), and the single steps of a traced call."""

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
import megengine.module as M
import megengine.optimizer as optim
from megengine.autodiff import GradManager
from megengine.jit import trace, xla_trace

X = np.arange(12, dtype=np.float32).reshape(3, 4)


def make(**options):
    return trace(lambda x: F.exp(x).sum(), **options)


def test_a_profile_names_each_step_with_its_line_seconds_and_bytes():
    f = make(profiling=True)
    for _ in range(3):
        f(mge.tensor(X))
    table = f.get_profile()["profiler"]
    assert table["runs"] == 2  # the first call records
    steps = {name: step for step in table["steps"] for name in step["ops"]}
    assert steps["exp"]["bytes"] == 2 * X.nbytes
    assert "test_profile.py" in steps["exp"]["where"]
    assert 0 < sum(step["seconds"] for step in table["steps"]) <= table["seconds"]
    assert table["bytes"] == sum(step["bytes"] for step in table["steps"])


def test_fused_steps_name_all_their_ops():
    f = trace(lambda x: F.relu(x * 2 + 1), profiling=True, symbolic=True, opt_level=3)
    f(mge.tensor(X))
    ops = [name for step in f.get_profile()["profiler"]["steps"] for name in step["ops"]]
    assert {"mul", "add", "relu"} <= set(ops)


def test_before_a_compiled_call_there_is_no_profile():
    f = make(profiling=True)
    with pytest.raises(RuntimeError, match="no profile"):
        f.get_profile()
    f(mge.tensor(X))
    with pytest.raises(RuntimeError, match="the first one records"):
        f.get_profile()


def test_without_profiling_there_is_no_profile():
    f = make()
    f(mge.tensor(X))
    f(mge.tensor(X))
    with pytest.raises(RuntimeError, match="profiling=True"):
        f.get_profile()


def test_a_compiled_function_that_has_not_run_has_no_profile():
    f = make(profiling=True)
    f(mge.tensor(X))
    f.compile()
    with pytest.raises(RuntimeError, match="no profile"):
        f.get_profile()


# ---- single steps


def test_execute_needs_a_record_and_compile_and_exec_makes_one():
    f = make()
    assert not f.traced
    with pytest.raises(RuntimeError, match="has not been recorded"):
        f.execute(mge.tensor(X))
    expected = np.exp(X).sum()
    np.testing.assert_allclose(f.compile_and_exec(mge.tensor(X)).numpy(), expected, rtol=1e-6)
    np.testing.assert_allclose(f.execute(mge.tensor(X)).numpy(), expected, rtol=1e-6)
    assert f.traced and f.ops >= 2 and f.vars > f.ops


def test_the_environment_is_left_when_the_call_fails():
    calls = []

    class Noted(trace):
        def setup_env(self):
            calls.append("setup")

        def unset_env(self):
            calls.append("unset")

    def fails(x):
        raise KeyError("from the body")

    with pytest.raises(KeyError):
        Noted(fails).compile_and_exec(mge.tensor(X))
    assert calls == ["setup", "unset"]


def test_reset_forgets_the_record():
    f = make()
    f(mge.tensor(X))
    f.reset_third_party_variable()
    assert not f.traced and f.ops == 0


def test_setup_without_host_stops_running_the_body():
    runs = []

    @trace
    def f(x):
        runs.append(1)
        return x + 1

    f(mge.tensor(X))
    f.setup_without_host()
    assert f.without_host
    for _ in range(3):
        np.testing.assert_array_equal(f(mge.tensor(X)).numpy(), X + 1)
    assert len(runs) == 2


def test_a_whole_step_runs_without_its_body():
    net = M.Linear(4, 2)
    opt, gm = optim.SGD(net.parameters(), lr=1e-3), GradManager().attach(net.parameters())

    @trace(without_host=True)
    def step(x, *, net, opt, gm):
        with gm:
            loss = (net(x) ** 2).mean()
            gm.backward(loss)
            opt.step().clear_grad()
        return loss

    losses = [
        step.trace_without_host_overall(mge.tensor(X), net=net, opt=opt, gm=gm).item()
        for _ in range(4)
    ]
    assert losses[-1] < losses[0]


def test_io_is_listed_flat():
    a, b = mge.tensor(X), mge.tensor(1.0)
    inputs, outputs = make().setup_io_without_trace([a, {"b": b}], (b,))
    assert inputs[0] is a and inputs[1] is b and outputs[0] is b


def test_xla_trace_tells_seed_parameters_and_inputs():
    net = M.Linear(4, 2)
    f = xla_trace(lambda x: net(x))
    mge.random.seed(7)
    assert f.get_random_seed() == 7
    assert {path: value.shape for path, value in f.convert_params_to_xla().items()} == {
        "net.weight": (2, 4),
        "net.bias": (2,),
    }
    np.testing.assert_array_equal(f.prepare_xla_inputs([mge.tensor(X)])[0], X)
    np.testing.assert_array_equal(
        mge.utils.dlpack.from_dlpack(f.to_dlpack(mge.tensor(X))).numpy(), X
    )
