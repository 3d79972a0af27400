"""torch_backend.step: a whole training step as one program gives what torch's own loop gives."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from megengine import _core
from megengine.torch_backend import step

OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, 0.1),
    "momentum": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, weight_decay=1e-2, dampening=0.1),
    "nesterov": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, nesterov=True),
    "maximize": lambda p: torch.optim.SGD(p, 1e-3, maximize=True),
    "adam": lambda p: torch.optim.Adam(p, 1e-2, weight_decay=1e-2),
    "adamw": lambda p: torch.optim.AdamW(p, 1e-2),
    "amsgrad": lambda p: torch.optim.AdamW(p, 1e-2, amsgrad=True),
}


def network():
    torch.manual_seed(0)
    first = nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten()
    return nn.Sequential(*first, nn.Linear(512, 32), nn.GELU(), nn.Linear(32, 10)), torch.rand(16, 3, 8, 8), torch.randint(0, 10, (16,))


def by_torch(net, optimizer, loss=F.cross_entropy):
    def train(x, y):
        value = loss(net(x), y)
        value.backward()
        optimizer.step()
        optimizer.zero_grad()
        return value

    return train


def train(make, ours, steps=5, model=network, **options):
    net, x, y = model()
    optimizer = make(net.parameters())
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 0.5**epoch)
    run = step(net, F.cross_entropy, optimizer, **options) if ours else by_torch(net, optimizer)
    losses = []
    for number in range(steps):
        losses.append(run(x, y).item())
        if number == 2:
            optimizer.step()  # nothing, without gradients, but torch wants one before the scheduler's
            scheduler.step()
    return losses, net.state_dict(), optimizer.state_dict()["state"]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_losses_weights_and_states_are_those_of_torchs_loop(name):
    (want, weights, states), (got, ours, own) = (train(OPTIMIZERS[name], each) for each in (False, True))
    np.testing.assert_allclose(got, want, rtol=1e-4)
    for key, value in weights.items():
        torch.testing.assert_close(ours[key], value, rtol=1e-3, atol=1e-4)
    assert own.keys() == states.keys()
    for number, row in states.items():
        for key, value in row.items():
            torch.testing.assert_close(own[number][key], value, rtol=1e-3, atol=1e-4)


def test_the_plain_loop_goes_on_where_a_step_stopped_and_the_other_way_round():
    net, x, y = network()
    optimizer = OPTIMIZERS["adamw"](net.parameters())
    ours, theirs = step(net, F.cross_entropy, optimizer), by_torch(net, optimizer)
    mixed = [run(x, y).item() for run in (ours, theirs, ours, ours, theirs)]
    np.testing.assert_allclose(mixed, train(OPTIMIZERS["adamw"], False)[0][:3] + mixed[3:], rtol=1e-4)
    assert mixed == sorted(mixed, reverse=True)


def test_parameters_stay_where_they_are_and_may_be_written_between_steps():
    net, x, y = network()
    places = [each.data_ptr() for each in net.parameters()]
    run = step(net, F.cross_entropy, OPTIMIZERS["momentum"](net.parameters()))
    start = {key: value.clone() for key, value in net.state_dict().items()}
    first = run(x, y).item()
    run(x, y)
    assert [each.data_ptr() for each in net.parameters()] == places and net[1].num_batches_tracked == 2
    net.load_state_dict(start)
    assert run(x, y).item() == first
    net[4].weight.data = start["4.weight"].clone(memory_format=torch.contiguous_format)
    net[0].to(memory_format=torch.channels_last)
    assert np.isfinite(run(x, y).item()) and net[0].weight.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("name", ["momentum", "adamw"])
def test_parameters_that_lie_channels_last_are_written_where_they_lie(name):
    def model():
        net, x, y = network()
        return net.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last), y

    (want, weights, _), (got, ours, _) = (train(OPTIMIZERS[name], each, model=model) for each in (False, True))
    np.testing.assert_allclose(got, want, rtol=1e-4)
    for key, value in weights.items():
        torch.testing.assert_close(ours[key], value, rtol=1e-3, atol=1e-4)
    net, x, y = model()
    optimizer = OPTIMIZERS[name](net.parameters())
    run = step(net, F.cross_entropy, optimizer)
    run(x, y)
    lent = [run._lent[each] for each in (net[0].weight, *optimizer.state[net[0].weight].values()) if each.dim() == 4]
    assert len(lent) > 1 and all(each.is_channels_last and _core.address(each.ours) == each.theirs.data_ptr() for each in lent)


def test_modes_shapes_and_frozen_parameters():
    net, x, y = network()
    net[0].weight.requires_grad_(False)
    kept = net[0].weight.clone()
    run = step(net, F.cross_entropy, OPTIMIZERS["sgd"](net.parameters()))
    run(x, y)
    run(x[:5], y[:5])
    mean = net[1].running_mean.clone()
    net[1].eval()
    run(x, y)
    assert torch.equal(net[0].weight, kept) and torch.equal(net[1].running_mean, mean)


def test_dropout_follows_torchs_seed():
    def with_dropout():
        net, x, y = network()
        net.insert(4, nn.Dropout(0.5))
        return net, x, y

    one, other = (train(OPTIMIZERS["sgd"], True, model=with_dropout)[0] for _ in range(2))
    assert one == other != train(OPTIMIZERS["sgd"], True)[0]


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.mix = nn.Embedding(50, 16), nn.Linear(16, 16)
        self.out = nn.Linear(16, 50, bias=False)
        self.out.weight = self.words.weight

    def forward(self, tokens, scale):
        return self.out(torch.tanh(self.mix(self.words(tokens)))) * scale


def test_a_tied_weight_and_arguments_by_name():
    def run(ours):
        torch.manual_seed(0)
        net, tokens = Tied(), torch.randint(0, 50, (4, 9))
        optimizer = torch.optim.AdamW(net.parameters(), 1e-2)
        loss = lambda out, y: F.cross_entropy(out.flatten(0, 1), y.flatten())  # noqa: E731
        ours = step(net, loss, optimizer) if ours else None
        losses = []
        for _ in range(3):
            if ours:
                losses.append(ours({"tokens": tokens, "scale": torch.tensor(2.0)}, tokens).item())
            else:
                value = loss(net(tokens, torch.tensor(2.0)), tokens)
                value.backward()
                optimizer.step()
                optimizer.zero_grad()
                losses.append(value.item())
        return losses

    np.testing.assert_allclose(run(True), run(False), rtol=1e-4)


class Deep(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers, self.last = nn.ModuleList(nn.Linear(64, 64) for _ in range(12)), nn.Linear(64, 10)

    def deepen(self, x):
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return x

    def forward(self, x):
        return self.last(self.deepen(x))


def deep():
    torch.manual_seed(0)
    return Deep(), torch.rand(4096, 64), torch.randint(0, 10, (4096,))


def test_a_limit_is_kept_or_refused_before_anything_changes():
    want = train(OPTIMIZERS["adamw"], False, model=deep)[0]
    net, x, y = deep()
    whole = step(net, F.cross_entropy, OPTIMIZERS["adamw"](net.parameters())).plan(x, y).planned_bytes
    limit = int(0.6 * whole)
    assert step(net, F.cross_entropy, OPTIMIZERS["adamw"](net.parameters()), limit).plan(x, y).planned_bytes <= limit
    np.testing.assert_allclose(train(OPTIMIZERS["adamw"], True, model=deep, memory_limit=limit)[0], want, rtol=1e-5)
    optimizer = OPTIMIZERS["adamw"](net.parameters())
    before = {key: value.clone() for key, value in net.state_dict().items()}
    with pytest.raises(MemoryError, match=r"(?s)at least .* [KM]iB.*test_step.py:\d+ in deepen"):
        step(net, F.cross_entropy, optimizer, "1MB")(x, y)
    assert all(torch.equal(value, before[key]) for key, value in net.state_dict().items())
    assert all(float(state["step"]) == 0 for state in optimizer.state.values())


def test_what_it_cannot_do_is_refused_with_the_line():
    net, x, y = network()
    with pytest.raises(TypeError, match="no rule for RMSprop, only for torch's SGD, Adam, AdamW"):
        step(net, F.cross_entropy, torch.optim.RMSprop(net.parameters()))
    sgd = OPTIMIZERS["sgd"](net.parameters())
    with pytest.raises(RuntimeError, match=r"erfcx.*test_step.py.*does not have"):
        step(net, lambda out, y: torch.special.erfcx(out).mean(), sgd)(x, y)
    with pytest.raises(RuntimeError, match=r"asks for values of tensors .*test_step.py.*, line \d+"):
        step(net, lambda out, y: out.mean() if out.sum() > 0 else out.sum(), sgd)(x, y)
    with pytest.raises(ValueError, match="the loss is to be one number"):
        step(net, lambda out, y: out, sgd)(x, y)
    net[4].bias = nn.Parameter(net[6].weight.data[0])
    with pytest.raises(ValueError, match="views of one memory"):
        step(net, F.cross_entropy, sgd)(x, y)


@pytest.mark.parametrize("max_norm", [0.5, 1e6])
def test_gradients_are_clipped_as_torch_clips_them(max_norm):
    def run(ours):
        net, x, y = network()
        optimizer = torch.optim.SGD(net.parameters(), 0.5, momentum=0.9)
        if ours:
            train = step(net, F.cross_entropy, optimizer, max_grad_norm=max_norm)
            return [train(x, y).item() for _ in range(5)], net.state_dict()
        losses = []
        for _ in range(5):
            optimizer.zero_grad()
            value = F.cross_entropy(net(x), y)
            value.backward()
            torch.nn.utils.clip_grad_norm_(net.parameters(), max_norm)
            optimizer.step()
            losses.append(value.item())
        return losses, net.state_dict()

    (want, weights), (got, ours) = run(False), run(True)
    np.testing.assert_allclose(got, want, rtol=1e-4)
    for key, value in weights.items():
        torch.testing.assert_close(ours[key], value, rtol=1e-3, atol=1e-4)


def test_gradients_that_are_no_numbers_make_all_so():
    net = nn.Linear(3, 1)
    train = step(net, lambda y: y.sum().log(), torch.optim.SGD(net.parameters(), 0.1), max_grad_norm=1.0)
    train(torch.full((2, 3), float("nan")))
    assert net.weight.isnan().all() and net.bias.isnan().all()


def test_a_step_under_autocast_is_torchs():
    def run(ours):
        torch.manual_seed(0)
        net, x, y = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 10)), torch.rand(32, 64), torch.randint(0, 10, (32,))
        optimizer, results = torch.optim.SGD(net.parameters(), 0.1), []
        train = step(net, F.cross_entropy, optimizer) if ours else None
        for mixed in (True, True, False, True):
            with torch.autocast("cpu", torch.bfloat16, enabled=mixed):
                value = train(x, y) if ours else F.cross_entropy(net(x), y)
            if not ours:
                value.backward()
                optimizer.step()
                optimizer.zero_grad()
            results.append(value.item())
        return results, net[0].weight.detach(), train and len(train._programs)

    (want, weight, _), (got, ours, count) = run(False), run(True)
    np.testing.assert_allclose(got, want, rtol=2e-3)
    torch.testing.assert_close(ours, weight, rtol=1e-2, atol=1e-4)
    assert count == 2 and got[1] != pytest.approx(got[2], abs=1e-7)
