"""Random generators: each draw takes a key (seed, counter) and moves the counter on.

Numbers follow from the key alone (Philox 4x32-10, Salmon et al., 2011), so a draw in a traced
function is an op of the key, and the key is one of its inputs.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from .. import _core
from .._core import RandomState
from ..core import apply_const, ops, random_state
from ..core.random_state import default_random_state, fresh_seed
from ..core.tensor.dtype import dtype_name
from ..core.tensor.shapes import IntLike, IntsLike, Shape, as_int, as_ints
from ..core.tensor.shapes import broadcast_to as _broadcast_to
from ..tensor import Tensor

__all__ = [
    "seed", "RNG", "uniform", "normal", "gamma", "beta", "poisson", "multinomial", "permutation",
    "shuffle", "exponential", "get_state", "set_state",
]  # fmt: skip


def _checked_seed(seed: IntLike) -> int:
    value = as_int(seed, "seed")
    if value < 0:
        raise ValueError(f"seed: {value} is negative")
    return value


def seed(seed: int, numpy: bool = False) -> None:
    """Restarts the global generator, which module functions, dropout and initial weights draw from.

    Parameters
    ----------
    seed : int
        The new seed, at least 0.
    numpy : bool
        Whether to seed numpy.random as well, from which transforms of ``megengine.data`` draw. The
        seed is below 2**32 then.

    Raises
    ------
    ValueError
        For a negative seed, or one that numpy.random does not take.

    See Also
    --------
    get_state : Returns where the generator is.
    RNG : A generator with a seed of its own.

    Notes
    -----
    The same seed and the same calls give the same numbers, on every instruction set and number of
    threads. In a world of processes the masks of dropout follow from the seed and the rank, everything else only from the seed.

    Examples
    --------
    >>> from megengine import random
    >>> random.seed(1); a = random.uniform(size=(2,)).numpy()
    >>> random.seed(1); bool((a == random.uniform(size=(2,)).numpy()).all())
    True
    """
    checked = _checked_seed(seed)
    if numpy:
        np.random.seed(checked)
    random_state.start(checked)


def get_state() -> dict[str, Any]:
    """Returns the states of the global generator and of numpy.random, for `set_state`.

    Returns
    -------
    dict of str
        ``seed``, ``counter`` and ``masks`` (the counter of dropout's masks), ints, and ``numpy``,
        what numpy.random.get_state gives. ``megengine.save`` writes it.

    Notes
    -----
    In a world of processes, all can take the state of one of them if they have drawn equally often.

    Examples
    --------
    >>> from megengine import random
    >>> state = random.get_state(); a = random.uniform(size=(2,)).numpy()
    >>> random.set_state(state); bool((a == random.uniform(size=(2,)).numpy()).all())
    True
    """
    names = ("seed", "counter", "masks")
    return {**dict(zip(names, random_state.state(), strict=True)), "numpy": np.random.get_state(legacy=False)}


def set_state(state: Mapping[str, Any]) -> None:
    """Continues the draws of the global generator and of numpy.random where `get_state` was called.

    Parameters
    ----------
    state : mapping of str
        Dict that `get_state` returned, in this process or another one.

    Raises
    ------
    KeyError
        For a missing entry; then nothing changes.

    Examples
    --------
    >>> from megengine import random
    >>> random.seed(1); start = random.get_state()
    >>> first = random.permutation(9).tolist()
    >>> random.set_state(start); first == random.permutation(9).tolist()
    True
    """
    counters = [state[name] for name in ("seed", "counter", "masks")]
    np.random.set_state(state["numpy"])
    random_state.restore(*counters)


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
        if not bool((parameter.numpy() > 0).all()):
            raise AssertionError(f"random: {name} must be positive")
    return parameter


def _is_recording() -> bool:
    return _core.is_tracing()


def _broadcast_parameters(key: Tensor, size: IntsLike | None, *parameters: Tensor) -> list[Tensor]:
    """Returns the parameters in the shape of the result, size + their broadcast shape (never ()
    without a size), and the key's device.
    """
    common = np.broadcast_shapes(*(p._tuple_shape for p in parameters))
    shape = common or (1,) if size is None else _shape(size) + common
    return [_broadcast_to(p.to(key.device), shape) for p in parameters]


class RNG:
    """A random generator with a seed of its own; its methods are the functions of `random`.

    Parameters
    ----------
    seed : int or None
        Seed of the generator, at least 0; None takes a random one.
    device : str or None
        Device of the results, such as "cpu0"; None for the default device.

    Raises
    ------
    ValueError
        For a negative seed.

    References
    ----------
    Salmon et al., 2011, "Parallel Random Numbers: As Easy as 1, 2, 3" (Philox 4x32-10).

    Examples
    --------
    >>> from megengine.random import RNG
    >>> one, other = RNG(seed=1), RNG(seed=1)
    >>> a, b = one.normal(size=(3,)), other.normal(size=(3,))
    >>> bool((a == b).numpy().all())
    True
    >>> bool((one.normal(size=(3,)) == a).numpy().any())  # it goes on
    False
    """

    def __init__(self, seed: int | None = None, device: str | None = None) -> None:
        self._device = None if device is None else str(device)
        if self._device is not None:
            _core.find_device(self._device)
        started = fresh_seed() if seed is None else _checked_seed(seed)
        self._seed: int | None = started  # None: the global generator, whose seed may change
        self._state = RandomState(started)

    @property
    def seed(self) -> int:
        """The seed that the generator was started with."""
        return self._state.current_seed if self._seed is None else self._seed

    def _key(self, *given: object) -> Tensor:
        """Returns the next key, on the device of the first Tensor of ``given``, else on the
        generator's.
        """
        for value in given:
            if isinstance(value, Tensor):
                return self._state.key(value._device_name)
        return self._state.key(self._device)

    def _placed(self, x: Tensor) -> Tensor:
        return x if self._device is None else x.to(self._device)

    def uniform(self, low: float = 0, high: float = 1, size: IntsLike | None = None) -> Tensor:
        """Returns uniform draws from [low, high), float32.

        Parameters
        ----------
        low, high : float
            Lower bound, which draws may reach, and upper bound, which they do not reach.
        size : int, Tensor, sequence of int or Tensor, or None
            Shape of the result; None is (1,).

        Returns
        -------
        Tensor
            The draws, of shape ``size``, float32.

        Raises
        ------
        AssertionError
            Unless low < high.
        ValueError
            For a negative extent.

        Examples
        --------
        >>> from megengine import random
        >>> x = random.uniform(-1.0, 1.0, size=(2, 3))
        >>> x.shape, bool((abs(x.numpy()) <= 1).all())
        ((2, 3), True)
        """
        if not low < high:
            raise AssertionError(f"Uniform is not defined when low >= high, got {low} and {high}")
        x = ops.random_uniform(self._key(), shape=_shape(size))
        if (low, high) != (0, 1):
            below = np.nextafter(np.float32(high), np.float32(-np.inf))  # rounding could give high itself
            x = ops.minimum(ops.add(ops.mul(x, high - low), low), float(below))
        return self._placed(x)

    def normal(self, mean: float = 0, std: float = 1, size: IntsLike | None = None) -> Tensor:
        """Returns normal draws, float32.

        Parameters
        ----------
        mean, std : float
            Mean and standard deviation; Tensors broadcast against size.
        size : int, Tensor, sequence of int or Tensor, or None
            Shape of the draws; None is (1,).

        Returns
        -------
        Tensor
            The draws, of shape ``size``, float32.

        Raises
        ------
        ValueError
            For a negative extent or std.

        Examples
        --------
        >>> import megengine as mge
        >>> from megengine import random
        >>> random.normal(mge.Tensor([0.0, 100.0]), 1.0, size=(5, 2)).shape
        (5, 2)
        """
        if not isinstance(std, Tensor) and np.any(np.asarray(std) < 0):
            raise ValueError(f"normal: std {std} is negative")
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
        """Returns draws from gamma distributions, float32.

        Parameters
        ----------
        shape, scale : float or Tensor
            Parameters above 0 (AssertionError), numbers or Tensors that broadcast; the mean is
            shape * scale.
        size : int, Tensor, sequence of int or Tensor, or None
            Extents that are put before the parameters' shape; None draws once for each parameter.

        Returns
        -------
        Tensor
            The draws, of shape ``size`` and then that of the parameters, float32.

        Raises
        ------
        AssertionError
            For parameters of 0 or less.

        Examples
        --------
        >>> import megengine as mge
        >>> from megengine import random
        >>> random.gamma(mge.Tensor([1.0, 9.0]), scale=2.0, size=(5,)).shape
        (5, 2)
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
        """Returns draws from beta distributions, float32, between 0 and 1.

        Parameters
        ----------
        alpha, beta : float or Tensor
            Parameters above 0 (AssertionError), numbers or Tensors that broadcast; mean alpha /
            (alpha + beta).
        size : int, Tensor, sequence of int or Tensor, or None
            Extents that are put before the parameters' shape; None draws once for each parameter.

        Returns
        -------
        Tensor
            The draws, of shape ``size`` and then that of the parameters, float32.

        Raises
        ------
        AssertionError
            For parameters of 0 or less.

        Examples
        --------
        >>> import megengine as mge
        >>> from megengine import random
        >>> x = random.beta(mge.Tensor([1.0, 9.0]), 2.0, size=(5,))
        >>> x.shape, bool((x.numpy() <= 1).all())
        ((5, 2), True)
        """
        parameters = _parameter(alpha, "alpha", True), _parameter(beta, "beta", True)
        key = self._key(alpha, beta)
        return self._placed(ops.random_beta(key, *_broadcast_parameters(key, size, *parameters)))

    def poisson(self, lam: float | Tensor, size: IntsLike | None = None) -> Tensor:
        """Returns draws from Poisson distributions: whole numbers, in float32.

        Parameters
        ----------
        lam : float or Tensor
            Rate, mean and variance, above 0.
        size : int, Tensor, sequence of int or Tensor, or None
            Extents that are put before the shape of ``lam``; None draws once for each rate.

        Returns
        -------
        Tensor
            The draws, of shape ``size`` and then that of ``lam``, float32.

        Raises
        ------
        AssertionError
            For a rate of 0 or less.

        Examples
        --------
        >>> import megengine as mge
        >>> from megengine import random
        >>> x = random.poisson(mge.Tensor([1.0, 9.0]), size=(5,))
        >>> x.shape, bool((x.numpy() % 1 == 0).all())
        ((5, 2), True)
        """
        key = self._key(lam)
        parameters = _broadcast_parameters(key, size, _parameter(lam, "lam", True))
        return self._placed(ops.random_poisson(key, *parameters))

    def exponential(self, rate: float | Tensor = 1.0, size: IntsLike | None = None) -> Tensor:
        """Returns draws from exponential distributions, float32.

        Parameters
        ----------
        rate : float or Tensor
            Above 0; the mean is 1 / rate.
        size : int, Tensor, sequence of int or Tensor, or None
            Extents that are put before the shape of ``rate``; None draws once for each rate.

        Returns
        -------
        Tensor
            The draws, of shape ``size`` and then that of ``rate``, float32.

        Raises
        ------
        AssertionError
            For a rate of 0 or less.

        Examples
        --------
        >>> import megengine as mge
        >>> from megengine import random
        >>> x = random.exponential(mge.Tensor([1.0, 9.0]), size=(5,))
        >>> x.shape, bool((x.numpy() >= 0).all())
        ((5, 2), True)
        """
        key = self._key(rate)
        (rates,) = _broadcast_parameters(key, size, _parameter(rate, "rate", True))
        u = ops.random_uniform(key, shape=rates._tuple_shape)
        return self._placed(ops.true_div(ops.neg(ops.log1p(ops.neg(u))), rates))

    def multinomial(
        self, input: Tensor, num_samples: int, replacement: bool | None = False
    ) -> Tensor:
        """Returns indices drawn with probabilities in proportion to weights, int32.

        Parameters
        ----------
        input : Tensor
            Weights, at least 0, (n,) or (rows, n).
        num_samples : int
            Number of draws for each row.
        replacement : bool or None
            Whether an index may be drawn again.

        Returns
        -------
        Tensor
            (num_samples,) or (rows, num_samples), int32.

        Raises
        ------
        AssertionError
            For weights that are negative, not finite or all zero in a row, and for more samples
            than positive weights without replacement.

        Examples
        --------
        >>> import megengine as mge
        >>> from megengine import random
        >>> weights = mge.Tensor([0.0, 1.0, 0.0])
        >>> random.multinomial(weights, num_samples=4, replacement=True).tolist()
        [1, 1, 1, 1]
        """
        if not isinstance(input, Tensor):
            raise AssertionError(f"multinomial: input is {type(input).__name__}, not a Tensor")
        if input.ndim not in (1, 2):
            raise AssertionError(f"multinomial: input has {input.ndim} axes, not 1 or 2")
        count = as_int(num_samples, "multinomial: num_samples")
        if not count > 0:
            raise AssertionError(f"multinomial: num_samples {count} is not positive")
        weights = _parameter(input, "input", False)
        if not _is_recording():
            host = weights.numpy()
            if not np.isfinite(host).all() or not (host >= 0).all():
                raise AssertionError("multinomial: weights must be finite and not negative")
            enough = (host > 0).sum(axis=-1).min(initial=host.shape[-1])
            if not enough > 0:
                raise AssertionError("multinomial: a row has no positive weight")
            if not replacement and not enough >= count:
                raise AssertionError(f"multinomial: {count} samples without replacement from {enough} positive weights")
        return self._placed(
            ops.random_multinomial(
                self._key(input), weights, num_samples=count, replacement=bool(replacement)
            )
        )

    def permutation(self, n: int | Tensor, *, dtype: DTypeLike = "int32") -> Tensor:
        """Returns 0 .. n - 1, or the entries of a Tensor along axis 0, in random order.

        Parameters
        ----------
        n : int or Tensor
            A number, or a Tensor, whose shape and dtype the result has (shape (1,) for a 0-d
            Tensor).
        dtype : DTypeLike
            Data type of the result for a number.

        Returns
        -------
        Tensor
            [n], or the shape of the Tensor.

        Raises
        ------
        ValueError
            For a negative number.

        Examples
        --------
        >>> from megengine import random
        >>> order = random.permutation(5)
        >>> sorted(order.tolist()), order.dtype.name
        ([0, 1, 2, 3, 4], 'int32')
        """
        if isinstance(n, Tensor):
            return self._placed(self._shuffled(n if n.ndim else ops.reshape(n, shape=(1,))))
        count = as_int(n, "permutation")
        if count < 0:
            raise ValueError(f"Permutation is not defined when n < 0, got {count}")
        order = ops.random_permutation(self._key(), n=count)
        return self._placed(
            order if np.dtype("int32") == dtype else ops.cast(order, dtype=dtype_name(dtype))
        )

    def _shuffled(self, x: Tensor) -> Tensor:
        order = ops.random_permutation(self._key(x), n=x._tuple_shape[0])
        return ops.index_get(x, order, axes=(0,))

    def shuffle(self, inp: Tensor) -> None:
        """Puts the entries of ``inp`` along axis 0 in random order, in place.

        Parameters
        ----------
        inp : Tensor
            Any shape with at least one axis. Gradients flow through.

        Raises
        ------
        AssertionError
            If it is not a Tensor.

        Examples
        --------
        >>> import megengine as mge
        >>> from megengine import random
        >>> x = mge.Tensor([[1.0, 2.0], [3.0, 4.0]])
        >>> random.shuffle(x)
        >>> sorted(x.tolist())  # rows stay together
        [[1.0, 2.0], [3.0, 4.0]]
        """
        if not isinstance(inp, Tensor):
            raise AssertionError(f"shuffle: {type(inp).__name__} is not a Tensor")
        if inp.ndim and inp.size:
            inp._reset(self._shuffled(inp))

    def __del__(self) -> None:
        self._state = None  # type: ignore[assignment]  # nobody draws from it any more


def _default_rng() -> RNG:
    rng = RNG.__new__(RNG)
    rng._device, rng._seed, rng._state = None, None, default_random_state()
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
