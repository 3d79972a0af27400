"""How fast is a fused chain of ten element-wise ops, against peers and against C fused by hand?"""

from functools import partial

import handmade
import numpy as np
from case import Case, Subject, Target

PEERS = ("torch", "torch_compile", "jax")


def data(n):
    return np.random.RandomState(0).uniform(-4, 4, n).astype(np.float32)


def chain(x, tanh):
    """Ten ops, near gelu with a residual; reads one array and writes one. c/chain.c is the same."""
    t = x * x
    t = t * x
    t = t * 0.044715
    t = t + x
    t = t * 0.7978846
    t = tanh(t)
    t = t + 1.0
    t = t * 0.5
    t = t * x
    return t + x


def megjit(n):
    from cases import _frameworks as on

    import megengine as mge
    import megengine.functional as F
    from megengine.jit import trace

    on.setup_megjit()
    x = mge.tensor(data(n))
    function = trace(lambda x: chain(x, F.tanh), symbolic=True, opt_level=3, without_host=True)

    def run(calls):
        for _ in range(calls):
            y = function(x)
        y[0].item()

    return Subject(run, lambda: {"y": function(x).numpy()})


def torch(n, compiled=False):
    import torch
    from cases import _frameworks as on

    on.setup_torch()
    x = torch.from_numpy(data(n))
    function = torch.compile(lambda x: chain(x, torch.tanh)) if compiled else None
    function = function or (lambda x: chain(x, torch.tanh))

    def run(calls):
        for _ in range(calls):
            function(x)

    return Subject(run, lambda: {"y": function(x).numpy()})


def jax(n):
    import jax
    import jax.numpy as jnp

    x = jnp.asarray(data(n))
    function = jax.jit(lambda x: chain(x, jnp.tanh))

    def run(calls):
        for _ in range(calls):
            y = function(x)
        y.block_until_ready()

    return Subject(run, lambda: {"y": np.asarray(function(x))})


def by_hand(n, fast):
    kernel = handmade.kernel("chain.c", "chain", pointers=2, fast=fast)
    x, y = data(n), np.empty(n, np.float32)

    def result():
        kernel(x.ctypes.data, y.ctypes.data, n, 1)
        return {"y": y}

    return Subject(lambda calls: kernel(x.ctypes.data, y.ctypes.data, n, calls), result)


def of_size(name, n, words, at_most, rounds):
    return Case(
        name=f"fused_chain_{name}",
        builders={
            "megjit": partial(megjit, n),
            "torch": partial(torch, n),
            "torch_compile": partial(torch, n, compiled=True),
            "jax": partial(jax, n),
            "c": partial(by_hand, n, False),
            "c_fast_math": partial(by_hand, n, True),
        },
        targets=(
            Target(f"chain of ten, {words}, peers", against=PEERS, at_most=at_most),
            Target(f"chain of ten, {words}, hand-fused C", against=("c",), at_most=1.0),
            Target(f"chain of ten, {words}, C with -ffast-math", against=("c_fast_math",)),
        ),
        rtol=1e-5,
        atol=2e-6,
        rounds=rounds,
        seconds=0.05 if n < 10**7 else 0.2,
        work={"bytes": 8.0 * n},
    )


CASES = [
    of_size("1e3", 1000, "1e3", 0.7, (11, 5)),
    of_size("1e5", 100_000, "1e5", 0.7, (11, 5)),
    of_size("16e6", 16_000_000, "1.6e7", 0.4, (9, 3)),
]
