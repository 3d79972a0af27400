"""MEGJIT_CHECK: calls that skip the body are compared with the body, and are what they are without the check."""

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
import megengine.module as M
import megengine.optimizer as optim
from megengine import jit
from megengine.autodiff import GradManager


@pytest.fixture(autouse=True)
def checking(monkeypatch):
    monkeypatch.setenv("MEGJIT_CHECK", "1")


UNTIL = 2  # calls that are right


def cheats():
    """Bodies that do something else from a call on, as (name, body, what is told). Each is given ``asked``, which guards cannot see through."""
    return {
        "another constant": lambda x, asked: x * (2.0 if asked() else 3.0),
        "another op": lambda x, asked: F.exp(x) if asked() else F.sin(x),
        "one op more": lambda x, asked: x + 1 if asked() else x + 1 + 1,
        "other results": lambda x, asked: (x, x + 1) if asked() else (x,),
        "a number": lambda x, asked: (x, 1 if asked() else 2),
    }


class Opaque:
    """Its class says of itself that it is of a library which keeps no state, so that guards leave it alone."""

    __module__ = "megengine.functional"
    __slots__ = ("answers",)

    def __init__(self):
        self.answers = 0

    def __call__(self):
        self.answers += 1
        return self.answers <= UNTIL


def skipping(body, **options):
    return jit.trace(body, **{"symbolic": True, "without_host": True, **options})


@pytest.mark.parametrize("level", [0, 2, 3])
@pytest.mark.parametrize("name", cheats())
def test_a_body_that_does_something_else_is_found(name, level):
    body, asked = cheats()[name], Opaque()
    function = skipping(lambda x: body(x, asked), opt_level=level)
    x = mge.tensor([1.0, 2.0])
    function(x)  # is recorded
    function(x)  # skips, and the body agrees
    with pytest.raises(jit.tracing.TraceError, match="MEGJIT_CHECK: a call without the Python body does not do what the body does now") as found:
        function(x)
    text = str(found.value)
    assert len(text.splitlines()) <= 6
    if "op" in name or "constant" in name:
        assert "was recorded" in text and "test_checked_calls.py:" in text


def test_a_limit_is_the_call_s_and_not_its_check_s():
    states = [mge.tensor(np.full((256, 256), k, "float32")) for k in range(8)]

    def body(x):
        for state in states:
            state[...] = state * 0.5 + x
        return x.sum()

    limit = int(1.2 * 8 * 256 * 256 * 4)  # no room for the old ones beside the new ones
    step, x = skipping(body, memory_limit=limit), mge.tensor([1.0])
    for _ in range(4):
        step(x)
    np.testing.assert_array_equal(states[7].numpy(), np.full((256, 256), 7 / 16 + 1.875, "float32"))


def test_the_value_that_differs_and_the_line_are_told():
    asked = Opaque()

    def body(x):
        y = x + 1
        return y * (2.0 if asked() else 4.0)

    function, x = skipping(body), mge.tensor([1.0])
    function(x), function(x)
    with pytest.raises(jit.tracing.TraceError) as found:
        function(x)
    assert "result 0 is 4.0 at [0], and the body gives 8.0" in str(found.value)
    assert f"test_checked_calls.py:{body.__code__.co_firstlineno + 2} in body" in str(found.value)


def test_a_state_that_the_body_writes_otherwise_is_found():
    asked, state = Opaque(), mge.Parameter([0.0])

    def body(x):
        state[...] = state + (x if asked() else 2 * x)
        return x

    function, x = skipping(body), mge.tensor([1.0])
    function(x), function(x)
    with pytest.raises(jit.tracing.TraceError, match=r"the Parameter is 3.0 at \[0\], and the body gives 4.0"):
        function(x)
    assert state.item() == 3  # as after a call without the check


def test_a_state_that_the_body_leaves_alone_is_found():
    asked, state = Opaque(), mge.Parameter([0.0])

    def body(x):
        if asked():
            state[...] = state + x
        return x + 1

    function, x = skipping(body), mge.tensor([1.0])
    function(x), function(x)
    with pytest.raises(jit.tracing.TraceError, match=r"the Parameter is 3.0 at \[0\], and the body gives 2.0"):
        function(x)


def test_a_body_that_raises_is_found():
    asked = Opaque()

    def body(x):
        if not asked():
            raise KeyError("gone")
        return x + 1

    function, x = skipping(body), mge.tensor([1.0])
    function(x), function(x)
    with pytest.raises(jit.tracing.TraceError, match="the body raises KeyError: 'gone'"):
        function(x)


class Training:
    def __init__(self):
        mge.random.seed(11)
        self.net = M.Sequential(M.Linear(3, 8), M.BatchNorm1d(8), M.ReLU(), M.Dropout(0.3), M.Linear(8, 2))
        self.optimizer = optim.Adam(self.net.parameters(), lr=0.01)
        self.gm = GradManager().attach(self.net.parameters())

    def step(self, x):
        with self.gm:
            loss = (self.net(x) ** 2).mean() + mge.random.normal(size=(1,)).sum() * 0
            self.gm.backward(loss)
        self.optimizer.step().clear_grad()
        return loss

    def noisy(self, x):
        x += mge.random.uniform(size=(4, 3))
        self.optimizer.clear_grad()
        with self.gm:
            self.gm.backward((self.net(x) ** 2).mean())
        return x, self.net[0].weight


@pytest.mark.parametrize("method", ["step", "noisy"])
@pytest.mark.parametrize("level", [0, 2, 3])
@pytest.mark.parametrize("mode", [True, "auto"])
def test_checked_calls_leave_what_unchecked_ones_leave(monkeypatch, method, level, mode):
    def states(interval):
        monkeypatch.setenv("MEGJIT_CHECK", interval)
        training = Training()
        function = skipping(getattr(training, method), without_host=mode, opt_level=level)
        rows = []
        for number in range(6):
            result = function(mge.tensor(np.full((4, 3), number + 1, np.float32)))
            found = [*(result if isinstance(result, tuple) else (result,)), *training.net.state_dict().values()]
            grads = [param.grad for param in training.net.parameters() if param.grad is not None]
            rows.append([np.asarray(each).copy() for each in (*found, *grads, mge.random.uniform(size=(2,)))])
        return rows

    for got, wanted in zip(states("1"), states("0"), strict=True):
        for a, b in zip(got, wanted, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(("interval", "checked"), [("0", 0), ("", 0), ("1", 8), ("3", 3), ("yes", 8)])
def test_one_of_so_many_calls_is_compared(monkeypatch, interval, checked):
    monkeypatch.setenv("MEGJIT_CHECK", interval)
    calls = []

    def body(x):
        calls.append(1)
        return x * 2

    function = skipping(body)
    for _ in range(9):
        function(mge.tensor([1.0]))
    assert len(calls) == 1 + checked
