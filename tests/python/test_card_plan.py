"""Plans for GPUs that are described (`trace.on`): what a call asks of a card, counted from what would run, without a card or CUDA."""

import re
import subprocess
import sys

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
import megengine.module as M
from megengine import config
from megengine.amp import autocast
from megengine.autodiff import GradManager
from megengine.jit import trace
from megengine.jit.report import StepCost
from megengine.optimizer import SGD, Adam

CARDS = ("sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")


def zeros(*shape, dtype="float32"):
    return mge.tensor(np.zeros(shape, dtype))


@pytest.mark.parametrize("card", CARDS)
def test_an_element_wise_chain_is_one_launch_that_reads_and_writes_once(card):
    chain = trace(lambda x: F.exp(x) * 2 + 1, symbolic=True, opt_level=3)
    plan = chain.on(card).plan(zeros(1024, 1024))
    assert (plan.launches, plan.moved_bytes, plan.card) == (1, 2 * 4 * 2**20, card)
    assert plan.planned_bytes == chain.plan(zeros(1024, 1024)).planned_bytes
    (cost,) = (cost for cost in plan.costs if cost.launches)
    assert isinstance(cost, StepCost) and cost.by == "a generated kernel" and cost.blocks > 0 and cost.ir.startswith("kernel")
    assert cost.instructions == cost.instructions_of_element * 2**20 > 0


def test_newer_cards_take_less_time():
    f = trace(lambda x, w: F.relu(F.matmul(x, w)), symbolic=True, opt_level=3)
    args = zeros(4096, 4096), zeros(4096, 4096)
    seconds = {card: f.on(card).plan(*args).seconds for card in ("sm_80", "sm_90", "sm_100")}
    assert seconds["sm_80"] > seconds["sm_90"] > seconds["sm_100"] > 0


def test_products_of_halves_are_costed_by_tensor_cores():
    f = trace(lambda x, w: F.matmul(x, w), symbolic=True, opt_level=3)
    full = f.on("sm_90").plan(zeros(4096, 4096), zeros(4096, 4096))
    halves = f.on("sm_90").plan(zeros(4096, 4096).astype("bfloat16"), zeros(4096, 4096).astype("bfloat16"))
    assert full.flops == halves.flops == 2 * 4096**3
    assert full.seconds / halves.seconds > 8 and full.costs[0].source == "model"


def test_products_without_their_library_say_so():
    plan = trace(lambda x: F.matmul(x, x), symbolic=True).on("sm_90").plan(zeros(256, 256))
    (cost,) = plan.costs
    assert "cuBLASLt" in cost.by


def test_rows_that_are_walked_twice_are_read_twice_where_no_cache_holds_them():
    softmax = trace(lambda x: F.softmax(x, axis=1), symbolic=True, opt_level=3).on("sm_90")
    wide = softmax.plan(zeros(8192, 65536)).moved_bytes
    narrow = softmax.plan(zeros(8192, 512)).moved_bytes
    assert narrow == 2 * 4 * 8192 * 512
    assert wide > 2 * 4 * 8192 * 65536


def test_steps_whose_work_follows_from_values_have_no_time():
    plan = trace(lambda x: F.while_loop(lambda s: s.sum() < 30, lambda s: s + 1, x), symbolic=True).on("sm_90").plan(zeros(4))
    assert plan.unknown and all(cost.seconds is None for cost in plan.unknown)
    assert "without 1 steps whose time follows from values" in repr(plan)


def test_a_training_step_is_planned_as_a_card_would_run_it():
    net = M.Sequential(M.Conv2d(3, 8, 3, padding=1), M.BatchNorm2d(8), M.ReLU(), M.Conv2d(8, 8, 3), M.AdaptiveAvgPool2d(1))
    gm, opt = GradManager().attach(net.parameters()), SGD(net.parameters(), lr=0.1)

    @trace(symbolic=True, opt_level=3)
    def step(x):
        with gm:
            loss = net(x).sum()
            gm.backward(loss)
        opt.step().clear_grad()
        return loss

    before = [p.numpy() for p in net.parameters()]
    view = step.on("sm_90")
    plan = view.plan(zeros(4, 3, 16, 16))
    assert not plan.unknown and plan.launches >= len(view.kernels()) > 5 and plan.flops > 0
    assert sum(cost.launches for cost in view.kernels()) == plan.launches
    assert all(np.array_equal(a, p.numpy()) for a, p in zip(before, net.parameters(), strict=True))


def test_a_limit_holds_on_a_card_too():
    def f(x):
        return F.exp(F.sin(x)) @ F.cos(x)

    plan = trace(f, symbolic=True).on("sm_90").plan(zeros(256, 256))
    limited = trace(f, symbolic=True, memory_limit=plan.planned_bytes).on("sm_90")
    assert limited.plan(zeros(256, 256)).planned_bytes <= plan.planned_bytes
    with pytest.raises(MemoryError, match="memory_limit"):
        trace(f, symbolic=True, memory_limit=1000).on("sm_90").plan(zeros(256, 256))


def test_another_card_is_refused_with_the_list():
    f = trace(lambda x: x + 1)
    with pytest.raises(ValueError, match=r"no GPU 'H100'"):
        f.on("H100")
    with pytest.raises(ValueError, match=r"sm_70.*\n.*sm_80, sm_86, sm_89, sm_90, sm_100, sm_120"):
        f.on("sm_70").plan(zeros(2))
    with pytest.raises(RuntimeError, match="plan one first"):
        f.on("sm_90").kernels()


def test_the_command_prints_what_a_card_would_do(tmp_path):
    script = tmp_path / "train.py"
    script.write_text("import megengine as mge\nfrom megengine.jit import trace\n\n@trace\ndef double(x):\n    return x * 2\n\ndouble(mge.tensor([1.0]))\n")
    found = subprocess.run([sys.executable, "-m", "megengine", "plan", script, "--device", "sm_90"], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    assert re.search(r"on sm_90: 1 launches, 12 B moved", found.stdout)


@pytest.mark.filterwarnings("ignore:.*has no effect here")
@pytest.mark.parametrize("dtype", ["bfloat16", "tf32", "float32", "deterministic"])
@pytest.mark.parametrize("taps, stride", [(1, 1), (3, 1), (1, 2)])
def test_what_a_batch_norm_adds_up_comes_from_the_convolutions_beside_it(taps, stride, dtype):
    """Tensor cores' convolutions give sums for the gradient of the norm before them, behind relu's mask and a residual's gradient, which is added to one
    of 1x1 alone; those of halves give statistics, too. cuDNN adds up nothing where the step is 2."""
    first, second = M.Conv2d(64, 64, 1, bias=False), M.Conv2d(64, 64, taps, stride, taps // 2, bias=False)
    norm1, norm2, last = M.BatchNorm2d(64), M.BatchNorm2d(64), M.Conv2d(64, 64, 3, padding=1)
    gm = GradManager().attach([*first.parameters(), *norm1.parameters(), *second.parameters(), *norm2.parameters()])

    @trace(symbolic=True, opt_level=3)
    def step(x):
        with gm:
            with autocast(dtype in ("bfloat16", "deterministic"), low_prec_dtype="bfloat16"):
                y = F.relu(norm1(first(x)))
                y = F.relu(norm2(second(y)) + (y if stride == 1 else y[:, :, ::stride, ::stride]))
                y = last(y)
            gm.backward((y.astype("float32") ** 2).mean())

    with config._override(tf32=dtype == "tf32", deterministic_kernel=dtype == "deterministic"):
        costs = step.on("sm_90").plan(zeros(32, 64, 56, 56)).costs
    ops = [cost.ops[0] for cost in costs]
    assert ops.count("conv_stats") == (2 if dtype == "bfloat16" else 0)
    joins = 0 if dtype in ("float32", "deterministic") else 1 + (taps == 1 and stride == 1)
    assert ops.count("conv_backward_data_sums") == joins
    if stride == 1:
        assert sum("reduce_sum" in cost.ops and cost.bytes > 1e6 for cost in costs) == 2 - joins


@pytest.mark.parametrize("rows, columns", [(8192, 768), (8192, 3072), (128 * 56 * 56, 64)])
def test_sums_of_columns_have_a_block_for_each_multiprocessor(rows, columns):
    sums = trace(lambda x: (x * 2).sum(axis=0), symbolic=True, opt_level=3)
    (cost,) = (cost for cost in sums.on("sm_90").plan(zeros(rows, columns)).costs if cost.launches)
    assert cost.blocks >= 132


def step_with_updates(rule, width=512, **options):
    """A step of three layers of halves. The gradient of each weight is there before that of the layer below."""
    net = M.Sequential(*(M.Linear(width, width, bias=False) for _ in range(3)))
    gm = GradManager().attach(net.parameters())

    @trace(symbolic=True, opt_level=3, **options)
    def step(x):
        with gm:
            with autocast(low_prec_dtype="bfloat16"):
                y = net(x)
            gm.backward(y.astype("float32").mean())
        rule(net.parameters()).step().clear_grad()

    return step


@pytest.mark.parametrize("make, bytes_of_weight", [
    (lambda p: SGD(p, lr=0.1, momentum=0.9, weight_decay=1e-4), 20),
    (lambda p: Adam(p, lr=0.1), 28),
])  # fmt: skip
def test_an_update_is_one_kernel_with_the_casts_of_its_gradient_and_of_the_next_weight(make, bytes_of_weight):
    """It reads the gradient of halves, the weight and its states, and writes these in place, wherever in backward the gradient was computed: the plan knows
    which inputs a call replaces. The next step reads the weight in halves, so that nothing else casts it."""
    made = {}
    step = step_with_updates(lambda p: made.setdefault("rule", make(p)))
    plan = step.on("sm_90").plan(zeros(1024, 512))
    costs = [cost for cost in plan.costs if "fma3" in cost.ops]
    assert sum(cost.bytes for cost in costs) == pytest.approx(3 * 512 * 512 * bytes_of_weight, rel=1e-3)
    assert all(cost.ops.count("cast") == 2 for cost in costs)
    assert sum(cost.ops == ("cast",) for cost in plan.costs) == 1  # that of the batch


def test_a_step_under_a_limit_casts_its_weights():
    made = {}
    step = step_with_updates(lambda p: made.setdefault("rule", SGD(p, lr=0.1)), memory_limit="4GB")
    costs = step.on("sm_90").plan(zeros(1024, 512)).costs
    assert {cost.ops.count("cast") for cost in costs if "fma3" in cost.ops} == {1}


def test_the_gradients_of_two_norms_that_are_added_read_theirs_once():
    """The sums are one kernel, and so are the gradients of both convolutions' results: five passes in place of six."""
    first, second = M.Conv2d(64, 64, 1, bias=False), M.Conv2d(64, 64, 1, bias=False)
    norm1, norm2 = M.BatchNorm2d(64), M.BatchNorm2d(64)
    gm = GradManager().attach([*first.parameters(), *second.parameters()])

    @trace(symbolic=True, opt_level=3)
    def step(x):
        with gm:
            gm.backward(F.relu(norm1(first(x)) + norm2(second(x))).mean())

    passes = [cost.bytes / (4 * 32 * 64 * 56 * 56) for cost in step.on("sm_90").plan(zeros(32, 64, 56, 56)).costs if cost.ops.count("sub") == 6]
    assert [round(each, 2) for each in passes] == [5]
