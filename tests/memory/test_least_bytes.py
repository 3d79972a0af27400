"""A refused limit carries a proof: bytes that no plan goes below. It is judged here by the text of the program that runs.

Small programs by an integer program, which finds no plan below the bound; networks by their own fullest step, which
the bound is not below.
"""

import sys
from pathlib import Path

import numpy as np
import pytest
from checkmate import Checkmate
from least_bytes import fullest_step, parse, problem_of

sys.path.insert(0, str(Path(__file__).parents[1] / "python"))

import zoo

import megengine as mge
import megengine.functional as F
import megengine.module as M
from megengine import jit
from megengine.autodiff import GradManager

NOT_NEEDED = {"memory_limit": "100GB"}  # under a limit no weights are packed
ROUNDING = 1e-4  # the solver keeps a constraint but for so much


def traced(build, level, **options):
    net = build()
    gm = GradManager().attach(net.parameters())

    @jit.trace(symbolic=True, opt_level=level, **options)
    def step(x, y):
        with gm:
            loss = F.loss.cross_entropy(net(x), y)
            gm.backward(loss)
        return loss, [parameter.grad for parameter in net.parameters()]

    return step


def refusal(build, level, inputs, limit=1):
    with pytest.raises(MemoryError) as caught:
        traced(build, level, memory_limit=limit).plan(*inputs)
    return caught.value


def program_of(step, inputs):
    """Its problem, the bytes beside its arena, and its plan."""
    step(*inputs)
    plan = step.memory_plan()
    return problem_of(parse(step.graph_text()), plan), plan.planned_bytes - plan.arena_bytes, plan


def layers(*widths):
    return M.Sequential(*(layer for a, b in zip(widths, widths[1:], strict=False) for layer in (M.Linear(a, b, bias=False), M.ReLU())))


def gradients(widths, level, **options):
    """A few layers with a given gradient of the result make some steps only, so that the integer program is solved within seconds."""
    net = layers(*widths)
    gm = GradManager().attach(net.parameters())

    @jit.trace(symbolic=True, opt_level=level, **options)
    def step(x, dy):
        with gm:
            gm.backward(net(x), dy)
        return [parameter.grad for parameter in net.parameters()]

    return step


@pytest.mark.parametrize("level", [2, 3])
@pytest.mark.parametrize("widths", [(64, 32, 16), (16, 128, 16), (32, 32, 32)])
def test_no_plan_of_a_small_program_is_below_the_bound(widths, level):
    inputs = [mge.tensor(np.zeros((512, width), np.float32)) for width in (widths[0], widths[-1])]
    problem, elsewhere, _ = program_of(gradients(widths, level, **NOT_NEEDED), inputs)
    with pytest.raises(MemoryError) as caught:
        gradients(widths, level, memory_limit=1).plan(*inputs)
    arena = caught.value.bound - elsewhere
    assert arena >= fullest_step(problem)
    assert Checkmate(problem, (1 - ROUNDING) * arena, 1e6).least_cost() is None


def batch_of(name):
    shape, _ = zoo.SMALL[name][1](16)
    is_text = name in ("bert", "gpt2")
    rows = shape[0] * shape[1] if is_text else shape[0]
    return mge.tensor(np.zeros(shape, np.int32 if is_text else np.float32)), mge.tensor(np.zeros(rows, np.int32))


@pytest.mark.parametrize("level", [2, 3])
@pytest.mark.parametrize("name", ["resnet_basic", "vgg", "mobilenet", "unet", "gpt2", "mlp"])
def test_a_refusal_says_what_is_proved(name, level):
    build, inputs = zoo.SMALL[name][0], batch_of(name)
    error = refusal(build, level, inputs)
    assert isinstance(error, RuntimeError)
    assert (error.limit, len(error.args)) == (1, 1)
    assert 0 < error.bound <= error.needed
    is_proved = error.needed <= 1.03 * error.bound
    assert ("needs at least" in str(error)) == is_proved == ("no smaller plan found" not in str(error))
    assert f"no plan is below {error.bound} bytes" in str(error) and error.proof in str(error)
    assert len(str(error).splitlines()) <= 6
    # The limit that it names is kept; below the bound all is refused.
    assert traced(build, level, memory_limit=error.needed).plan(*inputs).planned_bytes <= error.needed
    assert refusal(build, level, inputs, error.bound - 1).needed == error.needed
    if level == 2:  # each plan has the steps of this program
        problem, elsewhere, plan = program_of(traced(build, level, **NOT_NEEDED), inputs)
        # Temporary values may lie where statistics of normalizations, and small results, lie.
        updated = sum(b.bytes for b in plan.buffers if b.place == "input" and len(b.values) > 1)
        assert error.bound >= 0.999 * (elsewhere + fullest_step(problem) - updated)
