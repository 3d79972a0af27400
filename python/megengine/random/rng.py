"""Random generators: each draw takes a key (seed, counter) and moves the counter on.

Numbers follow from the key alone (Philox 4x32-10, Salmon et al., 2011), so a draw in a traced
function is an op of the key, and the key is one of its inputs.
"""

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from .. import _core
from .._core import RandomState
from ..core import apply_const, ops
from ..core.tensor.dtype import dtype_name
from ..core.tensor.shapes import IntLike, IntsLike, Shape, as_int, as_ints
from ..core.tensor.shapes import broadcast_to as _broadcast_to
from ..tensor import Tensor

__all__ = [
    "seed", "RNG", "uniform", "normal", "gamma", "beta", "poisson", "multinomial", "permutation",
    "shuffle", "exponential",
]  # fmt: skip


# Generators without a seed of their own start from numbers drawn here.
_fresh_seeds = np.random.SeedSequence()


def _fresh_seed() -> int:
    return int(_fresh_seeds.spawn(1)[0].generate_state(1, np.uint64)[0])


def default_random_state() -> RandomState:
    """The state that module functions, dropout and initialisers draw from."""
    return _default


_default = _core.default_random_state()
_default.seed(_fresh_seed())


def _checked_seed(seed: IntLike) -> int:
    value = as_int(seed, "seed")
    if value < 0:
        raise ValueError(f"seed: {value} is negative")
    return value


def seed(seed: int) -> None:
    """Starts the global generator anew.

    >>> from megengine import random
    >>> random.seed(1); a = random.uniform(size=(2,)).numpy()
    >>> random.seed(1); bool((a == random.uniform(size=(2,)).numpy()).all())
    True
    """
    default_random_state().seed(_checked_seed(seed))


def _shape(size: IntsLike | None, default: Shape = (1,)) -> Shape:
    if size is None:
        return default
    shape = as_ints(size, "size")
    if any(extent < 0 for extent in shape):
        raise ValueError(f"random: size {list(shape)} has a negative extent")
    return shape


def _parameter(value: ArrayLike, name: str, positive: bool) -> Tensor:
    if not isinstance(value, Tensor):
        parameter = apply_const(np.asarray(value, np.float32))
    else:
        parameter = (value if value.dtype == np.float32 else ops.cast(value, dtype="float32")).detach()
    if positive and not _is_recording():
        assert bool((parameter.numpy() > 0).all()), f"random: {name} must be positive"
    return parameter


def _is_recording() -> bool:
    return _core.is_tracing()


def _broadcast_parameters(key: Tensor, size: IntsLike | None, *parameters: Tensor) -> list[Tensor]:
    """Parameters at the shape of the result, size + their broadcast shape (never () without a size), and where the key lies."""
    common = np.broadcast_shapes(*(p._tuple_shape for p in parameters))
    shape = common or (1,) if size is None else _shape(size) + common
    return [_broadcast_to(p.to(key.device), shape) for p in parameters]


class RNG:
    """A generator of its own: ``RNG(seed=1).uniform(size=(2, 3))``. Methods are those of
    ``megengine.random``.
    """

    def __init__(self, seed: int | None = None, device: str | None = None) -> None:
        self._device = None if device is None else str(device)
        if self._device is not None:
            _core.find_device(self._device)
        started = _fresh_seed() if seed is None else _checked_seed(seed)
        self._seed: int | None = started  # None: the global generator, whose seed may change
        self._state = RandomState(started)

    @property
    def seed(self) -> int:
        """The seed that the generator was started with."""
        return self._state.current_seed if self._seed is None else self._seed

    def _key(self, *given: object) -> Tensor:
        """The next key: where the first Tensor of ``given`` lies, else on the generator's device."""
        for value in given:
            if isinstance(value, Tensor):
                return self._state.key(value._device_name)
        return self._state.key(self._device)

    def _placed(self, x: Tensor) -> Tensor:
        return x if self._device is None else x.to(self._device)

    def uniform(self, low: float = 0, high: float = 1, size: IntsLike | None = None) -> Tensor:
        """Uniform in [low, high), float32; size None is (1,). AssertionError unless low < high."""
        assert low < high, f"uniform: low {low} is not below high {high}"
        x = ops.random_uniform(self._key(), shape=_shape(size))
        if (low, high) != (0, 1):
            x = ops.add(ops.mul(x, high - low), low)
        return self._placed(x)

    def normal(self, mean: float = 0, std: float = 1, size: IntsLike | None = None) -> Tensor:
        """Normal of the given mean and standard deviation, float32; size None is (1,)."""
        x = ops.random_normal(self._key(mean, std), shape=_shape(size))
        if isinstance(std, Tensor) or std != 1:
            x = ops.mul(x, std)
        if isinstance(mean, Tensor) or mean != 0:
            x = ops.add(x, mean)
        return self._placed(x)

    def gamma(
        self,
        shape: float | Tensor,
        scale: float | Tensor = 1,
        size: IntsLike | None = None,
    ) -> Tensor:
        """Gamma of the given shape and scale; result shape is size + the parameters'.
        AssertionError unless positive.
        """
        parameters = _parameter(shape, "shape", True), _parameter(scale, "scale", True)
        key = self._key(shape, scale)
        return self._placed(
            ops.random_gamma(key, *_broadcast_parameters(key, size, *parameters))
        )

    def beta(
        self,
        alpha: float | Tensor,
        beta: float | Tensor,
        size: IntsLike | None = None,
    ) -> Tensor:
        """Beta(alpha, beta); result shape is size + the parameters'. AssertionError unless
        positive.
        """
        parameters = _parameter(alpha, "alpha", True), _parameter(beta, "beta", True)
        key = self._key(alpha, beta)
        return self._placed(ops.random_beta(key, *_broadcast_parameters(key, size, *parameters)))

    def poisson(self, lam: float | Tensor, size: IntsLike | None = None) -> Tensor:
        """Poisson of rate ``lam``, float32; result shape is size + lam's. AssertionError unless
        positive.
        """
        key = self._key(lam)
        parameters = _broadcast_parameters(key, size, _parameter(lam, "lam", True))
        return self._placed(ops.random_poisson(key, *parameters))

    def exponential(self, rate: float | Tensor = 1.0, size: IntsLike | None = None) -> Tensor:
        """Exponential of ``rate``, mean 1 / rate; result shape is size + rate's. AssertionError
        unless positive.
        """
        key = self._key(rate)
        (rates,) = _broadcast_parameters(key, size, _parameter(rate, "rate", True))
        u = ops.random_uniform(key, shape=rates._tuple_shape)
        return self._placed(ops.true_div(ops.neg(ops.log1p(ops.neg(u))), rates))

    def multinomial(
        self, input: Tensor, num_samples: int, replacement: bool | None = False
    ) -> Tensor:
        """int32 indices drawn with probabilities proportional to ``input`` ([n] or [rows, n]):
        [num_samples] per row.

        AssertionError for negative or all-zero weights, or more samples than positive weights
        without replacement.
        """
        assert isinstance(input, Tensor), (
            f"multinomial: input is {type(input).__name__}, not a Tensor"
        )
        assert input.ndim in (1, 2), f"multinomial: input has {input.ndim} axes, not 1 or 2"
        count = as_int(num_samples, "multinomial: num_samples")
        assert count > 0, f"multinomial: num_samples {count} is not positive"
        weights = _parameter(input, "input", False)
        if not _is_recording():
            host = weights.numpy()
            assert np.isfinite(host).all() and (host >= 0).all(), (
                "multinomial: weights must be finite and not negative"
            )
            enough = (host > 0).sum(axis=-1).min(initial=host.shape[-1])
            assert enough > 0, "multinomial: a row has no positive weight"
            assert replacement or enough >= count, (
                f"multinomial: {count} samples without replacement from {enough} positive weights"
            )
        return self._placed(
            ops.random_multinomial(
                self._key(input), weights, num_samples=count, replacement=bool(replacement)
            )
        )

    def permutation(self, n: int | Tensor, *, dtype: DTypeLike = "int32") -> Tensor:
        """0 .. n - 1 in random order; for a tensor its entries along axis 0 in random order."""
        if isinstance(n, Tensor) and n.ndim:
            return self._placed(self._shuffled(n))
        count = as_int(n, "permutation")
        if count < 0:
            raise ValueError(f"permutation: n = {count} is negative")
        order = ops.random_permutation(self._key(), n=count)
        return self._placed(
            order if np.dtype("int32") == dtype else ops.cast(order, dtype=dtype_name(dtype))
        )

    def _shuffled(self, x: Tensor) -> Tensor:
        order = ops.random_permutation(self._key(x), n=x._tuple_shape[0])
        return ops.index_get(x, order, axes=(0,))

    def shuffle(self, inp: Tensor) -> None:
        """Puts the entries along axis 0 in random order, in place; gradients flow through."""
        assert isinstance(inp, Tensor), f"shuffle: {type(inp).__name__} is not a Tensor"
        if inp.ndim and inp.size:
            inp._reset(self._shuffled(inp))

    def __del__(self) -> None:
        self._state = None  # type: ignore[assignment]  # nobody draws from it any more


def _default_rng() -> RNG:
    rng = RNG.__new__(RNG)
    rng._device, rng._seed, rng._state = None, None, _default
    return rng


_rng = _default_rng()
uniform = _rng.uniform
normal = _rng.normal
gamma = _rng.gamma
beta = _rng.beta
poisson = _rng.poisson
exponential = _rng.exponential
multinomial = _rng.multinomial
permutation = _rng.permutation
shuffle = _rng.shuffle
