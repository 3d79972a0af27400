"""Switches of this process, as live properties: ``megengine.config.async_level = 0``.

These apply to products (matrix products and convolutions) on a GPU that are prepared later; a
traced function keeps the rules under which it was compiled:

benchmark_kernel: at most eight kernels that cuDNN and cuBLASLt propose are timed, and the fastest
is taken and kept on disk. Without it, the first one is taken, or the one kept on disk.
deterministic_kernel: only kernels that give the same bits in every run.
tf32: float32 on tensor cores, which take 11 significant bits of each factor. Without it, float32 is strict.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .core import _config
from .core._config import add_properties, attribute_of

if TYPE_CHECKING:  # adds properties
    benchmark_kernel: bool
    benchmark_with_subprocess: bool
    deterministic_kernel: bool
    tf32: bool
    async_level: int
    disable_memory_forwarding: bool

_override = _config.override


def _check_level(level: int) -> int:
    if level not in (0, 1, 2):
        raise AssertionError(f"async_level: {level!r} is not 0 (all at once), 1 or 2 (errors when a value is read)")
    return int(level)


def _one_of(option: str, *words: str) -> Callable[[Any], Any]:
    def check(value: Any) -> Any:
        if value not in words:
            raise ValueError(f"{option}: {value!r} is not one of {', '.join(words)}")
        return value

    return check


def _option(name: str, *check: Callable[[Any], Any]) -> property:
    return attribute_of(lambda: _config.options, name, *check)


_SWITCHES = (
    "benchmark_kernel", "benchmark_with_subprocess", "deterministic_kernel", "tf32", "disable_memory_forwarding",
)  # fmt: skip
add_properties(
    __name__,
    {name: _option(name, bool) for name in _SWITCHES}
    | {
        "async_level": _option("async_level", _check_level),
        "_compute_mode": _option("compute_mode", _one_of("_compute_mode", "default", "float32")),
        "_conv_format": _option("conv_format", _one_of("_conv_format", "default", "NHWC")),
    },
)
