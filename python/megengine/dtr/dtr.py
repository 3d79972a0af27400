"""Dynamic tensor rematerialization: the budget above which values are dropped and computed again."""

import re

from ..core._config import options
from ..core._module_property import add_properties

_UNITS = {"": 1, "B": 1, "K": 2**10, "KB": 2**10, "M": 2**20, "MB": 2**20, "G": 2**30, "GB": 2**30}


def to_bytes(value) -> int:
    """Bytes of an int or of a text such as "500MB". ValueError for wrong text, TypeError for other
    types.
    """
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise TypeError(
            f"dtr: {value!r} ({type(value).__name__}) is neither an int nor a text such as '500MB'"
        )
    if isinstance(value, str):
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", value)
        if not match or match[2].upper() not in _UNITS:
            raise ValueError(
                f"dtr: {value!r} is not a size; write a number and one of B, KB, MB, GB"
            )
        value = int(float(match[1]) * _UNITS[match[2].upper()])
    if value < 0:
        raise ValueError(f"dtr: a size of {value} bytes is negative")
    return value


class _Settings:
    eviction_threshold = options.dtr_eviction_threshold
    evictee_minimum_size = options.dtr_evictee_minimum_size


_settings = _Settings()


def _size(field: str) -> property:
    def write(module, value):
        setattr(options, f"dtr_{field}", to_bytes(value))
        setattr(_settings, field, value)

    return property(lambda module: getattr(_settings, field), write)


def _set_sampling(module, flag):
    options.enable_dtr_sqrt_sampling = int(bool(flag))


def enable() -> None:
    """Turns DTR on. Results are the same; memory is kept below ``eviction_threshold`` where
    possible.
    """
    options.enable_dtr_auto_drop = 1
    options.enable_drop = 1
    options.record_computing_path = 1


def disable() -> None:
    """Turns DTR off."""
    options.enable_dtr_auto_drop = 0
    options.enable_drop = 0
    options.record_computing_path = 0


PROPERTIES = {
    "eviction_threshold": _size("eviction_threshold"),
    "evictee_minimum_size": _size("evictee_minimum_size"),
    "enable_sqrt_sampling": property(
        lambda module: bool(options.enable_dtr_sqrt_sampling), _set_sampling
    ),
}
add_properties(__name__, PROPERTIES)
