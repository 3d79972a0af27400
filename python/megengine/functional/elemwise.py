"""Element-wise functions. Operands broadcast and are promoted; numbers take the tensors' dtype.

Transcendental functions of integers compute in float32; under `amp` they compute in the high
precision.
"""

from .._core import Tensor as _Tensor
from ..core import ops
from ..core.tensor.amp import to_high as _to_high
from ..tensor import Tensor
from ._bits import bitwise_and, bitwise_not, bitwise_or, bitwise_xor
from ._docs import BOOL, FLOAT, LOGICAL, PROMOTED, SAME, Operand
from ._docs import tells as _tells

__all__ = [
    "abs", "add", "acos", "asin", "atan", "atan2", "asinh", "acosh", "atanh",
    "bitwise_and", "bitwise_not", "bitwise_or", "bitwise_xor", "ceil", "clip", "cos",
    "cosh", "div", "equal", "erf", "exp", "expm1", "floor", "floor_div", "greater", "greater_equal",
    "left_shift", "less", "less_equal", "log", "log1p", "logical_and", "logical_not", "logical_or",
    "logical_xor", "logaddexp", "maximum", "minimum", "mod", "mul", "neg", "not_equal", "pow",
    "right_shift", "round", "sin", "sinh", "sqrt", "square", "sub", "tan", "tanh",
]  # fmt: skip


@_tells(PROMOTED)
def add(x: Operand, y: Operand) -> Tensor:
    """Adds ``x`` and ``y``, elementwise.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.add(Tensor([1, 2]), 0.5).numpy()
    array([1.5, 2.5], dtype=float32)
    """
    return ops.add(x, y)


@_tells(PROMOTED)
def sub(x: Operand, y: Operand) -> Tensor:
    """Subtracts ``y`` from ``x``, elementwise.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.sub(Tensor([[1.0], [2.0]]), Tensor([1.0, 0.5])).numpy()
    array([[0. , 0.5],
           [1. , 1.5]], dtype=float32)
    """
    return ops.sub(x, y)


@_tells(PROMOTED)
def mul(x: Operand, y: Operand) -> Tensor:
    """Multiplies ``x`` by ``y``, elementwise.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.mul(Tensor([1.0, 2.0]), Tensor([3.0, 4.0])).numpy()  # no matrix product: see `matmul`
    array([3., 8.], dtype=float32)
    """
    return ops.mul(x, y)


def div(x: Operand, y: Operand) -> Tensor:
    """Divides ``x`` by ``y``, elementwise.

    Parameters
    ----------
    x, y : Tensor or number
        Tensors or numbers whose shapes broadcast.

    Returns
    -------
    Tensor
        The broadcast shape, in a float dtype: integers divide in float32. Division by 0 gives inf
        or NaN.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.div(Tensor([3, -1, 0]), Tensor([2, 0, 0])).numpy()
    array([ 1.5, -inf,  nan], dtype=float32)
    """
    return ops.true_div(_to_high(x), _to_high(y))


def floor_div(x: Operand, y: Operand) -> Tensor:
    """Divides ``x`` by ``y`` and rounds down, towards minus infinity, elementwise.

    Parameters
    ----------
    x, y : Tensor or number
        Tensors or numbers whose shapes broadcast.

    Returns
    -------
    Tensor
        The broadcast shape and the promoted dtype; an integer divided by 0 is 0.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.floor_div(Tensor([-7, 7, 7]), Tensor([2, 2, 0])).numpy()
    array([-4,  3,  0], dtype=int32)
    """
    return ops.floor_div(x, y)


def mod(x: Operand, y: Operand) -> Tensor:
    """Computes the remainder of ``x / y``, elementwise.

    Parameters
    ----------
    x, y : Tensor or number
        Tensors or numbers whose shapes broadcast.

    Returns
    -------
    Tensor
        The broadcast shape and the promoted dtype. Integers take the sign of ``y``, as ``%`` in
        Python, and give 0 where y is 0; floats take the sign of ``x``, as ``fmod`` in C.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.mod(Tensor([-7, 7]), 3).numpy(), F.mod(Tensor([-7.0, 7.0]), 3.0).numpy()
    (array([2, 1], dtype=int32), array([-1.,  1.], dtype=float32))
    """
    return ops.mod(x, y)


def pow(x: Operand, y: Operand) -> Tensor:
    """Raises ``x`` to the power ``y``, elementwise.

    Parameters
    ----------
    x, y : Tensor or number
        Tensors or numbers whose shapes broadcast.

    Returns
    -------
    Tensor
        The broadcast shape, in a float dtype: integers compute in float32. NaN where x is negative
        and y is not a whole number.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.pow(Tensor([2, 3]), 2).numpy()
    array([4., 9.], dtype=float32)
    """
    return ops.pow(_to_high(x), _to_high(y))


def logaddexp(x: Operand, y: Operand) -> Tensor:
    """Computes ``log(exp(x) + exp(y))``, elementwise, without overflow.

    Parameters
    ----------
    x, y : Tensor or number
        Tensors or numbers whose shapes broadcast.

    Returns
    -------
    Tensor
        The broadcast shape, in a float dtype: integers compute in float32.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.logaddexp(Tensor([0.0, 100.0]), Tensor([0.0, 0.0])).numpy().round(4)
    array([  0.6931, 100.    ], dtype=float32)
    """
    return ops.logaddexp(_to_high(x), _to_high(y))


@_tells(PROMOTED)
def maximum(x: Operand, y: Operand) -> Tensor:
    """Takes the larger one of ``x`` and ``y``, elementwise; NaN where either is NaN.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.maximum(Tensor([-1.0, 2.0, float("nan")]), 0.0).numpy()
    array([ 0.,  2., nan], dtype=float32)
    """
    return ops.maximum(x, y)


@_tells(PROMOTED)
def minimum(x: Operand, y: Operand) -> Tensor:
    """Takes the smaller one of ``x`` and ``y``, elementwise; NaN where either is NaN.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.minimum(Tensor([-1.0, 2.0, float("nan")]), 0.0).numpy()
    array([-1.,  0., nan], dtype=float32)
    """
    return ops.minimum(x, y)


def left_shift(x: Operand, y: Operand) -> Tensor:
    """Shifts the bits of ``x`` to the left by ``y``, elementwise.

    Parameters
    ----------
    x, y : Tensor or number
        Tensors or numbers of integer dtypes whose shapes broadcast. ``y`` counts bits, modulo 32.

    Returns
    -------
    Tensor
        The broadcast shape and the promoted dtype.

    Raises
    ------
    TypeError
        For another dtype.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.left_shift(Tensor([1, 5]), 3).numpy()
    array([ 8, 40], dtype=int32)
    """
    return ops.left_shift(x, y)


def right_shift(x: Operand, y: Operand) -> Tensor:
    """Shifts the bits of ``x`` to the right by ``y``, elementwise; negative numbers stay negative.

    Parameters
    ----------
    x, y : Tensor or number
        Tensors or numbers of integer dtypes whose shapes broadcast. ``y`` counts bits, modulo 32.

    Returns
    -------
    Tensor
        The broadcast shape and the promoted dtype.

    Raises
    ------
    TypeError
        For another dtype.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.right_shift(Tensor([40, -8]), 3).numpy()
    array([ 5, -1], dtype=int32)
    """
    return ops.right_shift(x, y)


@_tells(LOGICAL)
def logical_and(x: Operand, y: Operand) -> Tensor:
    """Tells where both ``x`` and ``y`` are true, elementwise.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> x = Tensor([1.0, 2.0, 3.0])
    >>> F.logical_and(x > 1, x < 3).numpy()
    array([False,  True, False])
    """
    return ops.logical_and(x, y)


@_tells(LOGICAL)
def logical_or(x: Operand, y: Operand) -> Tensor:
    """Tells where ``x`` or ``y`` or both are true, elementwise.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> x = Tensor([1.0, 2.0, 3.0])
    >>> F.logical_or(x < 2, x > 2).numpy()
    array([ True, False,  True])
    """
    return ops.logical_or(x, y)


@_tells(LOGICAL)
def logical_xor(x: Operand, y: Operand) -> Tensor:
    """Tells where exactly one of ``x`` and ``y`` is true, elementwise.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.logical_xor(Tensor([True, True, False]), Tensor([True, False, False])).numpy()
    array([False,  True, False])
    """
    return ops.logical_xor(x, y)


@_tells(BOOL)
def equal(x: Operand, y: Operand) -> Tensor:
    """Tells where ``x`` equals ``y``, elementwise; NaN equals nothing.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.equal(Tensor([1.0, 2.0]), Tensor([1, 3])).numpy()
    array([ True, False])
    """
    return ops.equal(x, y)


@_tells(BOOL)
def not_equal(x: Operand, y: Operand) -> Tensor:
    """Tells where ``x`` differs from ``y``, elementwise; NaN differs from everything.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> x = Tensor([1.0, float("nan")])
    >>> F.not_equal(x, x).numpy()
    array([False,  True])
    """
    return ops.not_equal(x, y)


@_tells(BOOL)
def less(x: Operand, y: Operand) -> Tensor:
    """Tells where ``x`` is less than ``y``, elementwise; false for NaN.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.less(Tensor([1, 2, 3]), 2).numpy()
    array([ True, False, False])
    """
    return ops.less(x, y)


@_tells(BOOL)
def less_equal(x: Operand, y: Operand) -> Tensor:
    """Tells where ``x`` is at most ``y``, elementwise; false for NaN.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.less_equal(Tensor([1, 2, 3]), 2).numpy()
    array([ True,  True, False])
    """
    return ops.less_equal(x, y)


@_tells(BOOL)
def greater(x: Operand, y: Operand) -> Tensor:
    """Tells where ``x`` is greater than ``y``, elementwise; false for NaN.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.greater(Tensor([1, 2, 3]), 2).numpy()
    array([False, False,  True])
    """
    return ops.greater(x, y)


@_tells(BOOL)
def greater_equal(x: Operand, y: Operand) -> Tensor:
    """Tells where ``x`` is at least ``y``, elementwise; false for NaN.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.greater_equal(Tensor([1, 2, 3]), 2).numpy()
    array([False,  True,  True])
    """
    return ops.greater_equal(x, y)


@_tells(SAME)
def neg(x: Operand) -> Tensor:
    """Negates ``x``, elementwise.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.neg(Tensor([1, -2])).numpy()
    array([-1,  2], dtype=int32)
    """
    return ops.neg(x)


def abs(x: Operand) -> Tensor:
    """Computes the magnitude ``|x|``, elementwise.

    Parameters
    ----------
    x : Tensor or number
        Any shape and dtype. The gradient at 0 is that of ``-x``.

    Returns
    -------
    Tensor
        The shape and dtype of ``x``.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.abs(Tensor([-1.5, 2.0])).numpy()
    array([1.5, 2. ], dtype=float32)
    """
    return ops.abs(x)


@_tells(SAME)
def square(x: Operand) -> Tensor:
    """Computes ``x * x``, elementwise.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.square(Tensor([-3, 2])).numpy()
    array([9, 4], dtype=int32)
    """
    return ops.square(x)


@_tells(FLOAT)
def sqrt(x: Operand) -> Tensor:
    """Computes the square root, elementwise; NaN below 0.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.sqrt(Tensor([4.0, 0.25, -1.0])).numpy()
    array([2. , 0.5, nan], dtype=float32)
    """
    return ops.sqrt(_to_high(x))


@_tells(SAME)
def round(x: Operand) -> Tensor:
    """Rounds to the nearest whole number, elementwise, halves away from 0.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.round(Tensor([0.5, 1.5, 2.5, -2.5])).numpy()  # numpy.round has [0, 2, 2, -2]
    array([ 1.,  2.,  3., -3.], dtype=float32)
    """
    return ops.round(x)


@_tells(SAME)
def ceil(x: Operand) -> Tensor:
    """Rounds up, to the smallest whole number not below ``x``, elementwise.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.ceil(Tensor([1.2, -1.2, 3.0])).numpy()
    array([ 2., -1.,  3.], dtype=float32)
    """
    return ops.ceil(x)


@_tells(SAME)
def floor(x: Operand) -> Tensor:
    """Rounds down, to the largest whole number not above ``x``, elementwise.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.floor(Tensor([1.2, -1.2, 3.0])).numpy()
    array([ 1., -2.,  3.], dtype=float32)
    """
    return ops.floor(x)


def logical_not(x: Operand) -> Tensor:
    """Tells where ``x`` is false, elementwise.

    Parameters
    ----------
    x : Tensor or number
        Any shape, dtype bool.

    Returns
    -------
    Tensor
        The shape of ``x``, dtype bool.

    Raises
    ------
    TypeError
        For another dtype.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.logical_not(Tensor([True, False])).numpy()
    array([False,  True])
    """
    return ops.logical_not(x)


@_tells(FLOAT)
def tanh(x: Operand) -> Tensor:
    """Computes the hyperbolic tangent, elementwise.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.tanh(Tensor([0.0, 1.0, 100.0])).numpy().round(4)
    array([0.    , 0.7616, 1.    ], dtype=float32)
    """
    return ops.tanh(x)


@_tells(FLOAT)
def exp(x: Operand) -> Tensor:
    """Computes e to the power ``x``, elementwise.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.exp(Tensor([0.0, 1.0, -1000.0])).numpy().round(4)
    array([1.    , 2.7183, 0.    ], dtype=float32)
    """
    return ops.exp(_to_high(x))


@_tells(FLOAT)
def expm1(x: Operand) -> Tensor:
    """Computes ``exp(x) - 1``, elementwise, exact near 0.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.expm1(Tensor([1e-8])).item() > 0, (F.exp(Tensor([1e-8])) - 1).item()
    (True, 0.0)
    """
    return ops.expm1(_to_high(x))


@_tells(FLOAT)
def log(x: Operand) -> Tensor:
    """Computes the natural logarithm, elementwise; -inf at 0, NaN below.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.log(Tensor([1.0, 0.0, -1.0])).numpy()
    array([  0., -inf,  nan], dtype=float32)
    """
    return ops.log(_to_high(x))


@_tells(FLOAT)
def log1p(x: Operand) -> Tensor:
    """Computes ``log(1 + x)``, elementwise, exact near 0.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.log1p(Tensor([1e-8])).item() > 0, F.log(Tensor([1e-8]) + 1).item()
    (True, 0.0)
    """
    return ops.log1p(_to_high(x))


@_tells(FLOAT)
def cos(x: Operand) -> Tensor:
    """Computes the cosine of angles in radians, elementwise.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.cos(Tensor([0.0, 1.0])).numpy().round(4)
    array([1.    , 0.5403], dtype=float32)
    """
    return ops.cos(_to_high(x))


@_tells(FLOAT)
def sin(x: Operand) -> Tensor:
    """Computes the sine of angles in radians, elementwise.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.sin(Tensor([0.0, 1.0])).numpy().round(4)
    array([0.    , 0.8415], dtype=float32)
    """
    return ops.sin(_to_high(x))


@_tells(FLOAT)
def tan(x: Operand) -> Tensor:
    """Computes the tangent of angles in radians, elementwise.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.tan(Tensor([0.0, 1.0])).numpy().round(4)
    array([0.    , 1.5574], dtype=float32)
    """
    return ops.tan(_to_high(x))


@_tells(FLOAT)
def acos(x: Operand) -> Tensor:
    """Computes the angle in [0, pi] (radians) of a cosine, elementwise; NaN outside of [-1, 1].

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.acos(Tensor([1.0, -1.0, 2.0])).numpy().round(4)
    array([0.    , 3.1416,    nan], dtype=float32)
    """
    return ops.acos(_to_high(x))


@_tells(FLOAT)
def asin(x: Operand) -> Tensor:
    """Computes the angle in [-pi/2, pi/2] (radians) of a sine, elementwise; NaN outside of [-1, 1].

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.asin(Tensor([0.0, 1.0, 2.0])).numpy().round(4)
    array([0.    , 1.5708,    nan], dtype=float32)
    """
    return ops.asin(_to_high(x))


@_tells(FLOAT)
def atan(x: Operand) -> Tensor:
    """Computes the angle in (-pi/2, pi/2) (radians) of a tangent, elementwise.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.atan(Tensor([0.0, 1.0])).numpy().round(4)
    array([0.    , 0.7854], dtype=float32)
    """
    return ops.atan(_to_high(x))


@_tells(FLOAT)
def cosh(x: Operand) -> Tensor:
    """Computes the hyperbolic cosine, elementwise.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.cosh(Tensor([0.0, 1.0])).numpy().round(4)
    array([1.    , 1.5431], dtype=float32)
    """
    return ops.cosh(_to_high(x))


@_tells(FLOAT)
def sinh(x: Operand) -> Tensor:
    """Computes the hyperbolic sine, elementwise.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.sinh(Tensor([0.0, 1.0])).numpy().round(4)
    array([0.    , 1.1752], dtype=float32)
    """
    return ops.sinh(_to_high(x))


@_tells(FLOAT)
def acosh(x: Operand) -> Tensor:
    """Computes the inverse hyperbolic cosine, elementwise; NaN below 1.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.acosh(Tensor([1.0, 2.0, 0.5])).numpy().round(4)
    array([0.   , 1.317,   nan], dtype=float32)
    """
    return ops.acosh(_to_high(x))


@_tells(FLOAT)
def asinh(x: Operand) -> Tensor:
    """Computes the inverse hyperbolic sine, elementwise.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.asinh(Tensor([0.0, 1.0])).numpy().round(4)
    array([0.    , 0.8814], dtype=float32)
    """
    return ops.asinh(_to_high(x))


@_tells(FLOAT)
def atanh(x: Operand) -> Tensor:
    """Computes the inverse hyperbolic tangent, elementwise; infinite at -1 and 1, NaN outside.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.atanh(Tensor([0.5, 1.0, 2.0])).numpy().round(4)
    array([0.5493,    inf,    nan], dtype=float32)
    """
    return ops.atanh(_to_high(x))


@_tells(FLOAT)
def erf(x: Operand) -> Tensor:
    """Computes the error function, ``2 / sqrt(pi) * integral of exp(-t**2)`` from 0 to ``x``.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.erf(Tensor([0.0, 1.0, 9.0])).numpy().round(4)
    array([0.    , 0.8427, 1.    ], dtype=float32)
    """
    return ops.erf(_to_high(x))


def atan2(y: Operand, x: Operand) -> Tensor:
    """Computes the angle of the point (x, y) in radians, in (-pi, pi].

    Parameters
    ----------
    y, x : Tensor or number
        Tensors or numbers whose shapes broadcast.

    Returns
    -------
    Tensor
        The broadcast shape, in a float dtype: integers compute in float32.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.atan2(Tensor([1.0, 1.0, 0.0]), Tensor([1.0, -1.0, -1.0])).numpy().round(4)
    array([0.7854, 2.3562, 3.1416], dtype=float32)
    """
    return ops.atan2(_to_high(y), _to_high(x))


def lerp(start: Operand, end: Operand, weight: Operand) -> Tensor:
    """Interpolates between ``start`` and ``end``: ``start + weight * (end - start)``, elementwise.

    Parameters
    ----------
    start, end, weight : Tensor or number
        Tensors or numbers whose shapes broadcast; weights outside of [0, 1] extrapolate.

    Returns
    -------
    Tensor
        The broadcast shape and the promoted dtype.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.lerp(Tensor([0.0, 10.0]), Tensor([1.0, 20.0]), 0.25).numpy()
    array([ 0.25, 12.5 ], dtype=float32)
    """
    return ops.add(start, ops.mul(weight, ops.sub(end, start)))


def clip(x: Tensor, lower: Operand | None = None, upper: Operand | None = None) -> Tensor:
    """Limits ``x`` to [lower, upper].

    Parameters
    ----------
    x : Tensor
        Tensor of any shape and dtype.
    lower, upper : Tensor, number or None
        Bounds that broadcast with ``x``; None leaves a side open.

    Returns
    -------
    Tensor
        The broadcast shape and the promoted dtype.

    Raises
    ------
    AssertionError
        When both are None, or when they are numbers with lower > upper.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.clip(Tensor([-2.0, 0.5, 3.0]), 0, 1).numpy()
    array([0. , 0.5, 1. ], dtype=float32)
    """
    if lower is None and upper is None:
        raise AssertionError("At least one of 'lower' or 'upper' must not be None")
    if lower is None:
        return ops.minimum(x, upper)
    if upper is None:
        return ops.maximum(x, lower)
    if not isinstance(lower, _Tensor) and not isinstance(upper, _Tensor):
        if not lower <= upper:
            raise AssertionError(f"clip: lower {lower} is above upper {upper}")
    return ops.minimum(ops.maximum(x, lower), upper)
