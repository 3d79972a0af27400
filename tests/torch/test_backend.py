"""torch.compile(..., backend="megjit"): losses, gradients and weights are those of torch's eager mode."""

import gc
import warnings
import weakref

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from megengine.torch_backend import backend


class Text(nn.Module):
    def __init__(self, dropout=0.0):
        super().__init__()
        self.words, self.places = nn.Embedding(99, 32), nn.Embedding(16, 32)
        self.layer = nn.TransformerEncoderLayer(32, 4, 64, dropout, batch_first=True)
        self.head = nn.Linear(32, 99)

    def forward(self, x):
        return self.head(self.layer(self.words(x) + self.places(torch.arange(x.shape[1], device=x.device))))


class Causal(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out, self.norm = nn.Linear(32, 96), nn.Linear(32, 5), nn.LayerNorm(32)

    def forward(self, x):
        q, k, v = (part.unflatten(-1, (4, 8)).transpose(1, 2) for part in self.qkv(self.norm(x)).chunk(3, -1))
        return self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)).mean(1)


class Masked(Causal):
    def forward(self, x):
        q, k, v = (part.unflatten(-1, (4, 8)).transpose(1, 2) for part in self.qkv(self.norm(x)).chunk(3, -1))
        mask = (torch.arange(12, device=x.device) < 9)[None, None, None, :].expand(4, 1, 12, 12)
        return self.out(F.scaled_dot_product_attention(q, k, v, mask).transpose(1, 2).flatten(2)).mean(1)


class MaskedByPairs(Causal):
    """Attention whose mask has two axes; query 3 sees no key."""

    def forward(self, x):
        q, k, v = (part.unflatten(-1, (4, 8)).transpose(1, 2) for part in self.qkv(self.norm(x)).chunk(3, -1))
        mask = torch.ones(12, 12, dtype=torch.bool, device=x.device).tril() & (torch.arange(12, device=x.device) != 3)[:, None]
        return self.out(F.scaled_dot_product_attention(q, k, v, mask).transpose(1, 2).flatten(2)).mean(1)


class Permuted(nn.Module):
    """As ConvNeXt: the pooling's gradient is written by strides (as_strided_scatter)."""

    def __init__(self):
        super().__init__()
        self.first, self.norm, self.pool, self.head = nn.Conv2d(3, 8, 3), nn.LayerNorm(8), nn.AdaptiveAvgPool2d(1), nn.Linear(8, 10)

    def forward(self, x):
        x = self.norm(self.first(x).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        return self.head(self.pool(x).flatten(1))


def mlp():
    layers = nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64), nn.GELU(), nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 16), nn.Sigmoid(), nn.Linear(16, 10)
    return nn.Sequential(*layers), torch.rand(32, 64), torch.randint(0, 10, (32,))


def convolutions():
    layers = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 3, stride=2, groups=2), nn.SiLU(), nn.AvgPool2d(2)
    net = nn.Sequential(*layers, nn.ConvTranspose2d(16, 8, 2), nn.GroupNorm(2, 8), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10))
    return net, torch.rand(8, 3, 20, 20), torch.randint(0, 10, (8,))


def text():
    return Text(), torch.randint(0, 99, (4, 16)), torch.randint(0, 99, (4, 16))


def causal():
    return Causal(), torch.rand(4, 12, 32), torch.randint(0, 5, (4,))


def masked():
    return Masked(), *causal()[1:]


def masked_by_pairs():
    return MaskedByPairs(), *causal()[1:]


def pooled():
    layers = nn.Conv2d(3, 8, 3), nn.MaxPool2d(3, 2, 1, ceil_mode=True), nn.SiLU(), nn.AvgPool2d(3, 2, 1, ceil_mode=True)
    net = nn.Sequential(*layers, nn.AvgPool2d(2, 1, ceil_mode=True, count_include_pad=False), nn.Flatten(), nn.LazyLinear(10))
    return net, torch.rand(4, 3, 16, 16), torch.randint(0, 10, (4,))


def permuted():
    return Permuted(), torch.rand(4, 3, 8, 8), torch.randint(0, 10, (4,))


def train(make, steps=4, **options):
    """Losses, and weights and buffers after the last step."""
    torch.manual_seed(0)
    torch._dynamo.reset()
    net, x, y = make()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    run = torch.compile(net, backend=backend, **options) if options else net
    losses = []
    for _ in range(steps):
        out = run(x)
        loss = F.cross_entropy(out.reshape(-1, out.shape[-1]), y.reshape(-1))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses, {name: value.detach().clone() for name, value in net.state_dict().items()}


@pytest.fixture(autouse=True)
def _nothing_is_left_to_torch(request):
    with warnings.catch_warnings():
        if "left" not in request.node.name:
            warnings.filterwarnings("error", message="megjit leaves")
        yield


@pytest.mark.parametrize("make", [mlp, convolutions, text, causal, masked, masked_by_pairs, permuted, pooled], ids=lambda make: make.__name__)
def test_training_is_torchs(make):
    (want, weights), (got, ours) = train(make), train(make, options={"fallback": False})
    np.testing.assert_allclose(got, want, rtol=1e-5)
    for name, value in weights.items():
        torch.testing.assert_close(ours[name], value, rtol=1e-3, atol=1e-5)


def test_inference_and_other_sizes():
    torch._dynamo.reset()
    net = convolutions()[0].eval()
    run = torch.compile(net, backend=backend, options={"fallback": False})
    with torch.no_grad():
        for batch in (1, 3, 8, 3):
            x = torch.rand(batch, 3, 20, 20)
            torch.testing.assert_close(run(x), net(x), rtol=1e-4, atol=1e-5)
            x = x.to(memory_format=torch.channels_last)
            torch.testing.assert_close(run(x), net(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("order", [torch.contiguous_format, torch.channels_last])
def test_convolutions_cross_as_they_lie_and_results_have_torchs_strides(order):
    """Each copy into row-major order, and back, takes as long as a small convolution."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 3), nn.Hardtanh()).to(memory_format=order)
    x = torch.rand(4, 3, 20, 20).to(memory_format=order).requires_grad_()
    run, kept = torch.compile(net, backend=backend, options={"fallback": False}), []
    with torch.autograd.graph.saved_tensors_hooks(lambda value: kept.append(value) or value, lambda value: value):
        got = run(x)
    images = [value for value in kept if value.dim() == 4 and not any(value is each for each in (x, *net.parameters()))]
    assert len(images) >= 4 and all(value.is_contiguous(memory_format=torch.channels_last) for value in images if value.data_ptr() != got.data_ptr())
    gradients = torch.autograd.grad(got.square().sum(), [x, *net.parameters()])
    want = net(x)
    assert got.stride() == want.stride()
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
    for ours, theirs in zip(gradients, torch.autograd.grad(want.square().sum(), [x, *net.parameters()]), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4 * max(1, theirs.abs().max().item()))


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gradients_of_batch_norm(dtype, training, affine):
    torch._dynamo.reset()
    torch.manual_seed(0)
    net = nn.BatchNorm2d(5, affine=affine).train(training)
    net(torch.rand(8, 5, 3, 3))
    run = torch.compile(net, backend=backend, options={"fallback": False})
    x = torch.rand(8, 5, 6, 6).to(dtype).requires_grad_()
    wanted = [x, *net.parameters()]
    got, want = (torch.autograd.grad((each(x).float() ** 3).sum(), wanted) for each in (run, net))
    for ours, theirs in zip(got, want, strict=True):
        bound = 1e-4 if dtype is torch.float32 else 3e-2
        torch.testing.assert_close(ours, theirs, rtol=bound, atol=bound * theirs.abs().max().item())


def test_bfloat16_by_autocast():
    torch._dynamo.reset()
    net, x, _ = mlp()
    run = torch.compile(net, backend=backend, options={"fallback": False})
    with torch.autocast("cpu", torch.bfloat16):
        got, want = run(x), net(x)
    assert got.dtype is want.dtype is torch.bfloat16
    torch.testing.assert_close(got, want, rtol=0.05, atol=0.05)


def test_dropout_follows_torchs_seed():
    make = lambda: (Text(0.5), *text()[1:])  # noqa: E731
    one, other = (train(make, options={"fallback": False})[0] for _ in range(2))
    assert one == other != train(text, options={"fallback": False})[0]


def test_an_argument_that_is_a_result():
    torch._dynamo.reset()
    run = torch.compile(lambda x: (x, x * 2), backend=backend, options={"fallback": False})
    x = torch.rand(100)
    same, doubled = run(x)
    doubled.add_(1)  # a result is the caller's
    x.mul_(3)  # and so is an argument, between calls
    torch.testing.assert_close(run(x)[1], x * 2)
    assert same.data_ptr() == x.data_ptr()


def test_arguments_are_let_go_of():
    torch._dynamo.reset()
    run = torch.compile(lambda x: x.exp() + 1, backend=backend, options={"fallback": False})
    alive = []
    for _ in range(3):
        x = torch.rand(1000)
        alive.append(weakref.ref(x.untyped_storage()))
        run(x)
        del x
    run(torch.rand(1000))  # by now the owners of the others have gone
    gc.collect()
    assert [ref() for ref in alive] == [None] * 3


def test_a_result_whose_elements_share_memory():
    torch._dynamo.reset()
    run = torch.compile(lambda x: (x * 2)[None, :].expand(3, 4), backend=backend, options={"fallback": False})
    x = torch.rand(4)
    torch.testing.assert_close(run(x), (x * 2)[None, :].expand(3, 4))


def test_a_limit_is_kept_or_refused_before_anything_runs():
    def deep():
        return nn.Sequential(*(layer for _ in range(12) for layer in (nn.Linear(64, 64), nn.Tanh())), nn.Linear(64, 10)), torch.rand(4096, 64), torch.randint(0, 10, (4096,))

    want = train(deep)[0]
    np.testing.assert_allclose(train(deep, options={"memory_limit": "64MB", "fallback": False})[0], want, rtol=1e-5)
    with pytest.raises(MemoryError, match="memory_limit"):
        train(deep, options={"memory_limit": "1MB"})


def test_float64_is_computed_in_64_bits_or_left_to_torch():
    torch._dynamo.reset()
    x = torch.rand(10, 10, dtype=torch.float64)
    run = torch.compile(lambda x: x.sin() * 2 + x.mean(0).exp(), backend=backend, options={"fallback": False})
    torch.testing.assert_close(run(x), x.sin() * 2 + x.mean(0).exp(), rtol=1e-14, atol=0)
    run = torch.compile(lambda x: F.avg_pool1d(x @ x, 2).sin(), backend=backend)
    with pytest.warns(UserWarning, match="leaves operations to torch: aten.avg_pool.*, .*test_backend.py.* \\(float64, for which megjit has no such kernel"):
        torch.testing.assert_close(run(x), F.avg_pool1d(x @ x, 2).sin(), rtol=1e-13, atol=0)


def test_a_network_of_float64_trains_in_64_bits():
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.GELU(), nn.Conv2d(8, 8, 3, 2, groups=2), nn.GroupNorm(2, 8), nn.Flatten(2),
        nn.TransformerEncoderLayer(49, 7, 32, 0.0, batch_first=True), nn.LayerNorm(49), nn.Flatten(), nn.Linear(8 * 49, 5), nn.Softmax(-1),
    ).double()  # fmt: skip
    torch.manual_seed(0)
    x, found = torch.rand(4, 3, 16, 16, dtype=torch.float64), []
    for options in ({"fallback": False}, {"fallback": False, "memory_limit": "4MB"}, None):
        torch._dynamo.reset()
        run = net if options is None else torch.compile(net, backend=backend, options=options)
        y = run(x)
        found.append([y.detach(), *torch.autograd.grad(y.square().sum(), [*net.parameters()])])
    for got in found[:2]:
        torch.testing.assert_close(got, found[2], rtol=1e-10, atol=1e-14)


def test_an_unknown_operation_is_left_to_torch_or_refused():
    torch._dynamo.reset()
    x = torch.rand(4, 4) + torch.eye(4)
    run = torch.compile(lambda x: torch.linalg.eigvals(x).abs(), backend=backend)
    with pytest.warns(UserWarning, match="leaves operations to torch: aten.linalg_eig"):
        torch.testing.assert_close(run(x), torch.linalg.eigvals(x).abs())
    torch._dynamo.reset()
    strict = torch.compile(lambda x: torch.linalg.eigvals(x).abs(), backend=backend, options={"fallback": False})
    with pytest.raises(Exception, match="megjit cannot compile this graph"):
        strict(x)


def test_int64_is_computed_in_64_bits():
    torch._dynamo.reset()
    run = torch.compile(lambda x: ((x + 1) * 3, x.cumsum(0) * x, x.sum(), x // 7, x.float(), x.sort(descending=True)[1], x > 5), backend=backend, options={"fallback": False})
    for values in ([1, 2], [1 << 40, 7], [3, 4], [-(1 << 50), 0], [(1 << 53) + 1, -(1 << 62)]):
        x = torch.tensor(values)
        for got, want in zip(run(x), ((x + 1) * 3, x.cumsum(0) * x, x.sum(), x // 7, x.float(), x.sort(descending=True)[1], x > 5), strict=True):
            assert torch.equal(got, want) and got.dtype is want.dtype


def test_small_integers_and_truths_add_up_in_64_bits():
    torch._dynamo.reset()
    run = torch.compile(lambda x: (x.sum(), x.cumsum(0), x.prod()), backend=backend, options={"fallback": False})
    for x in (torch.full((10,), 200, dtype=torch.uint8), torch.full((10,), 1 << 30, dtype=torch.int32), torch.ones(10, dtype=torch.bool)):
        for got, want in zip(run(x), (x.sum(), x.cumsum(0), x.prod()), strict=True):
            assert torch.equal(got, want) and got.dtype is want.dtype


def test_results_of_one_call_are_not_those_of_the_next():
    torch._dynamo.reset()
    run = torch.compile(lambda x: (x * 2 + 1, x.t() + 1), backend=backend, options={"fallback": False})
    given = [torch.rand(4, 3) for _ in range(6)]
    results = [run(x) for x in given]
    assert all(torch.equal(a, x * 2 + 1) and torch.equal(b, x.t() + 1) and b.stride() == (1, 3) for x, (a, b) in zip(given, results, strict=True))
    every_second = torch.rand(4, 6)[:, ::2]
    turned = torch.rand(3, 4).t()
    assert torch.equal(run(every_second)[0], every_second * 2 + 1) and torch.equal(run(turned)[1], turned.t() + 1)


def test_parts_read_what_other_parts_made_in_any_order():
    torch._dynamo.reset()

    def function(x):
        y = x.t() + 1
        return torch.special.erfcx(y) * y

    x = torch.rand(4, 3)
    with pytest.warns(UserWarning, match="megjit leaves operations to torch: aten.special_erfcx"):
        got = torch.compile(function, backend=backend)(x)
    torch.testing.assert_close(got, function(x))
    assert got.stride() == function(x).stride()


def test_places_are_places():
    torch._dynamo.reset()
    run = torch.compile(lambda mask: (mask.cumsum(-1) - 1).clamp(min=0) * 2, backend=backend, options={"fallback": False})
    mask = torch.rand(4, 10) > 0.3
    assert torch.equal(run(mask), (mask.cumsum(-1) - 1).clamp(min=0) * 2)


class Between(nn.Module):
    """What megjit lacks, between what it has."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(8, 16), nn.Linear(16, 4)

    def forward(self, x):
        x = torch.special.erfcx(torch.tanh(self.first(x)))
        return self.last(torch.polygamma(2, x + 2) * x)


def between():
    return Between(), torch.rand(8, 8), torch.randint(0, 4, (8,))


def test_what_is_left_to_torch_is_an_operation_not_a_graph():
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        got, ours = train(between, options={"fallback": True})
    messages = [str(each.message) for each in seen if "megjit leaves" in str(each.message)]
    assert len(messages) == 2 and "erfcx" in messages[0] and "polygamma" in messages[0] and "addmm" not in messages[0]  # forward and backward
    want, weights = train(between)
    np.testing.assert_allclose(got, want, rtol=1e-5)
    for name, value in weights.items():
        torch.testing.assert_close(ours[name], value, rtol=1e-3, atol=1e-5)


def test_unknown_options_are_refused():
    torch._dynamo.reset()
    with pytest.raises(Exception, match="no option 'memory_limits'; it has fallback, memory_limit, numerics, opt_level"):
        torch.compile(lambda x: x + 1, backend=backend, options={"memory_limits": 1})(torch.ones(1))


def test_modes_are_torchs_words_and_have_no_effect(monkeypatch):
    monkeypatch.setattr("megengine.core._telling._told", set())
    net, x = nn.Linear(4, 4), torch.rand(2, 4)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for mode in ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"):
            torch._dynamo.reset()
            torch.testing.assert_close(torch.compile(net, backend=backend, mode=mode)(x), net(x))
    assert sum("mode has no effect" in str(each.message) for each in seen) == 1
    torch._dynamo.reset()
    with pytest.raises(Exception, match="megjit has no mode 'fastest'; torch.compile has default, reduce-overhead"):
        torch.compile(net, backend=backend, options={"mode": "fastest"})(x)


def test_it_is_found_by_name():
    from importlib.metadata import entry_points

    rows = [row for row in entry_points(group="torch_dynamo_backends") if row.name == "megjit"]
    assert not rows or rows[0].value == "megengine.torch_backend:backend"
