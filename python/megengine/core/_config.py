"""State behind ``megengine.config`` and the interpreter options, with their environment variables."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_ENVIRONMENT = {
    "async_level": ("MEGENGINE_INTERP_ASYNC_LEVEL", 2),
    "enable_drop": ("MEGENGINE_ENABLE_DROP", 0),
    "max_recompute_time": ("MEGENGINE_MAX_RECOMP_TIME", 1),
    "catch_worker_execption": ("MEGENGINE_CATCH_WORKER_EXEC", 1),  # spelled so in the API
    "enable_host_compute": ("MEGENGINE_HOST_COMPUTE", 1),
    "disable_memory_forwarding": ("MEGENGINE_DISABLE_MEMORY_FORWARDING", 0),
    "enable_dtr_auto_drop": ("MEGENGINE_DTR_AUTO_DROP", 0),
    "enable_dtr_sqrt_sampling": ("MEGENGINE_DTR_SQRT_SAMPLING", 0),
    "dtr_eviction_threshold": ("MEGENGINE_DTR_EVICTION_THRESHOLD", 0),
    "dtr_evictee_minimum_size": ("MEGENGINE_DTR_EVICTEE_MINIMUM_SIZE", 1048576),
    "record_computing_path": ("MEGENGINE_RECORD_COMPUTING_PATH", 0),
}


def _from_environment(name: str) -> int:
    variable, default = _ENVIRONMENT[name]
    text = os.environ.get(variable)
    if text is None:
        return default
    try:
        return int(text)
    except ValueError:
        raise ValueError(
            f"{variable}={text!r} is not an integer; unset it or use {default}"
        ) from None


class Options:
    """Interpreter options (ints) and kernel switches of this process."""

    async_level: int
    enable_drop: int
    max_recompute_time: int
    catch_worker_execption: int
    enable_host_compute: int
    disable_memory_forwarding: int
    enable_dtr_auto_drop: int
    enable_dtr_sqrt_sampling: int
    dtr_eviction_threshold: int
    dtr_evictee_minimum_size: int
    record_computing_path: int

    def __init__(self) -> None:
        for name in _ENVIRONMENT:
            setattr(self, name, _from_environment(name))
        self.benchmark_kernel = False
        self.benchmark_with_subprocess = False
        self.deterministic_kernel = False
        self.compute_mode = "default"
        self.conv_format = "default"


options = Options()


def get_option(name: str) -> int:
    """Value of one interpreter option. ValueError for an unknown name."""
    if name not in _ENVIRONMENT:
        raise ValueError(f"no option {name!r}; there are {', '.join(sorted(_ENVIRONMENT))}")
    return int(getattr(options, name))


def set_option(name: str, value: int) -> None:
    """Sets one interpreter option. ValueError for an unknown name."""
    get_option(name)
    setattr(options, name, int(value))


@contextmanager
def override(**values: Any) -> Iterator[None]:
    """Options as given inside the block, as before after it."""
    before = {name: getattr(options, name) for name in values}
    try:
        for name, value in values.items():
            setattr(options, name, value)
        yield
    finally:
        for name, value in before.items():
            setattr(options, name, value)
