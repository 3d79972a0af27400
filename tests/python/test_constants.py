"""A constant lies nowhere until it is used: what is made of one meets the other tensors, wherever those lie by default."""

import copy
import pickle

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
from megengine.autodiff import Function, GradManager
from megengine.jit import trace

X = np.float32([1, 2, 4])
MODES = {
    "eager": None, "symbolic": {"symbolic": True}, "level 3": {"symbolic": True, "opt_level": 3},
    "by value": {"symbolic": False}, "without host": {"symbolic": True, "without_host": True},
}  # fmt: skip
PLACES = ["", "cpu0", "cpu1"]  # "": what the tests run on, a GPU in `pytest -m gpu`


def parameter_of(write):
    def made(c):
        x = mge.Parameter(np.zeros(c.shape if isinstance(c.shape, tuple) else c.shape.tolist(), np.float32))
        write(x, c.astype("float32"))
        return x

    return made


def added_in_place(c):
    y = mge.Tensor(c)
    y += 1
    return y


class Same(Function):
    def forward(self, x):
        return x

    def backward(self, dy):
        return dy


# each of 3 elements, or of 3 rows
MADE = {
    "arange": lambda x: F.arange(1, 4), "integers": lambda x: F.arange(1, 4, dtype="int32"), "int64": lambda x: F.arange(3, dtype="int64"),
    "bfloat16": lambda x: F.arange(3, dtype="bfloat16"), "eye": lambda x: F.eye(3), "linspace": lambda x: F.linspace(1, 3, 3),
    "linspace of a constant": lambda x: F.linspace(mge.Tensor(1.0, is_const=True), 3, 3), "full": lambda x: F.full((3,), 2.0), "zeros": lambda x: F.zeros(3),
    "is_const": lambda x: mge.Tensor(X, is_const=True), "fftfreq": lambda x: F.fft.fftfreq(3), "a mask": lambda x: F.arange(3) > 1,
    "the shape": lambda x: mge.Tensor(F.reshape(x, (1, 3, 1)).shape), "of the shape": lambda x: mge.Tensor(x.shape) + F.arange(3), "like": lambda x: F.ones_like(F.arange(3)),
    "meshgrid": lambda x: F.meshgrid(F.arange(3), F.arange(3))[0],
}  # fmt: skip
TAKEN = {
    "itself": lambda c: c, "Tensor": mge.Tensor, "tensor": mge.tensor, "Parameter": lambda c: mge.Parameter(c.astype("float32")),
    "device=": lambda c: mge.Tensor(c, device=c.device), "detach": lambda c: c.detach(), "+ 0": lambda c: c + 0, "[0]": lambda c: mge.Tensor(c)[0],
    "F.copy": F.copy, "to": lambda c: c.to(mge.get_default_device()), "reshape": lambda c: c.reshape(-1)[:3], "+=": added_in_place,
    "[...] =": parameter_of(lambda x, c: x.__setitem__(..., c)), "[1:] =": parameter_of(lambda x, c: x.__setitem__(slice(1, None), c[1:])),
    "_reset": parameter_of(lambda x, c: x._reset(c)), "Function": lambda c: Same()(c), "to_dense": lambda c: c.to_dense(), "to_mkldnn": lambda c: c.to_mkldnn(),
    "convert_inputs": lambda c: mge.core.convert_inputs(c, mge.Tensor(X))[0], "concat": lambda c: F.concat([c, c])[:3],
}  # fmt: skip
ON_THE_HOST = {  # what reads the value, which a traced body cannot
    "copy": copy.copy, "deepcopy": copy.deepcopy, "pickle": lambda c: pickle.loads(pickle.dumps(c)), "numpy": lambda c: mge.Tensor(c.numpy()),
}  # fmt: skip


@pytest.fixture(params=PLACES)
def place(request):
    before = mge.get_default_device()
    if request.param:
        mge.set_default_device(request.param)
    yield mge.get_default_device()
    mge.set_default_device(before)


def step_of(make, take):
    """(value, gradient) of a step that reads such a tensor."""
    w, gm = mge.Parameter(np.ones(3, np.float32)), GradManager()
    gm.attach(w)

    def step(x):
        w.grad = None
        with gm:
            y = (w * x * take(make(x))).sum()
            gm.backward(y)
        return y, w.grad

    return step


def numbers(results):
    assert {each.device for each in results} == {mge.Tensor(0.0).device}
    return [each.numpy().tolist() for each in results]


@pytest.mark.parametrize("made", MADE)
def test_what_is_made_of_a_constant_meets_the_others(made, place):
    for name, take in (TAKEN | ON_THE_HOST).items():
        wanted = None
        for mode, options in MODES.items():
            if options is not None and name in ON_THE_HOST:
                continue
            step = step_of(MADE[made], take)
            fn = step if options is None else trace(**options)(step)
            for _ in range(3):
                got = numbers(fn(mge.Tensor(X)))
                wanted = wanted or got
                np.testing.assert_allclose(got[0], wanted[0], rtol=1e-6, err_msg=f"{name}, {mode}")
                np.testing.assert_allclose(got[1], wanted[1], rtol=1e-6, err_msg=f"{name}, {mode}")


def test_a_constant_is_shown_where_new_tensors_go(place):
    new = mge.Tensor(0.0).device
    for constant in (F.arange(3), F.eye(2), F.linspace(0, 1, 2), F.fft.fftfreq(3), F.arange(2, dtype="bfloat16")):
        assert constant.device == mge.Tensor(constant).device == constant.detach().device == new


@pytest.mark.parametrize("other", ["cpu0", "cpu1"])
def test_a_constant_meets_what_lies_elsewhere(other):
    x = mge.Tensor(X, device=other)
    places = mge.Tensor([2, 0], device=other)
    for y in (x + F.arange(3), x + F.arange(3, dtype="bfloat16"), x * np.arange(3), F.matmul(F.eye(3), x), x[F.arange(2, dtype="int32")], x[F.arange(2, dtype="int64")], F.where(mge.Tensor([True, False, True], device="cpu0", is_const=True), x, x), F.concat([x, x])[places]):
        assert y.device == other
    x[...] = F.arange(3)
    assert x.device == other and x.numpy().tolist() == [0, 1, 2]


@pytest.mark.parametrize("mode", MODES)
def test_a_gradient_that_is_given_as_a_constant(mode):
    w, gm = mge.Parameter(X), GradManager()
    gm.attach(w)

    def step(x):
        w.grad = None
        with gm:
            y = w + x
            gm.backward(y, F.arange(3))
        return w.grad, w.grad + 1

    fn = step if MODES[mode] is None else trace(**MODES[mode])(step)
    for _ in range(3):
        assert numbers(fn(mge.Tensor(X))) == [[0, 1, 2], [1, 2, 3]]


@pytest.mark.parametrize("mode", MODES)
def test_a_constant_that_is_trained(mode):
    def trained(w, mode):
        gm = GradManager()
        gm.attach(w)

        def step(x):
            w.grad = None
            with gm:
                y = (w * w * x).sum()
                gm.backward(y)
            w[...] = w - 0.125 * w.grad
            return y

        fn = step if mode is None else trace(**mode)(step)
        return [fn(mge.Tensor(X)).item() for _ in range(4)] + w.tolist()

    wanted = trained(mge.Parameter(X), None)
    w = mge.Parameter(np.zeros(3, np.float32))
    w._reset(mge.Tensor(X, is_const=True))
    assert trained(w, MODES[mode]) == wanted
    assert trained(mge.Tensor(X, is_const=True), MODES[mode]) == wanted


@pytest.mark.parametrize("mode", MODES)
def test_loops_and_conditions_over_constants(mode):
    w, gm = mge.Parameter(X), GradManager()
    gm.attach(w)

    def step(x):
        w.grad = None
        with gm:
            last, rows = F.scan(lambda c, row: (c + row * w * x, c), F.arange(3), F.eye(3))
            chosen = F.cond(F.arange(1)[0] > -1, lambda: last * F.arange(3), lambda: last)
            gm.backward((chosen + rows.sum()).sum())
        return last, chosen, w.grad

    fn = step if MODES[mode] is None else trace(**MODES[mode])(step)
    for _ in range(3):
        last, chosen, grad = fn(mge.Tensor(X))
        assert {last.device, chosen.device, grad.device} == {mge.Tensor(0.0).device}
        np.testing.assert_array_equal(last.numpy(), [1, 5, 18])
        np.testing.assert_array_equal(chosen.numpy(), [0, 5, 36])
