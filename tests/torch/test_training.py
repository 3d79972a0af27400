"""Small networks of many kinds are trained as in eager mode, and nothing of them is left to torch but what is complex."""

import warnings

import networks_graphs
import networks_images
import networks_sequences
import networks_transformers
import pytest
import torch

NETWORKS = {**networks_images.NETWORKS, **networks_sequences.NETWORKS, **networks_graphs.NETWORKS, **networks_transformers.NETWORKS}
LEFT = {"FNet": "_fft_", "long convolutions": "_fft_"}  # parts of the names of torch's operations


def train(name, steps=3, **options):
    """Losses, gradients of the first step, and the state after the last one."""
    torch.manual_seed(0)
    torch._dynamo.reset()
    net, *given = NETWORKS[name]()
    run = torch.compile(net, backend="megjit", options=options) if options else net
    optimizer, losses, gradients = torch.optim.SGD(net.parameters(), 0.01), [], {}
    for _ in range(steps):
        y = run(*given)
        loss = (y * torch.arange(1.0, y.numel() + 1).reshape(y.shape).cos()).sum()
        loss.backward()
        gradients = gradients or {key: value.grad.clone() for key, value in net.named_parameters() if value.grad is not None}
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses, gradients, net.state_dict()


def assert_close(ours, theirs):
    assert ours.keys() == theirs.keys()
    for key, value in theirs.items():
        size = max(1e-2, value.abs().max().item()) if value.numel() else 1
        torch.testing.assert_close(ours[key], value, rtol=2e-3, atol=1e-3 * size, msg=lambda text, key=key: f"{key}: {text}")


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # dynamo, behind a recurrent layer
@pytest.mark.filterwarnings("ignore:Dynamo detected a call to a `functools.lru_cache`")  # of transformers' own
@pytest.mark.parametrize("name", NETWORKS)
def test_training_is_that_of_eager_mode(name):
    want = train(name)
    with warnings.catch_warnings(record=True) as seen:
        warnings.filterwarnings("always", message="megjit leaves")
        got = train(name, fallback=name in LEFT)
    left = [str(each.message) for each in seen if "megjit leaves" in str(each.message)]
    assert bool(left) == (name in LEFT) and all(LEFT[name] in each for each in left)
    torch.testing.assert_close(torch.tensor(got[0]), torch.tensor(want[0]), rtol=1e-3, atol=1e-4)
    for ours, theirs in zip(got[1:], want[1:], strict=True):
        assert_close(ours, theirs)
