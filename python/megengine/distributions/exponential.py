"""The exponential distribution."""

from collections.abc import Sequence

import numpy as np

from .. import functional as F
from .._core import is_tracing
from ..random import uniform
from ..tensor import Tensor
from .distribution import Distribution


class Exponential(Distribution):
    """Exponential distribution: the density is ``rate * exp(-rate * x)`` for x >= 0.

    Parameters
    ----------
    rate : float or Tensor
        Above 0; a Tensor makes a batch of distributions. A trace does not look at it.

    Raises
    ------
    AssertionError
        For a rate of 0 or less.

    Examples
    --------
    >>> import megengine as mge
    >>> from megengine.distributions import Exponential
    >>> waiting = Exponential(mge.Tensor([0.5, 2.0]))
    >>> waiting.mean.tolist(), waiting.variance.tolist()
    ([2.0, 0.5], [4.0, 0.25])
    >>> waiting.cdf(mge.Tensor(0.0)).tolist()
    [0.0, 0.0]
    """

    def __init__(self, rate: float | Tensor) -> None:
        self.rate = rate if isinstance(rate, Tensor) else Tensor(np.asarray(rate, np.float32))
        if not is_tracing():
            if not bool((self.rate.numpy() > 0).all()):
                raise AssertionError(f"Exponential: rate must be positive, not {rate}")
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
        """Returns draws of shape sample_shape + batch_shape, differentiable in the rate.

        They are made by inversion of `cdf`.

        Parameters
        ----------
        sample_shape : sequence of int
            Extents that are put before the distribution's shapes.

        Returns
        -------
        Tensor
            Float32.
        """
        shape = self._extended_shape(sample_shape)
        u = uniform(size=shape) if shape else F.reshape(uniform(size=(1,)), ())
        return -F.log1p(-u) / self.rate

    def log_prob(self, value: Tensor) -> Tensor:
        """Returns ``log(rate) - rate * value``, the logarithm of the density; value must be >= 0.

        Parameters
        ----------
        value : Tensor
            Points, whose shape broadcasts with that of the parameters.

        Returns
        -------
        Tensor
            The broadcast shape, float32.
        """
        return F.log(self.rate) - self.rate * value

    def cdf(self, value: Tensor) -> Tensor:
        """Returns ``1 - exp(-rate * value)``, the probability of at most ``value`` >= 0.

        Parameters
        ----------
        value : Tensor
            Points, whose shape broadcasts with that of the parameters.

        Returns
        -------
        Tensor
            The broadcast shape, float32, in [0, 1].
        """
        return 1 - F.exp(-self.rate * value)

    def icdf(self, value: Tensor) -> Tensor:
        """Returns ``-log(1 - value) / rate``, the inverse of `cdf`; value lies in [0, 1).

        Parameters
        ----------
        value : Tensor
            Probabilities in [0, 1), whose shape broadcasts with that of the parameters.

        Returns
        -------
        Tensor
            The broadcast shape, float32.
        """
        return -F.log(1 - value) / self.rate
