"""Programs that are drawn, against torch itself: forward, gradients and buffers, in batches of changing sizes, training and evaluation in turns.

A failure names its seed; PROGRAMS says how many are drawn.
"""

import os
import random

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from megengine.torch_backend import backend

pytestmark = pytest.mark.filterwarnings("ignore:megjit leaves", "ignore:dynamo_pgo", "ignore:.*requires_grad=True. Gradients will be None")

WIDTH = 8
PROGRAMS = int(os.environ.get("PROGRAMS", "8"))


class Attention(nn.Module):
    def __init__(self, draw):
        super().__init__()
        self.qkv, self.is_causal = nn.Linear(WIDTH, 3 * WIDTH), draw.random() < 0.5

    def forward(self, x):
        q, k, v = (part.unflatten(-1, (2, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        return F.scaled_dot_product_attention(q, k, v, is_causal=self.is_causal).transpose(1, 2).flatten(2)


class Places(nn.Module):
    def __init__(self, draw):
        super().__init__()
        self.table, self.step = nn.Embedding(16, WIDTH), draw.choice([1, 3])

    def forward(self, x):
        return x + self.table(torch.arange(x.shape[1]) * self.step % 16)


class ClassToken(nn.Module):
    def __init__(self, draw):
        super().__init__()
        self.token, self.goes = nn.Parameter(torch.rand(1, 1, WIDTH)), draw.random() < 0.5

    def forward(self, x):
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1).tanh()
        return x[:, 1:] * x[:, :1] if self.goes else x


class Normalized(nn.Module):
    def __init__(self, draw):
        super().__init__()
        self.norm = draw.choice([nn.BatchNorm1d(WIDTH), nn.GroupNorm(2, WIDTH), nn.InstanceNorm1d(WIDTH, affine=True)])

    def forward(self, x):
        return self.norm(x.transpose(1, 2)).transpose(1, 2)


class Recomputed(nn.Module):
    def __init__(self, draw):
        super().__init__()
        self.inner, self.reentrant = nn.Sequential(*(chosen(draw) for _ in range(2))), draw.random() < 0.5

    def forward(self, x):
        return checkpoint(self.inner, x, use_reentrant=self.reentrant)


class Simple(nn.Module):
    def __init__(self, draw):
        super().__init__()
        self.name = draw.choice(list(SIMPLE))

    def forward(self, x):
        return SIMPLE[self.name](x)


def by_size(x):
    return x * x.shape[1] / (x.numel() - x.shape[0] + 1) + x


def merged(x):
    t = x.shape[1] // 2 * 2
    return x[:, :t].reshape(x.shape[0], t // 2, 2, -1).permute(0, 1, 3, 2).flatten(2)[..., ::2].contiguous() + 1


def written(x):
    y = x.clone()
    y[:, -1] = 0
    y[:, : x.shape[1] // 2] *= 2
    return y


SIMPLE = {
    "gelu": F.gelu,
    "tanh": torch.tanh,
    "softmax": lambda x: x.softmax(1),
    "dropout": lambda x: F.dropout(x, 0.5, False),
    "by size": by_size,
    "merged": merged,
    "written": written,
    "shifted": lambda x: F.pad(x[:, 1:] * x[:, :-1], (0, 0, 1, 0)),
    "flat rows": lambda x: x + x.reshape(-1, WIDTH)[: x.shape[0]].unsqueeze(1).sin(),
    "turned": lambda x: x.flip(0).roll(1, 1).sin(),
    "rows by index": lambda x: x[torch.arange(x.shape[0] - 1, -1, -1)].cos(),
    "mask": lambda x: x.masked_fill(torch.arange(x.shape[1])[None, :, None] >= x.shape[1] - 1, 0.5),
    "topk": lambda x: x - x.topk(min(2, x.shape[1]), 1)[0].mean(1, keepdim=True),
    "halves": lambda x: torch.cat(x.chunk(2, -1)[::-1], -1),
    "sums": lambda x: x.cumsum(1) / x.shape[1],
    "of torch": lambda x: torch.special.i0e(x) + x.cummax(1).values,
    "var": lambda x: x / (x.var((0, 1), keepdim=True) + 1).sqrt(),
    "repeated": lambda x: x.repeat_interleave(2, 1)[:, 1::2],
    "where": lambda x: torch.where(x > x.mean(), x, x.exp().clamp(max=2)),
}
LAYERS = [lambda draw: nn.Linear(WIDTH, WIDTH), lambda draw: nn.LayerNorm(WIDTH), Attention, Places, ClassToken, Normalized, Recomputed, Simple, Simple, Simple, Simple]


def chosen(draw):
    return draw.choice(LAYERS)(draw)


class Drawn(nn.Module):
    def __init__(self, seed):
        super().__init__()
        draw = random.Random(seed)
        torch.manual_seed(seed)
        self.layers = nn.Sequential(*(chosen(draw) for _ in range(draw.randint(3, 7))))
        self.gives_more, self.mixed = draw.random() < 0.3, draw.random() < 0.2

    def forward(self, x):
        with torch.autocast("cpu", torch.bfloat16, self.mixed):
            y = self.layers(x)
        return (y, y.mean(1), x.shape[0]) if self.gives_more else y


def run(net, call, x):
    """Results, gradients of all, and buffers."""
    net.zero_grad()
    x = x.clone().requires_grad_()
    results = call(x)
    tensors = [each for each in results if isinstance(each, torch.Tensor)] if isinstance(results, tuple) else [results]
    if net.training:
        sum(each.float().square().mean() for each in tensors).backward()
    gradients = [None if each.grad is None else each.grad.clone() for each in (x, *net.parameters())]
    return [*tensors, *(each for each in results if not isinstance(each, torch.Tensor)), *gradients, *net.buffers()]


@pytest.mark.parametrize("way", ["each", "dynamic", "limit", "dynamic limit"])
@pytest.mark.parametrize("seed", range(PROGRAMS))
def test_a_drawn_program_is_torchs(seed, way):
    torch._dynamo.reset()
    theirs, ours = Drawn(seed), Drawn(seed)
    options = {"options": {"memory_limit": "3MB"}} if "limit" in way else {}
    call = torch.compile(ours, backend=backend, dynamic="dynamic" in way, **options)
    bound = 5e-2 if theirs.mixed else 2e-3
    for number, (n, t) in enumerate(((4, 6), (6, 8), (3, 6), (4, 6))):
        for net in (theirs, ours):
            net.train(number != 2)
        torch.manual_seed(number)
        x = torch.randn(n, t, WIDTH)
        with torch.no_grad() if number == 2 else torch.enable_grad():
            got, want = run(ours, call, x), run(theirs, theirs, x)
        for mine, each in zip(got, want, strict=True):
            if isinstance(each, torch.Tensor):
                torch.testing.assert_close(mine, each, rtol=bound, atol=bound * max(1e-2, each.float().abs().max().item()))
            else:
                assert mine == each
