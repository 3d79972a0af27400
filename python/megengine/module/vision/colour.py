"""Noise and contrast."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ... import functional as F
from ...tensor import Tensor
from ..module import Module
from ._images import Stream, as_float, draw_range, like

__all__ = [
    "AdditiveElemwise",
    "AdditiveGaussianNoise",
    "AdditiveLaplaceNoise",
    "AdditivePoissonNoise",
    "LinearContrast",
]


class AdditiveElemwise(Module):
    """Adds ``sample(size)`` to images; per_channel False: the channels of a pixel get the same noise."""

    def __init__(self, per_channel: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._per_channel = per_channel

    def forward(self, inp: Tensor) -> Tensor:
        size = inp._tuple_shape
        if not self._per_channel:
            size = (size[0], 1, *size[2:])
        return like(as_float(inp) + self.sample(size), inp)

    def sample(self, size: tuple[int, ...]) -> Tensor:
        """Noise of this shape, float32."""
        raise TypeError(f"{type(self).__name__} does not define sample(size)")

    @property
    def per_channel(self) -> bool:
        """Whether each channel has noise of its own."""
        return self._per_channel

    @per_channel.setter
    def per_channel(self, per_channel: bool) -> None:
        self._per_channel = per_channel


class _SeededNoise(AdditiveElemwise):
    """Noise from a random generator of its own, which setting ``seed`` starts anew."""

    def __init__(self, per_channel: bool, seed: int | None) -> None:
        super().__init__(per_channel)
        self.seed = seed

    @property
    def seed(self) -> int | None:
        """Seed of the stream."""
        return self._seed

    @seed.setter
    def seed(self, seed: int | None) -> None:
        self._seed = seed
        self.rng_func = Stream(seed)


class AdditiveLaplaceNoise(_SeededNoise):
    """Laplace noise of a mean and a standard deviation (scale std / sqrt 2)."""

    def __init__(
        self,
        mean: float = 0.0,
        std: float = 1.0,
        per_channel: bool = False,
        seed: int | None = None,
    ) -> None:
        super().__init__(per_channel, seed)
        self.mean = mean
        self.std = std
        self.finfo = np.finfo(np.float32)

    def sample(self, size: tuple[int, ...]) -> Tensor:
        # The inverse of the distribution function at u + 1/2; eps keeps the logarithm finite.
        u = self.rng_func.uniform(-0.5, 0.5, size=size)
        tail = F.maximum(1.0 - 2.0 * F.abs(u), float(self.finfo.eps))
        return self.mean - (self.std / math.sqrt(2.0)) * F.sign(u) * F.log(tail)


class AdditivePoissonNoise(_SeededNoise):
    """Poisson noise of rate ``lam``."""

    def __init__(
        self, lam: float = 1.0, per_channel: bool = False, seed: int | None = None
    ) -> None:
        super().__init__(per_channel, seed)
        self.lam = lam

    def sample(self, size: tuple[int, ...]) -> Tensor:
        return self.rng_func.poisson(F.full(size, float(self.lam)))


class AdditiveGaussianNoise(_SeededNoise):
    """Normal noise of a mean and a standard deviation."""

    def __init__(
        self,
        mean: float = 0.0,
        std: float = 1.0,
        per_channel: bool = False,
        seed: int | None = None,
    ) -> None:
        super().__init__(per_channel, seed)
        self.mean = mean
        self.std = std

    def sample(self, size: tuple[int, ...]) -> Tensor:
        return self.rng_func.normal(self.mean, self.std, size=size)


class LinearContrast(Module):
    """``centre + alpha * (x - centre)``; centre is 127 for uint8 images and 0 for float ones.

    alpha: a number, or (low, high) to draw from, for every image or, per_channel, for every channel.
    """

    def __init__(
        self,
        alpha: float | tuple[float, float],
        per_channel: bool = False,
        seed: int | None = None,
    ) -> None:
        super().__init__()
        self.alpha = alpha
        self.seed = seed
        self.per_channel = per_channel
        self.rng_func = Stream(seed)

    def forward(self, inp: Tensor) -> Tensor:
        n, c = inp._tuple_shape[:2]
        size = (n, c if self.per_channel else 1, 1, 1)
        alpha = draw_range(self.rng_func, self.alpha, size)
        centre = 127.0 if inp.dtype == np.uint8 else 0.0
        return like((as_float(inp) - centre) * alpha + centre, inp)
