"""GradScaler in traced steps: parameters, states, scale and count have the bits of the eager step, with and without overflow, in every mode."""

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
import megengine.module as M
import megengine.optimizer as optim
from megengine import amp, jit
from megengine.autodiff import GradManager
from megengine.utils.comp_graph_tools import GraphInference

OPTIMIZERS = {
    "SGD": lambda params: optim.SGD(params, lr=0.1),
    "momentum": lambda params: optim.SGD(params, lr=0.1, momentum=0.9, weight_decay=0.1),
    "nesterov": lambda params: optim.SGD(params, lr=0.1, momentum=0.9, nesterov=True),
    "Adam": lambda params: optim.Adam(params, lr=0.1, weight_decay=0.1),
    "AdamW": lambda params: optim.AdamW(params, lr=0.1, weight_decay=0.1),
    "Adam8bit": lambda params: optim.Adam8bit(params, lr=0.1, block_size=16, min_size=0),
    "AdamW8bit": lambda params: optim.AdamW8bit(params, lr=0.1, block_size=16, min_size=0),
    "RMSprop": lambda params: optim.RMSprop(params, lr=0.1, momentum=0.9, centered=True),
    "Adagrad": lambda params: optim.Adagrad(params, lr=0.1),
    "Adadelta": lambda params: optim.Adadelta(params),
    "Adafactor": lambda params: optim.Adafactor(params),
    "LAMB": lambda params: optim.LAMB(params, lr=0.1),
    "LAMBFp16": lambda params: optim.LAMBFp16(params, lr=0.1),
    "Lion": lambda params: optim.Lion(params, lr=0.01, weight_decay=0.1),
}
# What the data of each step are multiplied by: two parts of the network, which overflow together or alone.
FACTORS = [(1, 1), (2, 1), (np.inf, np.inf), (1, 1), (1, np.nan), (1, 3), (1, 1), (np.inf, 1), (np.inf, 1), (1, 1)]
MODES = {
    "by value": {},
    "symbolic": {"symbolic": True},
    **{f"level {level}": {"symbolic": True, "opt_level": level} for level in (0, 1)},
    "level 3, exact": {"symbolic": True, "opt_level": 3, "numerics": "exact"},
    "skipped": {"symbolic": True, "without_host": True},
    "auto": {"without_host": "auto"},
    "limit": {"memory_limit": "1MB"},
    "for dump": {"symbolic": True, "capture_as_const": True},
}


class Training:
    """Two small networks with one loss. ``unscale`` says how the gradients are judged: all at once, or of each network for itself."""

    def __init__(self, make, unscale="with backward", clip=None, dtype="float32", **scaling):
        self.nets = [M.Sequential(M.Linear(3, 4), M.Tanh(), M.Linear(4, 2)) for _ in range(2)]
        random = np.random.RandomState(0)
        self.params = [param for net in self.nets for param in net.parameters()]
        for param in self.params:
            param[...] = mge.tensor(random.randn(*param.shape).astype(np.float32)).astype(dtype)
        self.optimizers = [make(self.params)] if unscale != "two optimizers" else [make([*net.parameters()]) for net in self.nets]
        self.gm = GradManager().attach(self.params)
        self.scaler = amp.GradScaler(**{"init_scale": 8.0, "growth_interval": 2, **scaling})
        self.unscale, self.clip = unscale, clip

    def step(self, x, y):
        gm, scaler = self.gm, self.scaler
        if self.unscale == "cleared first":
            for optimizer in self.optimizers:
                optimizer.clear_grad()
        for _ in range(2 if self.unscale == "accumulated" else 1):
            with gm:
                a, b = (net(data) for net, data in zip(self.nets, (x, y), strict=True))
                loss = (a**2).mean() + (b**2).mean()
                scaler.backward(gm, loss, unscale_grad=self.unscale in ("with backward", "two optimizers", "cleared first"))
        if self.unscale == "accumulated":
            scaler.unscale(self.params).update()
        elif self.unscale == "each":
            for net in self.nets:
                scaler.unscale(net.parameters())
            scaler.update()
        if self.clip:
            self.clip(self.params)
        for optimizer in self.optimizers:
            optimizer.step()
        if self.unscale != "cleared first":
            for optimizer in self.optimizers:
                optimizer.clear_grad()
        return loss

    def state(self):
        states = [value for optimizer in self.optimizers for param in self.params for value in optimizer._state.get(param, {}).values()]
        return [*(each.numpy().copy() for each in (*self.params, *states)), np.float32(self.scaler.scale_factor), self.scaler._growth_tracker]

    def run(self, wrap=lambda step: step, factors=FACTORS):
        random = np.random.RandomState(1)
        data = [random.randn(5, 3).astype(np.float32) for _ in range(2)]
        step, states = wrap(self.step), []
        for pair in factors:
            with np.errstate(invalid="ignore"):
                step(*(mge.tensor(each * np.float32(factor)) for each, factor in zip(data, pair, strict=True)))
            states.append(self.state())
        return states


def expect_same(got, wanted):
    for step, (a, b) in enumerate(zip(got, wanted, strict=True)):
        for number, (x, y) in enumerate(zip(a, b, strict=True)):
            np.testing.assert_array_equal(x, y, err_msg=f"step {step}, value {number}")


def expect_as_eager(mode, **training):
    expect_same(Training(**training).run(lambda step: jit.trace(step, **MODES[mode])), Training(**training).run())


@pytest.mark.parametrize("mode", ["symbolic", "skipped"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_each_optimizer_skips_the_steps_that_it_skips_in_eager_mode(name, mode):
    expect_as_eager(mode, make=OPTIMIZERS[name])


def test_the_table_has_each_optimizer():
    known = {type(make([mge.Parameter([1.0])])).__name__ for make in OPTIMIZERS.values()}
    assert known == {name for name in optim.__all__ if isinstance(getattr(optim, name), type) and issubclass(getattr(optim, name), optim.Optimizer)} - {"Optimizer"}


UNSCALES = ("with backward", "accumulated", "each", "two optimizers", "cleared first")
ROWS = [(unscale, mode) for unscale in UNSCALES for mode in MODES]


@pytest.mark.parametrize(("unscale", "mode"), ROWS)
def test_each_mode_has_the_bits_of_the_eager_step(unscale, mode):
    expect_as_eager(mode, make=OPTIMIZERS["Adam"], unscale=unscale)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "clip", [lambda params: optim.clip_grad_norm(params, 0.5), lambda params: optim.clip_grad_value(params, -0.1, 0.1)], ids=["norm", "value"]
)
def test_clipping_between_unscale_and_step(clip, mode):
    expect_as_eager(mode, make=OPTIMIZERS["momentum"], unscale="each", clip=clip)


@pytest.mark.parametrize("mode", ["symbolic", "skipped", "level 3, exact"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_overflow_of_halves_finds_the_scale(dtype, mode):
    """No data are infinite here: products in float16 overflow because the scale is too large, until it has shrunk."""
    training = {"make": OPTIMIZERS["SGD"], "dtype": dtype, "init_scale": 2.0**20, "growth_interval": 3}
    eager, traced = Training(**training), Training(**training)
    wanted = eager.run(amp.autocast(), [(1, 1)] * 12)
    expect_same(traced.run(lambda step: jit.trace(amp.autocast()(step), **MODES[mode]), [(1, 1)] * 12), wanted)
    scales = [state[-2] for state in wanted]
    assert min(scales) < 2.0**16 and any(after > before for before, after in zip(scales, scales[1:], strict=False))


@pytest.mark.parametrize("scaling", [{"growth_interval": 0}, {"growth_factor": 1.7, "backoff_factor": 0.3, "init_scale": 3.3}], ids=["fixed", "odd"])
@pytest.mark.parametrize("mode", ["symbolic", "skipped"])
def test_settings_of_the_scale(scaling, mode):
    expect_as_eager(mode, make=OPTIMIZERS["SGD"], **scaling)


@pytest.mark.parametrize("mode", ["by value", "symbolic", "skipped"])
def test_eager_and_traced_steps_take_turns(mode):
    mixed, plain = Training(OPTIMIZERS["Adam"]), Training(OPTIMIZERS["Adam"])

    def in_turn(step):
        traced, count = jit.trace(step, **MODES[mode]), iter(range(100))
        return lambda *data: (step if next(count) % 3 == 1 else traced)(*data)

    expect_same(mixed.run(in_turn), plain.run())


@pytest.mark.parametrize("mode", ["by value", "symbolic", "skipped"])
def test_a_step_outside_of_the_trace_that_has_unscaled(mode):
    def program(wrap):
        training = Training(OPTIMIZERS["momentum"])
        backward = wrap(lambda x, y: scaled_backward(training, x, y))

        def step(x, y):
            backward(x, y)
            training.optimizers[0].step().clear_grad()

        return training.run(lambda _: step)

    expect_same(program(lambda function: jit.trace(function, **MODES[mode])), program(lambda function: function))


def scaled_backward(training, x, y):
    with training.gm:
        a, b = (net(data) for net, data in zip(training.nets, (x, y), strict=True))
        training.scaler.backward(training.gm, (a**2).mean() + (b**2).mean())


@pytest.mark.parametrize("mode", ["symbolic", "skipped"])
def test_what_the_host_does_to_the_scaler_counts_in_the_next_call(mode):
    def program(wrap):
        training = Training(OPTIMIZERS["SGD"], growth_interval=3)
        step, states = wrap(training.step), []
        for number in range(9):
            step(*(mge.tensor(np.full((5, 3), value, np.float32)) for value in (0.5, 0.1)))
            if number == 2:
                training.scaler.scale_factor = 64.0
            if number == 4:
                training.scaler.update(new_scale=2.0)
            if number == 5:
                training.scaler.load_state_dict({**training.scaler.state_dict(), "scale_factor": 32.0, "_growth_tracker": 2})
            states.append(training.state())
        return states

    expect_same(program(lambda step: jit.trace(step, **MODES[mode])), program(lambda step: step))


class Lazy(optim.Optimizer):
    """An optimizer that a program defines: it writes in place, and makes its state in the first step that it takes."""

    def __init__(self, params):
        super().__init__(params, {"lr": 0.1})

    def _updates(self, param_group):
        for param in param_group["params"]:
            if param.grad is not None:
                if "before" not in self._state.get(param, {}):
                    self._add_state(param, "before", param.numpy() * 0 + 3 if not jit.tracing.is_tracing() else np.full(param._tuple_shape, 3, np.float32))
                self._state[param]["before"][...] = self._state[param]["before"] * 0.5 + param.grad
                param -= self._state[param]["before"] * param_group["lr"]


@pytest.mark.parametrize("first", [1, np.inf])
def test_an_optimizer_of_a_program_with_a_state_made_in_the_step(first):
    factors = [(first, first), *FACTORS]
    got, wanted = Training(Lazy).run(lambda step: jit.trace(step, symbolic=True), factors), Training(Lazy).run(factors=factors)
    for step, (a, b) in enumerate(zip(got, wanted, strict=True)):
        for x, y in zip(a[:8], b[:8], strict=True):
            np.testing.assert_array_equal(x, y, err_msg=f"step {step}")


def test_a_skipped_body_stays_skipped():
    training = Training(OPTIMIZERS["Adam"])
    calls = []

    def body(x, y):
        calls.append(1)
        return training.step(x, y)

    traced = jit.trace(body, symbolic=True, without_host=True)
    training.run(lambda _: traced)
    assert len(calls) <= 2 and training.scaler.scale_factor < 8, traced.explain()


def test_a_dumped_step_decides_as_the_traced_one(tmp_path):
    training, plain = Training(OPTIMIZERS["Adam"]), Training(OPTIMIZERS["Adam"])
    traced = jit.trace(lambda x, y: training.step(x, y), symbolic=True, capture_as_const=True)
    random = np.random.RandomState(1)
    data = [random.randn(5, 3).astype(np.float32) for _ in range(2)]
    traced(*map(mge.tensor, data))
    traced.dump(str(tmp_path / "step.mge"), arg_names=["x", "y"])
    loaded = GraphInference(str(tmp_path / "step.mge"))
    plain.step(*map(mge.tensor, data))
    for pair in FACTORS:
        now = [each * np.float32(factor) for each, factor in zip(data, pair, strict=True)]
        (loss,) = loaded.run(inp_dict=dict(zip("xy", now, strict=True))).values()
        np.testing.assert_array_equal(loss, plain.step(*map(mge.tensor, now)).numpy())


def test_gradients_that_overflow_are_zeros_behind_a_traced_call_and_their_norm_is_0():
    param, scaler = mge.Parameter([1.0, 2.0]), amp.GradScaler()
    gm = GradManager().attach(param)

    @jit.trace(symbolic=True)
    def step(x):
        with gm:
            scaler.backward(gm, (param * x).sum())
        return optim.clip_grad_norm([param], 1.0)

    assert step(mge.tensor([np.inf, 1.0])).item() == 0 and param.grad.tolist() == [0, 0]


def test_reading_the_scale_in_a_symbolic_step_behind_its_update_says_so():
    training = Training(OPTIMIZERS["SGD"])

    @jit.trace(symbolic=True)
    def step(x, y):
        loss = training.step(x, y)
        return loss * training.scaler.scale_factor

    with pytest.raises(ValueError, match="is read inside a function traced with symbolic=True"):
        step(F.ones((5, 3)), F.ones((5, 3)))
