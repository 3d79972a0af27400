"""Calls that run in torch as well and mean something else: each row of docs/coming_from_pytorch.md, with what torch 2.15 gave in a run beside ours."""

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
import megengine.module as M
from megengine.autodiff import GradManager

X = mge.tensor(np.arange(6, dtype=np.float32).reshape(2, 3))
PAIRS = mge.tensor([[2.0, 1.0], [0.0, 3.0]])
IMAGE = F.arange(4).reshape(1, 1, 2, 2)


def gradient_of_clip():
    x = mge.Parameter([0.0, 1.0, 2.0])
    with GradManager().attach(x) as gm:
        gm.backward(F.clip(x, 0, 1).sum())
    return x.grad


# name: (ours, its value, torch's value for the same call)
CALLS = {
    "transpose": (lambda: X.transpose(0, 1), [[0, 1, 2], [3, 4, 5]], [[0, 3], [1, 4], [2, 5]]),
    "split": (lambda: F.stack(F.split(F.arange(6), 2)), [[0, 1, 2], [3, 4, 5]], [[0, 1], [2, 3], [4, 5]]),
    "pad": (lambda: F.pad(X, (1, 1)), [[0, 0, 0], [0, 1, 2], [3, 4, 5], [0, 0, 0]], [[0, 0, 1, 2, 0], [0, 3, 4, 5, 0]]),
    "argsort": (lambda: F.argsort(mge.tensor([[2.0, 1.0], [3.0, 0.0]]), 0), [[1, 0], [1, 0]], [[0, 1], [1, 0]]),
    "sort": (lambda: F.sort(PAIRS, 1)[0], [[2, 1], [3, 0]], [[1, 2], [0, 3]]),
    "topk": (lambda: F.topk(mge.tensor([2.0, 1.0, 5.0]), 2, 0)[0], [1, 2], [5, 2]),
    "var": (lambda: F.var(X), 35 / 12, 3.5),
    "std": (lambda: F.std(X), (35 / 12) ** 0.5, 3.5**0.5),
    "max": (lambda: X.max(1), [2, 5], ([2, 5], [2, 2])),
    "min": (lambda: X.min(1), [0, 3], ([0, 3], [0, 0])),
    "repeat": (lambda: F.repeat(F.arange(3), 2), [0, 0, 1, 1, 2, 2], [0, 1, 2, 0, 1, 2]),
    "arange": (lambda: F.arange(3).dtype.name, "float32", "int64"),
    "meshgrid": (lambda: F.meshgrid(F.arange(2), F.arange(3))[0].shape, (3, 2), (2, 3)),
    "interpolate": (
        lambda: F.nn.interpolate(IMAGE, scale_factor=2)[0, 0],
        [[0, 0.25, 0.75, 1], [0.5, 0.75, 1.25, 1.5], [1.5, 1.75, 2.25, 2.5], [2, 2.25, 2.75, 3]],
        [[0, 0, 1, 1], [0, 0, 1, 1], [2, 2, 3, 3], [2, 2, 3, 3]],
    ),
    "clip": (gradient_of_clip, [1, 1, 0], [0, 0, 0]),
}


@pytest.mark.parametrize("name", CALLS)
def test_the_value_is_ours_and_not_that_of_torch(name):
    call, ours, theirs = CALLS[name]
    value = call()
    if isinstance(ours, str | tuple):
        assert value == ours != theirs
        return
    np.testing.assert_allclose(value.numpy(), ours, rtol=1e-6)
    assert isinstance(theirs, tuple) or np.shape(theirs) != np.shape(ours) or not np.allclose(theirs, ours)


def test_what_to_write_gives_the_value_of_torch():
    same = {
        "transpose": F.swapaxes(X, 0, 1), "split": F.stack(F.split(F.arange(6), 3)), "pad": F.pad(X, ((0, 0), (1, 1))),
        "topk": F.topk(mge.tensor([2.0, 1.0, 5.0]), 2)[0], "var": F.var(X) * (6 / 5), "repeat": F.tile(F.arange(3), 2),
        "interpolate": F.nn.interpolate(IMAGE, scale_factor=2, mode="nearest")[0, 0],
    }  # fmt: skip
    for name, value in same.items():
        np.testing.assert_allclose(value.numpy(), CALLS[name][2], rtol=1e-6, err_msg=name)
    assert F.meshgrid(F.arange(2), F.arange(3), indexing="ij")[0].shape == CALLS["meshgrid"][2]


def test_initial_weights():
    """torch: |weight| < 1 / sqrt(100) = 0.1, of Conv2d(100, 10, 3) 0.0333; |bias| up to 0.1."""
    layer = M.Linear(100, 1000)
    assert 0.4 < np.abs(layer.weight.numpy()).max() <= 0.07**0.5 * 2 and not layer.bias.numpy().any()
    assert 0.12 < np.abs(M.Conv2d(100, 10, 3).weight.numpy()).max() < 0.3  # normal


@pytest.mark.parametrize("label", [-1, -100, 7])
def test_labels(label):
    """torch: -1 and 7 are an IndexError there, too; -100 is left out of the mean, 0.4076 here."""
    scores, labels = mge.tensor([[1.0, 2.0, 3.0], [2.0, 2.0, 1.0]]), mge.tensor([label, 1])
    with pytest.raises(IndexError, match=f"^cross_entropy: label {label} is out of range for 3 classes"):
        F.nn.cross_entropy(scores, labels).numpy()
    left_out = F.nn.cross_entropy(mge.tensor([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]]), mge.tensor([label, 0]), ignore_index=label)
    assert abs(left_out.item() - 0.4076) < 1e-4


def test_what_torch_takes_and_is_an_error_here():
    for call in (lambda: F.transpose(X, 0, 1), lambda: F.pad(X, (1, 1, 0, 0, 0, 0)), lambda: X.max(1)[1].shape == (2,) or X.max(1).indices):
        with pytest.raises((TypeError, ValueError, AttributeError)):
            call()
