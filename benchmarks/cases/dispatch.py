"""What does one tiny op cost, and a chain of a hundred, eager and traced?"""

from functools import partial

import numpy as np
from case import Case, Subject, Target
from cases import _chains


def add_megjit():
    from cases import _frameworks as on

    import megengine as mge

    on.setup_megjit()
    a, b = mge.tensor(_chains.START), mge.tensor(_chains.SHIFT)

    def run(calls):
        for _ in range(calls):
            c = a + b
        c.numpy()

    return Subject(run, lambda: {"c": (a + b).numpy()})


def add_torch():
    import torch
    from cases import _frameworks as on

    on.setup_torch()
    a, b = torch.from_numpy(_chains.START), torch.from_numpy(_chains.SHIFT)

    def run(calls):
        for _ in range(calls):
            a + b  # noqa: B018 - the time of this is the question

    return Subject(run, lambda: {"c": (a + b).numpy()})


def add_jax():
    import jax.numpy as jnp

    a, b = jnp.asarray(_chains.START), jnp.asarray(_chains.SHIFT)

    def run(calls):
        for _ in range(calls):
            c = a + b
        c.block_until_ready()

    return Subject(run, lambda: {"c": np.asarray(a + b)})


CASES = [
    Case(
        name="eager_add",
        builders={"megjit": add_megjit, "torch": add_torch, "jax": add_jax},
        targets=(Target("eager a + b, one element", against=("torch",), at_most=0.5),),
    ),
    Case(
        name="eager_chain",
        builders={
            "megjit": partial(_chains.megjit_eager, 100),
            "torch": partial(_chains.torch, 100),
        },
        targets=(Target("eager chain of 100 ops", against=("torch",), at_most=0.5),),
    ),
    Case(
        name="traced_chain",
        builders={
            "megjit": partial(_chains.megjit_traced, 100, without_host=True),
            "megjit_body": partial(_chains.megjit_traced, 100),
            "torch": partial(_chains.torch, 100),
            "torch_compile": partial(_chains.torch, 100, compiled=True),
            "jax": partial(_chains.jax, 100),
        },
        targets=(
            Target("traced chain of 100, without_host", against=("jax",), at_most=1.0),
            Target("traced chain of 100, body walked", of="megjit_body", at_most=60e-6),
        ),
    ),
]
