"""Switches of this process, as live properties: ``megengine.config.async_level = 0``.

Of the products (matrix products and convolutions) of a GPU, from the next one that is prepared on; a traced function keeps
the rules that it was compiled under:

benchmark_kernel: the kernels that cuDNN and cuBLASLt propose are timed, at most eight, and the fastest is taken and remembered
on disk. Without it, the first one, or what was remembered.
deterministic_kernel: only kernels that give the same bits in every run.
tf32: float32 on tensor cores, which take 11 significant bits of each factor. Without it, float32 is strict.
"""

from typing import TYPE_CHECKING

from .core import _config
from .core._module_property import add_properties, attribute_of

if TYPE_CHECKING:  # the properties that are added below
    benchmark_kernel: bool
    benchmark_with_subprocess: bool
    deterministic_kernel: bool
    tf32: bool
    async_level: int
    disable_memory_forwarding: bool

_override = _config.override


def _check_level(level: int) -> int:
    assert level in (0, 1, 2), (
        f"async_level: {level!r} is not 0 (all at once), 1 or 2 (errors when a value is read)"
    )
    return int(level)


add_properties(
    __name__,
    {
        "benchmark_kernel": attribute_of(_config.options, "benchmark_kernel", bool),
        "benchmark_with_subprocess": attribute_of(
            _config.options, "benchmark_with_subprocess", bool
        ),
        "deterministic_kernel": attribute_of(_config.options, "deterministic_kernel", bool),
        "tf32": attribute_of(_config.options, "tf32", bool),
        "async_level": attribute_of(_config.options, "async_level", _check_level),
        "disable_memory_forwarding": attribute_of(
            _config.options, "disable_memory_forwarding", bool
        ),
        "_compute_mode": attribute_of(_config.options, "compute_mode"),
        "_conv_format": attribute_of(_config.options, "conv_format"),
    },
)
