"""How fast are layer norm and softmax of 4096 rows of 1024, and their gradients?"""

from functools import partial

import handmade
import numpy as np
from case import Case, Subject, Target
from cases import _frameworks as on

ROWS, COLUMNS = on.size(65536, 16) if on.ON_GPU else 4096, 1024
PEERS = ("torch", "torch_compile", "jax")
# Arrays read and written of the size of x: what can be fused reads and writes no more.
PASSES = {"layer_norm": 2, "layer_norm_grad": 3, "softmax": 2, "softmax_grad": 3}


def data(norm):
    """x, then scale and shift for layer norm; and dy."""
    rng = np.random.RandomState(0)
    x, dy = (rng.randn(ROWS, COLUMNS).astype(np.float32) for _ in range(2))
    scale, shift = (1 + 0.1 * rng.randn(2, COLUMNS)).astype(np.float32)
    return ([x, scale, shift] if norm else [x]), dy


def megjit(norm, grad):
    on.setup_megjit()
    import megengine.functional as F

    arrays, dy = data(norm)

    def forward(x, *affine):
        return F.nn.layer_norm(x, COLUMNS, True, *affine) if norm else F.softmax(x, 1)

    if not grad:
        return on.calling_megjit(lambda *xs: (forward(*xs),), arrays, without_host=True)
    return on.gradients_by_megjit(forward, arrays, dy)


def torch(norm, grad, compiled=False):
    import torch
    import torch.nn.functional as F

    on.setup_torch()
    arrays, dy = data(norm)

    def forward(x, *affine):
        return F.layer_norm(x, (COLUMNS,), *affine) if norm else F.softmax(x, 1)

    if not grad:
        return on.calling_torch(lambda *xs: (forward(*xs),), arrays, compiled)
    values = [on.torch_of(array).requires_grad_() for array in arrays]
    forward = torch.compile(forward) if compiled else forward
    return on.calling_torch(lambda dy: torch.autograd.grad(forward(*values), values, dy), [dy])


def jax(norm, grad):
    import jax
    import jax.numpy as jnp

    arrays, dy = data(norm)

    def forward(x, *affine):
        if not norm:
            return jax.nn.softmax(x, 1)
        mean, var = jnp.mean(x, 1, keepdims=True), jnp.var(x, 1, keepdims=True)
        return (x - mean) * jax.lax.rsqrt(var + 1e-5) * affine[0] + affine[1]

    if not grad:
        return on.calling_jax(lambda *xs: (forward(*xs),), arrays)
    return on.calling_jax(lambda dy, *xs: jax.vjp(forward, *xs)[1](dy), [dy, *arrays])


def by_hand(norm, grad, fast):
    arrays, dy = data(norm)
    inputs = [*arrays[:2], dy] if grad else arrays  # the gradient does not read the shift
    outputs = [np.empty_like(array) for array in (arrays if grad else arrays[:1])]
    name = ("layer_norm" if norm else "softmax") + ("_grad" if grad else "")
    arrays = (*inputs, *outputs)
    kernel = handmade.kernel("kernels.c", name, pointers=len(arrays), fast=fast)

    def run(calls):
        kernel(*(array.ctypes.data for array in arrays), ROWS, calls)

    def result():
        run(1)
        return {f"output {i}": y for i, y in enumerate(outputs)}

    return Subject(run, result)


def case(name, norm, grad, at_most):
    words = ("layer norm" if norm else "softmax") + (" and its gradient" if grad else "")
    return Case(
        name=name,
        builders={
            "megjit": on.by_backend("MLIR", partial(megjit, norm, grad)),
            "megjit_halide": on.by_backend("HALIDE", partial(megjit, norm, grad)),
            "torch": partial(torch, norm, grad),
            "torch_compile": partial(torch, norm, grad, compiled=True),
            "jax": partial(jax, norm, grad),
            "c": partial(by_hand, norm, grad, False),
            "c_fast_math": partial(by_hand, norm, grad, True),
        },
        targets=(
            Target(f"{words}, MLIR", against=PEERS, at_most=at_most),
            Target(f"{words}, Halide", of="megjit_halide", against=PEERS, at_most=at_most),
            Target(f"{words}, hand-fused C", against=("c", "c_fast_math")),
        ),
        atol=1e-5 if not (norm and grad) else 1e-3,  # sums over 4096 rows
        seconds=0.1,
        work={"bytes": 4.0 * ROWS * COLUMNS * PASSES[name]},
    )


CASES = [
    case("layer_norm", True, False, 0.6),
    case("layer_norm_grad", True, True, 0.6),
    case("softmax", False, False, 0.65),
    case("softmax_grad", False, True, 0.65),
]
