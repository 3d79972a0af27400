"""memory_limit: what crosses from forward to backward is chosen so that both keep it, or it is refused before anything runs."""

import gc
import re

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from megengine.device import get_allocated_memory, get_max_allocated_memory, reset_max_memory_stats
from megengine.torch_backend import _pair, backend

pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute")  # torch's own, where a graph breaks


class Deep(nn.Module):
    """breaks: the graph, in the middle."""

    def __init__(self, breaks=False):
        super().__init__()
        self.layers, self.norm, self.breaks = nn.ModuleList(nn.Linear(64, 64) for _ in range(12)), nn.BatchNorm1d(64), breaks

    def forward(self, x):
        x = self.through(self.layers[:6], self.norm(x))
        if self.breaks:
            torch._dynamo.graph_break()
        return self.through(self.layers[6:], x)

    def through(self, layers, x):
        for layer in layers:
            x = x + torch.tanh(layer(x))
        return x


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.qkv, self.out, self.up, self.down = nn.LayerNorm(32), nn.Linear(32, 96), nn.Linear(32, 32), nn.Linear(32, 128), nn.Linear(128, 32)

    def forward(self, x):
        q, k, v = (part.unflatten(-1, (2, 16)).transpose(1, 2) for part in self.qkv(self.norm(x)).chunk(3, -1))
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(x)))


def gated():
    layers = (layer for _ in range(6) for layer in (nn.Linear(64, 96, bias=False), nn.SiLU(), nn.Linear(96, 64, bias=False), nn.RMSNorm(64)))
    return nn.Sequential(*layers)


def deep():
    return Deep(), torch.rand(4096, 64)


def blocks():
    return nn.Sequential(*(Block() for _ in range(6))), torch.rand(8, 64, 32)


def images():
    layers = (layer for _ in range(4) for layer in (nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU()))
    return nn.Sequential(*layers, nn.MaxPool2d(2), nn.Flatten()), torch.rand(8, 8, 32, 32)


def short():
    return nn.Sequential(*(layer for _ in range(3) for layer in (nn.Linear(64, 64), nn.BatchNorm1d(64), nn.Tanh()))), torch.rand(2048, 64)


def grads(make, limit=None, steps=1):
    """The loss, gradients, and the largest growth of our memory in a call after the first."""
    torch.manual_seed(0)
    torch._dynamo.reset()
    net, x = make()
    run = net if limit is None else torch.compile(net, backend=backend, options={"memory_limit": limit, "fallback": False})
    for number in range(steps):
        net.zero_grad()
        if number:
            gc.collect()
            reset_max_memory_stats("cpux")
            before = get_allocated_memory("cpux")
        loss = run(x).square().mean()
        loss.backward()
    return [loss.detach(), *(each.grad for each in net.parameters())], get_max_allocated_memory("cpux") - before if steps > 1 else 0


def least_limit(make):
    """As an error names it; and it is refused before anything has run."""
    torch._dynamo.reset()
    net, x = make()
    buffers = {name: value.clone() for name, value in net.named_buffers()}
    with pytest.raises(MemoryError, match=r"(?s)at least \d+ bytes .*(test_limit.py:\d+ in (through|forward|least_limit)|aten)") as found:
        torch.compile(net, backend=backend, options={"memory_limit": 1 << 20})(x)
    assert all(torch.equal(value, buffers[name]) for name, value in net.named_buffers())
    return int(str(found.value).partition("at least ")[2].partition(" ")[0])


@pytest.mark.parametrize("make", [deep, blocks, images], ids=lambda make: make.__name__)
def test_gradients_are_those_of_eager_mode_down_to_the_least_limit(make):
    want, _ = grads(make)
    least = least_limit(make)
    for limit in (1 << 30, 3 * least // 2, least):
        got, growth = grads(make, limit, steps=3)
        assert growth <= limit
        for ours, theirs in zip(got, want, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-5 * max(1, theirs.abs().max().item()))
    with pytest.raises(MemoryError):
        grads(make, int(0.97 * least))


def test_dropout_keeps_what_it_has_drawn():
    def make():
        return nn.Sequential(*(layer for _ in range(8) for layer in (nn.Linear(64, 64), nn.Dropout(0.5), nn.Tanh()))), torch.rand(2048, 64)

    want, _ = grads(make, "1GB")
    got, _ = grads(make, least_limit(make))
    for ours, theirs in zip(got, want, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("dynamic", [None, True])
def test_a_batch_norm_may_run_for_its_running_statistics_alone(dynamic):
    torch._dynamo.reset()
    ours, theirs, x = nn.BatchNorm1d(4), nn.BatchNorm1d(4), torch.rand(3, 4)

    def seen(norm):
        weight = torch.ones(4, requires_grad=True)

        def loss(x):
            norm(x)
            return (weight * x).mean()

        run = loss if norm is theirs else torch.compile(loss, backend=backend, dynamic=dynamic, options={"memory_limit": "1MB"})
        run(x).backward()
        return weight.grad, *norm.buffers()

    for mine, each in zip(seen(ours), seen(theirs), strict=True):
        torch.testing.assert_close(mine, each)


def test_pairs_that_live_together_are_added_up():
    whole = lambda: (Deep(breaks=True), torch.rand(4096, 64))  # noqa: E731
    want, _ = grads(whole)
    for limit in (24, 8):  # in 8 MB the first must leave room for the second, and what one gives the other counts once
        got, growth = grads(whole, f"{limit}MB", steps=3)
        assert growth <= limit << 20
        for ours, theirs in zip(got, want, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-5)
        gc.collect()
    torch._dynamo.reset()
    net, x = whole()
    run = torch.compile(net, backend=backend, options={"memory_limit": "6MB"})
    with pytest.raises(MemoryError, match="at least [0-9]+ bytes") as found:
        run(x)
    found.value.__traceback__ = None  # which holds what the first graph keeps


def test_sizes_that_change_are_planned_before_anything_of_them_runs():
    gc.collect()
    torch._dynamo.reset()
    torch.manual_seed(0)
    net, limit = Deep(), 9 << 20
    run = torch.compile(net, backend=backend, dynamic=True, options={"memory_limit": limit, "fallback": False})
    for number, rows in enumerate((1000, 4096, 2048, 2048, 100000, 512, 4096)):
        x, buffers = torch.rand(rows, 64), {name: value.clone() for name, value in net.named_buffers()}
        gc.collect()
        reset_max_memory_stats("cpux")
        before = get_allocated_memory("cpux")
        net.zero_grad()
        with torch._dynamo.config.patch(error_on_recompile=number > 0):
            if rows == 100000:
                with pytest.raises(MemoryError, match=r"at least \d+ bytes"):
                    run(x)
                assert all(torch.equal(value, buffers[name]) for name, value in net.named_buffers())
                continue
            run(x).square().mean().backward()
        assert get_max_allocated_memory("cpux") - before <= limit
        got = [each.grad for each in net.parameters()]
        net.zero_grad()
        net.load_state_dict(buffers, strict=False)
        net(x).square().mean().backward()
        for ours, each in zip(got, net.parameters(), strict=True):
            torch.testing.assert_close(ours, each.grad, rtol=1e-3, atol=1e-5)
    gc.collect()
    assert not _pair._held


def test_other_orders_of_axes_are_in_the_plan_and_copies_of_other_strides_count():
    x = torch.rand(64, 256, 128)
    orders = {"row-major": x, "turned": x.permute(2, 0, 1), "every second": torch.rand(64, 256, 256)[..., ::2]}
    least = {}
    for name, value in orders.items():
        torch._dynamo.reset()
        run = torch.compile(lambda x: torch.tanh(x) * 2, backend=backend, options={"memory_limit": 1 << 10, "fallback": False})
        with pytest.raises(MemoryError, match="at least") as found:
            run(value)
        assert ("copies" in str(found.value)) == (name == "every second")
        least[name] = int(re.findall(r"at least (\d+) bytes|which makes (\d+)", str(found.value))[-1][name == "every second"])
        torch._dynamo.reset()
        run = torch.compile(lambda x: torch.tanh(x) * 2, backend=backend, options={"memory_limit": least[name] + 1024, "fallback": False})
        got = run(value)
        torch.testing.assert_close(got, torch.tanh(value) * 2)
        assert got.stride() == torch.tanh(value).stride()
    assert least["turned"] <= least["row-major"] + 4 * x.numel()  # its result is turned back
    assert least["every second"] == least["row-major"] + 4 * x.numel()


def test_nothing_is_counted_for_ever():
    gc.collect()
    grads(deep, "64MB", steps=2)
    torch._dynamo.reset()
    gc.collect()
    assert not _pair._held


def test_what_only_cycles_hold_does_not_count_where_a_cut_is_chosen():
    least = least_limit(short)
    gc.collect()
    gc.disable()
    try:
        torch._dynamo.reset()
        net, x = short()
        cycle = [torch.compile(net, backend=backend, options={"memory_limit": "1GB"})(x).sum()]
        cycle.append(cycle)
        del cycle
        assert _pair._held
        assert least_limit(short) == least
    finally:
        gc.enable()


def test_what_is_refused_beside_others_runs_when_they_are_gone():
    want, least = grads(short)[0], least_limit(short)
    torch._dynamo.reset()
    torch.manual_seed(0)
    net, x = short()
    other = torch.compile(short()[0], backend=backend, options={"memory_limit": "1GB"})(x).sum()
    run = torch.compile(net, backend=backend, options={"memory_limit": least, "fallback": False})
    for _ in range(2):
        with pytest.raises(MemoryError, match="other graphs of the program keep [0-9]+ bytes") as found:
            run(x)
        found.value.__traceback__ = None
    other.backward()
    del other, found
    for _ in range(2):
        net.zero_grad()
        loss = run(x).square().mean()
        loss.backward()
        for ours, theirs in zip([loss, *(each.grad for each in net.parameters())], want, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-5)


def test_what_is_kept_lies_in_row_major_order_and_once():
    torch._dynamo.reset()
    weight, x, kept = torch.rand(96, 64, requires_grad=True), torch.rand(4096, 64), []

    def function(x):
        y = torch.tanh(x @ weight.t())
        return (y.t() @ y).square().mean() + y.unflatten(0, (8, -1)).transpose(1, 2).exp().mean()

    with torch.autograd.graph.saved_tensors_hooks(lambda each: kept.append(each) or each, lambda each: each):
        loss = torch.compile(function, backend=backend, options={"fallback": False})(x)
    assert sum(each.numel() >= 4096 * 96 for each in kept) <= 2  # y and its exponentials
    assert all(each.is_contiguous() for each in kept)
    torch.testing.assert_close(torch.autograd.grad(loss, weight), torch.autograd.grad(function(x), weight), rtol=1e-4, atol=1e-5)


def test_parameters_cross_as_they_are_and_no_views_of_them():
    gc.collect()
    least = 5_800_000
    for part in (1, 2, 2.5, 4):  # nothing is kept, what a plan or torch chooses, all
        torch._dynamo.reset()
        net, x, kept = gated(), torch.rand(4, 512, 64), []
        run = torch.compile(net, backend=backend, options={"memory_limit": int(part * least), "fallback": False})
        with torch.autograd.graph.saved_tensors_hooks(lambda each: kept.append(each) or each, lambda each: each):
            run(x).square().mean().backward()
        own = {each.data_ptr() for each in net.parameters()}
        assert not [each.shape for each in kept if each.data_ptr() not in own and each.shape in ((64, 96), (96, 64))]


WRITES = {
    "a column": lambda state, p: state[:, 1].copy_(p[:, 2].detach()),
    "all": lambda state, p: state.copy_(p.detach().sin()),
    "a product": lambda state, p: state.mul_(2),
    "a view": lambda state, p: state.view(-1)[3:7].add_(1),
    "twice": lambda state, p: (state[0].zero_(), state[1:].add_(p[1:].detach())),
}


@pytest.mark.parametrize("write", WRITES)
def test_backward_does_not_compute_again_from_what_the_program_has_changed(write):
    """The caller writes the new value over the argument when forward has run: what is made of it crosses, at each limit."""

    def results(wrap, limit):
        torch.manual_seed(0)
        p, y, state = torch.randn(16, 16, requires_grad=True), torch.randn(16, requires_grad=True), torch.randn(16, 16)
        x = torch.randn(3, 2, 16, requires_grad=True)

        def f(x, y):
            WRITES[write](state, p)
            return torch.tanh(state.t() @ p.T * y), x.cumsum(1) / 2

        a, b = wrap(f, limit)(x, y)
        (a.sum() + b.square().sum()).backward()
        return [a, b, state, p.grad, y.grad, x.grad]

    def compiled(f, limit):
        torch._dynamo.reset()
        return torch.compile(f, backend=backend, fullgraph=True, options={"memory_limit": limit, "fallback": False})

    want, limit, refused = results(lambda f, _: f, None), 1, 0
    for _ in range(4):
        try:
            results(compiled, limit)
            break
        except MemoryError as error:
            limit, refused = max(int(each) for each in re.findall(r"(?:at least|limit to) (\d+)", str(error))), refused + 1
    assert refused
    for each in (limit, int(limit * 1.1), int(limit * 1.3), int(limit * 1.6), 10**9):
        for ours, theirs in zip(results(compiled, each), want, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_what_a_plan_finds_to_lack_takes_no_memory():
    """A clamp of bytes is left to torch as the plan meets it; the operations before it are not run."""

    def f(x, small):
        a = torch.softmax(x @ x.T, -1) @ x
        return torch.clip(small, -3, 9), a.mean()

    torch._dynamo.reset()
    x = torch.randn(256, 8, requires_grad=True)
    run = torch.compile(f, backend=backend, fullgraph=True, options={"memory_limit": "8MB"})
    before, _ = get_allocated_memory("cpux"), reset_max_memory_stats("cpux")
    with pytest.warns(UserWarning, match="leaves operations to torch"):
        run(x, torch.ones(4, dtype=torch.uint8))[1].backward()
    assert get_max_allocated_memory("cpux") - before <= 4 * 256 * 256 * 4
