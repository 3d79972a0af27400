"""Runs a program of torch and what from_torch makes of it on the same inputs."""

import numpy as np
import torch

import megengine as mge
from megengine import fx


def ours(value):
    """Inputs of torch as ours."""
    if isinstance(value, torch.Tensor):
        return mge.Tensor(value.numpy())
    return value


def arrays(value):
    """All arrays in a result, in order, in float32; and their dtypes, with 32 bits for 64."""
    if isinstance(value, torch.Tensor):
        name = str(value.dtype).removeprefix("torch.").replace("64", "32")
        return [(value.detach().float().numpy(), name)]
    if isinstance(value, mge.Tensor):
        return [(value.astype("float32").numpy(), str(value.dtype))]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (tuple, list)):
        return [array for item in value for array in arrays(item)]
    return [] if value is None else [(np.asarray(value), "")]


def assert_agree(theirs, converted, *inputs, rtol=1e-4, atol=1e-4, **kwargs):
    """Same numbers of results, shapes, and values up to atol + rtol times the largest one."""
    with torch.no_grad():
        want = arrays(theirs(*(x.clone() if isinstance(x, torch.Tensor) else x for x in inputs), **kwargs))
    got = arrays(converted(*map(ours, inputs), **{k: ours(v) for k, v in kwargs.items()}))
    assert len(got) == len(want)
    for (g, own), (w, dtype) in zip(got, want, strict=True):
        assert g.shape == w.shape and own == dtype
        np.testing.assert_allclose(g, w, rtol=0, atol=atol + rtol * np.abs(w).max(initial=0), equal_nan=True)


def check(theirs, *inputs, **options):
    """Converts and compares; returns what was converted."""
    converted = fx.from_torch(theirs)
    converted.graph.lint()
    assert_agree(theirs, converted, *inputs, **options)
    return converted


def with_free_batch(module, *inputs):
    """The program that torch.export makes, for any batch size."""
    batch = torch.export.Dim("batch", min=1, max=64)
    shapes = tuple({0: batch} for _ in inputs)
    return torch.export.export(module, inputs, dynamic_shapes=shapes)
