"""Chains of element-wise ops on one element, in three frameworks; five ops repeat."""

import numpy as np
from case import Subject

START, SCALE, SHIFT = np.float32([0.3]), np.float32([0.9]), np.float32([0.1])


def body(x, a, b, ops, tanh, maximum):
    """``ops`` (a multiple of 5) element-wise operations on x; stays within (-2, 2)."""
    for _ in range(ops // 5):
        x = x * a
        x = x + b
        x = tanh(x)
        x = maximum(x, b)
        x = x - b
    return x


def megjit_eager(ops):
    return _megjit(ops, lambda function: function)


def megjit_traced(ops, **options):
    from megengine.jit import trace

    options = {"symbolic": True, "opt_level": 3, **options}
    return _megjit(ops, lambda function: trace(function, **options))


def _megjit(ops, wrap):
    from cases import _frameworks as on

    import megengine as mge
    import megengine.functional as F

    on.setup_megjit()
    x, a, b = (mge.tensor(array) for array in (START, SCALE, SHIFT))
    function = wrap(lambda x, a, b: body(x, a, b, ops, F.tanh, F.maximum))

    def run(calls):
        for _ in range(calls):
            y = function(x, a, b)
        y.numpy()

    return Subject(run, lambda: {"y": function(x, a, b).numpy()})


def torch(ops, compiled=False):
    import torch
    from cases import _frameworks as on

    on.setup_torch()
    x, a, b = (torch.from_numpy(array) for array in (START, SCALE, SHIFT))

    def function(x, a, b):
        return body(x, a, b, ops, torch.tanh, torch.maximum)

    if compiled:
        function = torch.compile(function)

    @torch.no_grad()
    def run(calls):
        for _ in range(calls):
            function(x, a, b)

    return Subject(run, lambda: {"y": function(x, a, b).numpy()})


def jax(ops):
    import jax
    import jax.numpy as jnp

    x, a, b = (jnp.asarray(array) for array in (START, SCALE, SHIFT))
    function = jax.jit(lambda x, a, b: body(x, a, b, ops, jnp.tanh, jnp.maximum))

    def run(calls):
        for _ in range(calls):
            y = function(x, a, b)
        y.block_until_ready()

    return Subject(run, lambda: {"y": np.asarray(function(x, a, b))})
