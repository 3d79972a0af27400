"""Does the time until a graph is ready grow linearly with the graph, and how does it compare?"""

from functools import partial

from case import Case, Target
from cases import _chains, _mlp

WIDTH, BATCH = 16, 8


def mlp(layers):
    sizes = (WIDTH,) * layers + (10,)
    return sizes, BATCH, True


CASES = [
    Case(
        name="chain_1000_ready",
        builders={
            "megjit": partial(_chains.megjit_traced, 1000),
            "jax": partial(_chains.jax, 1000),
        },
        reference="jax",
        fresh=True,
        cache="cold",
        rounds=(3, 1),
    ),
    Case(
        name="chain_5000_ready",
        builders={
            "megjit": partial(_chains.megjit_traced, 5000),
            "jax": partial(_chains.jax, 5000),
        },
        reference="jax",
        targets=(
            Target("chain of 5,000 ops ready", against=("jax",), at_most=0.5),
            Target(
                "chain, 5,000 ops against 1,000",
                against=("megjit",),
                at_most=6.0,
                other_case="chain_1000_ready",
            ),
        ),
        fresh=True,
        cache="cold",
        rounds=(3, 1),
    ),
    Case(
        name="mlp_1000_ready",
        builders={
            "megjit": partial(_mlp.megjit, *mlp(1000)),
            "torch": partial(_mlp.torch, *mlp(1000)),
            "jax": partial(_mlp.jax, *mlp(1000)),
        },
        targets=(Target("step of 1,000-layer MLP ready", against=("jax",), at_most=0.15),),
        rtol=1e-2,
        atol=1e-4,
        fresh=True,
        cache="cold",
        rounds=(2, 1),
    ),
    Case(
        name="mlp_5000_ready",
        builders={
            "megjit": partial(_mlp.megjit, *mlp(5000)),
            "torch": partial(_mlp.torch, *mlp(5000)),
        },
        targets=(
            Target("step of 5,000-layer MLP ready", at_most=12.0),
            Target(
                "MLP, 5,000 layers against 1,000",
                against=("megjit",),
                at_most=6.0,
                other_case="mlp_1000_ready",
            ),
        ),
        rtol=1e-2,
        atol=1e-4,
        fresh=True,
        cache="cold",
        rounds=(2, 0),
    ),
]
