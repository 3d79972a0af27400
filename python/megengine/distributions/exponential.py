"""The exponential distribution."""

from collections.abc import Sequence

import numpy as np

from .. import functional as F
from ..random import uniform
from ..tensor import Tensor
from .distribution import Distribution


class Exponential(Distribution):
    """Density ``rate * exp(-rate * x)`` for x >= 0."""

    def __init__(self, rate: float | Tensor) -> None:
        self.rate = rate if isinstance(rate, Tensor) else Tensor(np.asarray(rate, np.float32))
        super().__init__(self.rate._tuple_shape)

    @property
    def mean(self) -> Tensor:
        """1 / rate."""
        return 1.0 / self.rate

    @property
    def stddev(self) -> Tensor:
        """1 / rate."""
        return 1.0 / self.rate

    @property
    def variance(self) -> Tensor:
        """1 / rate ** 2."""
        return 1.0 / F.square(self.rate)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Draws by inversion; differentiable in the rate."""
        shape = self._extended_shape(sample_shape)
        u = uniform(size=shape) if shape else F.reshape(uniform(size=(1,)), ())
        return -F.log1p(-u) / self.rate

    def log_prob(self, value: Tensor) -> Tensor:
        """``log(rate) - rate * value``."""
        return F.log(self.rate) - self.rate * value

    def cdf(self, value: Tensor) -> Tensor:
        """``1 - exp(-rate * value)``."""
        return 1 - F.exp(-self.rate * value)

    def icdf(self, value: Tensor) -> Tensor:
        """``-log(1 - value) / rate``."""
        return -F.log(1 - value) / self.rate
