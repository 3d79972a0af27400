"""How long is the wait for the first traced MLP step, with an empty and with a filled kernel cache?"""

from functools import partial

from case import Case, Target
from cases import _mlp
from cases.mlp_step import BATCH, PEERS, SIZES

BUILDERS = {
    "megjit": partial(_mlp.megjit, SIZES, BATCH),
    "torch": partial(_mlp.torch, SIZES, BATCH),
    "torch_compile": partial(_mlp.torch_compile, SIZES, BATCH),
    "jax": partial(_mlp.jax, SIZES, BATCH),
}

CASES = [
    Case(
        name="first_step_cold",
        builders=BUILDERS,
        targets=(
            Target("first MLP step, cold cache", against=("jax",), at_most=0.5),
            Target("first MLP step, cold, torch.compile", against=("torch_compile",)),
        ),
        rtol=1e-3,
        fresh=True,
        cache="cold",
        rounds=(5, 2),
    ),
    Case(
        name="first_step_warm",
        builders=BUILDERS,
        targets=(Target("first MLP step, warm cache", at_most=0.1),),
        rtol=1e-3,
        fresh=True,
        cache="warm",
        rounds=(5, 2),
    ),
]
assert set(PEERS) < set(BUILDERS)
