"""The ops of the extension and helpers on them, which all Python layers use."""

from .._core import OperandError, OutOfMemoryError, Tensor, apply_const, convert_inputs
from . import ops
from ._config import get_option, set_option

__all__ = ["OperandError", "OutOfMemoryError", "Tensor", "apply_const", "convert_inputs", "get_option", "ops", "set_option"]
