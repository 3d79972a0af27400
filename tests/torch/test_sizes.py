"""Batches whose sizes change: what forward computes of them, for itself, for its caller and for backward, is what torch computes."""

import math

import pytest
import torch
import torch.nn.functional as F

from megengine.torch_backend import backend

pytestmark = pytest.mark.filterwarnings("ignore:megjit leaves")

WEIGHT = torch.linspace(-1, 1, 4).reshape(1, 1, 4)


def scaled_by_sizes(x):
    return (x.tanh() * x.shape[0]).sum() / (x.numel() - x.shape[1])


def numbers_beside(x):
    n, t = x.shape[:2]
    return x.sin() * t, n * t - 3, n / t, -n, n // 2 > t, float(n), None


def windows(x):
    n, t = x.shape[0], x.shape[1] // 2 * 2
    return x[:, :t].reshape(n, t // 2, 2, 4).roll(1, 1).mean(2).exp()


def shuffled_pixels(x):
    n, t, c = x.shape
    return F.pad(x, (0, 0, 1, -1 - t % 2 + 2)).cumsum(1)[:, 1 : t + 1].contiguous().view(n * t, c).softmax(0)


def halves(x):
    first, second = x.split([x.shape[0] // 2, x.shape[0] - x.shape[0] // 2])
    return torch.cat([second.sin(), first.cos()]).flip(0)


def masked_by_length(x):
    t = x.shape[1]
    hidden = torch.arange(t)[None, :] >= torch.arange(t)[:, None]
    return (x @ x.transpose(1, 2)).masked_fill(hidden[:t, :t] == 0, -1e9).softmax(-1) @ x


def repeated(x):
    return x.repeat(2, 1, 1)[: x.shape[0] + 1].repeat_interleave(2, 0).relu()


def by_strides(x):
    return x.sin().as_strided((x.shape[0], x.shape[1] * 2), (x.shape[1] * 4, 2)).exp()


def interpolated(x):
    return F.interpolate(x.transpose(1, 2), size=2 * x.shape[1], mode="nearest").transpose(1, 2) * x.shape[1]


def largest_and_least(x):
    return x.flatten(1).sort(1)[0][:, max(0, x.shape[1] - 5) : min(9, 2 * x.shape[1])] * torch.sym_max(x.shape[0], 5)


def written_in_part(x):
    y = x.sin()
    y[:, : x.shape[1] // 2] *= 2
    y[-1] = 0
    return y.mean(0, keepdim=True)


FUNCTIONS = {
    "patches merged": lambda x: x.view(x.shape[0], x.shape[1] // 2, 2, 4).permute(0, 1, 3, 2).reshape(x.shape[0], -1, 8).sin(),
    "a class token": lambda x: torch.cat([WEIGHT.expand(x.shape[0], -1, -1), x], 1).tanh()[:, 1:].mean(1),
    "rows of a flat view": lambda x: F.gelu(x.reshape(-1, 4))[: x.shape[0]],
    "a loss of computed length": lambda x: F.log_softmax(x.reshape(-1, 4), 1)[: x.shape[0] * (x.shape[1] - 1)].sum(),
    "shifted tokens": lambda x: (x[:, 1:] * x[:, :-1]).reshape(-1).sin(),
    "topk of a size": lambda x: x.flatten().topk(x.shape[0])[0],
    "negative sizes": lambda x: x[:, -x.shape[1] // 2 :].reshape(-1, x.shape[0]).exp(),
    "var": lambda x: x.var((0, 1)) * x.shape[0] ** 0.5,
    **{each.__name__: each for each in (scaled_by_sizes, numbers_beside, windows, shuffled_pixels, halves, masked_by_length, repeated, by_strides, interpolated, largest_and_least, written_in_part)},
}
SHAPES = ((4, 6, 4), (6, 8, 4), (2, 10, 4), (4, 6, 4))
WAYS = {"dynamic": {"dynamic": True}, "on demand": {}, "each": {"dynamic": False}, "limit": {"dynamic": True, "options": {"memory_limit": "64MB"}}}


def results_of(function, x):
    """All results, and the gradient of what has one."""
    x = x.detach().requires_grad_()
    results = function(x)
    results = results if isinstance(results, tuple) else (results,)
    loss = sum(each.square().sum() for each in results if isinstance(each, torch.Tensor) and each.requires_grad)
    return [*(each.detach() if isinstance(each, torch.Tensor) else each for each in results), *torch.autograd.grad(loss, x)]


def assert_same(run, function, x):
    got, want = results_of(run, x), results_of(function, x)
    assert [type(each) for each in got] == [type(each) for each in want]
    for ours, theirs in zip(got, want, strict=True):
        if isinstance(theirs, torch.Tensor):
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
        else:
            assert ours == theirs


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_sizes_that_forward_computes(name, way):
    torch._dynamo.reset()
    run = torch.compile(FUNCTIONS[name], backend=backend, **WAYS[way])
    torch.manual_seed(0)
    for shape in SHAPES:
        assert_same(run, FUNCTIONS[name], torch.randn(shape))


# -- numbers that a program reads of a tensor, behind which another graph begins

NUMBERS = {
    "a factor": lambda x, n: x.tanh().mean() * n,
    "a factor whose product is viewed": lambda x, n: torch.tanh(x * n).view(2, -1).tanh().mean(),
    "two factors": lambda x, n: (torch.tanh(x * n) * (n + 1)).reshape(2, -1).tanh().mean(),
    "a float": lambda x, n: torch.tanh(x * float(n) * 0.5).reshape(-1).sum(),
    "an index": lambda x, n: torch.tanh(x[:n].reshape(-1) * 3).sum(),
    "an extent": lambda x, n: F.pad(x, (n, 1)).tanh().mean(),
    "a branch": lambda x, n: (x * 2 if n > 1 else x * 3).tanh().view(-1, 2).sum(),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.filterwarnings("ignore:Graph break")
def test_numbers_that_a_program_reads_of_a_tensor(name, way):
    torch._dynamo.reset()
    count = torch.tensor(2, dtype=torch.int32)

    def function(x):
        return NUMBERS[name](x, int(count))

    run = torch.compile(function, backend=backend, **WAYS[way])
    for number, shape in zip((2, 1, 3, 0, 2), (*SHAPES, SHAPES[0]), strict=True):
        count.fill_(number)
        assert_same(run, function, torch.randn(shape))


# -- views, which lie in the memory of what they show

VIEWS = {
    "half of an argument": lambda x: x.chunk(2, -1)[1],
    "rows in many places": lambda x: x.expand(2, *x.shape),
    "a part in many places": lambda x: x[1:, None, 1].expand(-1, x.shape[0], -1),
    "a column": lambda x: x.unbind(2)[3],
    "turned": lambda x: x.split([1, x.shape[1] - 1], 1)[1].transpose(0, 2),
    "a value and its half": lambda x: (lambda h: (h, h.chunk(2, -1)[1], h.transpose(0, 1)))(x * 2),
    "several of one argument": lambda x: (x.chunk(2, -1)[1], x.transpose(0, 1) + 1, x.view(-1)[2:]),
    "one row of all": lambda x: x.unbind(0)[-1],
    "rows of a value": lambda x: (lambda h: (h, *h.unbind(0)[:2], h.unbind(0)[-1].view(-1)))(x * 2),
    "parts of parts": lambda x: x.tensor_split(2)[1].chunk(2, -1)[0],
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", VIEWS)
def test_results_that_show_an_argument_or_another_result(name, way):
    torch._dynamo.reset()
    run = torch.compile(VIEWS[name], backend=backend, **WAYS[way])
    for shape in SHAPES:
        x = torch.randn(shape)
        assert_same(run, VIEWS[name], x)
        got, want = run(x), VIEWS[name](x)
        for ours, theirs in zip(got, want, strict=True) if isinstance(want, tuple) else [(got, want)]:
            torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("written", ["what they show", "a view"])
@pytest.mark.parametrize("takes_gradients", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", VIEWS)
def test_a_write_reaches_views_and_what_they_show(name, way, takes_gradients, written):
    """torch makes most views again, but takes those of unbind, split and calls without gradients as they are: they were copies."""

    def after_a_write(function, shape):
        x = torch.arange(math.prod(shape), dtype=torch.float32).reshape(shape).requires_grad_(takes_gradients)
        results = function(x)
        results = results if isinstance(results, tuple) else (results,)
        with torch.no_grad():
            target = results[-1] if written == "a view" else results[0] if len(results) > 1 else x
            if 0 not in target.stride():
                target.detach().mul_(3)
        return [each.detach() for each in (*results, x)]

    torch._dynamo.reset()
    run = torch.compile(VIEWS[name], backend=backend, **WAYS[way])
    for shape in SHAPES:
        torch.testing.assert_close(after_a_write(run, shape), after_a_write(VIEWS[name], shape))


# -- sizes that data decides


def experts(x):
    y = x @ WEIGHT[0].expand(4, 4)
    chosen = (y[:, 0] > 0).nonzero().squeeze(1)
    return torch.zeros_like(y).index_add(0, chosen, F.gelu(y.index_select(0, chosen)))


def chosen_rows(x):
    y = x.tanh()
    z = y[x.sum(1) > 0]
    return z.mean() + (z @ z.t()).sin().sum() * z.shape[0], z.shape[0]


def scattered(x):
    y = x.sin()
    return torch.where(y > 0, y, 0).masked_scatter(y > 0.5, y[y > 0.5] * 2)


def counted(x):
    values, counts = torch.unique((x * 3).long(), return_counts=True)
    return (values.float() * counts).sum() * x.cos().sum()


def assigned(x):
    y = x * 2
    y[x > 0] = x[x > 0] * 3
    y[y > 2] = 0
    return y.exp()


def read_number(x):
    n = int((x > 0).sum().item())
    torch._check(n >= 0)
    return torch.zeros(n, 3).sum() + x.exp() * n


def written_at_a_number(x):
    y = x * 2
    y[x[:, 0].argmax()] = 1
    y[:, x[0].argmin() - 4] = x[:, 1]
    return y.exp()


BY_DATA = {
    "masked_select": lambda x: torch.masked_select(x, x > 0).square().sum(),
    "repeat_interleave": lambda x: x.repeat_interleave((x[:, 0] > 0).long() + 1, 0).sin(),
    "item": lambda x: x / (x.abs().max().item() + 1),
    **{each.__name__: each for each in (experts, chosen_rows, scattered, counted, assigned, read_number, written_at_a_number)},
}


@pytest.mark.parametrize("name", BY_DATA)
def test_sizes_that_data_decides(name):
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True, capture_scalar_outputs=True):
        for way in ({"fullgraph": True}, {"dynamic": True}):
            torch._dynamo.reset()
            run = torch.compile(BY_DATA[name], backend=backend, **way)
            torch.manual_seed(0)
            for rows in (6, 9, 6):
                assert_same(run, BY_DATA[name], torch.randn(rows, 4))
