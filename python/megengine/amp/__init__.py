"""Automatic mixed precision: ``with amp.autocast(): ...`` and ``amp.GradScaler``."""

from typing import TYPE_CHECKING

from ..core._config import add_properties
from ..core.tensor.amp import PROPERTIES
from .autocast import autocast
from .convert_format import convert_module_format, convert_tensor_format
from .grad_scaler import GradScaler, Xla_GradScaler

if TYPE_CHECKING:  # adds properties
    enabled: bool
    high_prec_dtype: str
    low_prec_dtype: str

__all__ = [
    "GradScaler",
    "Xla_GradScaler",
    "autocast",
    "convert_module_format",
    "convert_tensor_format",
]

add_properties(__name__, PROPERTIES)
