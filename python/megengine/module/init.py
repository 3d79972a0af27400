"""Initial values of weights, written in place.

Sources: Glorot & Bengio 2010, "Understanding the difficulty of training deep feedforward neural networks"
(xavier); He et al. 2015, "Delving Deep into Rectifiers" (msra).
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import TYPE_CHECKING as _TYPE_CHECKING

import numpy as np

from .. import _core, _words, random
from ..tensor import Tensor

__all__ = [
    "calculate_correct_fan",
    "calculate_fan_in_and_fan_out",
    "calculate_gain",
    "fill_",
    "msra_normal_",
    "msra_uniform_",
    "normal_",
    "ones_",
    "skipped",
    "uniform_",
    "xavier_normal_",
    "xavier_uniform_",
    "zeros_",
]


def fill_(tensor: Tensor, val: float) -> None:
    """Fills ``tensor`` with the number ``val`` in place; shape, dtype and device stay.

    Parameters
    ----------
    tensor : Tensor
        Any shape, float dtype.
    val : float
        New value of every element.

    Examples
    --------
    >>> import megengine as mge, megengine.module as M
    >>> x = mge.Tensor([1.0, 2.0])
    >>> M.init.fill_(x, 0.5)
    >>> x.tolist()
    [0.5, 0.5]
    """
    value = np.full(tensor._tuple_shape, val, tensor.dtype)
    tensor._reset(Tensor(value, dtype=tensor.dtype, device=str(tensor.device)))


def zeros_(tensor: Tensor) -> None:
    """Fills ``tensor`` with 0 in place.

    Parameters
    ----------
    tensor : Tensor
        Any shape, float dtype.

    Examples
    --------
    >>> import megengine as mge, megengine.module as M
    >>> x = mge.Tensor([1, 2])
    >>> M.init.zeros_(x)
    >>> x.tolist()
    [0, 0]
    """
    fill_(tensor, 0)


def ones_(tensor: Tensor) -> None:
    """Fills ``tensor`` with 1 in place.

    Parameters
    ----------
    tensor : Tensor
        Any shape, float dtype.

    Examples
    --------
    >>> import megengine as mge, megengine.module as M
    >>> layer = M.Linear(2, 1)
    >>> M.init.ones_(layer.weight)
    >>> layer(mge.Tensor([[2.0, 3.0]])).tolist()
    [[5.0]]
    """
    fill_(tensor, 1)


def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0) -> None:
    """Fills ``tensor`` in place with draws uniform over [a, b), by default [0, 1).

    Parameters
    ----------
    tensor : Tensor
        Any shape, float dtype.
    a, b : float
        Lower bound, which draws may reach, and upper bound, which they do not reach.

    Examples
    --------
    >>> import megengine as mge, megengine.module as M
    >>> x = mge.functional.zeros((1000,))
    >>> M.init.uniform_(x, -1.0, 1.0)
    >>> bool((abs(x.numpy()) <= 1).all())
    True
    """
    _draw(tensor, random.uniform, a, b)


def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0) -> None:
    """Fills ``tensor`` in place with draws from a normal distribution.

    Parameters
    ----------
    tensor : Tensor
        Any shape, float dtype.
    mean, std : float
        Mean and standard deviation.

    Examples
    --------
    >>> import megengine as mge, megengine.module as M
    >>> mge.random.seed(1)
    >>> x = mge.functional.zeros((10000,))
    >>> M.init.normal_(x, mean=3.0, std=0.1)
    >>> round(float(x.mean().item()), 1)
    3.0
    """
    _draw(tensor, random.normal, mean, std)


def _draw(tensor: Tensor, draws: Callable[..., Tensor], *parameters: float) -> None:
    if _is_skipped():
        _leave(tensor)
        return
    value = draws(*parameters, size=tensor._tuple_shape)
    value = value if value.dtype == tensor.dtype else value.astype(tensor.dtype)
    tensor._reset(value.to(tensor.device))


_skipped: ContextVar[bool] = ContextVar("skipped", default=False)


def _is_skipped() -> bool:
    return _skipped.get()


def _leave(tensor: Tensor) -> None:
    """Gives a weight that is not drawn zeros, which take memory when they are first read."""
    tensor._reset(_core.zeros(tensor._tuple_shape, tensor.dtype, str(tensor.device)))


@contextlib.contextmanager
def skipped() -> Iterator[None]:
    """Context manager: weights of layers that are made inside are 0 where they would be drawn at
    random, and take no memory on the host.

    It serves layers whose weights come from a file: a model that is mapped
    (``mge.load(path, mmap=True)``) is then never in memory twice. No random numbers are drawn.
    Constant values, such as the ones of a normalization, are written as always.

    Yields
    ------
    None
        Nothing.

    Examples
    --------
    >>> import megengine as mge, megengine.module as M
    >>> with M.init.skipped():
    ...     layer = M.Linear(3, 2)
    >>> layer.load_state_dict({"weight": [[1.0, 2.0, 3.0]] * 2, "bias": [0.0, 1.0]})
    >>> layer(mge.Tensor([1.0, 1.0, 1.0])).tolist()
    [6.0, 7.0]
    """
    token = _skipped.set(True)
    try:
        yield
    finally:
        _skipped.reset(token)


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """Returns the factor for the weights before ``nonlinearity`` that keeps the variance of values.

    Parameters
    ----------
    nonlinearity : str
        A name: linear, conv1d, conv2d, conv3d, conv_transpose1d, conv_transpose2d, conv_transpose3d
        and sigmoid (1), tanh (5/3), relu (sqrt(2)), or leaky_relu (sqrt(2 / (1 + param ** 2))).
    param : float or None
        The slope of leaky_relu; None means 0.01.

    Returns
    -------
    float
        The factor.

    Raises
    ------
    ValueError
        For any other name, or for a slope that is not a number.

    Examples
    --------
    >>> import megengine.module as M
    >>> M.init.calculate_gain("leaky_relu", 1.0), M.init.calculate_gain("sigmoid")
    (1.0, 1.0)
    """
    if nonlinearity in _GAINS:
        return _GAINS[nonlinearity]
    if nonlinearity == "leaky_relu":
        slope = 0.01 if param is None else param
        if isinstance(slope, bool) or not isinstance(slope, (int, float)):
            raise ValueError(
                f"calculate_gain: the slope of leaky_relu must be a number, got {param!r}"
            )
        return math.sqrt(2.0 / (1 + slope**2))
    raise ValueError(
        f"calculate_gain: unknown nonlinearity {nonlinearity!r}\n"
        f"  valid: leaky_relu, {', '.join(sorted(_GAINS))}"
    )


_GAINS = {"sigmoid": 1.0, "tanh": 5.0 / 3, "relu": math.sqrt(2.0), "linear": 1.0} | {
    f"{kind}{rank}d": 1.0 for kind in ("conv", "conv_transpose") for rank in (1, 2, 3)
}


def calculate_fan_in_and_fan_out(tensor: Tensor) -> tuple[float, float]:
    """Returns (fan_in, fan_out): how many inputs and outputs one unit of a weight has.

    Parameters
    ----------
    tensor : Tensor
        Weight of shape (out, in, *kernel), or of a grouped convolution (groups, out, in, kh, kw):
        where there are 5 or more axes the first one is skipped.

    Returns
    -------
    fan_in : float
        Inputs of one unit.
    fan_out : float
        Outputs of one unit.

    Raises
    ------
    ValueError
        For fewer than 2 axes.

    Examples
    --------
    >>> import megengine.module as M
    >>> M.init.calculate_fan_in_and_fan_out(M.Conv2d(3, 8, kernel_size=5).weight)
    (75, 200)
    """
    shape = tensor._tuple_shape
    if len(shape) < 2:
        raise ValueError(f"fan_in and fan_out need a tensor of at least 2 axes, got shape {shape}")
    if len(shape) >= 5:
        shape = shape[1:]
    area = math.prod(shape[2:])
    return shape[1] * area, shape[0] * area


def calculate_correct_fan(tensor: Tensor, mode: str) -> float:
    """Returns fan_in or fan_out of ``tensor``, as ``mode`` says.

    Parameters
    ----------
    tensor : Tensor
        Weight of shape (out, in, *kernel), or of a grouped convolution (groups, out, in, kh, kw).
    mode : str
        "fan_in" or "fan_out", in any case.

    Returns
    -------
    float
        The fan that ``mode`` names.

    Raises
    ------
    ValueError
        For another mode.

    Examples
    --------
    >>> import megengine.module as M
    >>> M.init.calculate_correct_fan(M.Linear(4, 2).weight, "fan_out")
    2
    """
    lower = str(mode).lower()
    if lower not in ("fan_in", "fan_out"):
        raise ValueError(f"unknown fan mode {mode!r}; valid: fan_in, fan_out")
    fan_in, fan_out = calculate_fan_in_and_fan_out(tensor)
    return fan_in if lower == "fan_in" else fan_out


def xavier_uniform_(tensor: Tensor, gain: float = 1.0) -> None:
    """Fills ``tensor`` with draws uniform over [-a, a), a = gain * sqrt(6 / (fan_in + fan_out)).

    This keeps the variance of values and gradients about equal through layers with a symmetric
    activation.

    Parameters
    ----------
    tensor : Tensor
        Any shape, float dtype.
    gain : float
        Factor of the deviation; see `calculate_gain`.

    Raises
    ------
    ValueError
        For fewer than 2 axes.

    References
    ----------
    Glorot & Bengio 2010, "Understanding the difficulty of training deep feedforward neural
    networks", equation 16.

    Examples
    --------
    >>> import megengine as mge, megengine.module as M
    >>> weight = mge.functional.zeros((2, 4))
    >>> M.init.xavier_uniform_(weight)
    >>> bool((abs(weight.numpy()) <= 1).all())
    True
    """
    fan_in, fan_out = calculate_fan_in_and_fan_out(tensor)
    bound = gain * math.sqrt(6.0 / (fan_in + fan_out))
    uniform_(tensor, -bound, bound)


def xavier_normal_(tensor: Tensor, gain: float = 1.0) -> None:
    """Fills ``tensor`` with normal draws of standard deviation gain * sqrt(2 / (fan_in + fan_out)).

    Parameters
    ----------
    tensor : Tensor
        Any shape, float dtype.
    gain : float
        Factor of the deviation; see `calculate_gain`.

    Raises
    ------
    ValueError
        For fewer than 2 axes.

    References
    ----------
    Glorot & Bengio 2010, "Understanding the difficulty of training deep feedforward neural
    networks".

    Examples
    --------
    >>> import megengine as mge, megengine.module as M
    >>> mge.random.seed(1)
    >>> weight = mge.functional.zeros((100, 100))
    >>> M.init.xavier_normal_(weight)
    >>> round(float(weight.numpy().std()), 2)
    0.1
    """
    fan_in, fan_out = calculate_fan_in_and_fan_out(tensor)
    normal_(tensor, 0.0, gain * math.sqrt(2.0 / (fan_in + fan_out)))


def msra_uniform_(
    tensor: Tensor, a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu"
) -> None:
    """Fills ``tensor`` with draws uniform over [-b, b), b = gain * sqrt(3 / fan).

    Parameters
    ----------
    tensor : Tensor
        Tensor of any shape with at least 2 axes, float dtype; it is written in place.
    a : float
        Slope of the leaky_relu that follows; 0 is relu.
    mode : str
        "fan_in" keeps the variance of values, "fan_out" that of gradients.
    nonlinearity : str
        Name of the activation that follows, as `calculate_gain` takes it.

    Raises
    ------
    ValueError
        For another mode or nonlinearity, or for fewer than 2 axes.

    References
    ----------
    He et al. 2015, "Delving Deep into Rectifiers".

    Examples
    --------
    >>> import megengine as mge, megengine.module as M
    >>> weight = mge.functional.zeros((8, 6))
    >>> M.init.msra_uniform_(weight)
    >>> bool((abs(weight.numpy()) <= 1).all())
    True
    """
    std = calculate_gain(nonlinearity, a) / math.sqrt(calculate_correct_fan(tensor, mode))
    bound = math.sqrt(3.0) * std
    uniform_(tensor, -bound, bound)


def msra_normal_(
    tensor: Tensor, a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu"
) -> None:
    """Fills ``tensor`` with normal draws of standard deviation gain / sqrt(fan).

    Parameters
    ----------
    tensor : Tensor
        Tensor of any shape with at least 2 axes, float dtype; it is written in place.
    a : float
        Slope of the leaky_relu that follows; 0 is relu.
    mode, nonlinearity : str
        "fan_in" keeps the variance of values, "fan_out" that of gradients; and the name of the
        activation that follows, as `calculate_gain` takes it.

    Raises
    ------
    ValueError
        For another mode or nonlinearity, or for fewer than 2 axes.

    References
    ----------
    He et al., 2015, "Delving Deep into Rectifiers".

    Examples
    --------
    >>> import megengine as mge, megengine.module as M
    >>> mge.random.seed(1)
    >>> weight = mge.functional.zeros((50, 200))
    >>> M.init.msra_normal_(weight)
    >>> round(float(weight.numpy().std()), 1)
    0.1
    """
    std = calculate_gain(nonlinearity, a) / math.sqrt(calculate_correct_fan(tensor, mode))
    normal_(tensor, 0.0, std)


if not _TYPE_CHECKING:
    __getattr__ = _words.module_getattr(__name__, "init")
