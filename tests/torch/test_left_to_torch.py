"""What megjit has no tensors or operations for is torch's, with torch's results and with a warning; its memory counts under a limit."""

import gc
import re
import warnings
import weakref

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.testing._internal.two_tensor import TwoTensor

from megengine.torch_backend import backend


class Cube(torch.autograd.Function):
    """Its gradient is not the right one, so that whoever derives it anew is found."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x * x

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return dy * x * 5


def sparse_product(x):
    return torch.sparse.mm(x.relu().to_sparse(), x.t()).sum() + x.exp().sum()


def sparse_argument(x):
    return torch.sparse.mm(torch.eye(8).to_sparse_csr(), x).exp()


def quantized(x):
    return torch.quantize_per_tensor(x.exp(), 0.05, 3, torch.qint8).dequantize() * 2


def complex_numbers(x):
    return torch.fft.rfft(x.exp()).abs().sum(-1) * 3


def own_gradient(x):
    return Cube.apply((x * 0.1).exp()).sin()


def hooked_tensor(x):
    y = x.exp()
    y.register_hook(lambda grad: grad * 2)
    return y.sin()


FUNCTIONS = [sparse_product, sparse_argument, quantized, complex_numbers, own_gradient, hooked_tensor]


def run(function, x):
    """The result, and the gradient."""
    x = x.detach().clone().requires_grad_()
    y = function(x)
    if y.requires_grad:
        y.square().mean().backward()
    return y.detach(), x.grad


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda each: each.__name__)
@pytest.mark.filterwarnings("ignore")
def test_results_and_gradients_are_torchs(function):
    torch._dynamo.reset()
    torch.manual_seed(0)
    x = torch.randn(8, 8)
    for got, want in zip(run(torch.compile(function, backend=backend), x), run(function, x), strict=True):
        if want is None:
            assert got is None
        else:
            torch.testing.assert_close(got, want)


def test_hooks_of_modules_run():
    torch._dynamo.reset()
    seen = []

    def make():
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))
        net[0].register_forward_hook(lambda module, given, result: result * 2)
        net[2].register_full_backward_hook(lambda module, given, got: seen.append(got[0].shape) or (given[0] * 3,))
        net[1].register_forward_pre_hook(lambda module, given: (given[0] + 1,))
        return net

    ours, theirs, x = make(), make(), torch.rand(4, 8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.compile(ours, backend=backend)(x).square().mean().backward()
    theirs(x).square().mean().backward()
    assert seen == [(4, 8)] * 2
    for got, want in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(got.grad, want.grad)


def test_tensors_of_a_class_of_their_own():
    torch._dynamo.reset()
    x = TwoTensor(torch.rand(4, 8), torch.rand(4, 8))
    got, want = (each(x) for each in (torch.compile(lambda x: (x * 2).exp().sum(0), backend=backend), lambda x: (x * 2).exp().sum(0)))
    assert type(got) is TwoTensor
    torch.testing.assert_close((got.a, got.b), (want.a, want.b))


def test_tensors_on_other_devices():
    torch._dynamo.reset()
    with pytest.warns(UserWarning, match=r"leaves operations to torch: aten.*test_left_to_torch.py.*megjit does not compute on meta"):
        got = torch.compile(lambda x: (x * 2).exp(), backend=backend)(torch.rand(4, 8, device="meta"))
    assert got.device.type == "meta" and got.shape == (4, 8)
    with pytest.raises(RuntimeError, match=r"megjit cannot compile this graph: aten.*megjit does not compute on meta"):
        torch.compile(lambda x: (x * 3).exp(), backend=backend, options={"fallback": False})(torch.rand(4, 8, device="meta"))

    def two(x, y):
        return x.exp(), y.exp()

    torch._dynamo.reset()
    x = torch.rand(4)
    with pytest.warns(UserWarning, match="megjit does not compute on meta"):
        got, other = torch.compile(two, backend=backend)(x, torch.rand(4, device="meta"))
    torch.testing.assert_close(got, x.exp())
    assert other.device.type == "meta"
    with pytest.raises(Exception, match="device"):  # as eager mode has it
        torch.compile(lambda x, y: x @ y, backend=backend)(torch.rand(4, 4), torch.rand(4, 4, device="meta"))


def test_a_limit_below_the_parameters_own_size():
    torch._dynamo.reset()
    net = nn.Linear(512, 512)
    with pytest.raises(MemoryError, match=r"(?s)at least \d+ bytes.*inputs, parameters and results take") as found:
        torch.compile(net, backend=backend, options={"memory_limit": "100KB"})(torch.rand(4, 512))
    assert int(re.search(r"at least (\d+)", str(found.value))[1]) >= 512 * 512 * 4


def test_a_refusal_keeps_nothing_of_its_caller():
    torch._dynamo.reset()
    refused = torch.compile(lambda x: (x * 2).exp().sum(), backend=backend, options={"memory_limit": "100KB"})

    def call():
        held = torch.rand(3)
        with pytest.raises(MemoryError):
            refused(torch.rand(512, 512, requires_grad=True))
        return weakref.ref(held)

    held = call()
    gc.collect()
    assert held() is None


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.filterwarnings("ignore:megjit leaves")
def test_what_they_take_counts_under_a_limit(training):
    def function(x):
        for _ in range(8):
            x = torch.special.i0e(x)  # in float64, whose digits our formula does not have
        return F.relu(x)

    torch._dynamo.reset()
    x = torch.rand(512, 512, dtype=torch.float64, requires_grad=training)
    refused = torch.compile(function, backend=backend, options={"memory_limit": "1500KB"})
    with pytest.raises(MemoryError, match=r"at least \d+ bytes") as found:
        refused(x)
    assert re.search(r"aten.special_i0e.default, File .*test_left_to_torch.py.* is left to torch", str(found.value))
    torch._dynamo.reset()
    got = torch.compile(function, backend=backend, options={"memory_limit": "64MB"})(x)
    torch.testing.assert_close(got, function(x))
