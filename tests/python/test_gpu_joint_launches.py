"""Launches of one kernel that a GPU runs as one: the updates of all parameters."""

import emulated
import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
from megengine import Parameter, jit
from megengine import optimizer as optim
from megengine.autodiff import GradManager

RULES = {
    "SGD": lambda p: optim.SGD(p, 0.1, weight_decay=0.01),
    "momentum": lambda p: optim.SGD(p, 0.1, momentum=0.9, nesterov=True),
    "Adam": lambda p: optim.Adam(p, 0.1),
    "AdamW": lambda p: optim.AdamW(p, 0.1, weight_decay=0.1),
    "AdamW8bit": lambda p: optim.AdamW8bit(p, 0.1, block_size=16, min_size=0),
    "Adagrad": lambda p: optim.Adagrad(p, 0.1, lr_decay=0.1),
    "Adadelta": lambda p: optim.Adadelta(p, 0.1),
    "LAMB": lambda p: optim.LAMB(p, 0.1, weight_decay=0.1),
    "LAMBFp16": lambda p: optim.LAMBFp16(p, 0.1, weight_decay=0.1),
    "Lion": lambda p: optim.Lion(p, 0.1),
    "RMSprop": lambda p: optim.RMSprop(p, 0.1, momentum=0.9),
}
# Of no element, of one, of odd numbers and of more than a block; several of a rank and of a shape.
SHAPES = [(0,), (1,), (3,), (1, 1), (5, 7), (1023,), (4, 256), (129, 9), (0, 4), (2, 3, 5), (40003,), (5, 7), (1,)]


def values(dtype="float32", shapes=SHAPES, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(shape).astype(dtype) for shape in shapes]


@pytest.fixture(params=["NVRTC", "MLIR", "HALIDE"])
def compiler(request, monkeypatch):
    if request.param not in {*mge._core.backends(), *(row[0] for row in mge._core.nvidia_libraries() if row[1])}:
        pytest.skip(f"there is no {request.param}")
    monkeypatch.setenv("MGB_JIT_BACKEND", request.param)
    monkeypatch.setenv("MEGJIT_COMPILE_BUDGET", "600")  # a busy machine
    mge._core.reload_debug()
    yield request.param
    monkeypatch.undo()
    mge._core.reload_debug()


def trained(rule, starts, steps=3, **options):
    """The parameters behind some steps, computed as a traced step with those options, or without any as the program says it."""
    parameters = [Parameter(start) for start in starts]
    update, gm = RULES[rule](parameters), GradManager().attach(parameters)

    def step(scale):
        with gm:
            loss = sum((p.astype("float32") * p.astype("float32") * scale).sum() for p in parameters)
            gm.backward(loss)
        update.step().clear_grad()
        return loss

    run = jit.trace(step, symbolic=True, opt_level=3, **options) if options else step
    for n in range(steps):
        run(mge.tensor(np.float32(0.5 + n)))
    return [p.numpy() for p in parameters]


def assert_same_bits(got, expected):
    for n, (a, b) in enumerate(zip(got, expected, strict=True)):
        assert a.dtype == b.dtype and a.tobytes() == b.tobytes(), f"parameter {n} of shape {a.shape}"


@pytest.mark.parametrize("rule", RULES)
def test_updates_have_the_bits_of_single_ops(rule):
    starts = values() if rule != "LAMBFp16" else values("float16")
    assert_same_bits(trained(rule, starts, numerics="exact"), trained(rule, starts))


def test_every_compiler_joins_them_without_another_bit(compiler):
    assert_same_bits(trained("Adam", values(), numerics="exact"), trained("Adam", values()))


def test_parameters_of_several_dtypes_are_updated_by_kernels_of_their_own():
    starts = values() + values("float16", seed=1) + values(seed=2)
    assert_same_bits(trained("momentum", starts, numerics="exact"), trained("momentum", starts))


def updates(count, size):
    """A traced step with one update of each of so many tensors."""
    parameters = [Parameter(np.full(size + n % 3, n, "float32")) for n in range(count)]

    @jit.trace(symbolic=True, opt_level=3)
    def step(rate):
        for p in parameters:
            p._reset(p - rate * F.exp(-p))

    return step, parameters


@pytest.mark.parametrize("count, launches", [(2, 1), (76, 1), (77, 2), (200, 3)])
def test_a_launch_has_as_many_as_its_parameters_take(count, launches):
    step, parameters = updates(count, 5)
    rate = mge.tensor(np.float32(0.5))
    step(rate)
    step.kernels()
    calls = emulated.calls()
    before = calls("cuLaunchKernel")
    step(rate)
    first = calls("cuLaunchKernel") - before
    expected = [np.full(5 + n % 3, n, "float32") for n in range(count)]
    for _ in range(2):
        expected = [p - np.float32(0.5) * np.exp(-p) for p in expected]
    for p, value in zip(parameters, expected, strict=True):
        np.testing.assert_allclose(p.numpy(), value, rtol=1e-5, atol=1e-6)
    assert first == launches


def test_a_table_follows_parameters_that_change_places():
    """A graph has the addresses of its first run until the operands of its kernels are changed."""
    step, parameters = updates(10, 700)
    rate = mge.tensor(np.float32(0.5))
    held, expected = [], [p.numpy() for p in parameters]
    for n in range(8):
        if n % 2:
            held.append([p.numpy() for p in parameters])
            for p in parameters:
                p._reset(mge.tensor(p.numpy() + np.float32(1)))
            expected = [p + np.float32(1) for p in expected]
        step(rate)
        expected = [p - np.float32(0.5) * np.exp(-p) for p in expected]
        for p, value in zip(parameters, expected, strict=True):
            np.testing.assert_allclose(p.numpy(), value, rtol=2e-5, atol=1e-5)


def test_sums_of_rows_join_too():
    tensors = [mge.tensor(value) for value in values(shapes=[(3, 50), (70, 50), (1, 50), (200, 51), (9, 40), (2, 50)])]

    @jit.trace(symbolic=True, opt_level=3)
    def norms(*tensors):
        return [F.sqrt((t * t).sum(axis=1)) for t in tensors]

    norms(*tensors)
    for norm, t in zip(norms(*tensors), tensors, strict=True):
        np.testing.assert_allclose(norm.numpy(), np.sqrt((t.numpy() ** 2).sum(axis=1)), rtol=1e-5)
    assert len(norms.kernels()) < len(tensors)
