"""Random tensors. Same seed, same calls: same numbers."""

from .rng import (
    RNG,
    beta,
    exponential,
    gamma,
    multinomial,
    normal,
    permutation,
    poisson,
    seed,
    shuffle,
    uniform,
)  # fmt: skip

__all__ = [
    "RNG", "beta", "exponential", "gamma", "multinomial", "normal", "permutation", "poisson",
    "seed", "shuffle", "uniform",
]  # fmt: skip
