"""Checks of values (`torch._assert_async`, classes of `one_hot`) are computed with the rest of a graph, and raise as torch's own do before anything is given or written."""

import re
import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from megengine.device import get_allocated_memory, get_max_allocated_memory, reset_max_memory_stats
from megengine.torch_backend import backend, step

NAMED = re.compile(r"(?:at least|which makes|limit to) (\d+)")


def classes(x, i):
    return (x.unsqueeze(1) * F.one_hot(i, 8)).sin()


def two(x, i):
    torch._assert_async((x > -100).all())
    torch._assert_async((i < 9).all(), "a large class")
    return x.sin() * i


GOOD = torch.tensor([1, 0, 7])
BAD = {
    classes: [torch.tensor([1, 8, 0]), torch.tensor([1, -1, 0])],
    two: [torch.tensor([1, 9, 0])],
}


@pytest.mark.parametrize("trains", [False, True])
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("limit", [None, "1GB"])
@pytest.mark.parametrize("function", BAD)
def test_checks_stay_in_one_graph_and_raise_as_torchs(function, limit, dynamic, trains):
    torch._dynamo.reset()
    options = {"fallback": False, "memory_limit": limit}
    compiled, x = torch.compile(function, backend=backend, dynamic=dynamic, options=options), torch.rand(3, requires_grad=trains)
    for classes in (GOOD, *BAD[function], GOOD):
        try:
            want = function(x, classes)
        except RuntimeError as error:
            with pytest.raises(RuntimeError) as found:
                compiled(x, classes)
            assert str(error) in str(found.value)  # compiled, torch names the function before it
            continue
        y = compiled(x, classes)
        torch.testing.assert_close(y, want)
        if trains:
            torch.testing.assert_close(torch.autograd.grad(y.sum(), x), torch.autograd.grad(want.sum(), x))


def test_checks_of_a_step_raise_before_it_writes():
    def loss(result, classes):
        return (result - F.one_hot(classes, 8)).square().mean()

    model = nn.Linear(4, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train, x = step(model, loss, optimizer), torch.rand(3, 4)
    train(x, GOOD)
    before = [each.detach().clone() for each in model.parameters()]
    with pytest.raises(RuntimeError, match="Class values must be smaller than num_classes"):
        train(x, torch.tensor([1, 8, 0]))
    torch.testing.assert_close(list(model.parameters()), before, rtol=0, atol=0)
    want = loss(model(x), GOOD)
    torch.testing.assert_close(train(x, GOOD), want)


def left_when_recorded(x, i):
    """Behind the chain stands what megjit does not have, which shows when it is recorded."""
    return F.hardswish(x), x.index_put((i > 0,), torch.zeros(()))


def unread_number(x, i):
    """The backward graph takes how many there are, which nothing in it reads."""
    torch.nonzero(x > 0)
    return checkpoint(lambda t: torch.sin(t) * t, x, use_reentrant=False)


@pytest.mark.parametrize("trains", [False, True])
@pytest.mark.parametrize("function", [left_when_recorded, unread_number, lambda x, i: F.hardswish(x) + F.one_hot(i, 8)[0, 0]])
def test_a_least_limit_is_kept_where_recording_finds_what_is_left_to_torch(function, trains):
    torch._dynamo.reset()
    torch._dynamo.config.recompile_limit = 64
    x, i, limit = torch.rand(100, 7, requires_grad=trains), torch.arange(100) % 8, 1
    for _ in range(4):
        before = get_allocated_memory("cpux")
        reset_max_memory_stats("cpux")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = torch.compile(function, backend=backend, fullgraph=True, options={"memory_limit": limit})(x, i)
        except MemoryError as error:
            limit = max(map(int, NAMED.findall(str(error))))
            continue
        assert get_max_allocated_memory("cpux") - before <= limit
        torch.testing.assert_close(found, function(x, i))
        return
    pytest.fail("no figure that a refusal names is enough")
