"""Dynamic tensor rematerialization: ``dtr.eviction_threshold = "5GB"; dtr.enable()``."""

from ..core._module_property import add_properties
from .dtr import PROPERTIES, disable, enable

__all__ = [
    "disable",
    "enable",
    "enable_sqrt_sampling",
    "eviction_threshold",
    "evictee_minimum_size",
]  # noqa: F822

add_properties(__name__, PROPERTIES)
