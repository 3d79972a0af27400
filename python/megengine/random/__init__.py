"""Random tensors. Same seed, same calls: same numbers."""

from .rng import (
    RNG,
    beta,
    exponential,
    gamma,
    get_state,
    multinomial,
    normal,
    permutation,
    poisson,
    seed,
    set_state,
    shuffle,
    uniform,
)  # fmt: skip

__all__ = [
    "RNG", "beta", "exponential", "gamma", "get_state", "multinomial", "normal", "permutation",
    "poisson", "seed", "set_state", "shuffle", "uniform",
]  # fmt: skip
