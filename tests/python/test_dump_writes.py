"""States that are written into each other, before and after they are read: a dumped step does what eager mode does, or dump refuses; a traced one
does it in every mode, and a call that its memory_limit refuses leaves all as it was.

Each body is a line of a program over the parameters P and Q and the input x; ``v`` is what it returns.
"""

import io
import itertools

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
from megengine import Parameter, Tensor
from megengine.autodiff import GradManager
from megengine.jit import dump_functions, trace
from megengine.utils.comp_graph_tools import GraphInference

LINES = [
    "v = P * 2",
    "v = v + P * x",
    "v = v - Q",
    "P[...] = Q",
    "Q[...] = P",
    "P[...] = x",
    "Q[...] = x * 0.5",
    "P -= 0.1 * P * F.mean(x)",
    "Q *= 0.5",
    "t = P + 0; P[...] = Q; Q[...] = t",
    "t = P * 1; P[...] = Q; Q[...] = t; v = v + t",
    "P[...] = Q * 0.5 + P",
    "P[0] = Q[1]",
    "P[...] = Tensor([3.0, 4.0])",
    "P[...] = 2.0",
    "P._reset(Q)",
    "P[...] = P",
    "P[...] = v",
]
CHOSEN = [  # more than two lines
    ["v = P * 1", "P[...] = Q", "Q[...] = Q * 0.5", "v = v + P"],
    ["P[...] = Q", "Q[...] = P", "P[...] = x", "v = P + Q"],
    ["t = P * 1", "P[...] = Q * 2", "Q[...] = P", "P[...] = t", "v = P - Q"],
    ["u = Q * 1", "Q[...] = P", "P[...] = u", "P -= x", "v = Q * P"],
    ["P[...] = x", "Q[...] = x", "v = P + Q"],
]
ALL_LINES = [*([line] for line in LINES), *map(list, itertools.permutations(LINES, 2)), *CHOSEN]


def step_of(lines):
    source = "def step(x):\n    global P, Q\n    v = x * 1\n    " + "\n    ".join(lines) + "\n    return v"
    scope = {
        "F": F,
        "mge": mge,
        "Tensor": Tensor,
        "P": Parameter(np.float32([1, 2])),
        "Q": Parameter(np.float32([10, 20])),
    }
    exec(compile(source, "step.py", "exec"), scope)
    return scope["step"], scope["P"], scope["Q"]


def inputs(count=4):
    return [np.float32([k + 1, 2 - k]) for k in range(count)]


def in_eager_mode(lines):
    step, p, q = step_of(lines)
    return [[step(Tensor(x)).numpy(), p.numpy(), q.numpy()] for x in inputs()]


def check(lines, record_only):
    step, p, q = step_of(lines)
    read = trace(lambda: (p * 1, q * 1), record_only=True)
    traced = trace(step, symbolic=True, capture_as_const=True, record_only=record_only)
    before = 0
    while before < (1 if record_only else 2):  # without record_only the state is that of two steps
        traced(Tensor(inputs()[before]))
        before += 1
    before = 0 if record_only else before
    read()
    file = io.BytesIO()
    dump_functions(file, {"step": traced, "read": read})
    model = GraphInference(io.BytesIO(file.getvalue()), function="step")
    for x, expected in list(zip(inputs(), in_eager_mode(lines)))[before:]:
        (result,) = model.run(x).values()
        state = model.function("read").run().values()
        for found, wanted in zip([result, *state], expected, strict=True):
            np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("record_only", [True, False])
@pytest.mark.parametrize(
    "lines", ALL_LINES, ids="; ".join
)
def test_a_dumped_step_is_the_step(lines, record_only):
    try:
        check(lines, record_only)
    except ValueError as error:  # two that are one value from the first call on
        assert "which were one value" in str(error) and not record_only


MODES = {
    "value": {},
    "symbolic": {"symbolic": True},
    "level 0": {"symbolic": True, "opt_level": 0},
    "level 3": {"opt_level": 3},
    "without host": {"without_host": True, "symbolic": True},
    "without host by value": {"without_host": True},
    "auto": {"without_host": "auto"},
    "limit": {"memory_limit": "1GB"},
}


def gradient(p, q):
    """The gradient of p in the sum of p * q: that it is q says that the two are two tensors."""
    gm = GradManager().attach([p])
    with gm:
        gm.backward(F.sum(p * q))
    return p.grad.numpy()


@pytest.mark.parametrize("mode", MODES)
def test_a_traced_step_is_the_step(mode):
    for lines in ALL_LINES:
        step, p, q = step_of(lines)
        traced = trace(step, **MODES[mode])
        found = [[traced(Tensor(x)).numpy(), p.numpy(), q.numpy()] for x in inputs()]
        np.testing.assert_array_equal(found, in_eager_mode(lines), err_msg="; ".join(lines))
        if "P._reset(Q)" not in lines:  # which makes one of two
            np.testing.assert_array_equal(gradient(p, q), q.numpy(), err_msg="; ".join(lines))


def test_a_refused_call_leaves_all_as_it_was():
    drawing = ["v = v * mge.random.uniform(size=(2,))", "v = v[v > 1] * mge.random.uniform(size=(1,))", "v = v + F.sum(v[v > 1])"]
    for lines in [*ALL_LINES, *([*lines, draw] for draw in drawing for lines in ALL_LINES[: len(LINES)])]:
        step, p, q = step_of(lines)
        generator = mge.random.get_state()
        with pytest.raises(MemoryError, match=r"memory_limit: .*a call \w+ at least"):
            trace(step, memory_limit=1)(Tensor([1.0, 2.0]))
        np.testing.assert_array_equal([p.numpy(), q.numpy()], np.float32([[1, 2], [10, 20]]), err_msg="; ".join(lines))
        assert str(mge.random.get_state()) == str(generator), lines


def test_a_refusal_that_the_body_catches_ends_the_call():
    def step(x):
        y = x * 2
        try:
            return y[y > 1]  # what comes before it is planned by itself
        except MemoryError:
            return y

    with pytest.raises(MemoryError, match="the body has caught this error"):
        trace(step, memory_limit=1)(Tensor([1.0, 2.0]))


def test_an_update_of_one_of_two_that_were_one_value_is_refused():
    p = Parameter(np.float32([1, 2]))
    q = Parameter(p)
    q._reset(p)

    def step(x):
        p.__isub__(x)
        return q * x

    traced = trace(step, record_only=True)
    traced(Tensor([1.0, 1.0]))
    with pytest.raises(ValueError, match="one value"):
        dump_functions(io.BytesIO(), {"step": traced})
