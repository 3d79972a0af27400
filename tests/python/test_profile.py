"""get_profile(), and the single steps of a traced call."""

import json
import os
import shutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import emulated
import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
import megengine.module as M
import megengine.optimizer as optim
from megengine.autodiff import GradManager
from megengine.jit import report, trace, xla_trace

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


def test_a_step_of_several_launches_counts_them():
    """An optimizer's updates are one step, with a launch for each parameter."""
    net = M.Sequential(M.Linear(3, 4), M.Linear(4, 5))
    gm, optimizer = GradManager().attach(net.parameters()), optim.SGD(net.parameters(), 0.1)

    @trace(profiling=True, symbolic=True, opt_level=3)
    def step(x):
        with gm:
            gm.backward(net(x).sum())
        optimizer.step().clear_grad()

    for _ in range(3):
        step(mge.tensor(X[:, :3]))
    steps = step.get_profile()["profiler"]["steps"]
    assert all(each["launches"] >= 1 for each in steps)
    assert max(each["launches"] for each in steps) > 1


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


# ---- timelines


def test_a_timeline_has_each_step_of_the_last_run_in_its_order(tmp_path):
    f = make(profiling=True)
    for _ in range(3):
        f(mge.tensor(X))
    f.save_timeline(tmp_path / "run.json")
    events = json.loads((tmp_path / "run.json").read_text())["traceEvents"]
    steps = [event for event in events if event["ph"] == "X"]
    assert [step["name"] for step in steps] == [" ".join(row["ops"]) for row in f.get_profile()["profiler"]["steps"]]
    assert all(step["dur"] > 0 and "test_profile.py" in step["args"]["where"] for step in steps)
    assert all(a["ts"] + a["dur"] <= b["ts"] + 1e-3 for a, b in pairwise(steps))  # microseconds


def test_transfers_have_a_row_of_their_own_beside_the_work(tmp_path):
    program = f"""
import json
import megengine as mge, megengine.functional as F
from megengine import autodiff, jit, optimizer
ws = [mge.Parameter(F.ones((512, 512)) / 512) for _ in range(4)]
gm, opt = autodiff.GradManager().attach(ws), optimizer.SGD(ws, lr=0.1)
@jit.trace(symbolic=True, profiling=True)
def step(x):
    with gm:
        for w in ws:
            x = jit.offload(F.relu(F.matmul(x, w)))
        gm.backward(x.sum())
    opt.step().clear_grad()
for _ in range(3):
    step(F.ones((512, 512)))
step.save_timeline({str(tmp_path / "run.json")!r})
"""
    subprocess.run([sys.executable, "-c", program], env=os.environ | emulated.gpus() | {"MGE_DEFAULT_DEVICE": "gpu0"}, check=True)
    steps = [event for event in json.loads((tmp_path / "run.json").read_text())["traceEvents"] if event["ph"] == "X"]
    transfers = [step for step in steps if step["tid"] == 1]
    assert transfers and {step["name"] for step in transfers} == {"to_host", "from_host"}
    last = max(step["ts"] + step["dur"] for step in steps if step["tid"] == 0)
    assert all(0 <= step["ts"] and step["ts"] + step["dur"] <= last + 1e3 for step in transfers)


def test_a_profiler_of_nvtx_sees_the_steps_of_a_gpu(tmp_path):
    compiler = shutil.which("c++")
    if not compiler:
        pytest.skip("needs a C++ compiler")
    profiler = tmp_path / "profiler.so"
    source = Path(__file__).parent / "fake_profiler.cpp"
    subprocess.run([compiler, "-std=c++20", "-shared", "-fPIC", "-o", profiler, source], check=True)
    program = """
import megengine as mge, megengine.functional as F
from megengine.jit import trace
def twice(x):
    return F.exp(x).sum()
f = trace(twice, symbolic=True)
for _ in range(2):
    f(mge.tensor([1.0, 2.0])).numpy()
"""
    variables = emulated.gpus() | {"MGE_DEFAULT_DEVICE": "gpu0", "NVTX_INJECTION64_PATH": str(profiler)}
    done = subprocess.run([sys.executable, "-c", program], env=os.environ | variables, capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert lines[0].startswith("twice")
    assert [line.split()[0] for line in lines[1:] if line.startswith("  ")][:2] == ["exp", "reduce_sum"], lines


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


def test_a_profile_of_several_segments_follows_one_after_the_other():
    def segment(op, runs, seconds):
        step = {"ops": [op], "where": "", "backend": "", "bytes": 8, "is_transfer": False, "last_begin": 0.5, "last_seconds": 0.25}
        return {"runs": runs, "seconds": seconds, "last_seconds": 2.0, "steps": [{**step, "step": 0, "seconds": seconds}]}

    segments = [segment("exp", 2, 4.0), segment("sin", 4, 2.0)]
    merged = report.merge_profiles(segments)
    assert (merged["runs"], merged["seconds"], merged["bytes"]) == (4, 6.0, 16)
    assert [step["last_begin"] for step in merged["steps"]] == [0.5, 2.5]
    events = [event for event in json.loads(report.timeline_of(merged, "step"))["traceEvents"] if event["ph"] == "X"]
    assert [(event["name"], event["ts"], event["dur"]) for event in events] == [("exp", 5e5, 2.5e5), ("sin", 2.5e6, 2.5e5)]
    measured = report.measured_run([{"steps": ["exp"]}, {"steps": ["sin", "cos"]}], segments, 64)
    assert (measured.runs, measured.seconds, measured.step_seconds, measured.allocator_peak_bytes) == (4, 2.5, (2.0, 0.5, 0.0), 64)


def test_the_curve_of_a_call_is_that_of_its_largest_segment():
    large = {"planned_bytes": 100, "curve": [(100, 2.0, True), (60, 3.0, False)]}
    small = {"planned_bytes": 10, "curve": [(10, 1.0, True)]}
    assert report.merge_curves([small, large]) == (report.CurvePoint(100, 2.0, True), report.CurvePoint(60, 3.0, False))


def test_what_was_measured_and_planned_is_told_in_objects():
    f = trace(lambda x: F.sin(F.cos(x)).sum(), symbolic=True, opt_level=3, profiling=True)
    x = mge.tensor(X)
    plan = f.plan(x)
    assert plan.measured is None
    for _ in range(3):
        f(x)
    kernels, measured = f.kernels(), f.memory_plan().measured
    assert isinstance(kernels, report.Kernels) and all(isinstance(kernel, report.GeneratedKernel) for kernel in kernels)
    assert {"sin", "cos"} <= {op for kernel in kernels for op in kernel.ops} and "sin" in repr(kernels)
    assert isinstance(measured, report.MeasuredRun) and measured.seconds > 0 and len(measured.step_seconds) == len(f.memory_plan().steps)


def test_runs_that_were_not_made_are_not_told():
    plan, profile = {"steps": ["exp"]}, {"runs": 0, "seconds": 0.0, "steps": []}
    assert report.measured_run([plan], [profile], 7) is None and report.measured_run([plan], [], 7) is None
    assert report.merge_plans([]).planned_bytes == 0 and report.merge_curves([]) == ()


def test_a_curve_falls_from_the_fastest_to_the_smallest():
    x = mge.Parameter(np.ones((64, 64), np.float32))
    gm = GradManager().attach(x)

    def step():
        with gm:
            gm.backward(F.sin(F.cos(F.exp(F.sin(F.cos(F.exp(x)))))).sum())

    curve = trace(step).plan_with_curve().curve
    assert all(isinstance(point, report.CurvePoint) for point in curve) and sum(point.is_chosen for point in curve) == 1
    assert all(a.bytes > b.bytes and a.seconds <= b.seconds for a, b in pairwise(curve))
