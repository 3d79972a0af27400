"""Initial values of weights, written in place.

Sources: Glorot & Bengio 2010, "Understanding the difficulty of training deep feedforward neural networks"
(xavier); He et al. 2015, "Delving Deep into Rectifiers" (msra).
"""

from __future__ import annotations

import math

import numpy as np

from .. import random
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
    "uniform_",
    "xavier_normal_",
    "xavier_uniform_",
    "zeros_",
]


def fill_(tensor: Tensor, val: float) -> None:
    """Fill with the number ``val``; shape, dtype and device stay."""
    value = np.full(tensor._tuple_shape, val, tensor.dtype)
    tensor._reset(Tensor(value, dtype=tensor.dtype, device=str(tensor.device)))


def zeros_(tensor: Tensor) -> None:
    """Fill with 0."""
    fill_(tensor, 0)


def ones_(tensor: Tensor) -> None:
    """Fill with 1."""
    fill_(tensor, 1)


def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0) -> None:
    """Fill with draws from the uniform distribution over [a, b)."""
    _write(tensor, random.uniform(a, b, size=tensor._tuple_shape))


def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0) -> None:
    """Fill with draws from the normal distribution of this mean and standard deviation."""
    _write(tensor, random.normal(mean, std, size=tensor._tuple_shape))


def _write(tensor: Tensor, value: Tensor) -> None:
    value = value if value.dtype == tensor.dtype else value.astype(tensor.dtype)
    tensor._reset(value.to(tensor.device))


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """Factor by which a layer before ``nonlinearity`` has to scale its weights to keep the variance.

    nonlinearity: linear, conv1d, conv2d, conv3d, conv_transpose1d, conv_transpose2d, conv_transpose3d,
        sigmoid (1), tanh (5/3), relu (sqrt 2), leaky_relu (sqrt(2 / (1 + param^2)), slope 0.01 by default).
    ValueError for any other, or for a slope that is not a number.
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
    """(fan_in, fan_out) of a weight (out, in, *kernel): inputs and outputs of one unit.

    From 5 axes on it is one of a grouped convolution, (groups, out, in, kh, kw): the first axis is skipped.
    ValueError for fewer than 2 axes.
    """
    shape = tensor._tuple_shape
    if len(shape) < 2:
        raise ValueError(f"fan_in and fan_out need a tensor of at least 2 axes, got shape {shape}")
    if len(shape) >= 5:
        shape = shape[1:]
    area = math.prod(shape[2:])
    return shape[1] * area, shape[0] * area


def calculate_correct_fan(tensor: Tensor, mode: str) -> float:
    """fan_in or fan_out, as ``mode`` (any case) says; ValueError for another mode."""
    lower = str(mode).lower()
    if lower not in ("fan_in", "fan_out"):
        raise ValueError(f"unknown fan mode {mode!r}; valid: fan_in, fan_out")
    fan_in, fan_out = calculate_fan_in_and_fan_out(tensor)
    return fan_in if lower == "fan_in" else fan_out


def xavier_uniform_(tensor: Tensor, gain: float = 1.0) -> None:
    """Uniform over [-a, a), a = gain * sqrt(6 / (fan_in + fan_out))."""
    fan_in, fan_out = calculate_fan_in_and_fan_out(tensor)
    bound = gain * math.sqrt(6.0 / (fan_in + fan_out))
    uniform_(tensor, -bound, bound)


def xavier_normal_(tensor: Tensor, gain: float = 1.0) -> None:
    """Normal with standard deviation gain * sqrt(2 / (fan_in + fan_out))."""
    fan_in, fan_out = calculate_fan_in_and_fan_out(tensor)
    normal_(tensor, 0.0, gain * math.sqrt(2.0 / (fan_in + fan_out)))


def msra_uniform_(
    tensor: Tensor, a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu"
) -> None:
    """Uniform over [-b, b), b = gain * sqrt(3 / fan); ``a`` is the slope of a leaky_relu that follows."""
    std = calculate_gain(nonlinearity, a) / math.sqrt(calculate_correct_fan(tensor, mode))
    bound = math.sqrt(3.0) * std
    uniform_(tensor, -bound, bound)


def msra_normal_(
    tensor: Tensor, a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu"
) -> None:
    """Normal with standard deviation gain / sqrt(fan); ``a`` is the slope of a leaky_relu that follows."""
    std = calculate_gain(nonlinearity, a) / math.sqrt(calculate_correct_fan(tensor, mode))
    normal_(tensor, 0.0, std)
