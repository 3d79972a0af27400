"""``trace(without_host=True)`` of steps that keep, clip or accumulate gradients: followed from the third call on, and equal to eager mode,
whatever the program does to ``.grad`` between calls.
"""

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
import megengine.module as M
import megengine.optimizer as optim
from megengine.autodiff import GradManager
from megengine.jit import trace

CALLS = 7


class Program:
    """A small training program; ``events`` is what it shows."""

    def __init__(self):
        mge.random.seed(3)
        self.net = M.Sequential(M.Linear(4, 5), M.Sigmoid(), M.Linear(5, 2))
        self.params = list(self.net.parameters())
        self.opt = optim.SGD(self.params, lr=0.1, momentum=0.9)
        self.gm = GradManager().attach(self.params)

    def backward(self, x, y):
        self.gm.record()
        loss = F.nn.square_loss(self.net(x), y)
        self.gm.backward(loss)
        return loss

    def clips_norm(self, x, y):
        loss = self.backward(x, y)
        norm = optim.clip_grad_norm(self.params, 0.5)
        self.opt.step().clear_grad()
        return loss, norm

    def clips_value(self, x, y):
        loss = self.backward(x, y)
        optim.clip_grad_value(self.params, -0.05, 0.1)
        self.opt.step().clear_grad()
        return loss

    def keeps(self, x, y):
        self.opt.clear_grad()
        loss = self.backward(x, y)
        self.opt.step()
        return loss

    def keeps_clipped(self, x, y):
        self.opt.clear_grad()
        loss = self.backward(x, y)
        optim.clip_grad_norm(self.params, 0.5)
        self.opt.step()
        return loss

    def accumulates(self, x, y):
        return self.backward(x, y)

    def returns_them(self, x, y):
        self.opt.clear_grad()
        loss = self.backward(x, y)
        return [loss, self.params[0].grad, {"other": self.params[1].grad}]

    def zeroes(self, x, y):
        for param in self.params:
            if param.grad is not None:
                param.grad[...] = 0
        loss = self.backward(x, y)
        self.opt.step()
        return loss


def flat(value):
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [part for item in value for part in flat(item)]
    return [value.numpy().copy()]


def played(kind, is_traced, between):
    program = Program()
    step = getattr(program, kind)
    if is_traced:
        step = trace(step, without_host=True)
    rng = np.random.default_rng(5)
    events, replays = [], 0
    for call in range(CALLS):
        x = mge.Tensor(rng.normal(size=(3, 4)).astype("float32"))
        y = mge.Tensor(rng.normal(size=(3, 2)).astype("float32"))
        result = step(x, y)
        events += flat(result)
        between(program, events, call, result)
        events += [None if p.grad is None else p.grad.numpy() for p in program.params]
        events += [p.numpy() for p in program.params]
    if is_traced:
        replays = int(step.explain().split(" replays")[0].split()[-1])
    return events, replays


def nothing(program, events, call, result):
    pass


def clears(program, events, call, result):
    program.opt.clear_grad()


def clears_by_hand(program, events, call, result):
    if call % 2:
        for param in program.params:
            param.grad = None


def writes_in_place(program, events, call, result):
    for param in program.params:
        if param.grad is not None:
            param.grad[...] = call


def replaces(program, events, call, result):
    program.params[1].grad = mge.Tensor(np.full(program.params[1].shape, float(call), "float32"))


class Holds:
    """Gradients of an earlier call stay what they were."""

    def __init__(self):
        self.held = []

    def __call__(self, program, events, call, result):
        for grad, then in self.held:
            np.testing.assert_array_equal(grad.numpy(), then)
        self.held += [(p.grad, p.grad.numpy()) for p in program.params if p.grad is not None]


def same_object(program, events, call, result):
    if isinstance(result, list):
        events.append(np.array(result[1] is program.params[0].grad))
        result[1][...] = 0  # the parameter's


KINDS = ["clips_norm", "clips_value", "keeps", "keeps_clipped", "accumulates", "returns_them", "zeroes"]


@pytest.mark.parametrize("between", [nothing, clears, clears_by_hand, writes_in_place, replaces, Holds, same_object], ids=lambda f: f.__name__)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.filterwarnings("ignore:.*recorded again in each call")
def test_calls_without_the_body_leave_the_gradients_that_it_would(kind, between):
    if kind == "zeroes" and between is Holds:
        pytest.skip("the body writes into gradients that are held")
    expected, _ = played(kind, False, Holds() if between is Holds else between)
    got, replays = played(kind, True, Holds() if between is Holds else between)
    assert len(expected) == len(got)
    for a, b in zip(expected, got, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            np.testing.assert_allclose(b, a, rtol=2e-6, atol=1e-7)
    if between is nothing and kind != "zeroes":
        assert replays >= CALLS - 3


def test_the_gradient_of_an_argument_is_set_on_the_argument_at_hand():
    @trace(without_host=True)
    def forward(x):
        with GradManager().attach([x]) as gm:
            y = (x * x).sum()
            gm.backward(y)
        return y

    for call in range(5):
        x = mge.Tensor([1.0, 2.0 + call])
        forward(x)
        np.testing.assert_array_equal(x.grad.numpy(), [2.0, 4.0 + 2 * call])
        forward(x)  # accumulates
        np.testing.assert_array_equal(x.grad.numpy(), [4.0, 8.0 + 4 * call])
        x.grad = None
        forward(x)
        forward(mge.Tensor([5.0, 1.0]))
        np.testing.assert_array_equal(x.grad.numpy(), [2.0, 4.0 + 2 * call])
    for _ in range(5):
        forward(mge.Tensor([1.0, 2.0]))
    assert " 6 replays" in forward.explain()
