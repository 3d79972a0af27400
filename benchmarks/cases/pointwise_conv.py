"""How long does a 1x1 convolution of row-major images take, forward and with its gradients?"""

import math
from functools import partial

import numpy as np
from case import Case, Target
from cases import _frameworks as on

# Images, channels before and after, side.
SIZES = {"56": (8, 256, 64, on.size(56, 8)), "28": (8, 128, 512, on.size(28, 8)), "14": (8, 1024, 256, on.size(14, 8))}


def data(size):
    images, channels, out, side = SIZES[size]
    rng = np.random.RandomState(0)
    shapes = (images, channels, side, side), (out, channels, 1, 1), (images, out, side, side)
    return [rng.randn(*shape).astype(np.float32) for shape in shapes]


def megjit(size, grad):
    on.setup_megjit()
    import megengine.functional as F

    *operands, dy = data(size)
    if not grad:
        return on.calling_megjit(lambda x, w: (F.conv2d(x, w),), operands, without_host=True)
    return on.gradients_by_megjit(F.conv2d, operands, dy)


def torch(size, grad):
    import torch
    import torch.nn.functional as F

    on.setup_torch()
    *operands, dy = data(size)
    if not grad:
        return on.calling_torch(lambda x, w: (F.conv2d(x, w),), operands)
    values = [on.torch_of(array).requires_grad_() for array in operands]
    return on.calling_torch(lambda dy: torch.autograd.grad(F.conv2d(*values), values, dy), [dy])


def jax(size, grad):
    import jax

    *operands, dy = data(size)

    def forward(x, w):
        return jax.lax.conv(x, w, (1, 1), "VALID")

    if not grad:
        return on.calling_jax(lambda *xs: (forward(*xs),), operands)
    return on.calling_jax(lambda dy, *xs: jax.vjp(forward, *xs)[1](dy), [dy, *operands])


CASES = [
    Case(
        name=f"pointwise_conv_{size}" + ("_grad" if grad else ""),
        builders={"megjit": partial(megjit, size, grad), "torch": partial(torch, size, grad), "jax": partial(jax, size, grad)},
        targets=(Target(f"{channels} to {out} channels at {side} x {side}{', with gradients' * grad}", against=("torch", "jax"), at_most=1.0),),
        rtol=1e-3,
        atol=1e-2,
        work={"flops": (6.0 if grad else 2.0) * math.prod((images, channels, out, side, side))},
    )
    for size, (images, channels, out, side) in SIZES.items()
    for grad in (False, True)
]
