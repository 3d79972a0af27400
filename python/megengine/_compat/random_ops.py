"""Random ops with generators that are known by a number: ``apply(UniformRNG(seed=5, handle=new_rng_handle("xpux", 5)), shape)``."""

import itertools
from typing import Any

from ..core.op_objects import OpDef
from ..core.random_state import default_random_state
from ..core.tensor.dtype import dtype_name
from ..device import Device
from ..random import RNG
from ..random import seed as set_global_rng_seed
from ..tensor import Tensor

__all__ = [
    "BetaRNG", "GammaRNG", "GaussianRNG", "PermutationRNG", "PoissonRNG", "ShuffleRNG", "UniformRNG",
    "delete_rng_handle", "get_global_rng_seed", "get_rng_handle_compnode", "new_rng_handle", "set_global_rng_seed",
]  # fmt: skip

_numbers = itertools.count(1)
_generators: dict[int, tuple[RNG, Device]] = {}  # key: the handle


def new_rng_handle(comp_node: Device | str, seed: int, /) -> int:
    """Makes a generator on that device; returns its handle."""
    handle = next(_numbers)
    _generators[handle] = RNG(seed, str(comp_node)), Device(str(comp_node))
    return handle


def delete_rng_handle(handle: int, /) -> None:
    """Frees a generator; an unknown handle is ignored. TypeError unless it is a number."""
    if not isinstance(handle, int):
        raise TypeError(f"delete_rng_handle: {handle!r} is not the number that new_rng_handle gave")
    _generators.pop(handle, None)


def _generator(handle: int) -> tuple[RNG, Device]:
    if handle not in _generators:
        raise ValueError(f"no random generator has the handle {handle!r}\n  fix: new_rng_handle(device, seed) makes one")
    return _generators[handle]


def get_rng_handle_compnode(handle: int, /) -> Device:
    """The device of a generator. ValueError for a handle that names none."""
    return _generator(handle)[1]


def get_global_rng_seed() -> int:
    """The seed that the global generator was started with."""
    return default_random_state().current_seed


class _RandomOp(OpDef):
    """Draws from the generator of a handle, which was made with the op's seed."""

    seed: int
    handle: int

    def __init__(self, seed: int = 0, handle: int = 0, **params: Any) -> None:
        super().__init__(seed=seed, handle=handle, **params)

    def _rng(self) -> RNG:
        rng, _ = _generator(self.handle)
        if rng.seed != self.seed:
            raise ValueError(f"{type(self).__name__}: seed {self.seed}, and the generator of handle {self.handle} was made with {rng.seed}")
        return rng


class UniformRNG(_RandomOp):
    def __init__(self, seed: int = 0, dtype: Any = "float32", handle: int = 0) -> None:
        super().__init__(seed, handle, dtype=dtype)

    def run(self, shape: Tensor) -> Tensor:
        return self._rng().uniform(size=shape).astype(dtype_name(self.dtype))  # type: ignore[attr-defined]  # a parameter


class GaussianRNG(_RandomOp):
    def __init__(self, seed: int = 0, mean: float = 0.0, std: float = 1.0, dtype: Any = "float32", handle: int = 0) -> None:
        super().__init__(seed, handle, mean=mean, std=std, dtype=dtype)

    def run(self, shape: Tensor) -> Tensor:
        params: Any = self
        return self._rng().normal(params.mean, params.std, size=shape).astype(dtype_name(params.dtype))


class GammaRNG(_RandomOp):
    def run(self, shape: Tensor, scale: Tensor) -> Tensor:
        return self._rng().gamma(shape, scale)


class BetaRNG(_RandomOp):
    def run(self, alpha: Tensor, beta: Tensor) -> Tensor:
        return self._rng().beta(alpha, beta)


class PoissonRNG(_RandomOp):
    def run(self, lam: Tensor) -> Tensor:
        return self._rng().poisson(lam)


class PermutationRNG(_RandomOp):
    """The numbers below its operand, in random order."""

    def __init__(self, seed: int = 0, dtype: Any = "int32", handle: int = 0) -> None:
        super().__init__(seed, handle, dtype=dtype)

    def run(self, n: Tensor) -> Tensor:
        return self._rng().permutation(int(n.item())).astype(dtype_name(self.dtype))  # type: ignore[attr-defined]  # a parameter


class ShuffleRNG(_RandomOp):
    """The rows of its operand in random order, and their places before."""

    def run(self, x: Tensor) -> tuple[Tensor, Tensor]:
        order = self._rng().permutation(x._tuple_shape[0])
        return x[order], order
