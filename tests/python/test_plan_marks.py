"""What the user may say of recomputation, plans without a run, and a search that can be stopped."""

import dataclasses
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from zoo import MLP, UnrolledLSTM

import megengine as mge
import megengine.functional as F
import megengine.module as M
import megengine.optimizer as optim
from megengine import jit
from megengine.autodiff import GradManager
from megengine.jit import SublinearMemoryConfig, trace

EXAMPLE = Path(__file__).resolve().parents[2] / "examples/train_resnet50_sublinear.py"


def run_marked(mark):
    """Loss and gradients of a few layers whose insides are marked, and the plan."""
    rng = np.random.RandomState(0)
    weights = [mge.Parameter(rng.randn(16, 16).astype(np.float32)) for _ in range(4)]
    gm = GradManager().attach(weights)

    @trace(symbolic=True)
    def step(x):
        with gm:
            for w in weights:
                x = mark(lambda x, w=w: F.tanh(F.exp(F.sin(x)) @ w))(x)
            loss = (x * x).mean()
            gm.backward(loss)
        return loss, [w.grad for w in weights]

    loss, grads = step(mge.tensor(rng.randn(256, 16).astype(np.float32)))
    return [t.numpy().tobytes() for t in (loss, *grads)], step.memory_plan()


def test_what_recompute_marks_is_not_kept():
    bits, plan = run_marked(lambda layer: layer)
    less_bits, less = run_marked(jit.recompute)
    assert less_bits == bits
    assert less.arena_bytes < 0.7 * plan.arena_bytes


def test_marks_do_nothing_in_eager_mode():
    x = mge.tensor([1.0, 2.0])
    assert jit.keep(x) is x
    assert jit.offload(x) is x
    np.testing.assert_array_equal(jit.recompute(M.ReLU())(x).numpy(), x.numpy())


@dataclasses.dataclass
class Pair:
    x: mge.Tensor
    y: mge.Tensor


def test_results_of_recompute_are_kept_in_whatever_container():
    def plan(pack):
        block = jit.recompute(lambda x: pack(F.exp(F.sin(x)), F.cos(x)))

        def step(x):
            pair = block(x)
            a, b = (pair.x, pair.y) if isinstance(pair, Pair) else pair
            return F.sin(a) + F.exp(b) + (a * a).sum() + F.sqrt(b + 2).sum()

        return trace(step, symbolic=True).plan(mge.tensor([1.0] * 1000))

    assert plan(Pair) == plan(lambda a, b: (a, b)) and plan(Pair).recompute_flops_ratio == 0


@pytest.mark.parametrize("level", [2, 3])
def test_what_keep_marks_is_computed_once(level):
    w = mge.Parameter(np.eye(8, dtype=np.float32))

    def sines(mark):
        @trace(symbolic=True, opt_level=level, sublinear_memory_config=SublinearMemoryConfig(num_worker=1))
        def f(x):
            waits = mark(F.sin(x))
            x = x + waits
            for _ in range(30):
                x = F.exp(F.tanh(x) @ w)
            return (x * waits).sum()

        x = mge.tensor(np.ones((64, 8), np.float32))
        f(x)
        return len(re.findall(r"^%.*\bsin\b", f.graph_text(), re.MULTILINE))

    assert sines(lambda x: x) == 2
    assert sines(jit.keep) == 1


@pytest.mark.parametrize("level", [2, 3])
@pytest.mark.parametrize(
    "end",
    [
        lambda h: F.max_pool2d(F.relu(h), 2),
        lambda h: F.avg_pool2d(F.relu(h), 2),
        lambda h: F.max_pool2d(F.sigmoid(h) * h, 2),
        lambda h: F.gelu(h),
    ],
    ids=["max_pool", "avg_pool", "swish_max_pool", "gelu"],
)
def test_what_a_region_marks_runs_once_again_however_often_it_is_read(end, level):
    layers = [M.Conv2d(4, 4, 3, padding=1) for _ in range(3)]
    gm = GradManager().attach([p for layer in layers for p in layer.parameters()])

    def convolutions(mark):
        def step(x):
            with gm:
                for layer in layers:
                    x = mark(lambda x, layer=layer: end(layer(x)))(x)
                gm.backward((x * x).mean())
            return [layer.weight.grad for layer in layers]

        plan = trace(step, symbolic=True, opt_level=level).plan(F.ones((2, 4, 32, 32)))
        return sum(text.split()[1] in ("conv", "conv_epilogue") for text in plan.steps)

    plain = convolutions(lambda layer: layer)
    assert plain == len(layers)
    assert plain < convolutions(jit.recompute) <= 2 * plain


def test_on_a_cpu_offload_changes_nothing():
    """Its memory is the host's already."""
    bits, plan = run_marked(lambda layer: layer)
    same_bits, same = run_marked(lambda layer: lambda x: jit.offload(layer(x)))
    assert same_bits == bits
    assert same.arena_bytes == plan.arena_bytes
    assert same.host_bytes == same.transferred_bytes == 0


@pytest.mark.parametrize("wrong", [jit.keep, jit.offload, jit.recompute])
def test_marks_want_what_they_can_mark(wrong):
    with pytest.raises(TypeError, match="3"):
        wrong(3)


@pytest.mark.parametrize("mark", [jit.keep, jit.offload])
def test_an_input_cannot_be_marked(mark):
    with pytest.raises(ValueError, match=f"{mark.__name__}: .*not computed by the traced function"):
        trace(lambda x: mark(x) + 1, symbolic=True)(mge.tensor([1.0]))


def test_a_value_read_inside_recompute_is_an_error():
    with pytest.raises(ValueError, match="reads a value"):
        trace(jit.recompute(lambda x: (x + 1).item()))(mge.tensor([1.0]))


def mlp_step(net=None):
    net = net or MLP(16, 6)
    gm = GradManager().attach(net.parameters())
    optimizer = optim.SGD(net.parameters(), lr=0.1, momentum=0.9)

    @trace(symbolic=True, memory_limit="1MB")
    def step(x, y):
        with gm:
            loss = F.loss.cross_entropy(net(x), y)
            gm.backward(loss)
        optimizer.step().clear_grad()
        return loss

    return step


def test_a_plan_is_that_of_the_run_and_changes_nothing():
    net = MLP(16, 6)
    step = mlp_step(net)
    x, y = mge.tensor(np.ones((32, 16), np.float32)), mge.tensor(np.zeros(32, np.int32))
    before = [p.numpy().copy() for p in net.parameters()]
    planned = step.plan(x, y)
    for p, was in zip(net.parameters(), before, strict=True):
        np.testing.assert_array_equal(p.numpy(), was)
    step(x, y)
    assert step.memory_plan().planned_bytes == planned.planned_bytes


def test_the_arena_that_is_allocated_is_the_one_that_was_planned():
    """Nothing but the results is allocated beside it: workspaces lie in it."""
    step = trace(lambda x, y: F.svd(F.exp(x) + y)[1].sum(), symbolic=True)  # an SVD has a workspace on every machine
    x, y = mge.tensor(np.ones((512, 16), np.float32)), mge.tensor(np.ones((512, 1), np.float32))
    before = mge.device.get_allocated_memory("cpu0")
    plan = step.plan(x, y)
    assert plan.workspace_bytes > 0
    assert mge.device.get_allocated_memory("cpu0") == before
    for _ in range(2):
        step(x, y)
    after = mge.device.get_allocated_memory("cpu0")
    assert abs(after - before - plan.arena_bytes) <= 8192  # blocks are rounded up
    mge.device.reset_max_memory_stats("cpu0")
    step(x, y)
    assert mge.device.get_max_allocated_memory("cpu0") - after <= 8192


def test_ctrl_c_ends_a_search():
    net = UnrolledLSTM(8, 8, 10)
    gm = GradManager().attach(net.parameters())

    @trace(sublinear_memory_config=SublinearMemoryConfig(genetic_nr_iter=1_000_000))  # for hours
    def step(x):
        with gm:
            loss = net(x).sum()
            gm.backward(loss)
        return loss

    def press():
        time.sleep(3)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=press)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        step.plan(mge.tensor(np.ones((64, 60, 8), np.float32)))
    thread.join()


def test_plans_cost_what_profiled_runs_took():
    """To the model an SVD takes a flop for each element."""
    x = mge.tensor(np.random.RandomState(0).randn(96, 96).astype(np.float32))

    def body(x):
        waiting = [F.sin(x * k) for k in range(1, 5)]
        y = F.svd(sum(waiting))[0]
        y = F.concat([y] * 8).sum()
        for value in waiting:
            y = y + F.exp(value)
        return y

    modelled = trace(body, symbolic=True).plan_with_curve(x).curve
    step = trace(body, symbolic=True, profiling=True)
    expected = [step(x).numpy().tobytes() for _ in range(5)][-1]
    measured = step.plan_with_curve(x).curve
    assert measured[0].seconds > modelled[0].seconds

    assert trace(body, symbolic=True).plan_with_curve(x).curve == modelled  # who does not profile

    def limited(point):
        return trace(body, symbolic=True, profiling=True, memory_limit=point.bytes)

    plans = [limited(point).plan_with_curve(x) for point in measured]  # runs would change what is known
    costs = [p.seconds for plan in plans for p in plan.curve if p.is_chosen]
    assert len(costs) > 1
    assert costs == sorted(costs)
    for point, plan in zip(measured, plans, strict=True):
        assert plan.planned_bytes <= point.bytes
        assert limited(point)(x).numpy().tobytes() == expected


def run_example(*options):
    command = [sys.executable, str(EXAMPLE), "--width", "8", "--side", "32", "--batch", "64", "--steps", "1", *options]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})


def test_a_batch_that_does_not_fit_is_refused_and_fits_with_recomputation():
    fits, refused, fits_again = (
        run_example("--cap", "40MB"),
        run_example("--cap", "14MB"),
        run_example("--cap", "14MB", "--sublinear"),
    )
    assert fits.returncode == 0, fits.stderr
    assert refused.returncode != 0
    assert "MemoryError" in refused.stderr
    assert fits_again.returncode == 0, fits_again.stderr
    assert "step 0: loss" in fits_again.stdout


def test_a_plan_of_a_body_that_raises_runs_nothing():
    """A call that raises computes what it has issued, as eager mode would have; a plan leaves everything as it was."""
    state, x = mge.tensor(np.zeros((256, 256), "float32")), mge.tensor(np.ones((256, 256), "float32"))

    @jit.trace(symbolic=True)
    def f(x):
        y = F.exp(x) @ x
        state[...] = y
        raise KeyError("in the body")

    before = mge.device.get_allocated_memory("cpux")
    mge.device.reset_max_memory_stats("cpux")
    with pytest.raises(KeyError) as found:
        f.plan(x)
    assert mge.device.get_max_allocated_memory("cpux") == before
    assert state.numpy().max() == 0
    del found
    with pytest.raises(KeyError):
        f(x)
    assert state.numpy().max() > 0
