"""``trace(on_mismatch="record")``: a call that leaves its record goes on as another version, with the bits of eager mode."""

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
import megengine.module as M
import megengine.optimizer as optim
from megengine import jit
from megengine.autodiff import GradManager

X = np.linspace(-1, 2, 12, dtype="float32").reshape(4, 3)
MODES = {"by value": {}, "symbolic": {"symbolic": True}, "level 0": {"symbolic": True, "opt_level": 0}, "for dump": {"symbolic": True, "capture_as_const": True}}


class Program:
    """One network, and bodies in which `turn` says what they do now."""

    def __init__(self):
        mge.random.seed(5)
        self.net = M.Sequential(M.Linear(3, 4), M.BatchNorm1d(4), M.Dropout(0.5), M.Linear(4, 2))
        self.gm = GradManager().attach(self.net.parameters())
        self.optimizer = optim.SGD(self.net.parameters(), lr=0.1, momentum=0.9)
        self.turn = 0

    def train_or_eval(self, x):
        self.net.train(self.turn == 0)
        return self.net(x)

    def constant(self, x):
        return x * (2.0 + self.turn)

    def longer(self, x):
        for _ in range(1 + self.turn):
            x = F.tanh(x) + 1
        return x

    def other_results(self, x):
        return (x + 1, x - 1) if self.turn == 1 else (x + 1,)

    def backward_or_not(self, x):
        with self.gm:
            loss = (self.net(x) ** 2).mean()
            if self.turn != 1:
                self.gm.backward(loss)
        if self.turn != 1:
            self.optimizer.step().clear_grad()
        return loss

    def loss_of_two(self, x):
        with self.gm:
            y = self.net(x)
            self.gm.backward((y**2).mean() if self.turn == 0 else F.abs(y).sum())
        if self.turn != 2:
            self.optimizer.step()
        self.optimizer.clear_grad()
        return y


BODIES = [name for name in vars(Program) if not name.startswith("_")]
TURNS = [0, 0, 1, 1, 0, 2, 1, 2, 0]


def rows(body, wrap):
    program = Program()
    function, found = wrap(getattr(program, body)), []
    for turn in TURNS:
        program.turn = turn
        result = function(mge.tensor(X))
        values = [*(result if isinstance(result, tuple) else (result,)), *program.net.state_dict().values()]
        found.append([np.asarray(each).copy() for each in values] + [mge.random.uniform(size=(1,)).item()])
    return found, function


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("body", BODIES)
def test_each_version_has_the_bits_of_eager_mode(body, mode):
    wanted, _ = rows(body, lambda function: function)
    got, function = rows(body, lambda function: jit.trace(function, numerics="exact", on_mismatch="record", **MODES[mode]))
    for step, (a, b) in enumerate(zip(got, wanted, strict=True)):
        for x, y in zip(a, b, strict=True):
            np.testing.assert_array_equal(x, y, err_msg=f"call {step}")
    assert 2 <= int(function.explain().split()[0]) <= 3, function.explain()


@pytest.mark.parametrize("body", [body for body in BODIES if body != "other_results"])
def test_by_default_it_is_an_error(body):
    with pytest.raises(jit.tracing.TraceError):
        rows(body, lambda function: jit.trace(function, symbolic=True))


def test_a_value_that_is_read_only_sometimes():
    def body(x, program):
        y = x + 1
        if program.turn:
            return y * y.sum().item()
        return y * 2

    program, x = Program(), mge.tensor(X)
    function = jit.trace(lambda x: body(x, program), on_mismatch="record")
    for turn in [0, 1, 0, 1, 1, 0]:
        program.turn = turn
        np.testing.assert_array_equal(function(x).numpy(), body(x, program).numpy())
    assert function.explain().startswith("2 versions")


def test_explain_says_why_and_how_many_there_may_be():
    program, x = Program(), mge.tensor(X)
    function = jit.trace(program.constant, on_mismatch="record")
    for program.turn in range(16):
        np.testing.assert_array_equal(function(x).numpy(), X * np.float32(2 + program.turn))
    assert function.explain().startswith("16 versions") and "recorded because a constant of op mul has another value" in function.explain()
    program.turn = 16
    with pytest.raises(jit.tracing.TraceError, match="16 versions were recorded already"):
        function(x)
    program.turn = 3
    np.testing.assert_array_equal(function(x).numpy(), X * np.float32(5))


def test_another_word_is_refused():
    with pytest.raises(ValueError, match="on_mismatch must be 'raise' or 'record', got 'eager'"):
        jit.trace(lambda x: x, on_mismatch="eager")


def take_then_backward(y, x, turn):
    gm = GradManager().attach([x])
    with gm:
        loss = (x * x).sum()
        if turn:
            gm.backward(loss)
    return y + loss


WAYS_TO_LEAVE = {
    "an attribute": lambda y, x, turn: y * (2.0 + turn),
    "an op": lambda y, x, turn: F.exp(x) if turn else F.tanh(x),
    "the end": lambda y, x, turn: y if turn else F.tanh(y),
    "more": lambda y, x, turn: F.tanh(y) if turn else y,
    "backward": take_then_backward,
}


@pytest.mark.parametrize("way", WAYS_TO_LEAVE)
@pytest.mark.parametrize("mode", MODES)
def test_a_call_leaves_its_record_behind_what_cannot_be_computed(mode, way):
    """By value, the ops before are computed when the call turns into a recording: their error is the call's, which crashed."""
    turn = 0

    def body(x, places):
        taken = x[places]
        return taken, WAYS_TO_LEAVE[way](taken, x, turn)

    f = jit.trace(body, on_mismatch="record", **MODES[mode])
    x, places, outside = mge.tensor(X), mge.tensor([0, 3, 1]), mge.tensor([0, 4, 1])
    f(x, places)
    turn = 1
    with pytest.raises(IndexError, match="out of range"):
        [value.numpy() for value in f(x, outside)]
    for _ in range(2):
        for got, expected in zip(f(x, places), body(x, places), strict=True):
            np.testing.assert_array_equal(got.numpy(), expected.numpy())


def test_a_state_of_another_dtype_is_read_behind_what_cannot_be_computed():
    state = mge.tensor(np.arange(4, dtype="int32"))

    @jit.trace
    def f(x, places):
        taken = x[places]
        state[...] = state * 0.5  # float32 from here on
        return taken

    x = mge.tensor(X)
    f(x, mge.tensor([0, 3, 1]))
    with pytest.raises(IndexError, match="out of range"):
        f(x, mge.tensor([0, 4, 1])).numpy()
    np.testing.assert_array_equal(f(x, mge.tensor([0, 3, 1])).numpy(), X[[0, 3, 1]])
