"""How fast does Adam update one tensor of 1e5 or 1.6e7 elements, or 100 small ones?"""

from functools import partial

import handmade
import numpy as np
from case import Case, Subject, Target
from cases import _frameworks as on

RATE = 1e-3
PEERS = ("torch", "torch_foreach", "torch_compile", "jax")
MANY = tuple(range(1000, 11_000, 100))


def data(sizes):
    """Parameters and their gradients, which stay the same in every step."""
    rng = np.random.RandomState(0)
    return [[rng.randn(n).astype(np.float32) for n in sizes] for _ in range(2)]


def _stepping(step, wait, read, count):
    """Subject of ``step()``; read(i) gives a parameter. Three steps are compared."""

    def run(calls):
        for _ in range(calls):
            step()
        wait()

    def result():
        run(on.CHECKED_STEPS)
        return {f"parameter {i}": np.array(read(i)) for i in range(count)}

    return Subject(run, result)


def megjit(sizes, **trace_options):
    on.setup_megjit()
    import megengine as mge
    from megengine.jit import trace
    from megengine.optimizer import Adam

    values, gradients = data(sizes)
    parameters = [mge.Parameter(array) for array in values]
    gradients = [mge.tensor(array) for array in gradients]
    optimizer = Adam(parameters, lr=RATE)

    @trace(**{"symbolic": True, "opt_level": 3, **trace_options})
    def step(*gradients):
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient
        optimizer.step().clear_grad()

    return _stepping(
        lambda: step(*gradients), lambda: None, lambda i: parameters[i].numpy(), len(sizes)
    )


def torch(sizes, compiled=False, **form):
    import torch

    on.setup_torch()
    values, gradients = data(sizes)
    parameters = [torch.from_numpy(array).requires_grad_() for array in values]
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = torch.from_numpy(gradient)
    optimizer = torch.optim.Adam(parameters, lr=RATE, **form)
    step = torch.compile(optimizer.step) if compiled else optimizer.step
    return _stepping(step, lambda: None, lambda i: parameters[i].detach().numpy(), len(sizes))


def jax(sizes):
    import jax
    import jax.numpy as jnp

    values, gradients = (list(map(jnp.asarray, arrays)) for arrays in data(sizes))
    state = [values, *([jnp.zeros_like(p) for p in values] for _ in range(2)), jnp.float32(0)]

    def update(ps, ms, vs, count, gs):
        count = count + 1
        ms = [0.9 * m + 0.1 * g for m, g in zip(ms, gs, strict=True)]
        vs = [0.999 * v + 0.001 * g * g for v, g in zip(vs, gs, strict=True)]
        rate, root = RATE / (1 - 0.9**count), (1 - 0.999**count) ** -0.5
        ps = [
            p - rate * m / (jnp.sqrt(v) * root + 1e-8) for p, m, v in zip(ps, ms, vs, strict=True)
        ]
        return ps, ms, vs, count

    compiled = jax.jit(update, donate_argnums=(0, 1, 2))

    def step():
        state[:] = compiled(*state, gradients)

    return _stepping(
        step, lambda: jax.block_until_ready(state), lambda i: np.asarray(state[0][i]), len(sizes)
    )


def by_hand(n, fast):
    kernel = handmade.kernel("kernels.c", "adam", pointers=5, fast=fast)
    (p,), (g,) = data([n])
    arrays = p, np.zeros_like(p), np.zeros_like(p), g, np.zeros(1, np.intp)

    def step():
        kernel(*(array.ctypes.data for array in arrays), n, 1)

    return _stepping(step, lambda: None, lambda i: p, 1)


def of_sizes(name, sizes, words, at_most, rounds):
    hand = {"c": False, "c_fast_math": True} if len(sizes) == 1 else {}
    targets = [
        Target(f"Adam, {words}", of="megjit", against=PEERS, at_most=at_most),
        Target(f"Adam, {words}, body walked", of="megjit_body", against=PEERS),
        Target(f"Adam, {words}, Halide", of="megjit_halide", against=PEERS),
    ]
    if hand:
        targets.append(Target(f"Adam, {words}, hand-fused C", against=tuple(hand)))
    traced = partial(megjit, sizes, without_host=True)
    return Case(
        name=f"adam_{name}",
        builders={
            "megjit": on.by_backend("MLIR", traced),
            "megjit_body": on.by_backend("MLIR", partial(megjit, sizes)),
            "megjit_halide": on.by_backend("HALIDE", traced),
            "torch": partial(torch, sizes, fused=True),
            "torch_foreach": partial(torch, sizes, foreach=True),
            "torch_compile": partial(torch, sizes, compiled=True),
            "jax": partial(jax, sizes),
            **{name: partial(by_hand, sizes[0], fast) for name, fast in hand.items()},
        },
        targets=tuple(targets),
        rtol=1e-5,
        atol=1e-6,
        rounds=rounds,
        seconds=0.05 if sum(sizes) < 10**7 else 0.3,
        work={"bytes": 28.0 * sum(sizes)},
    )


CASES = [
    of_sizes("1e5", (100_000,), "1e5", 0.4, (11, 5)),
    of_sizes("16e6", (16_000_000,), "1.6e7", 0.35, (9, 3)),
    of_sizes("many", MANY, "100 small tensors", None, (11, 5)),
]
