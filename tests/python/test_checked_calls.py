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


def test_a_gradient_that_the_body_makes_otherwise_is_found():
    asked, weight = Opaque(), mge.Parameter([3.0])

    def body(x):
        weight.grad = None
        with GradManager().attach([weight]) as gm:
            gm.backward((weight * (x if asked() else 2 * x)).sum())
        return x + 1

    function, x = skipping(body), mge.tensor([1.0])
    function(x), function(x)
    with pytest.raises(jit.tracing.TraceError, match=r"the gradient of the Parameter is 1.0 at \[0\], and the body gives 2.0"):
        function(x)


@pytest.mark.parametrize("first", ["rows", "dense"])
def test_a_gradient_of_rows_that_the_body_makes_otherwise_is_found(first):
    asked, table, places = Opaque(), mge.Parameter(np.ones((5, 2), "float32")), mge.tensor([1, 3])

    def body(x):
        table.grad = None
        sparse = asked() is (first == "rows")
        with GradManager().attach([table]) as gm:
            gm.backward((F.embedding(places, table, sparse=sparse) * x).sum())
        return x + 1

    function, x = skipping(body), mge.tensor([1.0])
    function(x), function(x)
    with pytest.raises(jit.tracing.TraceError, match="MEGJIT_CHECK: .*the gradient of the Parameter is "):
        function(x)


@pytest.mark.parametrize("level", [0, 3])
def test_an_index_out_of_range_is_the_same_error(level):
    state = mge.Parameter([0.0])

    def body(x, places):
        state[...] = state + 1
        return x[places] * 2

    function, x = skipping(body, opt_level=level), mge.tensor([1.0, 2.0])
    for last in (1, 5, 0, 7, 1):
        places = mge.tensor(np.array([0, last], "int32"))
        if last < 2:
            np.testing.assert_array_equal(function(x, places).numpy(), x.numpy()[[0, last]] * 2)
        else:
            with pytest.raises(IndexError, match=f"index {last} is out of range"):
                function(x, places).numpy()


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


def gradient(value, loss=lambda value: (value * value).sum()):
    with GradManager().attach([value]) as gm:
        gm.backward(loss(value))
    return value.grad


def gradient_of_gradient(x):
    value = mge.tensor(x)
    outer, inner = GradManager().attach([value]), GradManager().attach([value])
    with outer:
        with inner:
            inner.backward((value**3).sum())
        slope, value.grad = value.grad, None
        outer.backward((slope * slope).sum())
    return value.grad


def gradient_with_a_gradient(x):
    value = mge.tensor(x)
    return gradient(gradient(value)) + value


def written_and_then(x):
    value = mge.tensor(x)
    value[...] = value * 2
    value += 1
    return gradient(value)


# Bodies that give gradients to tensors that they make and let go.
OF_ITS_OWN_TENSORS = {
    "a copy": lambda x: gradient(mge.tensor(x)),
    "a parameter": lambda x: gradient(mge.Parameter(x)),
    "a result of an op": lambda x: gradient(x * 2),
    "a result that is detached": lambda x: gradient((x * 2).detach()),
    "several": lambda x: [gradient(mge.tensor(x)) for _ in range(3)],
    "one that is written": written_and_then,
    "of a gradient": gradient_of_gradient,
    "a gradient": gradient_with_a_gradient,
    "one that a scan reads": lambda x: gradient(mge.tensor(x), lambda w: F.scan(lambda c, _: (F.tanh(c * w), c), x, None, length=3)[0].sum()),
    "a module's": lambda x: gradient(M.Linear(3, 3).weight, lambda w: F.matmul(x, w).sum()),
    "rows of a table": lambda x: F.sum(gradient(mge.Parameter(x), lambda w: F.embedding(mge.tensor([1, 0, 1]), w).sum())),
}


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("level", [0, 3])
@pytest.mark.parametrize("name", OF_ITS_OWN_TENSORS)
def test_gradients_of_tensors_that_the_body_makes_are_no_effect(name, level, symbolic):
    function = skipping(OF_ITS_OWN_TENSORS[name], opt_level=level, symbolic=symbolic)
    rng = np.random.default_rng(3)
    for _ in range(4):
        function(mge.tensor(rng.normal(size=(3, 3)).astype("float32")))


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
