"""Gradients at kinks, and quotients of infinities, are torch's in what from_torch makes, traced and exported."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import megengine as mge
from megengine import fx
from megengine.autodiff import GradManager

INF = float("inf")
Z = [0.0, 0.0, 0.0]
PAIR = [1.0, 1.0, 0.0]


def row(x):
    return x.reshape(1, -1)


# name: (function, inputs)
KINKS = {
    "abs": (lambda x: x.abs(), Z), "torch.abs": (lambda x: torch.abs(x), Z), "the operator abs": (lambda x: abs(x), Z),
    "relu": (lambda x: F.relu(x), Z), "relu6": (lambda x: F.relu6(x), [0.0, 6.0]), "leaky_relu": (lambda x: F.leaky_relu(x, 0.1), Z),
    "prelu": (lambda x, w: F.prelu(x, w), Z, [0.25]), "elu": (lambda x: F.elu(x), Z), "celu": (lambda x: F.celu(x), Z), "selu": (lambda x: F.selu(x), Z),
    "hardtanh": (lambda x: F.hardtanh(x), [-1.0, 1.0, 0.0]), "threshold": (lambda x: F.threshold(x, 0.0, 0.0), Z),
    "hardshrink": (lambda x: F.hardshrink(x), [0.5, -0.5, 0.0]), "softshrink": (lambda x: F.softshrink(x), [0.5, -0.5, 0.0]), "softsign": (lambda x: F.softsign(x), Z),
    "l1_loss": (lambda a, b: F.l1_loss(a, b), Z, Z), "l1_loss, none": (lambda a, b: F.l1_loss(a, b, reduction="none"), Z, Z),
    "mse_loss": (lambda a, b: F.mse_loss(a, b), Z, Z), "smooth_l1_loss": (lambda a, b: F.smooth_l1_loss(a, b), [0.0, 1.0, -1.0], Z),
    "smooth_l1_loss, beta 0": (lambda a, b: F.smooth_l1_loss(a, b, beta=0.0), Z, Z), "huber_loss": (lambda a, b: F.huber_loss(a, b), [0.0, 1.0, -1.0], Z),
    "amax": (lambda x: x.amax(), PAIR), "amax along an axis": (lambda x: x.amax(0), PAIR), "amax along two": (lambda x: x.reshape(1, 3, 1).amax((0, 1)), PAIR),
    "amin": (lambda x: torch.amin(x, 0, True), [1.0, 1.0, 2.0]), "max": (lambda x: x.max(), PAIR), "min": (lambda x: x.min(), [1.0, 1.0, 2.0]),
    "max along an axis": (lambda x: x.max(0)[0], PAIR), "max, kept": (lambda x: row(x).max(1, keepdim=True)[0], PAIR), "min along an axis": (lambda x: torch.min(x, 0).values, [1.0, 1.0, 2.0]),
    "maximum": (lambda a, b: torch.maximum(a, b), Z, Z), "minimum": (lambda a, b: torch.minimum(a, b), Z, Z), "max of two": (lambda a, b: torch.max(a, b), Z, Z),
    "clamp": (lambda x: x.clamp(0, 1), [0.0, 1.0, 0.5, 2.0]), "clamp, min": (lambda x: x.clamp(min=0), Z), "clamp_min": (lambda x: x.clamp_min(0.0), Z),
    "clamp_max": (lambda x: x.clamp_max(0.0), Z), "a margin": (lambda a, b: torch.clamp(a - b + 0.0, min=0), Z, Z),
    "norm": (lambda x: x.norm(), Z), "norm of 1": (lambda x: x.norm(1), Z), "norm of 3": (lambda x: x.norm(3), Z), "norm of infinity": (lambda x: x.norm(INF), Z),
    "norm of infinity, equal ones": (lambda x: x.norm(INF), [1.0, -1.0, 0.0]), "norm of -infinity": (lambda x: x.norm(-INF), Z), "norm of 1/2": (lambda x: x.norm(0.5), [0.0, 1.0]),
    "norm of 0": (lambda x: x.norm(0), [0.0, 1.0]), "norm of -1": (lambda x: x.norm(-1), [0.0, 1.0]), "norm of 1.5": (lambda x: x.norm(1.5), [0.0, 1.0]),
    "norm along an axis": (lambda x: row(x).norm(dim=1), Z), "vector_norm": (lambda x: torch.linalg.vector_norm(x), Z), "squared norm": (lambda x: x.norm() ** 2, Z),
    "normalize": (lambda x: F.normalize(x, dim=0), Z), "normalize by 1": (lambda x: F.normalize(x, p=1, dim=0), Z), "cosine_similarity": (lambda a, b: F.cosine_similarity(a, b, dim=0), Z, Z),
    "std": (lambda x: x.std(), [2.0, 2.0]), "std, biased": (lambda x: x.std(unbiased=False), [2.0, 2.0]), "std along an axis": (lambda x: row(x).std(1), [2.0, 2.0]),
    "var": (lambda x: x.var(), [2.0, 2.0]), "atan2": (lambda a, b: torch.atan2(a, b), Z, Z), "sqrt": (lambda x: x.sqrt(), [0.0]),
    "fmod": (lambda x: torch.fmod(x, 2.0), [0.0, 2.0, -3.0]), "remainder": (lambda x: torch.remainder(x, 2.0), [0.0, 2.0, -3.0]), "the operator %": (lambda x: x % 2.0, [0.0, 2.0, -3.0]),
    "in place": (lambda x: x.mul(1).abs_().clamp_(min=0), Z), "prod": (lambda x: x.prod(), [0.0, 0.0, 1.0]), "logaddexp": (lambda a, b: torch.logaddexp(a, b), Z, Z),
}  # fmt: skip

QUOTIENTS = {
    "//": lambda a, b: a // b, "floor_divide": lambda a, b: torch.floor_divide(a, b), "div, floor": lambda a, b: torch.div(a, b, rounding_mode="floor"),
    "div, trunc": lambda a, b: torch.div(a, b, rounding_mode="trunc"), "%": lambda a, b: a % b, "fmod": lambda a, b: torch.fmod(a, b), "remainder": lambda a, b: torch.remainder(a, b),
    "//=": lambda a, b: a.mul(1).floor_divide_(b), "by a number": lambda a, b: a // 2, "of a number": lambda a, b: 7.0 // b,
}  # fmt: skip
NUMBERS = [0.0, -0.0, 1.0, -1.0, 2.0, -2.0, INF, -INF, float("nan"), 0.3, -7.5, 5.0]


def program(function):
    """A module, for symbolic tracing asks for the names of arguments."""
    wrappers = [lambda self, a: function(a), lambda self, a, b: function(a, b)]
    return type("Program", (torch.nn.Module,), {"forward": wrappers[function.__code__.co_argcount - 1]})()


def converted(function, inputs, is_exported):
    theirs = program(function)
    return fx.from_torch(torch.export.export(theirs, inputs) if is_exported else theirs)


def one(value):
    return value[0] if isinstance(value, (tuple, list)) else value


ways = pytest.mark.parametrize("is_exported", [False, True], ids=["traced", "exported"])


@ways
@pytest.mark.filterwarnings("ignore:backward. y depends on none")  # the norm of 0 counts
@pytest.mark.parametrize("name", KINKS)
def test_gradients_at_kinks_are_torchs(name, is_exported):
    function, *points = KINKS[name]
    theirs = [torch.tensor(point, requires_grad=True) for point in points]
    want = function(*theirs)
    want.sum().backward()
    net = converted(function, tuple(each.detach() for each in theirs), is_exported)
    ours = [mge.Tensor(np.float32(point)) for point in points]
    with GradManager().attach(ours) as gm:
        got = one(net(*ours))
        gm.backward(got.sum())
    np.testing.assert_allclose(got.numpy(), want.detach().numpy(), rtol=1e-5)
    for mine, other in zip(ours, theirs, strict=True):
        none = np.zeros(len(mine), np.float32)
        grads = [none if each is None else each.numpy() for each in (mine.grad, other.grad)]
        np.testing.assert_allclose(*grads, rtol=1e-5, atol=1e-6)


@ways
@pytest.mark.parametrize("name", QUOTIENTS)
def test_quotients_are_torchs(name, is_exported):
    function = QUOTIENTS[name]
    pairs = np.float32([(a, b) for a in NUMBERS for b in NUMBERS]).T
    integers = np.int32([[5, -5, 7, -7, 0, 2**24 + 1], [2, 2, -2, -2, 3, 1]])
    for a, b in (pairs, integers):
        given = torch.tensor(a), torch.tensor(b)
        want = function(*given).numpy()
        got = one(converted(function, given, is_exported)(mge.Tensor(a), mge.Tensor(b))).numpy()
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("name", ["//", "div, trunc", "%", "fmod"])
def test_quotients_of_the_backend_are_torchs(name):
    a, b = torch.tensor([(a, b) for a in NUMBERS for b in NUMBERS]).T
    compiled = torch.compile(QUOTIENTS[name], backend="megjit")
    np.testing.assert_array_equal(compiled(a, b).numpy(), QUOTIENTS[name](a, b).numpy())


def test_layers_have_them_too():
    net = torch.nn.Sequential(torch.nn.LeakyReLU(0.5), torch.nn.PReLU(3), torch.nn.Hardtanh())
    x, ours = torch.zeros((1, 3, 2), requires_grad=True), mge.Tensor(np.zeros((1, 3, 2), np.float32))
    net(x).sum().backward()
    with GradManager().attach([ours]) as gm:
        gm.backward(fx.from_torch(net)(ours).sum())
    np.testing.assert_allclose(ours.grad.numpy(), x.grad.numpy())
