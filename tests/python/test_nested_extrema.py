"""Chains of maxima, minima and choices with equal bounds, as random programs: kernels have eager mode's bits for NaN and both zeros."""

import random

import numpy as np
import pytest

import megengine.functional as F
from megengine import Tensor
from megengine.jit import trace

SPECIAL = np.float32([np.nan, -0.0, 0.0, 1, -1, np.inf, -np.inf, 1e-40, -1e-40, 2, 0.5, -0.5, 3e38, 6e-8, -6e-8])
BOUNDS = [0.0, -0.0, 1.0, -1.0, np.nan, np.inf]
STEPS = {
    "max": lambda x, k: F.maximum(x, k),
    "max of": lambda x, k: F.maximum(k, x),
    "min": lambda x, k: F.minimum(x, k),
    "min of": lambda x, k: F.minimum(k, x),
    "chosen": lambda x, k: F.where(x > k, x, F.zeros_like(x) + k),
    "not chosen": lambda x, k: F.where(x < k, F.zeros_like(x) + k, x),
    "positive": lambda x, k: F.where(x <= 0, F.zeros_like(x), x),
    "relu": lambda x, k: F.relu(x),
    "relu6": lambda x, k: F.relu6(x),
    "hswish": lambda x, k: F.hswish(x),
    "clip": lambda x, k: F.clip(x, -1.0, 1.0),
    "leaky": lambda x, k: F.leaky_relu(x, 0.1),
    "neg": lambda x, k: -x,
    "abs": lambda x, k: F.abs(x),
}


@pytest.mark.parametrize("backend", ["MLIR", "HALIDE"])
@pytest.mark.parametrize("seed", range(10))
def test_no_compiler_folds_an_extremum_into_the_next(seed, backend, monkeypatch):
    monkeypatch.setenv("MGB_JIT_BACKEND", backend)
    draw = random.Random(seed)
    chains = [[(draw.choice(list(STEPS)), draw.choice([*BOUNDS, "other"])) for _ in range(draw.randint(2, 6))] for _ in range(8)]

    def programs(x, other):
        results = []
        for chain in chains:
            y = x
            for name, bound in chain:
                y = STEPS[name](y, other if bound == "other" else bound)
            results.append(y.astype("float32"))
        return results

    dtype = draw.choice(["float32", "float16", "bfloat16"])
    x = Tensor(np.repeat(SPECIAL, len(SPECIAL))).astype(dtype)
    other = Tensor(np.tile(SPECIAL, len(SPECIAL))).astype(dtype)
    traced = trace(programs, symbolic=True, opt_level=3)
    traced(x, other)
    assert traced.kernels()
    for chain, expected, got in zip(chains, programs(x, other), traced(x, other), strict=True):
        a, b = expected.numpy(), got.numpy()
        same = (a.view(np.int32) == b.view(np.int32)) | (np.isnan(a) & np.isnan(b))
        assert same.all(), (dtype, chain, x.numpy()[~same], a[~same], b[~same])
