"""A call that skips its body gives what the body would give: what that makes of host data is a value of the step, and a call is the same
only where all that the body read of its arguments, and of the process, is the same. Each row runs in eager mode and in the modes that skip."""

import functools
import logging

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
import megengine.module as M
import megengine.optimizer as optim
from megengine import Parameter, Tensor
from megengine.autodiff import GradManager
from megengine.core.tensor.dtype import qint8
from megengine.jit import TraceError, trace

pytestmark = [pytest.mark.filterwarnings("ignore:.* is recorded again in each call"), pytest.mark.filterwarnings("ignore:Tensor.set_value is deprecated")]

MODES = {
    "without host": {"without_host": True, "symbolic": True},
    "without host by value": {"without_host": True},
    "without host level 3": {"without_host": True, "opt_level": 3},
    "auto": {"without_host": "auto", "symbolic": True},
    "auto by value": {"without_host": "auto"},
}
CALLS = 5


def t(*values):
    return mge.tensor(np.array(values, np.float32))


def parts(value):
    """What can be told of it: class, dtype, name, array."""
    if isinstance(value, Tensor):
        return type(value).__name__, str(value.dtype), value.name, value.numpy().tolist()
    return [parts(item) for item in value] if isinstance(value, (list, tuple)) else value


def check(program, mode):
    """The program is a generator, given what wraps its functions."""
    expected = [parts(value) for value in program(lambda function: function)]
    assert [parts(value) for value in program(lambda function: trace(function, **MODES[mode]))] == expected


# ---- what the body makes of host data

HELD = {
    "a tensor": lambda: t(5, 6),
    "a parameter": lambda: Parameter(np.float32([5, 6])),
}
RESETS = {
    "by index": lambda w, value: w.__setitem__(..., np.full(2, value, "float32")),
    "by index from a list": lambda w, value: w.__setitem__(..., [value, value]),
    "by slice": lambda w, value: w.__setitem__(slice(None), np.full(2, value, "float32")),
    "by set_value": lambda w, value: w.set_value(np.full(2, value, "float32")),
    "by _reset": lambda w, value: w._reset(t(value, value)),
    "by init.fill_": lambda w, value: M.init.fill_(w, value),
    "by init.zeros_": lambda w, value: M.init.zeros_(w),
}
# What a body does with such a tensor; x is an argument.
USES = {
    "one value, then an update": lambda w, x, put: (put(w, 1.0), w.__setitem__(..., w + x), w * 2)[-1],
    "two values": lambda w, x, put: (put(w, 1.0), w * x, put(w, 3.0), w * x)[1::2],
    "read, then a value": lambda w, x, put: (w * x, put(w, 3.0))[0],
    "a value alone": lambda w, x, put: (put(w, 3.0), x * 2)[1],
    "steps from a value": lambda w, x, put: (put(w, 0.0), [w.__setitem__(..., F.tanh(w + x * k)) for k in (1, 2, 3)], w * 1)[-1],
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("reset", RESETS)
@pytest.mark.parametrize("held", HELD)
def test_a_state_is_set_to_host_data_in_each_call(held, reset, use, mode):
    def program(wrap):
        w = HELD[held]()
        f = wrap(lambda x: USES[use](w, x, RESETS[reset]))
        for call in range(CALLS):
            yield f(t(call)), w
            if call % 2:
                w[...] = w + 10

    check(program, mode)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("reset", RESETS)
def test_an_argument_is_set_to_host_data_in_each_call(reset, use, mode):
    def program(wrap):
        f = wrap(lambda w, x: USES[use](w, x, RESETS[reset]))
        for call in range(CALLS):
            w = t(call, 2)
            yield f(w, t(call)), w

    check(program, mode)


MADE = {
    "a tensor": lambda: t(1, 2),
    "of ones": lambda: F.ones(2),
    "a parameter": lambda: Parameter(np.float32([1, 2])),
    "a named tensor": lambda: mge.tensor(np.float32([1, 2]), name="made"),
    "a quantized tensor": lambda: t(1, 2).astype(qint8(0.5)),
    "of a class of the program": lambda: Marked(np.float32([1, 2])),
    "twice": lambda: [t(1, 2)] * 2,
    "two of one value": lambda: (t(1, 2), t(1, 2)),
    "with an attribute": lambda: with_attributes(t(1, 2), scale=2.0),
    "with a list": lambda: with_attributes(t(1, 2), seen=[1]),
    "with a tensor": lambda: with_attributes(t(1, 2), mask=t(3)),
}


class Marked(Tensor):
    scale = 2.0


class Slotted(Tensor):
    __slots__ = ("kept",)


def with_attributes(tensor, **attributes):
    for name, value in attributes.items():
        setattr(tensor, name, value)
    return tensor


def carried(value):
    """The attributes, too."""
    if isinstance(value, (list, tuple)):
        return [carried(item) for item in value]
    return parts(value), {name: parts(held) for name, held in vars(value).items() if not name.startswith("_")}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("made", MADE)
def test_a_result_of_host_data_is_made_anew(made, mode):
    """Whoever writes to it writes to that of one call."""

    def program(wrap):
        f = wrap(lambda x: (MADE[made](), x * 2))
        g = wrap(lambda a, b: (a.__setitem__(..., a + b), a * b)[1])
        seen = []
        for call in range(CALLS):
            result = f(t(call, 1))[0]
            yield carried(result)
            first = result[0] if isinstance(result, (list, tuple)) else result
            if type(first) is Tensor:
                seen.append(first)
                if call % 2:
                    first[0] = 9.0
                    yield carried(result)
        for a, b in zip(seen, seen[1:]):
            yield g(a, b), a, b

    check(program, mode)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "made",
    [lambda x: Parameter(x * 2), lambda x: x.astype(qint8(0.5)), lambda x: Marked(x + 1), lambda x: with_attributes(x * 2, scale=3.0)],
    ids=["a parameter", "a quantized tensor", "of a class of the program", "with an attribute"],
)
def test_a_computed_result_keeps_class_and_attributes(made, mode):
    def program(wrap):
        f = wrap(lambda x: made(x))
        for call in range(CALLS):
            yield carried(f(t(call, 1)))

    check(program, mode)


# ---- what the body reads of its arguments


def quantized(scale):
    return t(1, 2, 3).astype(qint8(scale))


def learned(value, grad):
    p = Parameter(np.float32([value]))
    p.grad = None if grad is None else t(grad)
    return p


# What the body does with an argument, and makers of arguments of one shape and dtype that it tells apart.
FACTS = {
    "its class": (lambda x: x * 2 if isinstance(x, Parameter) else x * 3, lambda: t(1), lambda: Parameter(np.float32([1]))),
    "an attribute of its class": (lambda x: x * getattr(x, "scale", 3.0), lambda: t(1), lambda: Marked(np.float32([1]))),
    "a slot of its class": (lambda x: x * x.kept, lambda: with_attributes(Slotted(np.float32([1])), kept=2.0), lambda: with_attributes(Slotted(np.float32([1])), kept=3.0)),
    "its name": (lambda x: x * 2 if x.name == "a" else x * 3, lambda: mge.tensor([1.0], name="a"), lambda: mge.tensor([1.0], name="b"), lambda: t(1)),
    "a private attribute": (lambda x: x * getattr(x, "_w", 1.0), lambda: t(1), lambda: with_attributes(t(1), _w=5.0), lambda: with_attributes(t(1), _w=7.0)),
    "a public attribute": (lambda x: x * getattr(x, "w", 1.0), lambda: t(1), lambda: with_attributes(t(1), w=5.0), lambda: with_attributes(t(1), w=7.0)),
    "a tensor that it carries": (lambda x: x * x.mask, lambda: with_attributes(t(1), mask=t(2)), lambda: with_attributes(t(1), mask=t(3))),
    "an array that it carries": (lambda x: x * Tensor(x.k), lambda: with_attributes(t(1), k=np.ones(1)), lambda: with_attributes(t(1), k=np.zeros(1))),
    "its scale": (lambda x: x.astype("float32") * 2, lambda: quantized(0.5), lambda: quantized(0.25)),
    "its dtype's text": (lambda x: x.astype("float32") * len(str(x.dtype)), lambda: quantized(0.5), lambda: quantized(0.25)),
    "its gradient": (lambda p: p - 0.1 * p.grad, lambda: learned(1, 2), lambda: learned(3, 4)),
    "whether it has a gradient": (lambda p: p * 2 if p.grad is None else p * 3, lambda: learned(1, None), lambda: learned(1, 2)),
    "its gradient by getattr": (lambda p: p * getattr(p, "gr" + "ad"), lambda: learned(1, 2), lambda: learned(3, 4)),
    "its gradient by a function": (lambda p: F.sum(gradient_of(p)) * p, lambda: learned(1, 2), lambda: learned(3, 4)),
    "its gradient by ours": (lambda p: (optim.clip_grad_value([p], 0, 1), p * p.grad)[1], lambda: learned(1, 2), lambda: learned(3, 0.5)),
    "its device": (lambda x: x * float(len(str(x.device))), lambda: t(1), lambda: t(1).to("cpu1")),
}
PLACED = {"alone": lambda x: (x,), "in a list": lambda x: ([x],), "in a dict": lambda x: ({"a": x},), "beside another": lambda x: (x, t(1))}


def gradient_of(p):
    return p.grad


def first_of(value):
    while isinstance(value, (list, dict)):
        value = value["a"] if isinstance(value, dict) else value[0]
    return value


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("placed", PLACED)
@pytest.mark.parametrize("fact", FACTS)
def test_a_call_is_the_same_only_where_all_is_that_the_body_reads_of_an_argument(fact, placed, mode):
    body, *makers = FACTS[fact]

    def program(wrap):
        f = wrap(lambda *values: body(first_of(values[0])))
        for maker in (*makers, *makers, *(maker for maker in makers for _ in range(3))):
            yield f(*PLACED[placed](maker()))

    check(program, mode)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("fact", [name for name in FACTS if "carries" in name or "attribute" in name or "name" in name])
def test_a_captured_tensor_is_seen_to_change(fact, mode):
    body, *makers = FACTS[fact]

    def program(wrap):
        w = makers[0]()
        f = wrap(lambda x: body(w) + x)
        for maker in (*makers, *makers):
            vars(w).update({"_name": None, **vars(maker())})
            for _ in range(3):
                yield f(t(1))

    check(program, mode)


# ---- constants of the record


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "change",
    [
        lambda net, opt: net.weight.__setitem__(..., net.weight * 2),
        lambda net, opt: setattr(net, "bias", Parameter(np.float32([7, 7]))),
        lambda net, opt: net.bias.set_value(np.float32([3, 3])),
        lambda net, opt: net.load_state_dict({name: value.numpy() + 1 for name, value in net.named_parameters()}),
        lambda net, opt: learn(net, opt),
    ],
    ids=["a write", "another parameter", "set_value", "a state dict", "a step of an optimizer"],
)
def test_weights_that_are_constants_are_seen_to_change(change, mode):
    mge.random.seed(1)
    net = M.Linear(2, 2)
    opt = optim.SGD(net.parameters(), lr=0.1)
    f, x = trace(lambda x: net(x), capture_as_const=True, **MODES[mode]), t(1, 2).reshape(1, 2)
    for _ in range(3):
        for _ in range(2):
            np.testing.assert_allclose(f(x).numpy(), net(x).numpy(), rtol=1e-6)
        change(net, opt)
    np.testing.assert_allclose(f(x).numpy(), net(x).numpy(), rtol=1e-6)


def learn(net, opt):
    with GradManager().attach(net.parameters()) as gm:
        gm.backward((net(t(1, 2).reshape(1, 2)) ** 2).sum())
    opt.step().clear_grad()


# ---- state of the process

LOGGER = logging.getLogger("test_skipped_bodies")
WITHOUT_A_NAME = mge.config
DEFAULT = [1.0]


@functools.lru_cache
def remembered():
    return DEFAULT[0]


def config_of(package):
    return package.config.deterministic_kernel


def imports():
    from megengine import config

    return config.deterministic_kernel


def imports_all():
    import megengine

    return megengine.config.deterministic_kernel


TRACED = []


def flip(holder, name):
    setattr(holder, name, not getattr(holder, name))


def on_handlers():
    LOGGER.addHandler(logging.NullHandler())


# What a body reads, and what changes it.
READS = {
    "a setting": (lambda: mge.config.deterministic_kernel, lambda: flip(mge.config, "deterministic_kernel")),
    "a setting of a module in a global": (lambda: WITHOUT_A_NAME.deterministic_kernel, lambda: flip(mge.config, "deterministic_kernel")),
    "a setting of a package that is handed on": (lambda: config_of(mge), lambda: flip(mge.config, "deterministic_kernel")),
    "a setting of an imported module": (imports, lambda: flip(mge.config, "deterministic_kernel")),
    "a setting of an imported package": (imports_all, lambda: flip(mge.config, "deterministic_kernel")),
    "a setting of dtr": (lambda: mge.dtr.evictee_minimum_size % 97, lambda: setattr(mge.dtr, "evictee_minimum_size", mge.dtr.evictee_minimum_size + 1)),
    "an option by its function": (lambda: mge.core.get_option("dtr_evictee_minimum_size") % 97, lambda: mge.core.set_option("dtr_evictee_minimum_size", mge.core.get_option("dtr_evictee_minimum_size") + 1)),
    "a logger's level": (lambda: LOGGER.level, lambda: LOGGER.setLevel(LOGGER.level + 1)),
    "a logger's handlers": (lambda: len(LOGGER.handlers), on_handlers),
    "whether a logger is off": (lambda: LOGGER.disabled, lambda: flip(LOGGER, "disabled")),
    "the level of a logger's parent": (lambda: LOGGER.parent.level, lambda: LOGGER.parent.setLevel(LOGGER.parent.level + 1)),
    "a logger by its name": (lambda: logging.getLogger("test_skipped_bodies").level, lambda: LOGGER.setLevel(LOGGER.level + 1)),
    "our logger": (lambda: mge.get_logger().level, lambda: mge.get_logger().setLevel(mge.get_logger().level + 1)),
    "what a function remembers": (remembered, lambda: (DEFAULT.append(DEFAULT.pop() + 1), remembered.cache_clear(), remembered())),
    "an attribute of the traced function": (lambda: TRACED[0].scale, lambda: setattr(TRACED[0], "scale", TRACED[0].scale + 1)),
    "the strategy of kernels": (
        lambda: len(F.debug_param.get_execution_strategy()),
        lambda: F.debug_param.set_execution_strategy("HEURISTIC" if F.debug_param.get_execution_strategy() != "HEURISTIC" else "PROFILE_REPRODUCIBLE"),
    ),
}


@pytest.fixture
def _restored():
    kept = [(mge.config, "deterministic_kernel"), (mge.dtr, "evictee_minimum_size"), (LOGGER, "disabled")]
    values = [getattr(*each) for each in kept]
    levels = [(logger, logger.level) for logger in (LOGGER, LOGGER.parent, mge.get_logger())]
    strategy = F.debug_param.get_execution_strategy()
    yield
    for (holder, name), value in zip(kept, values, strict=True):
        setattr(holder, name, value)
    for logger, level in levels:
        logger.setLevel(level)
    F.debug_param.set_execution_strategy(strategy)
    LOGGER.handlers.clear()
    TRACED.clear()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("read", READS)
def test_a_call_sees_state_of_the_process(read, mode, _restored):
    reads, change = READS[read]
    f = trace(lambda x: x * float(reads()), **MODES[mode])
    f.scale = 2.0
    TRACED.append(f)
    for _ in range(3):
        for _ in range(3):
            try:
                value = f(t(1)).item()
            except TraceError:  # a call that runs the body is compared with the record
                assert "auto" in mode
            else:
                assert value == float(reads())
        change()


def test_what_changes_nothing_costs_no_recording():
    """Arguments as a loop of training has them, whose gradients, names and classes the body does not read."""
    f = trace(lambda p: p * 2, without_host=True)
    for call in range(4):
        p = learned(call, call)
        assert f(p).item() == 2 * call
    assert f.explain().count("replay") and "3 replays" in f.explain()
