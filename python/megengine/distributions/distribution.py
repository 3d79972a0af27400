"""Base of distributions."""

from collections.abc import Sequence

from .. import functional as F
from ..tensor import Tensor

__all__ = ["Distribution"]


class Distribution:
    """A family of distributions of ``batch_shape``, whose single draws have ``event_shape``.

    Subclasses define mean, variance, sample, log_prob, cdf and icdf; a family without one raises
    TypeError there.
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
        """Shape over which the parameters are batched."""
        return self._batch_shape

    @property
    def event_shape(self) -> tuple[int, ...]:
        """Shape of a single draw."""
        return self._event_shape

    def expand(
        self, batch_shape: Sequence[int], _instance: "Distribution | None" = None
    ) -> "Distribution":
        """The distribution with its parameters broadcast to ``batch_shape``."""
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
        """Expected squared distance to the mean."""
        raise self._undefined("variance")

    @property
    def stddev(self) -> Tensor:
        """Square root of the variance."""
        return F.sqrt(self.variance)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Draws of shape sample_shape + batch_shape + event_shape."""
        raise self._undefined("sample")

    def log_prob(self, value: Tensor) -> Tensor:
        """Log of the density at ``value``."""
        raise self._undefined("log_prob")

    def cdf(self, value: Tensor) -> Tensor:
        """Probability of at most ``value``."""
        raise self._undefined("cdf")

    def icdf(self, value: Tensor) -> Tensor:
        """The inverse of `cdf`."""
        raise self._undefined("icdf")

    def _extended_shape(self, sample_shape: Sequence[int] = ()) -> tuple[int, ...]:
        return tuple(sample_shape) + self._batch_shape + self._event_shape

    def __repr__(self) -> str:
        names = [n for n in vars(self) if not n.startswith("_")]
        return f"{type(self).__name__}({', '.join(f'{n}={getattr(self, n)}' for n in names)})"
