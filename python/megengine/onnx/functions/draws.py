"""Random numbers, drawn from megengine.random's stream; the seed of a node is ignored."""

from __future__ import annotations

from typing import Any

from ... import random
from ...tensor import Tensor
from ._table import counterpart, dtype_of

_FLOAT = 1  # TensorProto.FLOAT


@counterpart("RandomUniform")
def random_uniform(*, shape: Any, dtype: int = _FLOAT, high: float = 1.0, low: float = 0.0, seed: float = 0.0) -> Tensor:
    return random.uniform(low, high, size=tuple(shape)).astype(dtype_of(dtype))


@counterpart("RandomUniformLike")
def random_uniform_like(x: Tensor, *, dtype: int | None = None, high: float = 1.0, low: float = 0.0, seed: float = 0.0) -> Tensor:
    return random.uniform(low, high, size=x._tuple_shape).astype(x.dtype if dtype is None else dtype_of(dtype))


@counterpart("RandomNormal")
def random_normal(*, shape: Any, dtype: int = _FLOAT, mean: float = 0.0, scale: float = 1.0, seed: float = 0.0) -> Tensor:
    return random.normal(mean, scale, size=tuple(shape)).astype(dtype_of(dtype))


@counterpart("RandomNormalLike")
def random_normal_like(x: Tensor, *, dtype: int | None = None, mean: float = 0.0, scale: float = 1.0, seed: float = 0.0) -> Tensor:
    return random.normal(mean, scale, size=x._tuple_shape).astype(x.dtype if dtype is None else dtype_of(dtype))
