"""Element-wise functions. Operands broadcast and are promoted; numbers take the tensors' dtype.

Transcendental functions of integers compute in float32; under `amp` they compute in the high
precision.
"""

from .._core import Tensor as _Tensor
from ..core import ops
from ..core.tensor.amp import to_high as _to_high
from ..core.tensor.elemwise_modes import elwise as _elwise  # noqa: F401 (name that older programs import)
from ..tensor import Tensor
from ._of_ops import Operand
from ._of_ops import binary as _binary
from ._of_ops import unary as _unary

__all__ = [
    "abs", "add", "acos", "asin", "atan", "atan2", "asinh", "acosh", "atanh", "ceil", "clip", "cos",
    "cosh", "div", "equal", "erf", "exp", "expm1", "floor", "floor_div", "greater", "greater_equal",
    "left_shift", "less", "less_equal", "log", "log1p", "logical_and", "logical_not", "logical_or",
    "logical_xor", "logaddexp", "maximum", "minimum", "mod", "mul", "neg", "not_equal", "pow",
    "right_shift", "round", "sin", "sinh", "sqrt", "square", "sub", "tan", "tanh",
]  # fmt: skip

add = _binary(ops.add)
sub = _binary(ops.sub)
mul = _binary(ops.mul)
div = _binary(
    ops.true_div,
    """Divides ``x`` by ``y``, elementwise.

    x, y: tensors or numbers that broadcast; integers divide in float32, by 0 gives inf or NaN.

    >>> from megengine import Tensor, functional as F
    >>> F.div(Tensor([3, -1, 0]), Tensor([2, 0, 0])).numpy()
    array([ 1.5, -inf,  nan], dtype=float32)
    """,
    name="div",
)
floor_div = _binary(ops.floor_div)
mod = _binary(
    ops.mod,
    """Computes the remainder of ``x / y``, elementwise.

    x, y: tensors or numbers that broadcast. Integers take the sign of ``y``, as ``%`` in Python,
    and give 0 where y is 0; floats take the sign of ``x``, as ``fmod`` in C.

    >>> from megengine import Tensor, functional as F
    >>> F.mod(Tensor([-7, 7]), 3).numpy(), F.mod(Tensor([-7.0, 7.0]), 3.0).numpy()
    (array([2, 1], dtype=int32), array([-1.,  1.], dtype=float32))
    """,
)
pow = _binary(
    ops.pow,
    """Raises ``x`` to the power ``y``, elementwise.

    x, y: tensors or numbers that broadcast; integers compute in float32. NaN where x is negative
    and y is not a whole number.

    >>> from megengine import Tensor, functional as F
    >>> F.pow(Tensor([2, 3]), 2).numpy()
    array([4., 9.], dtype=float32)
    """,
    high=True,
)
logaddexp = _binary(
    ops.logaddexp,
    """Computes ``log(exp(x) + exp(y))``, elementwise, without overflow.

    x, y: tensors or numbers that broadcast; integers compute in float32.

    >>> from megengine import Tensor, functional as F
    >>> F.logaddexp(Tensor([0.0, 100.0]), Tensor([0.0, 0.0])).numpy().round(4)
    array([  0.6931, 100.    ], dtype=float32)
    """,
    high=True,
)
maximum = _binary(ops.maximum)
minimum = _binary(ops.minimum)
left_shift = _binary(
    ops.left_shift,
    """Shifts the bits of ``x`` to the left by ``y``, elementwise.

    x, y: tensors or numbers that broadcast, of integer dtypes (TypeError). y is taken modulo 32.

    >>> from megengine import Tensor, functional as F
    >>> F.left_shift(Tensor([1, 5]), 3).numpy()
    array([ 8, 40], dtype=int32)
    """,
)
right_shift = _binary(
    ops.right_shift,
    """Shifts the bits of ``x`` to the right by ``y``, elementwise; negative numbers stay negative.

    x, y: tensors or numbers that broadcast, of integer dtypes (TypeError). y is taken modulo 32.

    >>> from megengine import Tensor, functional as F
    >>> F.right_shift(Tensor([40, -8]), 3).numpy()
    array([ 5, -1], dtype=int32)
    """,
)
logical_and = _binary(
    ops.logical_and,
    """Tells where both ``x`` and ``y`` are true, elementwise.

    x, y: tensors or numbers that broadcast, of dtype bool (TypeError).

    >>> from megengine import Tensor, functional as F
    >>> x = Tensor([1.0, 2.0, 3.0])
    >>> F.logical_and(x > 1, x < 3).numpy()
    array([False,  True, False])
    """,
)
logical_or = _binary(
    ops.logical_or,
    """Tells where ``x`` or ``y`` or both are true, elementwise.

    x, y: tensors or numbers that broadcast, of dtype bool (TypeError).

    >>> from megengine import Tensor, functional as F
    >>> x = Tensor([1.0, 2.0, 3.0])
    >>> F.logical_or(x < 2, x > 2).numpy()
    array([ True, False,  True])
    """,
)
logical_xor = _binary(
    ops.logical_xor,
    """Tells where exactly one of ``x`` and ``y`` is true, elementwise.

    x, y: tensors or numbers that broadcast, of dtype bool (TypeError).

    >>> from megengine import Tensor, functional as F
    >>> F.logical_xor(Tensor([True, True, False]), Tensor([True, False, False])).numpy()
    array([False,  True, False])
    """,
)
equal = _binary(ops.equal)
not_equal = _binary(ops.not_equal)
less = _binary(ops.less)
less_equal = _binary(ops.less_equal)
greater = _binary(ops.greater)
greater_equal = _binary(ops.greater_equal)

neg = _unary(ops.neg)
abs = _unary(ops.abs)
square = _unary(ops.square)
sqrt = _unary(
    ops.sqrt,
    """Computes the square root, elementwise; NaN below 0.

    x: any shape; integers compute in float32.

    >>> from megengine import Tensor, functional as F
    >>> F.sqrt(Tensor([4.0, 0.25, -1.0])).numpy()
    array([2. , 0.5, nan], dtype=float32)
    """,
)
round = _unary(
    ops.round,
    """Rounds to the nearest whole number, elementwise, halves away from 0.

    x: any shape and dtype, which the result has.

    >>> from megengine import Tensor, functional as F
    >>> F.round(Tensor([0.5, 1.5, 2.5, -2.5])).numpy()  # numpy.round has [0, 2, 2, -2]
    array([ 1.,  2.,  3., -3.], dtype=float32)
    """,
)
ceil = _unary(
    ops.ceil,
    """Rounds up, to the smallest whole number not below ``x``, elementwise.

    x: any shape and dtype, which the result has.

    >>> from megengine import Tensor, functional as F
    >>> F.ceil(Tensor([1.2, -1.2, 3.0])).numpy()
    array([ 2., -1.,  3.], dtype=float32)
    """,
)
floor = _unary(
    ops.floor,
    """Rounds down, to the largest whole number not above ``x``, elementwise.

    x: any shape and dtype, which the result has.

    >>> from megengine import Tensor, functional as F
    >>> F.floor(Tensor([1.2, -1.2, 3.0])).numpy()
    array([ 1., -2.,  3.], dtype=float32)
    """,
)
logical_not = _unary(
    ops.logical_not,
    """Tells where ``x`` is false, elementwise.

    x: any shape, dtype bool (TypeError).

    >>> from megengine import Tensor, functional as F
    >>> F.logical_not(Tensor([True, False])).numpy()
    array([False,  True])
    """,
)
tanh = _unary(ops.tanh)
exp = _unary(ops.exp, high=True)
expm1 = _unary(ops.expm1, high=True)
log = _unary(ops.log, high=True)
log1p = _unary(ops.log1p, high=True)
cos = _unary(
    ops.cos,
    """Computes the cosine of angles in radians, elementwise.

    x: any shape; integers compute in float32.

    >>> from megengine import Tensor, functional as F
    >>> F.cos(Tensor([0.0, 1.0])).numpy().round(4)
    array([1.    , 0.5403], dtype=float32)
    """,
    high=True,
)
sin = _unary(
    ops.sin,
    """Computes the sine of angles in radians, elementwise.

    x: any shape; integers compute in float32.

    >>> from megengine import Tensor, functional as F
    >>> F.sin(Tensor([0.0, 1.0])).numpy().round(4)
    array([0.    , 0.8415], dtype=float32)
    """,
    high=True,
)
tan = _unary(
    ops.tan,
    """Computes the tangent of angles in radians, elementwise.

    x: any shape; integers compute in float32.

    >>> from megengine import Tensor, functional as F
    >>> F.tan(Tensor([0.0, 1.0])).numpy().round(4)
    array([0.    , 1.5574], dtype=float32)
    """,
    high=True,
)
acos = _unary(
    ops.acos,
    """Computes the angle in [0, pi] (radians) of a cosine, elementwise; NaN outside of [-1, 1].

    x: any shape; integers compute in float32.

    >>> from megengine import Tensor, functional as F
    >>> F.acos(Tensor([1.0, -1.0, 2.0])).numpy().round(4)
    array([0.    , 3.1416,    nan], dtype=float32)
    """,
    high=True,
)
asin = _unary(
    ops.asin,
    """Computes the angle in [-pi/2, pi/2] (radians) of a sine, elementwise; NaN outside of [-1, 1].

    x: any shape; integers compute in float32.

    >>> from megengine import Tensor, functional as F
    >>> F.asin(Tensor([0.0, 1.0, 2.0])).numpy().round(4)
    array([0.    , 1.5708,    nan], dtype=float32)
    """,
    high=True,
)
atan = _unary(
    ops.atan,
    """Computes the angle in (-pi/2, pi/2) (radians) of a tangent, elementwise.

    x: any shape; integers compute in float32.

    >>> from megengine import Tensor, functional as F
    >>> F.atan(Tensor([0.0, 1.0])).numpy().round(4)
    array([0.    , 0.7854], dtype=float32)
    """,
    high=True,
)
cosh = _unary(ops.cosh, high=True)
sinh = _unary(ops.sinh, high=True)
acosh = _unary(ops.acosh, high=True)
asinh = _unary(ops.asinh, high=True)
atanh = _unary(ops.atanh, high=True)
erf = _unary(
    ops.erf,
    """Computes the error function, ``2 / sqrt(pi) * integral of exp(-t**2)`` from 0 to ``x``.

    x: any shape; integers compute in float32.

    >>> from megengine import Tensor, functional as F
    >>> F.erf(Tensor([0.0, 1.0, 9.0])).numpy().round(4)
    array([0.    , 0.8427, 1.    ], dtype=float32)
    """,
    high=True,
)


def atan2(y: Operand, x: Operand) -> Tensor:
    """Computes the angle of the point (x, y) in radians, in (-pi, pi].

    y, x: tensors or numbers that broadcast; integers compute in float32.

    >>> from megengine import Tensor, functional as F
    >>> F.atan2(Tensor([1.0, 1.0, 0.0]), Tensor([1.0, -1.0, -1.0])).numpy().round(4)
    array([0.7854, 2.3562, 3.1416], dtype=float32)
    """
    return ops.atan2(_to_high(y), _to_high(x))


def clip(x: Tensor, lower: Operand | None = None, upper: Operand | None = None) -> Tensor:
    """Limits ``x`` to [lower, upper].

    lower, upper: numbers or tensors that broadcast; None leaves a side open. AssertionError when
    both are None, or when they are numbers with lower > upper.

    >>> from megengine import Tensor, functional as F
    >>> F.clip(Tensor([-2.0, 0.5, 3.0]), 0, 1).numpy()
    array([0. , 0.5, 1. ], dtype=float32)
    """
    assert lower is not None or upper is not None, "clip: give lower, upper or both"
    if lower is None:
        return ops.minimum(x, upper)
    if upper is None:
        return ops.maximum(x, lower)
    if not isinstance(lower, _Tensor) and not isinstance(upper, _Tensor):
        assert lower <= upper, f"clip: lower {lower} is above upper {upper}"
    return ops.minimum(ops.maximum(x, lower), upper)
