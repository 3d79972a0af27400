"""Conversion of operands, under the names that older programs import."""

from typing import TYPE_CHECKING, Any

import numpy as np

from ..._core import Tensor as _Tensor
from ..._core import apply_const
from ..._core import convert_inputs as _convert_inputs
from .. import ops
from .dtype import dtype_name

if TYPE_CHECKING:
    from ...tensor import Tensor

_converting = True


def get_convert_inputs() -> bool:
    """Whether operands of different dtypes are promoted."""
    return _converting


def set_convert_inputs(flag: bool) -> bool:
    """Sets promotion of operands; returns the setting before."""
    global _converting
    before, _converting = _converting, bool(flag)
    return before


def convert_single_value(v: Any, *, dtype: Any = None, device: Any = None) -> "Tensor":
    """``v`` as a tensor of ``dtype`` on ``device``."""
    if not isinstance(v, _Tensor):
        v = apply_const(np.asarray(v))
    if dtype is not None and v.dtype != np.dtype(dtype_name(dtype)):
        v = ops.cast(v, dtype=dtype_name(dtype))
    return v if device is None else v.to(device)


def convert_inputs(*args: Any, device: Any = None) -> tuple["Tensor | None", ...]:
    """All operands as tensors of their common dtype; None stays None."""
    given = [a for a in args if a is not None]
    converted = iter(_convert_inputs(*given) if _converting else map(convert_single_value, given))
    out = tuple(None if a is None else next(converted) for a in args)
    return out if device is None else tuple(a if a is None else a.to(device) for a in out)


def cast_tensors(*args: Any, promote: bool = False) -> tuple[Any, ...]:
    """Tensors cast to amp's high (``promote``) or low precision."""
    from .amp import state, to_high, to_low

    if not state.enabled:
        return args
    return tuple(to_high(a) for a in args) if promote else tuple(to_low(*args))


def result_type(*args: Any) -> np.dtype:
    """dtype that the operands have in common."""
    return _convert_inputs(*args)[0].dtype


def isscalar(x: Any) -> bool:
    """Whether ``x`` is a number or a 0-d tensor."""
    return x._tuple_shape == () if isinstance(x, _Tensor) else np.isscalar(x)


def astensor1d(x: Any, *reference: Any, dtype: Any = None, device: Any = None) -> "Tensor":
    """``x`` (int, sequence or tensor) as a 1-d tensor."""
    if isinstance(x, (list, tuple)) and any(isinstance(v, _Tensor) for v in x):
        parts = [
            ops.reshape(v, shape=(-1 if v.ndim else 1,)) if isinstance(v, _Tensor) else v for v in x
        ]
        x = np.concatenate(
            [np.atleast_1d(p.numpy() if isinstance(p, _Tensor) else p) for p in parts]
        )
    y = convert_single_value(x, dtype=dtype, device=device)
    return ops.reshape(y, shape=(y.size,)) if y.ndim != 1 else y
