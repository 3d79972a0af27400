"""Dynamic tensor rematerialization: ``dtr.eviction_threshold = "5GB"; dtr.enable()``."""

from typing import TYPE_CHECKING

from ..core._config import add_properties
from .dtr import PROPERTIES, disable, enable

if TYPE_CHECKING:  # adds properties
    enable_sqrt_sampling: bool
    eviction_threshold: int | str
    evictee_minimum_size: int | str

__all__ = [
    "disable",
    "enable",
    "enable_sqrt_sampling",
    "eviction_threshold",
    "evictee_minimum_size",
]  # noqa: F822

add_properties(__name__, PROPERTIES)
