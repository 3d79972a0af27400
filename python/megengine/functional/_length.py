"""The length of a vector, which `norm` and `normalize`, and the functions of PyTorch's names,
compute.
"""

import math
from collections.abc import Callable

from ..core import ops
from ..tensor import Tensor

_Op = Callable[..., Tensor]


def length(
    x: Tensor,
    ord: float | None,
    over: Callable[[_Op, Tensor], Tensor],
    magnitude: _Op = lambda x: ops.abs(x),
    extremes: tuple[_Op, _Op] = (lambda x, **attrs: ops.reduce_max(x, **attrs), lambda x, **attrs: ops.reduce_min(x, **attrs)),
) -> Tensor:
    """``sum(|x| ** ord) ** (1 / ord)``, where ``over(op, values)`` reduces. Integers and halves are
    computed in float32, which is the dtype of the result.

    Where the length is 0, so is its gradient. ``magnitude`` and ``extremes`` choose the gradients
    of |x| at 0, and of equal elements.
    """
    ord = 2 if ord is None else ord
    if x.dtype.name in ("float16", "bfloat16"):
        x = ops.cast(x, dtype="float32")
    if abs(ord) == math.inf:
        return over(extremes[ord < 0], magnitude(x))
    if ord == 0:
        return over(ops.reduce_sum, ops.cast(ops.not_equal(x, 0), dtype="float32"))
    if x.dtype.kind in "iub":
        x = ops.cast(x, dtype="float32")
    if ord == 2:
        return ops.norm_root(over(ops.reduce_sum, ops.square(x)))
    sizes = magnitude(x)
    if ord == 1:
        return over(ops.reduce_sum, sizes)
    powers = ops.pow(sizes, float(ord)) if ord > 2 else _flat_at_zero(sizes, float(ord))
    return _flat_at_zero(over(ops.reduce_sum, powers), 1.0 / ord)


def _flat_at_zero(x: Tensor, exponent: float) -> Tensor:
    """Computes ``x ** exponent`` of x >= 0, with gradient 0 where x is 0; the other branch stays
    finite there.
    """
    is_zero = ops.equal(x, 0.0)
    return ops.where(is_zero, 0.0 if exponent > 0 else math.inf, ops.pow(ops.where(is_zero, 1.0, x), exponent))
