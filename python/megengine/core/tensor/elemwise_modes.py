"""Element-wise ops by the mode names that `M.Elemwise` and older programs use: ``elwise(x, y,
mode="add")``.
"""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .. import ops

if TYPE_CHECKING:
    from ...tensor import Tensor

_RENAMED = {
    "eq": "equal", "neq": "not_equal", "lt": "less", "leq": "less_equal", "gt": "greater", "geq":
    "greater_equal", "and": "logical_and", "or": "logical_or", "xor": "logical_xor", "not":
    "logical_not", "negate": "neg", "shl": "left_shift", "shr": "right_shift", "log_sum_exp":
    "logaddexp", "h_swish": "hswish", "pow": "pow", "atan2": "atan2", "max": "maximum", "min":
    "minimum",
}  # fmt: skip


def _zero_unless(condition: "Tensor", value: "Tensor") -> "Tensor":
    return ops.where(condition, value, 0.0)


def _gelu_grad(x: "Tensor", dy: "Tensor") -> "Tensor":
    # the distribution function of the normal distribution
    below = ops.mul(ops.add(ops.erf(ops.mul(x, math.sqrt(0.5))), 1.0), 0.5)
    density = ops.mul(ops.exp(ops.mul(ops.square(x), -0.5)), 1 / math.sqrt(2 * math.pi))
    return ops.mul(dy, ops.add(below, ops.mul(x, density)))


def _silu_grad(x: "Tensor", dy: "Tensor") -> "Tensor":
    gate = ops.sigmoid(x)
    return ops.mul(dy, ops.mul(gate, ops.add(ops.mul(x, ops.sub(1.0, gate)), 1.0)))


def _hswish_grad(x: "Tensor", dy: "Tensor") -> "Tensor":
    inside = ops.true_div(ops.mul(dy, ops.add(ops.mul(x, 2.0), 3.0)), 6.0)
    return _zero_unless(ops.greater_equal(x, -3.0), ops.where(ops.greater(x, 3.0), dy, inside))


def _between(x: "Tensor", low: float, high: float) -> "Tensor":
    return ops.logical_and(ops.greater(x, low), ops.less(x, high))


# Modes of gradients take the operand (sigmoid and tanh: the result) and the gradient of the result.
_GRADIENTS: dict[str, Callable[..., "Tensor"]] = {
    "abs_grad": lambda x, dy: ops.where(ops.greater(x, 0.0), dy, ops.neg(dy)),
    "acosh_grad": lambda x, dy: ops.true_div(dy, ops.sqrt(ops.sub(ops.square(x), 1.0))),
    "asinh_grad": lambda x, dy: ops.true_div(dy, ops.sqrt(ops.add(ops.square(x), 1.0))),
    "atanh_grad": lambda x, dy: ops.true_div(dy, ops.sub(1.0, ops.square(x))),
    "gelu_grad": _gelu_grad,
    "hsigmoid_grad": lambda x, dy: _zero_unless(_between(x, -3.0, 3.0), ops.true_div(dy, 6.0)),
    "h_swish_grad": _hswish_grad,
    "prelu_grad": lambda x, dy, slope: ops.where(ops.greater_equal(x, 0.0), dy, ops.mul(dy, slope)),
    "relu6_grad": lambda x, dy: _zero_unless(_between(x, 0.0, 6.0), dy),
    "sigmoid_grad": lambda y, dy: ops.mul(dy, ops.mul(y, ops.sub(1.0, y))),
    "silu_grad": _silu_grad,
    "softplus_grad": lambda x, dy: ops.mul(dy, ops.sigmoid(x)),
    "switch_gt0": lambda x, dy: _zero_unless(ops.greater(x, 0.0), dy),
    "tanh_grad": lambda y, dy: ops.mul(dy, ops.sub(1.0, ops.square(y))),
}

_COMPOSED: dict[str, Callable[..., "Tensor"]] = {
    "fuse_mul_add3": lambda a, b, c: ops.fma3(a, b, c),
    "fuse_mul_add4": lambda a, b, c, d: ops.add(ops.mul(a, b), ops.mul(c, d)),
    "fuse_add_relu": lambda a, b: ops.relu(ops.add(a, b)),
    "fuse_add_sigmoid": lambda a, b: ops.sigmoid(ops.add(a, b)),
    "fuse_add_tanh": lambda a, b: ops.tanh(ops.add(a, b)),
    "fuse_add_h_swish": lambda a, b: ops.hswish(ops.add(a, b)),
    "cond_leq_mov": lambda a, b, c: _zero_unless(ops.less_equal(a, b), c),
    "cond_lt_mov": lambda a, b, c: _zero_unless(ops.less(a, b), c),
    "clip": lambda x, low, high: ops.minimum(ops.maximum(x, low), high),
    **_GRADIENTS,
    "floor_div": ops.floor_div,
}


def mode_of(name: object) -> str:
    """A mode in lower case, from a string in any case or an enum member."""
    return getattr(name, "name", str(name)).rsplit(".", 1)[-1].lower()


def function_of(mode: object) -> Callable[..., "Tensor"]:
    """The op of an element-wise mode. ValueError for an unknown one."""
    name = mode_of(mode)
    if name in _COMPOSED:
        return _COMPOSED[name]
    op = getattr(ops, _RENAMED.get(name, name), None)
    if op is None:
        raise ValueError(
            f"elemwise: no mode {mode!r}; modes are names such as 'add', 'relu', 'fuse_mul_add3'"
        )
    return op


def elwise(*args: Any, mode: object) -> "Tensor":
    """Applies the element-wise op named ``mode``."""
    return function_of(mode)(*args)
