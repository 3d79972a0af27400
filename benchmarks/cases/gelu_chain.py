"""How fast is gelu written in element-wise ops, with a bias before it and a residual behind it?"""

from functools import partial

import handmade
import numpy as np
from case import Case, Subject, Target
from cases import _frameworks as on

PEERS = ("torch", "torch_compile", "jax")


def data(n):
    return np.random.RandomState(0).uniform(-4, 4, n).astype(np.float32)


def chain(x, erf):
    """Eight ops; reads one array and writes one. c/kernels.c has the same."""
    h = x * 1.1 + 0.1
    return (h * 0.5 * (erf(h * 0.70710678) + 1.0) + x,)


def megjit(n):
    on.setup_megjit()
    import megengine.functional as F

    return on.calling_megjit(lambda x: chain(x, F.erf), [data(n)], without_host=True)


def torch(n, compiled=False):
    import torch

    on.setup_torch()
    return on.calling_torch(lambda x: chain(x, torch.erf), [data(n)], compiled)


def jax(n):
    from jax.scipy.special import erf

    return on.calling_jax(lambda x: chain(x, erf), [data(n)])


def by_hand(n, fast):
    kernel = handmade.kernel("kernels.c", "gelu_chain", pointers=2, fast=fast)
    x, y = data(n), np.empty(n, np.float32)

    def run(calls):
        kernel(x.ctypes.data, y.ctypes.data, n, calls)

    def result():
        run(1)
        return {"output 0": y}

    return Subject(run, result)


def of_size(name, n, words, at_most, rounds):
    def target(label, **more):
        return Target(f"gelu chain, {words}, {label}", **more)

    return Case(
        name=f"gelu_chain_{name}",
        builders={
            "megjit": on.by_backend("MLIR", partial(megjit, n)),
            "megjit_halide": on.by_backend("HALIDE", partial(megjit, n)),
            "torch": partial(torch, n),
            "torch_compile": partial(torch, n, compiled=True),
            "jax": partial(jax, n),
            "c": partial(by_hand, n, False),
            "c_fast_math": partial(by_hand, n, True),
        },
        targets=(
            target("MLIR", against=PEERS, at_most=at_most),
            target("Halide", of="megjit_halide", against=PEERS, at_most=at_most),
            target("hand-fused C", against=("c", "c_fast_math")),
        ),
        rtol=1e-5,
        atol=2e-6,
        rounds=rounds,
        seconds=0.05 if n < 10**7 else 0.2,
        work={"bytes": 8.0 * n},
    )


CASES = [
    of_size("1e3", 1000, "1e3", 0.5, (11, 5)),
    of_size("1e5", 100_000, "1e5", 0.6, (11, 5)),
    of_size("16e6", 16_000_000, "1.6e7", 0.35, (9, 3)),
]
