"""Automatic mixed precision: the switch, and the two casts that ops of either kind call.

Matrix products and convolutions run in ``low_prec_dtype`` and accumulate in float32;
transcendental functions and normalization run in ``high_prec_dtype``.
"""

from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from ..._core import _set_operator_cast
from .. import ops
from .._config import add_properties, attribute_of

if TYPE_CHECKING:
    from ...tensor import Tensor

__all__ = ["enabled", "high_prec_dtype", "low_prec_dtype"]  # noqa: F822 (module properties)

_Passed = TypeVar("_Passed")  # a Tensor, or a value that casts leave unchanged
_FLOATS = ("float32", "float16", "bfloat16")


@dataclass(slots=True)
class State:
    enabled: bool = False
    low: str = "float16"
    high: str = "float32"
    outer: "State | None" = None  # the state of the block around this one


# The default is shared: settings outside of all blocks hold in every thread, those of a block in its thread alone.
state = ContextVar("amp", default=State())  # noqa: B039  -- shared on purpose


def check_dtype(value: object) -> str:
    name = getattr(value, "name", None) or getattr(value, "__name__", None) or str(value)
    if name not in _FLOATS:
        raise ValueError(f"amp: {value!r} is not one of {', '.join(_FLOATS)}")
    return name


def to_low(*tensors: "Tensor | None") -> list[Any]:
    """Casts float tensors to the low precision while autocasting is on; None and other dtypes stay.
    """
    return [_cast(x, now.low) for x in tensors] if (now := state.get()).enabled else list(tensors)


def to_high(x: _Passed) -> _Passed:
    """Casts a float tensor to the high precision while autocasting is on; other tensors stay."""
    return _cast(x, now.high) if (now := state.get()).enabled else x


def _cast(x: Any, to: str) -> Any:
    dtype = getattr(x, "dtype", None)
    if (
        dtype is None
        or not hasattr(x, "_tuple_shape")
        or dtype.name == to
        or dtype.name not in _FLOATS
    ):
        return x
    return ops.cast(x, dtype=to)


def switched(value: object) -> bool:
    """Whether autocasting is on; from the first time on the operators ``/`` and ``**`` ask `to_high`."""
    if value:
        _set_operator_cast(to_high)
    return bool(value)


PROPERTIES = {
    "enabled": attribute_of(state.get, "enabled", switched),
    "high_prec_dtype": attribute_of(state.get, "high", check_dtype),
    "low_prec_dtype": attribute_of(state.get, "low", check_dtype),
}
add_properties(__name__, PROPERTIES)
