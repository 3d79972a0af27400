"""Element-wise ops by the mode names that `M.Elemwise` and older programs use: ``elwise(x, y,
mode="add")``.
"""

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

_COMPOSED: dict[str, Callable[..., "Tensor"]] = {
    "fuse_mul_add3": lambda a, b, c: ops.fma3(a, b, c),
    "fuse_mul_add4": lambda a, b, c, d: ops.add(ops.mul(a, b), ops.mul(c, d)),
    "fuse_add_relu": lambda a, b: ops.relu(ops.add(a, b)),
    "fuse_add_sigmoid": lambda a, b: ops.sigmoid(ops.add(a, b)),
    "fuse_add_tanh": lambda a, b: ops.tanh(ops.add(a, b)),
    "fuse_add_h_swish": lambda a, b: ops.hswish(ops.add(a, b)),
    "cond_leq_mov": lambda a, b, c: ops.mul(ops.cast(ops.less_equal(a, b), dtype=c.dtype.name), c),
    "cond_lt_mov": lambda a, b, c: ops.mul(ops.cast(ops.less(a, b), dtype=c.dtype.name), c),
    "floor_div": ops.floor_div,
}


def mode_of(name: Any) -> str:
    """A mode in lower case, from a string in any case or an enum member."""
    return getattr(name, "name", str(name)).rsplit(".", 1)[-1].lower()


def function_of(mode: Any) -> Callable[..., "Tensor"]:
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


def elwise(*args: Any, mode: Any) -> "Tensor":
    """Applies the element-wise op named ``mode``."""
    return function_of(mode)(*args)
