"""Element-wise ATen operators: special functions, and others that need more than a name."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from .. import functional as F
from ..core import ops
from ..fx.torchlike import FUNCTIONS
from ..tensor import Tensor
from ._double import wide
from ._forms import Unsupported


def _in_float32(x: Tensor) -> Tensor:
    """Computes in float32 a formula that needs its digits."""
    if x.dtype.name == "float64":
        raise Unsupported("in float64")
    return x.astype("float32")


def _in_floats(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    return lambda x: function(x.astype("float32") if x.dtype.kind in "biu" else x)


def _polynomial(x: Tensor, coefficients: Sequence[float]) -> Any:
    y: Any = coefficients[-1]
    for each in reversed(coefficients[:-1]):
        y = y * x + each
    return y


# Abramowitz & Stegun 1964, 9.8.1 to 9.8.4: of (x / 3.75) ** 2 up to 3.75, and of 3.75 / x from there on.
_I0_NEAR = 1, 3.5156229, 3.0899424, 1.2067492, 0.2659732, 0.0360768, 0.0045813
_I0_FAR = 0.39894228, 0.01328592, 0.00225319, -0.00157565, 0.00916281, -0.02057706, 0.02635537, -0.01647633, 0.00392377
_I1_NEAR = 0.5, 0.87890594, 0.51498869, 0.15084934, 0.02658733, 0.00301532, 0.00032411
_I1_FAR = 0.39894228, -0.03988024, -0.00362018, 0.00163801, -0.01031555, 0.02282967, -0.02895312, 0.01787654, -0.00420059


def _bessel(order: int, scaled: bool) -> Callable[[Tensor], Tensor]:
    """Modified Bessel functions of the first kind, times exp(-|x|) if they are scaled."""
    near, far = ((_I0_NEAR, _I0_FAR), (_I1_NEAR, _I1_FAR))[order]

    def function(x: Tensor) -> Tensor:
        x = _in_float32(x)
        size = F.abs(x)
        small, large = F.minimum(size, 3.75), F.maximum(size, 3.75)
        below = _polynomial(F.square(small / 3.75), near) * (small if order else 1)
        above = _polynomial(3.75 / large, far) / F.sqrt(large)
        y = F.where(size < 3.75, below * F.exp(-small), above) if scaled else F.where(size < 3.75, below, above * F.exp(large))
        return F.where(x < 0, -y, y) if order else y

    return function


def polygamma(n: int, x: Tensor) -> Tensor:
    """Computes digamma or its first derivative.

    Abramowitz & Stegun 1964, 6.4.6 and 6.4.12; below 1/2 by the reflection 6.4.7.
    """
    if n == 0:
        return _in_floats(ops.digamma)(x)
    if n > 1:
        raise Unsupported("of an order above 1")
    x = _in_float32(x)
    is_reflected = x < 0.5
    z = F.where(is_reflected, 1 - x, x)
    y: Any = 0
    for _ in range(6):
        y, z = y + 1 / F.square(z), z + 1
    inverse = 1 / z
    square = F.square(inverse)
    y = y + inverse * (1 + inverse / 2 + square * (1 / 6 - square * (1 / 30 - square / 42)))
    return F.where(is_reflected, F.square(math.pi / F.sin(math.pi * x)) - y, y)


def round_to_decimals(x: Tensor, *, decimals: int) -> Tensor:
    if x.dtype.kind in "iu":
        return x
    power = 10.0 ** abs(decimals)
    rounded = FUNCTIONS["round"]  # halves to even numbers
    return rounded(x * power) / power if decimals > 0 else rounded(x / power) * power


def _extreme_but_nan(function: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
    """Returns the larger or smaller of two numbers; of a number and a NaN, the number."""

    def choose(x: Tensor, y: Tensor) -> Tensor:
        if x.dtype.kind in "biu":
            return function(x, y)
        return F.where(F.isnan(x), y, F.where(F.isnan(y), x, function(x, y)))

    return choose


def hypot(x: Tensor, y: Tensor) -> Tensor:
    """Computes the hypotenuse by dividing the smaller number by the larger one, as squares would
    overflow.
    """
    large, small = F.maximum(F.abs(x), F.abs(y)), F.minimum(F.abs(x), F.abs(y))
    length = large * F.sqrt(1 + F.square(small / F.where(large == 0, F.ones_like(large), large)))
    return F.where(F.isinf(x) | F.isinf(y), F.full_like(large, math.inf), length)


def angle(x: Tensor) -> Tensor:
    return F.where(F.isnan(x), x, F.where(x < 0, F.full_like(x, math.pi), F.zeros_like(x)))


def _scaled_sum(product: Callable[[Tensor, Tensor], Tensor]) -> Callable[..., Tensor]:
    def add(x: Tensor, a: Tensor, b: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
        if a.dtype.kind in "iu":
            beta, alpha = int(beta), int(alpha)
        y = product(a, b)
        y = y if alpha == 1 else y * alpha
        return y if beta == 0 else y + (x if beta == 1 else x * beta)

    return add


def _sum_of_products(a: Tensor, b: Tensor) -> Tensor:
    """Computes a sum of products as one product of matrices beside each other."""
    count, rows, inner = a._tuple_shape
    return F.matmul(F.transpose(a, (1, 0, 2)).reshape(rows, count * inner), b.reshape(count * inner, b._tuple_shape[2]))


ROWS: dict[str, Callable[..., Any]] = {
    **{name: _in_floats(getattr(ops, name)) for name in ("erfinv", "lgamma", "digamma")}, "polygamma": polygamma,
    **dict.fromkeys(("i0", "special_modified_bessel_i0"), _bessel(0, scaled=False)), "special_i0e": _bessel(0, scaled=True),
    **dict.fromkeys(("special_i1", "special_modified_bessel_i1"), _bessel(1, scaled=False)), "special_i1e": _bessel(1, scaled=True),
    "special_ndtri": lambda x: ops.erfcinv(_in_float32(x) * 2) * -math.sqrt(2),
    "round.decimals": round_to_decimals, "fmax": _extreme_but_nan(F.maximum), "fmin": _extreme_but_nan(F.minimum), "hypot": hypot,
    "angle": _in_floats(angle), "ldexp": lambda x, y: x * 2.0 ** wide(y),
    "addmv": _scaled_sum(F.matmul), "addbmm": _scaled_sum(_sum_of_products),
}  # fmt: skip
