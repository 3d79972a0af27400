"""Dynamic tensor rematerialization: the budget above which values are dropped and computed again."""

from types import ModuleType

from .. import _core
from ..core._config import add_properties, options
from ..core._sizes import to_bytes


class _Settings:
    eviction_threshold = to_bytes(
        options.dtr_eviction_threshold, "MEGENGINE_DTR_EVICTION_THRESHOLD"
    )
    evictee_minimum_size = to_bytes(
        options.dtr_evictee_minimum_size, "MEGENGINE_DTR_EVICTEE_MINIMUM_SIZE"
    )


_settings = _Settings()


def _apply() -> None:
    _core.set_dtr(
        bool(options.enable_dtr_auto_drop),
        options.dtr_eviction_threshold,
        options.dtr_evictee_minimum_size,
        bool(options.enable_dtr_sqrt_sampling),
    )


def _size(field: str) -> property:
    def write(module: ModuleType, value: int | str) -> None:
        setattr(_settings, field, to_bytes(value))
        setattr(options, f"dtr_{field}", getattr(_settings, field))
        _apply()

    return property(lambda module: getattr(_settings, field), write)


def _set_sampling(module: ModuleType, flag: bool) -> None:
    options.enable_dtr_sqrt_sampling = int(bool(flag))
    _apply()


def _switch(on: int) -> None:
    # Setting one of these alone warns that it has no effect; here it has one.
    vars(options).update(enable_dtr_auto_drop=on, enable_drop=on, record_computing_path=on)
    _apply()


def enable() -> None:
    """Turns DTR on: it evicts values and computes them again, so that memory stays below a
    threshold.

    ``dtr.eviction_threshold`` is that threshold in bytes in use on the device; set it as a number
    or a text such as "5GB", and 0 (default) for none. Values below ``dtr.evictee_minimum_size``
    bytes (1 MiB) stay. ``dtr.enable_sqrt_sampling`` makes the choice among a sample of the
    candidates. Results keep every bit.

    Raises
    ------
    MemoryError
        If the threshold cannot be kept; the message tells how many bytes are missing.

    References
    ----------
    Kirisame et al. 2021, "Dynamic Tensor Rematerialization".

    Examples
    --------
    >>> import megengine as mge
    >>> from megengine import dtr
    >>> dtr.eviction_threshold = "5GB"
    >>> dtr.enable()
    >>> mge.functional.ones((2, 2)).sum().item()
    4.0
    >>> dtr.disable(); dtr.eviction_threshold = 0
    """
    _switch(1)


def disable() -> None:
    """Turns DTR off: nothing more is evicted.

    Values that were evicted are computed again when they are read.

    Examples
    --------
    >>> from megengine import dtr
    >>> dtr.enable()
    >>> dtr.disable()
    """
    _switch(0)


PROPERTIES = {
    "eviction_threshold": _size("eviction_threshold"),
    "evictee_minimum_size": _size("evictee_minimum_size"),
    "enable_sqrt_sampling": property(
        lambda module: bool(options.enable_dtr_sqrt_sampling), _set_sampling
    ),
}
add_properties(__name__, PROPERTIES)
if options.enable_dtr_auto_drop:  # the environment has switched it on
    _apply()
