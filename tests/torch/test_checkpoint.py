"""`torch.utils.checkpoint` in a graph: what was drawn in forward is what backward reads, whatever draws it and whoever computes it again."""

import re

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from megengine.torch_backend import backend

pytestmark = pytest.mark.filterwarnings("ignore:megjit leaves", "ignore:dynamo_pgo")

DRAW = {
    "dropout": lambda y: F.dropout(y, 0.5),
    "dropout twice": lambda y: F.dropout(F.dropout(y, 0.3).tanh(), 0.5),
    "alpha_dropout": lambda y: F.alpha_dropout(y, 0.3, True),
    "channels": lambda y: F.dropout2d(y[None, ..., None], 0.4)[0, ..., 0],
    "rand_like": lambda y: y + torch.rand_like(y) * y,
    "randn_like": lambda y: y + torch.randn_like(y) * y,
    "rrelu": lambda y: F.rrelu(y, training=True),
    "bernoulli": lambda y: y * torch.bernoulli(torch.full_like(y, 0.5)),
    "normal": lambda y: torch.normal(0.0, 1.0, y.shape) * y,
    "attention": lambda y: F.scaled_dot_product_attention(*y[None, None].expand(3, 1, 1, *y.shape), dropout_p=0.3)[0, 0],
    "nothing": lambda y: F.scaled_dot_product_attention(*y[None, None].expand(3, 1, 1, *y.shape))[0, 0],
}
WAYS = {"plain": {}, "dynamic": {"dynamic": True}, "limit": {"options": {"memory_limit": "64MB"}}}


def gradients(draw, options, recomputed):
    torch._dynamo.reset()
    torch.manual_seed(0)
    layer, x = nn.Linear(8, 8), torch.rand(64, 8)

    def loss(x):
        inner = lambda x: draw(layer(x))  # noqa: E731
        return (checkpoint(inner, x.tanh(), use_reentrant=recomputed == "reentrant") if recomputed else inner(x.tanh())).square().mean()

    run = torch.compile(loss, backend=backend, **options)
    for seed in (3, 4):
        layer.zero_grad()
        torch.manual_seed(seed)
        value = run(x)
        value.backward()
    return value.detach(), layer.weight.grad, layer.bias.grad


def least(draw, recomputed):
    with pytest.raises(MemoryError) as found:
        gradients(draw, {"options": {"memory_limit": 1000}}, recomputed)
    return int(re.search(r"raise the limit to (\d+)", str(found.value))[1])


@pytest.mark.parametrize("way", [*WAYS, "least limit"])
@pytest.mark.parametrize("name", DRAW)
def test_gradients_are_those_of_the_forward_that_ran(name, way):
    draw = DRAW[name]
    want = gradients(draw, {}, None)
    for recomputed in ("plain", "reentrant"):
        options = WAYS[way] if way in WAYS else {"options": {"memory_limit": least(draw, recomputed)}}
        for ours, each in zip(gradients(draw, options, recomputed), want, strict=True):
            torch.testing.assert_close(ours, each, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("reentrant", [True, False])
def test_what_is_compiled_may_be_computed_again_from_outside(reentrant):
    net = nn.Sequential(nn.Linear(8, 32), nn.Dropout(0.5), nn.Tanh(), nn.Linear(32, 8), nn.Dropout(0.5))
    run, found = torch.compile(net, backend=backend), []
    for call in (run, lambda x: checkpoint(run, x, use_reentrant=reentrant)):
        torch.manual_seed(3)
        x = torch.linspace(-1, 1, 64 * 8).reshape(64, 8).requires_grad_()
        call(x).square().sum().backward()
        found.append(x.grad)
    torch.testing.assert_close(*found)
