"""How fast is attention, all keys or causal, forward and with its gradient, and as a program writes it itself?"""

import math
from functools import partial

import numpy as np
from case import Case, Target
from cases import _frameworks as on

# n, heads, length, width; is it causal?
SIZES = {
    "short": ((4, 8, on.size(256, 32), 64), False),
    "long": ((1, 12, on.size(1024, 64), 64), False),
    "causal": ((1, 12, on.size(1024, 64), 64), True),
}


def data(size):
    rng = np.random.RandomState(0)
    return [rng.randn(*SIZES[size][0]).astype(np.float32) for _ in range(4)]


def megjit(size, grad, by_hand=False):
    on.setup_megjit()
    import megengine.functional as F

    *operands, dy = data(size)
    causal = SIZES[size][1]
    width = operands[0].shape[3]

    def forward(q, k, v):
        if not by_hand:
            return F.scaled_dot_product_attention(q, k, v, is_causal=causal)
        return F.matmul(F.softmax(F.matmul(q, k, transpose_b=True) / width**0.5, axis=-1), v)

    if not grad:
        return on.calling_megjit(lambda *xs: (forward(*xs),), operands, without_host=True)
    return on.gradients_by_megjit(forward, operands, dy)


def torch(size, grad):
    import torch
    import torch.nn.functional as F

    on.setup_torch()
    *operands, dy = data(size)
    forward = partial(F.scaled_dot_product_attention, is_causal=SIZES[size][1])
    if not grad:
        return on.calling_torch(lambda *xs: (forward(*xs),), operands)
    values = [on.torch_of(array).requires_grad_() for array in operands]
    return on.calling_torch(lambda dy: torch.autograd.grad(forward(*values), values, dy), [dy])


def jax(size, grad):
    import jax

    *operands, dy = data(size)

    def forward(*qkv):
        q, k, v = (x.transpose(0, 2, 1, 3) for x in qkv)
        y = jax.nn.dot_product_attention(q, k, v, is_causal=SIZES[size][1])
        return y.transpose(0, 2, 1, 3)

    if not grad:
        return on.calling_jax(lambda *xs: (forward(*xs),), operands)
    return on.calling_jax(lambda dy, *xs: jax.vjp(forward, *xs)[1](dy), [dy, *operands])


# Times of torch's attention that ours is to need; by size, forward and with the gradient.
WANTED = {"short": (0.65, 0.7), "long": (0.85, 0.75), "causal": (0.85, 0.75)}

CASES = [
    Case(
        name=f"attention_{size}" + ("_grad" if grad else ""),
        builders={
            "megjit": partial(megjit, size, grad),
            "torch": partial(torch, size, grad),
            "jax": partial(jax, size, grad),
            **({} if SIZES[size][1] else {"megjit_by_hand": partial(megjit, size, grad, True)}),
        },
        targets=(
            Target(
                f"attention {'x'.join(map(str, shape))}{', causal' * causal}{', with gradient' * grad}",
                against=("torch", "jax"),
                at_most=WANTED[size][grad],
            ),
        ),
        rtol=1e-3,
        atol=1e-4,
        work={"flops": (14.0 if grad else 4.0) * math.prod(shape) * shape[2] * (0.5 if causal else 1)},
    )
    for size, (shape, causal) in SIZES.items()
    for grad in (False, True)
]
