"""Numbers of 8, 4 and 2 bits, for which there are no tensors. Wider dtypes hold their values;
conversions round to them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import numpy as np

from ... import functional as F
from ...core import ops
from ...tensor import Tensor
from .._proto import onnx

# name in TensorProto -> least and largest value
INTEGERS = {"int4": (-8, 7), "uint4": (0, 15), "int2": (-2, 1), "uint2": (0, 3)}


@dataclass(frozen=True)
class _Format:
    """A number 2^(e - bias) * (1 + f / 2^fraction). last: the code of the largest finite number.
    beyond: the value of larger numbers without saturation.
    """

    fraction: int
    bias: int
    last: int
    beyond: float


_FORMATS = {
    "float8e4m3fn": _Format(3, 7, 0x7E, math.nan),
    "float8e4m3fnuz": _Format(3, 8, 0x7F, math.nan),
    "float8e5m2": _Format(2, 15, 0x7B, math.inf),
    "float8e5m2fnuz": _Format(2, 16, 0x7F, math.nan),
    "float4e2m1": _Format(1, 1, 0x07, math.nan),
}
FLOATS = (*_FORMATS, "float8e8m0")


def name_of(element_type: int) -> str:
    """The name of TensorProto's number if there are no tensors of that dtype, else an empty text."""
    name = onnx().TensorProto.DataType.Name(element_type).lower()
    return name if name in INTEGERS or name in FLOATS else ""


def rounded(x: Tensor, name: str, saturate: bool = True, round_mode: str = "up") -> Tensor:
    """Rounds x to a narrow dtype; returns int8 or uint8 for integers, which drop their high bits,
    else float32.
    """
    if name in INTEGERS:
        return _low_bits(x, *INTEGERS[name])
    x = x.astype("float32")
    if name == "float8e8m0":
        return _power_of_two(x, saturate, round_mode)
    bounds, values = _tables(name)
    size = F.abs(x)
    places = F.searchsorted(Tensor(bounds), size, side="right")
    if saturate or name == "float4e2m1":
        places = F.minimum(places, len(values) - 2)
    y = ops.index_get(Tensor(values), places, axes=(0,))
    nothing = 0.0 if name == "float4e2m1" else math.nan
    return F.where(F.isnan(x), F.full_like(x, nothing), F.where(x < 0, -y, y))


def clamped(x: Tensor, name: str) -> Tensor:
    """Clips whole numbers to the bounds of a narrow integer dtype."""
    low, high = INTEGERS[name]
    return F.clip(x, low, high).astype("int8" if low else "uint8")


def _low_bits(x: Tensor, low: int, high: int) -> Tensor:
    count = high - low + 1
    rest = F.mod(x.astype("int32") - low, count) + low
    return rest.astype("int8" if low else "uint8")


@cache
def _tables(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Returns the least number that rounds to each value but the first, and all values. Halves go
    to the even code.
    """
    form = _FORMATS[name]
    exponents, fractions = np.divmod(np.arange(form.last + 2), 2**form.fraction)
    parts = np.where(exponents > 0, 1 + fractions / 2**form.fraction, fractions / 2**form.fraction)
    values = np.ldexp(parts, np.maximum(exponents, 1) - form.bias)
    halves = ((values[1:] + values[:-1]) / 2).astype(np.float32)
    goes_down = np.arange(form.last + 1) % 2 == 0
    values[-1] = form.beyond
    return np.where(goes_down, np.nextafter(halves, np.float32(np.inf)), halves), values.astype(np.float32)


def _power_of_two(x: Tensor, saturate: bool, round_mode: str) -> Tensor:
    """Computes powers from 2^-127 to 2^127."""
    if round_mode not in ("up", "down", "nearest"):
        raise ValueError(f"Cast: round_mode {round_mode!r} is none of 'up', 'down' and 'nearest'")
    powers = np.ldexp(1.0, np.arange(-127, 129))
    bounds = {"up": powers[:-1], "down": powers[1:], "nearest": 1.5 * powers[:-1]}[round_mode].astype(np.float32)
    if round_mode == "up":
        bounds = np.nextafter(bounds, np.float32(np.inf))
    places = F.searchsorted(Tensor(bounds), x, side="right")
    if saturate:
        places = F.minimum(places, 254)
    powers[-1] = math.nan
    y = ops.index_get(Tensor(powers.astype(np.float32)), places, axes=(0,))
    is_nan = F.isnan(x) if saturate else F.logical_or(F.isnan(x), x < float(powers[0]))
    return F.where(is_nan, F.full_like(y, math.nan), y)
