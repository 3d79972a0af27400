"""``python -m megengine plan --world``: what a data-parallel step would take, on profiles with known answers."""

import json
import math
import subprocess
import sys

import pytest

from megengine.distributed._forecast import (
    Gradient,
    Network,
    Step,
    buckets_of,
    forecast,
    largest_pair,
)
from megengine.jit.report import MemoryPlan, PlannedBuffer
from megengine.reports import world as report

MB = 1 << 20
SIZES = (MB, 25 * MB)  # of buckets


def ring(processes, bandwidth=1.0 * MB, latency=0.0):
    return Network(processes, bandwidth, latency, is_ring=True)


def test_a_ring_sends_each_part_twice_but_for_its_own():
    assert ring(4, 1e6, 0.5).all_reduce_seconds(8_000_000) == 6 * 0.5 + 2 * 3 / 4 * 8
    assert ring(64, latency=1.0).all_reduce_seconds(4) == pytest.approx(126, rel=1e-4)
    assert ring(1, latency=1.0).all_reduce_seconds(8) == ring(4, latency=1.0).all_reduce_seconds(0) == 0


def test_sockets_send_small_tensors_to_all_and_large_ones_in_slices():
    sockets = Network(4, 1.0 * MB, 0.25, is_ring=False)
    assert sockets.all_reduce_seconds(32 << 10) == 0.25 + 3 / 32
    assert sockets.all_reduce_seconds(5 * MB) == (3 + 1) * 0.25 + 1.5 * 5


def test_a_bucket_ends_with_the_gradient_that_fills_it():
    gradients = [Gradient(20 * MB, 3.0), Gradient(MB, 1.0), Gradient(4 * MB, 2.0), Gradient(5 * MB, 4.0), Gradient(7, 5.0)]
    assert buckets_of(gradients, *SIZES) == [Gradient(MB, 1.0), Gradient(29 * MB, 4.0), Gradient(7, 5.0)]
    assert buckets_of([], *SIZES) == [] and buckets_of([Gradient(3, 1.0)], *SIZES) == [Gradient(3, 1.0)]


@pytest.mark.parametrize(
    "gradients, bucketed, hidden",
    [
        # Each of 1 MB takes a second: from 2 to 3, from 3 to 4 beside backward, which ends at 5.
        ([(MB, 2.0), (MB, 3.0)], 6, 1.0),
        # The last one is there at the end of backward.
        ([(MB, 2.0), (MB, 5.0)], 7, 0.5),
        # The second waits for the first, which takes from 2 to 6, and takes until 10.
        ([(4 * MB, 2.0), (4 * MB, 3.0)], 11, 3 / 8),
        ([], 6, 1.0),
    ],
    ids=["hidden", "half", "waits", "none"],
)  # fmt: skip
def test_buckets_travel_one_after_the_other_beside_backward(gradients, bucketed, hidden):
    step = Step(1.0, 4.0, 1.0, tuple(Gradient(*each) for each in gradients))
    found = forecast(step, ring(2), SIZES)
    total = sum(size for size, _ in gradients) / MB
    assert (found.compute, found.bucketed, found.hidden) == (6, bucketed, hidden)
    assert found.exchange == total


def test_one_process_pays_nothing():
    step = Step(1.0, 4.0, 1.0, (Gradient(MB, 5.0),))
    assert forecast(step, ring(1), SIZES).bucketed == 6


def test_one_bucket_is_filled_while_another_one_travels():
    assert largest_pair([1, 25, 26, 3]) == 51 and largest_pair([7]) == 7 and largest_pair([]) == 0


# ---- from a profile

PLAN = MemoryPlan(
    **dict.fromkeys(("unplanned_bytes", "peak_live_bytes", "arena_bytes", "workspace_bytes", "host_bytes", "transferred_bytes"), 0),
    planned_bytes=10 * MB,
    recompute_flops_ratio=0.0,
    steps=("%3 matmul f32[8, 4] a.py:1 (onednn)", "%4 matmul f32[8, 2]", "%5 matmul f32[8, 2]", "%6 matmul f32[4, 2]", "%7 fused f32[3]",
           "%8 fused f32[8, 4]", "%9 matmul f32[8, 4]", "%10 fused f32[4, 2]"),
    buffers=(
        PlannedBuffer("arena", 0, 64, 2, 4, "gradient", ("%5 matmul f32[8, 2]",)),
        PlannedBuffer("output", 0, 128, 0, 8, "gradient", ("%9 matmul f32[8, 4]",)),
        PlannedBuffer("input", 0, 32, 0, 8, "parameter", ("%0 input f32[4, 2]", "%10 fused f32[4, 2]")),
    ),
)  # fmt: skip


def profile(*seconds, transfer=100.0):
    steps = [{"step": number, "last_seconds": each, "is_transfer": False} for number, each in enumerate(seconds)]
    return {"steps": [*steps, {"step": 0, "last_seconds": transfer, "is_transfer": True}]}


def test_a_profile_tells_when_gradients_are_there():
    """A call has two segments, of which the second has a value that the plan does not know; medians of three calls."""
    calls = [[profile(*([scale] * 4)), profile(*([scale] * 4))] for scale in (1.0, 2.0, 50.0)]
    gradients = {1: ((8, 4), 128), 2: ((4, 2), 32), 3: ((3,), 12), 4: ((5, 5), 100)}
    measured = report.Measured(gradients, calls, [8.0, 20.0, 400.0])
    step = report.step_of(measured, PLAN, [4, 4])
    # Steps take 2 s each. Backward is those from %5 to %9; 20 - 16 s are Python's.
    assert (step.forward, step.backward, step.update) == (4, 10, 6)
    # Nothing has the shape of the last one: it is there at the end.
    assert step.gradients == (Gradient(100, 14.0), Gradient(12, 10.0), Gradient(32, 8.0), Gradient(128, 12.0))


def test_memory_of_a_rank_counts_buckets_and_its_part_of_the_state():
    found = report.figures(Step(1.0, 1.0, 1.0, (Gradient(2 * MB, 2.0),)), PLAN, 4 * MB, ring(3))
    assert found["rank_bytes"] == 12 * MB
    assert found["sharded_rank_bytes"] == 8 * MB + math.ceil(4 * MB / 3)
    assert found["fully_sharded_rank_bytes"] == 4 * MB + math.ceil((2 * 2 + 4) * MB / 3)


# ---- the command

SCRIPT = """
import sys
import numpy as np
import megengine as mge, megengine.functional as F, megengine.optimizer as optim
from megengine.autodiff import GradManager
from megengine.jit import trace

weights = [mge.Parameter(np.ones(shape, "float32")) for shape in ((6, 500), (500, 1000))]
gm, optimizer = GradManager().attach(weights), optim.Adam(weights, lr=1e-3)

@trace(symbolic=True, opt_level=3)
def step(x):
    with gm:
        for weight in weights:
            x = F.matmul(x, weight)
        gm.backward(x.mean())
    optimizer.step().clear_grad()

@trace
def evaluate(x):
    return x * 2

for i in range(int(sys.argv[1])):
    step(mge.tensor(np.ones((4, 6), "float32")))
    evaluate(mge.tensor([1.0]))
    print("step", i)
raise SystemExit("all of them")
"""


@pytest.fixture
def plan(tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT)

    def run(*arguments):
        command = [sys.executable, "-m", "megengine", "plan", tmp_path / "train.py", *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        return done.returncode, done.stdout, done.stderr

    return run


def test_the_command_runs_the_script_and_tells_of_its_training_steps(plan):
    code, output, errors = plan("--world", 4, "--bandwidth", "1e9", "--latency", "1e-3", "--json", "--repeats", 3, "1000000")
    assert code == 0, errors
    (found,) = json.loads(output)
    assert found["function"].startswith("step (") and (found["processes"], found["latency"], found["is_ring"]) == (4, 1e-3, False)
    first, second = 4 * 6 * 500, 4 * 500 * 1000
    assert (found["gradients"], found["gradient_bytes"]) == (2, first + second)
    # Backward has the last parameter's gradient first, which fills the first bucket.
    assert found["bucket_bytes"] == [second, first]
    assert found["exchange_seconds"] == pytest.approx(2e-3 + 1.5 * second / 1e9 + 1e-3 + 3 * first / 1e9)
    assert min(found["forward_seconds"], found["backward_seconds"], found["update_seconds"]) > 0
    assert 2 * (first + second) <= found["state_bytes"] <= 2 * (first + second) + 64  # Adam's two moments
    assert found["rank_bytes"] - found["sharded_rank_bytes"] == pytest.approx(0.75 * found["state_bytes"], abs=1)


def test_a_launcher_of_the_script_is_a_world_of_one(tmp_path):
    """Which runs here: what it starts elsewhere could not be measured."""
    head, loop = SCRIPT.split("for i in range")
    body = "".join(f"    {line}\n" for line in f"assert (dist.get_rank(), dist.get_world_size(), dist.is_distributed()) == (0, 1, True)\nfor i in range{loop}".splitlines())
    (tmp_path / "train.py").write_text(f"import megengine.distributed as dist\n{head}\n@dist.launcher(n_gpus=2)\ndef main():\n{body}\nmain()\n")
    command = [sys.executable, "-m", "megengine", "plan", tmp_path / "train.py", "--world", "4", "--bandwidth", "1e9", "--json", "--repeats", "2", "9"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    (found,) = json.loads(done.stdout)
    assert (found["processes"], found["gradients"]) == (4, 2)


def test_a_script_that_ends_early_is_measured_by_what_it_has(plan):
    code, output, errors = plan("--world", 64, "--bandwidth", "25e9", "3")
    assert code == 0, errors
    assert "64 processes, 25 GB/s, 10 us a message" in output and "tensors: 2, buckets: 2" in output and "its state sharded" in output


@pytest.mark.parametrize(
    "arguments, words",
    [
        (("--world", 4, "3"), "--world needs a --bandwidth"),
        (("--world", 4, "--bandwidth", 1, "--limit", "1GB", "3"), "neither --limit"),
        (("--world", 0, "--bandwidth", 1, "3"), "at least 1"),
        (("--world", 2, "--bandwidth", 0, "3"), "more than 0 bytes a second"),
        (("--world", 2, "--bandwidth", 1, "1"), "no traced function has taken gradients twice"),
    ],
)
def test_what_cannot_be_told_is_refused(plan, arguments, words):
    code, output, errors = plan(*arguments)
    assert code == 1 and words in errors and "processes" not in output
