"""Base of distributions."""

from collections.abc import Sequence

from .. import functional as F
from ..tensor import Tensor

__all__ = ["Distribution"]


class Distribution:
    """Base of probability distributions; a Tensor of parameters makes a batch of distributions.

    Parameters
    ----------
    batch_shape : tuple of int
        Shape of the parameters.
    event_shape : tuple of int
        Shape of a single draw.

    Raises
    ------
    TypeError
        For a method or property that a subclass does not define.

    Notes
    -----
    Subclasses define mean, variance, sample, log_prob, cdf and icdf.

    Examples
    --------
    >>> import megengine as mge
    >>> from megengine.distributions import Exponential
    >>> batch = Exponential(mge.Tensor([1.0, 2.0, 4.0]))
    >>> batch.batch_shape, batch.event_shape, batch.sample((10,)).shape
    ((3,), (), (10, 3))
    """

    def __init__(
        self, batch_shape: tuple[int, ...] = (), event_shape: tuple[int, ...] = ()
    ) -> None:
        self._batch_shape = tuple(batch_shape)
        self._event_shape = tuple(event_shape)

    def _undefined(self, what: str) -> TypeError:
        return TypeError(f"{type(self).__name__} does not define {what}")

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """Shape of the parameters: how many distributions this is."""
        return self._batch_shape

    @property
    def event_shape(self) -> tuple[int, ...]:
        """Shape of a single draw."""
        return self._event_shape

    def expand(
        self, batch_shape: Sequence[int], _instance: "Distribution | None" = None
    ) -> "Distribution":
        """Returns the distribution with its parameters broadcast to ``batch_shape``.

        Parameters
        ----------
        batch_shape : sequence of int
            New shape, to which the parameters' shape broadcasts.

        Returns
        -------
        Distribution
            The distribution.
        """
        new = type(self).__new__(type(self)) if _instance is None else _instance
        for name, value in vars(self).items():
            setattr(
                new,
                name,
                F.broadcast_to(value, tuple(batch_shape)) if isinstance(value, Tensor) else value,
            )
        Distribution.__init__(new, tuple(batch_shape), self._event_shape)
        return new

    @property
    def mean(self) -> Tensor:
        """Expected value."""
        raise self._undefined("mean")

    @property
    def variance(self) -> Tensor:
        """Expected squared distance from the mean."""
        raise self._undefined("variance")

    @property
    def stddev(self) -> Tensor:
        """Standard deviation: square root of the variance."""
        return F.sqrt(self.variance)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Returns draws of shape sample_shape + batch_shape + event_shape.

        Parameters
        ----------
        sample_shape : sequence of int
            Extents that are put before the distribution's shapes.

        Returns
        -------
        Tensor
            Float32.
        """
        raise self._undefined("sample")

    def log_prob(self, value: Tensor) -> Tensor:
        """Returns the logarithm of the density at ``value``; it broadcasts with the parameters.

        Parameters
        ----------
        value : Tensor
            Points, whose shape broadcasts with that of the parameters.

        Returns
        -------
        Tensor
            The broadcast shape, float32.
        """
        raise self._undefined("log_prob")

    def cdf(self, value: Tensor) -> Tensor:
        """Returns the probability of at most ``value``.

        Parameters
        ----------
        value : Tensor
            Points, whose shape broadcasts with that of the parameters.

        Returns
        -------
        Tensor
            The broadcast shape, float32, in [0, 1].
        """
        raise self._undefined("cdf")

    def icdf(self, value: Tensor) -> Tensor:
        """Returns the inverse of `cdf`: draws are at most this with probability ``value``.

        Parameters
        ----------
        value : Tensor
            Probabilities in [0, 1), whose shape broadcasts with that of the parameters.

        Returns
        -------
        Tensor
            The broadcast shape, float32.
        """
        raise self._undefined("icdf")

    def _extended_shape(self, sample_shape: Sequence[int] = ()) -> tuple[int, ...]:
        return tuple(sample_shape) + self._batch_shape + self._event_shape

    def __repr__(self) -> str:
        names = [n for n in vars(self) if not n.startswith("_")]
        return f"{type(self).__name__}({', '.join(f'{n}={getattr(self, n)}' for n in names)})"
