"""What a limit refuses: before anything runs or changes, with a figure that is kept; and what it lets run keeps it, one size after another, in parts, beside others."""

import gc
import inspect
import re
import sys

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from megengine.device import (
    coalesce_free_memory,
    get_allocated_memory,
    get_max_allocated_memory,
    reset_max_memory_stats,
)
from megengine.torch_backend import _pair, backend, step
from megengine.torch_backend._compiled import Compiled

pytestmark = pytest.mark.filterwarnings("ignore:megjit leaves", "ignore:The .grad attribute")


class Net(nn.Module):
    """With what a refused call must not move: statistics, and random numbers. last: of its values, to a number."""

    def __init__(self, last, breaks=False):
        super().__init__()
        self.norm, self.last, self.breaks = nn.BatchNorm1d(64), last, breaks
        self.layers = nn.ModuleList(layer for _ in range(4) for layer in (nn.Linear(64, 64), nn.Dropout(0.5), nn.Tanh()))

    def forward(self, x):
        x = self.norm(x)
        for number, layer in enumerate(self.layers):
            x = layer(x)
            if self.breaks and number == 5:
                torch._dynamo.graph_break()
        return self.last(x)


def in_parts(y):
    return (torch.polygamma(2, y) * y.cummax(0).values.tanh() + torch.cdist(y[:52], y[52:104], p=1.5).mean()).square().mean()


def turned(y):
    return torch.polygamma(2, y.t().contiguous().view(8, -1)).square().mean()


def chosen(y):
    return y[y[:, 0] > 0].square().sum() + torch.masked_select(y, y > 0.5).sum()


def read(y):
    return y[:, : int((y > 0).sum().item()) % 64].square().sum() + y.mean()


LASTS = {"whole": lambda y: y.square().mean(), "results": lambda y: y.exp().sum(1), "in parts": in_parts, "turned": turned, "chosen": chosen}


def named_by(error):
    return int(re.search(r"raise the limit to (\d+)", str(error))[1])


def call(net, x, run):
    """The loss; or the refusal, which has changed nothing."""
    before = {name: value.clone() for name, value in net.state_dict().items()}, torch.get_rng_state()
    try:
        return run(x)
    except MemoryError as error:
        after = net.state_dict()
        assert all(torch.equal(value, after[name]) for name, value in before[0].items())
        assert torch.equal(before[1], torch.get_rng_state())
        error.__traceback__ = None
        return error


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", LASTS)
def test_the_figure_that_is_named_is_kept(name, dynamic):
    torch._dynamo.reset()
    gc.collect()
    torch.manual_seed(0)
    net, x = Net(LASTS[name]), torch.rand(512, 64)
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        refused = call(net, x, torch.compile(net, backend=backend, dynamic=dynamic, options={"memory_limit": 10000}))
        if dynamic and "dynamic=False" in str(refused):  # both sizes that change and sizes that data decides
            assert name == "chosen"
            return
        limit = named_by(refused)
        assert limit > 10000
        # a program without kernels may take a thousandth less than what is named
        for tried in (limit - limit // 1000 - 1, limit):
            torch._dynamo.reset()
            run = torch.compile(net, backend=backend, dynamic=dynamic, options={"memory_limit": tried})
            for _ in range(2):
                loss = call(net, x, run)
                assert isinstance(loss, MemoryError) == (tried < limit)
                if tried == limit:
                    loss.sum().backward()


def test_a_size_that_nothing_bounds_is_refused_with_its_line():
    torch._dynamo.reset()
    net, x = Net(read), torch.rand(512, 64)
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True, capture_scalar_outputs=True):
        refused = call(net, x, torch.compile(net, backend=backend, dynamic=False, options={"memory_limit": "1GB"}))
    assert re.search(r"data decides a size that nothing bounds: .*test_refusals.py", str(refused))


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_smaller_batch_after_a_larger_one(dynamic):
    torch._dynamo.reset()
    gc.collect()
    torch.manual_seed(0)
    net = nn.Sequential(*(layer for _ in range(8) for layer in (nn.Linear(64, 64), nn.GELU())))
    with pytest.raises(MemoryError) as found:
        torch.compile(net, backend=backend, options={"memory_limit": 10000})(torch.rand(4096, 64))
    limit = named_by(found.value) * 9 // 8
    found.value.__traceback__ = None
    torch._dynamo.reset()
    run = torch.compile(net, backend=backend, dynamic=dynamic, options={"memory_limit": limit})
    gc.collect()
    coalesce_free_memory()
    for number, rows in enumerate((4096, 3000, 4096, 2000, 3000, 4096, 500) * 2):
        net.zero_grad()
        loss = run(torch.rand(rows, 64)).square().mean()
        loss.backward()
        del loss
        if number == 6:
            reset_max_memory_stats("cpux")
    net.zero_grad()
    assert get_max_allocated_memory("cpux") <= limit + get_allocated_memory("cpux")


def test_what_waits_for_other_parts_is_counted():
    counted = []

    class Noted(Compiled):
        def __init__(self, *given, **options):
            super().__init__(*given, **options)
            counted.append(self._needs)

    def function(x, y):
        return torch.special.erfcx(x * 2).exp() + torch.special.erfcx(y)[:1]

    torch._dynamo.reset()
    x, y = torch.rand(100, 10), torch.rand(300, 10)
    kept = _pair.Compiled
    _pair.Compiled = Noted
    try:
        torch.compile(function, backend=backend, options={"memory_limit": "1GB"})(x, y)
    finally:
        _pair.Compiled = kept
    ((first, second, third),) = counted
    assert first == (12000, 0)  # y waits
    assert second == (4000, 2 * (4000 + 12000))  # x does, while torch reads x * 2 and y, and gives as much
    assert third == (4000 + 12000, 0)  # both, while what torch gave is read


def test_backward_is_refused_before_forward_runs_beside_others():
    """The second one of two calls that wait for their backward is refused, as long as the first one waits."""
    torch._dynamo.reset()
    gc.collect()
    torch.manual_seed(0)
    net, x = Net(LASTS["whole"]), torch.rand(2048, 64)
    with pytest.raises(MemoryError) as found:
        torch.compile(net, backend=backend, options={"memory_limit": 10000})(x)
    limit = named_by(found.value) + 200
    found.value.__traceback__ = None
    torch._dynamo.reset()
    run = torch.compile(net, backend=backend, options={"memory_limit": limit})
    first = call(net, x, run)
    second = call(net, x, run)
    assert isinstance(second, MemoryError) and named_by(second) > limit and "other graphs of the program keep" in str(second)
    first.backward()
    call(net, x, run).backward()
    del first
    gc.collect()
    assert not _pair._held


def test_calls_within_calls_are_added_up():
    inner = torch.compile(lambda x: x.sin().exp() * 2, backend=backend, options={"memory_limit": 41000})
    seen = []

    @torch.library.custom_op("megjit_test::inner", mutates_args=())
    def within(x: torch.Tensor) -> torch.Tensor:
        seen.append(call(nn.Module(), x, inner))
        return x.clone()

    within.register_fake(lambda x: torch.empty_like(x))
    torch._dynamo.reset()
    x = torch.rand(5000)
    call(nn.Module(), x, inner).sum()
    outer = torch.compile(lambda x: within(x * 2).sin() + x, backend=backend, options={"memory_limit": "1GB"})
    outer(x)
    assert isinstance(seen[0], MemoryError) and named_by(seen[0]) > 41000


def test_a_refused_limit_is_what_batch_size_finders_take_for_out_of_memory():
    """accelerate and Lightning look for a RuntimeError with one text that has these words."""
    run = torch.compile(nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64)), backend="megjit", options={"memory_limit": "100kB"})
    with pytest.raises(MemoryError) as refused:
        run(torch.rand(2048, 64))
    error = refused.value
    assert isinstance(error, RuntimeError) and len(error.args) == 1
    assert " out of memory." in error.args[0] and "DefaultCPUAllocator: can't allocate memory" in error.args[0]
    assert len(str(error).splitlines()) <= 6
    assert error.limit == 102400 and error.limit < error.bound <= error.needed


class Layers(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(4))

    def forward(self, x):
        for layer in self.layers:
            x = x + torch.tanh(layer(x))
        return x


class Wrapped(nn.Module):
    """It looks attributes up by a method of its own, as PEFT's modules do."""

    def __init__(self):
        super().__init__()
        self.inner = Layers()

    def __getattr__(self, name):
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self.inner, name)

    def forward(self, x):
        return self.inner(x)


@pytest.mark.parametrize(("make", "first"), [(Layers, "layers.0"), (Wrapped, "inner.layers.0"), (lambda: nn.Sequential(*(layer for _ in range(4) for layer in (nn.Linear(64, 64), nn.Tanh()))), "0")], ids=["own", "wrapped", "torchs"])
@pytest.mark.parametrize("whole", [False, True])
def test_a_refusal_names_parameters_layers_lines_and_kinds(make, first, whole):
    torch._dynamo.reset()
    gc.collect()
    net, x = make(), torch.rand(256, 64)
    limit = "200kB"
    run = step(net, F.mse_loss, torch.optim.SGD(net.parameters()), limit) if whole else torch.compile(net, backend=backend, options={"memory_limit": limit})
    with pytest.raises(MemoryError) as found:
        run.plan(x, x) if whole else run(x)
    told = str(found.value)
    assert f" {first}.weight f32[64, 64]" in told, told
    assert re.search(rf"test_refusals.py:\d+ in \w+ \({first}\)", told), told
    assert len(told.splitlines()) <= 6
    if not whole:
        assert "(gradients 65.0 KiB, parameters 65.0 KiB, arguments 64.0 KiB, gradients of results 64.0 KiB; the largest: 64.0 KiB" in told
    made = next(number for number, line in enumerate(inspect.getsource(sys.modules[__name__]).splitlines(), 1) if line.lstrip().startswith("run = step(net"))
    if whole and first == "0":  # no line of the program calls its layers: the line that makes the step does, not that of `plan`
        assert f"test_refusals.py:{made} in test_a_refusal" in told
