"""Features of the CPU's list on CUDA tensors: results, gradients and states are those of torch on the CPU."""

import copy
import warnings

import numpy as np
import pytest
import test_backend
import test_limit
import test_step
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from megengine.torch_backend import backend, step


@pytest.fixture(autouse=True)
def _nothing_is_left_to_torch():
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="megjit leaves")
        yield


def compare(net, x, rtol=1e-3, atol=1e-4, steps=3, dtype=None, **options):
    """Results, gradients and buffers are those of the CPU; the first gradient is given, for torch's loss would run kernels of torch's."""
    torch._dynamo.reset()
    ours = copy.deepcopy(net).cuda()
    run = torch.compile(ours, backend=backend, options={"fallback": False, **options})
    for _ in range(steps):
        net.zero_grad(), ours.zero_grad()
        with torch.autocast("cpu", dtype or torch.bfloat16, dtype is not None):
            want = net(x)
        with torch.autocast("cuda", dtype or torch.bfloat16, dtype is not None):
            got = run(x.cuda())
        assert got.dtype == want.dtype and got.device.type == "cuda" and got.stride() == want.stride()
        dy = torch.empty_like(want).normal_()  # in the same order of memory, and dtype: torch's kernels would convert it
        want.backward(dy), got.backward(dy.cuda())
        torch.testing.assert_close(got.cpu(), want, rtol=rtol, atol=atol)
        for (name, mine), theirs in zip(ours.named_parameters(), net.parameters(), strict=True):
            bound = atol + rtol * theirs.grad.abs().max().item()
            torch.testing.assert_close(mine.grad.cpu(), theirs.grad, rtol=rtol, atol=bound, msg=lambda text, name=name: f"{name}: {text}")
    for (name, mine), theirs in zip(ours.named_buffers(), net.buffers(), strict=True):
        torch.testing.assert_close(mine.cpu(), theirs, rtol=rtol, atol=atol, msg=lambda text, name=name: f"{name}: {text}")


MAKERS = ["mlp", "convolutions", "text", "causal", "masked", "masked_by_pairs", "permuted", "pooled"]


@pytest.mark.parametrize("name", MAKERS)
def test_networks(name):
    torch.manual_seed(0)
    net, x, _ = getattr(test_backend, name)()
    net(x)  # makes what is lazy
    compare(net, x)


class Recurrent(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.layer = kind(6, 8, batch_first=True)

    def forward(self, x):
        return self.layer(x)[0]


class Looked(nn.Module):
    """Indices, sorting, selection."""

    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(torch.randn(10, 6))

    def forward(self, words):
        rows = self.table[words]
        top, places = rows.topk(3, -1)
        return torch.cat([top, torch.where(rows > 0, rows, rows * 0.1), rows.gather(-1, places), rows.cumsum(0)], -1)


class Again(nn.Module):
    """Computed again in backward, with the masks of dropout that forward drew."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(16, 32), nn.Linear(32, 4)

    def forward(self, x):
        return self.last(checkpoint(lambda x: torch.tanh(self.first(x)).square(), x, use_reentrant=False))


MORE = {
    "embeddings and sums": lambda: (Looked(), torch.randint(0, 10, (5, 3))),
    "norms of groups and rows": lambda: (nn.Sequential(nn.Conv2d(4, 8, 3), nn.GroupNorm(2, 8), nn.InstanceNorm2d(8, affine=True), nn.Flatten(), nn.LayerNorm(128), nn.RMSNorm(128)), torch.randn(3, 4, 6, 6)),
    "upsampling": lambda: (nn.Sequential(nn.Conv2d(3, 4, 1), nn.Upsample(scale_factor=2, mode="bilinear")), torch.randn(2, 3, 5, 5)),
    "convolutions of one and three axes": lambda: (nn.Sequential(nn.Conv1d(4, 8, 3, padding=1), nn.SiLU(), nn.Unflatten(2, (2, 2, 2)), nn.Conv3d(8, 4, 2)), torch.randn(2, 4, 8)),
    "computed again": lambda: (Again(), torch.randn(8, 16)),
    "activations": lambda: (nn.Sequential(nn.Linear(6, 6), nn.Softplus(), nn.ELU(), nn.Hardswish(), nn.Mish(), nn.LogSoftmax(-1)), torch.randn(4, 6)),
}


@pytest.mark.parametrize("name", MORE)
def test_more_layers(name):
    torch.manual_seed(0)
    compare(*MORE[name]())


@pytest.mark.parametrize("order", [torch.contiguous_format, torch.channels_last])
def test_memory_in_torchs_orders(order):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 3), nn.Hardtanh())
    compare(net.to(memory_format=order), torch.rand(4, 3, 20, 20).to(memory_format=order))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast(dtype):
    torch.manual_seed(0)
    compare(nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 32)), torch.randn(16, 64), rtol=0.05, atol=0.05, dtype=dtype)


@pytest.mark.parametrize(("make", "rows"), [("deep", 128), ("blocks", 2)])
def test_limits(make, rows):
    """Of fewer rows than on the CPU: the emulated card takes its time."""
    torch.manual_seed(0)
    net, x = getattr(test_limit, make)()
    x = x[:rows].clone()
    torch._dynamo.reset()
    with pytest.raises(MemoryError, match="memory_limit") as refused:
        torch.compile(copy.deepcopy(net).cuda(), backend=backend, options={"memory_limit": "10KB", "fallback": False})(x.cuda())
    compare(net, x, memory_limit=refused.value.needed, steps=2)


def test_other_sizes():
    net, x = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 4)), torch.randn(64, 16)
    ours = copy.deepcopy(net).cuda()
    torch._dynamo.reset()
    run = torch.compile(ours, backend=backend, dynamic=True, options={"fallback": False})
    for rows in (8, 64, 3, 33, 8):
        want, got = net(x[:rows]), run(x[:rows].cuda())
        torch.testing.assert_close(got.cpu(), want, rtol=1e-3, atol=1e-4)
        net.zero_grad(), ours.zero_grad()
        want.backward(x[:rows, :4]), got.backward(x[:rows, :4].clone().cuda())
        torch.testing.assert_close(ours[0].weight.grad.cpu(), net[0].weight.grad, rtol=1e-3, atol=1e-3)


def test_integers_and_truths():
    torch._dynamo.reset()
    function = lambda x: ((x + 1) * 3, x.sum(), x // 7, x.float(), x.flip(0), x > 5)  # noqa: E731
    run = torch.compile(function, backend=backend, options={"fallback": False})
    for values in ([1, 2], [1 << 40, 7], [-(1 << 50), 0]):
        x = torch.tensor(values)
        for got, want in zip(run(x.cuda()), function(x), strict=True):
            assert torch.equal(got.cpu(), want) and got.dtype is want.dtype


@pytest.mark.parametrize("function", [lambda x: x.cumsum(0), lambda x: x.sort()[0], lambda x: x.topk(2)[1]])
def test_64_bits_without_a_kernel_are_left_to_torch_by_name(function):
    torch._dynamo.reset()
    with pytest.raises(Exception, match=r"aten\.\w+\.default.*64 bits, for which megjit has no such kernel on GPUs"):
        torch.compile(function, backend=backend, options={"fallback": False})(torch.arange(5).cuda())


@pytest.mark.parametrize("name", test_step.OPTIMIZERS)
def test_whole_steps(name):
    net, x, y = test_step.network()
    ours, make = copy.deepcopy(net).cuda(), test_step.OPTIMIZERS[name]
    torch_step = test_step.by_torch(net, make(net.parameters()))
    train = step(ours, nn.functional.cross_entropy, make(ours.parameters()))
    places = [each.data_ptr() for each in ours.parameters()]
    losses = [(train(x.cuda(), y.cuda()).item(), torch_step(x, y).item()) for _ in range(4)]
    np.testing.assert_allclose(*zip(*losses, strict=True), rtol=1e-3)
    for (key, value), mine in zip(net.state_dict().items(), ours.state_dict().values(), strict=True):
        torch.testing.assert_close(mine.cpu(), value, rtol=1e-3, atol=1e-3, msg=lambda text, key=key: f"{key}: {text}")
    assert places == [each.data_ptr() for each in ours.parameters()]


def test_a_whole_step_under_a_limit_by_autocast():
    net, x, y = test_step.network()
    ours = copy.deepcopy(net).cuda()
    torch_step = test_step.by_torch(net, torch.optim.SGD(net.parameters(), 0.05))
    train = step(ours, nn.functional.cross_entropy, torch.optim.SGD(ours.parameters(), 0.05), "2MB")  # the library takes 1 MiB beside a product and its sums
    for _ in range(3):
        with torch.autocast("cuda", torch.bfloat16):
            loss = train(x.cuda(), y.cuda())
        with torch.autocast("cpu", torch.bfloat16):
            want = torch_step(x, y)
        torch.testing.assert_close(loss.cpu(), want.detach(), rtol=0.02, atol=0.02)


def test_the_plain_loop_of_dropout_by_the_seed():
    net, x, dy = nn.Sequential(nn.Linear(8, 64), nn.Dropout(0.5), nn.Linear(64, 8)).cuda(), torch.randn(16, 8).cuda(), torch.randn(16, 8).cuda()
    torch._dynamo.reset()
    run = torch.compile(net, backend=backend, options={"fallback": False})

    def gradients(seed):
        torch.cuda.manual_seed(seed)
        net.zero_grad()
        run(x).backward(dy)
        return net[0].weight.grad.cpu()

    assert torch.equal(gradients(3), gradients(3)) and not torch.equal(gradients(3), gradients(4))


@pytest.mark.parametrize("kind", [nn.GRU, nn.LSTM])
def test_recurrent_layers(kind):
    """dynamo leaves them to torch, unless it is asked. The emulated card has no cuDNN for torch itself."""
    torch.manual_seed(0)
    with torch._dynamo.config.patch(allow_rnn=True), torch.backends.cudnn.flags(enabled=False):
        compare(Recurrent(kind), torch.randn(3, 5, 6))
