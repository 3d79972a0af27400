"""Settings for the choice of kernels: by rule or by measurement, and whether results must repeat
bit for bit.
"""

import os
from enum import IntFlag

from ..core import _config
from ..core._telling import deprecated, no_effect

__all__ = [
    "Strategy", "get_conv_execution_strategy", "get_execution_strategy",
    "set_conv_execution_strategy", "set_execution_strategy",
]  # fmt: skip


class Strategy(IntFlag):
    """Ways to choose a kernel; may be joined with ``|``."""

    HEURISTIC = 1
    PROFILE = 2
    REPRODUCIBLE = 4
    OPTIMIZED = 8

    def __str__(self) -> str:
        """Returns the text that programs have logged: the enumeration is named after the first
        operator that had one.
        """
        return " + ".join(f"BatchConvBias.Strategy.{word.name}" for word in self)

    __repr__ = __str__


def _parse(option: Strategy | str) -> Strategy:
    if isinstance(option, Strategy):
        return option
    chosen = Strategy(0)
    for word in str(option).split("_"):
        if word not in Strategy.__members__:
            raise ValueError(
                f"execution strategy {option!r}: {word!r} is unknown\n"
                f"  fix: join words of {', '.join(Strategy.__members__)} by '_'"
            )
        chosen |= Strategy[word]
    return chosen


_SETTINGS = {
    Strategy.PROFILE: "benchmark_kernel",
    Strategy.REPRODUCIBLE: "deterministic_kernel",
}  # names in megengine.config
_others = Strategy.HEURISTIC  # other options, which change nothing


def get_execution_strategy() -> Strategy:
    """Returns the strategy by which kernels are chosen.

    Returns
    -------
    Strategy
        Ways to choose a kernel, joined with ``|``.
    """
    strategy = _others
    for word, setting in _SETTINGS.items():
        if getattr(_config.options, setting):
            strategy |= word
    return strategy


def set_execution_strategy(option: Strategy | str) -> None:
    """Sets the strategy by which kernels are chosen.

    The same settings are benchmark_kernel and deterministic_kernel of megengine.config.

    Parameters
    ----------
    option : Strategy or str
        "HEURISTIC", "PROFILE", "REPRODUCIBLE", or several joined as "PROFILE_REPRODUCIBLE".
    """
    global _others
    strategy = _parse(option)
    no_effect(
        "set_execution_strategy",
        "kernels are optimized in any case",
        OPTIMIZED=bool(strategy & Strategy.OPTIMIZED),
    )
    _others = strategy & (Strategy.HEURISTIC | Strategy.OPTIMIZED)
    for word, setting in _SETTINGS.items():
        setattr(_config.options, setting, bool(strategy & word))


if _strategy := (
    os.environ.get("MEGENGINE_EXECUTION_STRATEGY")
    or os.environ.get("MEGENGINE_CONV_EXECUTION_STRATEGY")
):
    set_execution_strategy(_strategy)


@deprecated("functional.debug_param.get_conv_execution_strategy")
def get_conv_execution_strategy() -> Strategy:
    """Returns the strategy by which kernels are chosen.

    Returns
    -------
    Strategy
        Ways to choose a kernel, joined with ``|``.
    """
    return get_execution_strategy()


@deprecated("functional.debug_param.set_conv_execution_strategy")
def set_conv_execution_strategy(option: Strategy | str) -> None:
    """Sets the strategy by which kernels are chosen.

    Parameters
    ----------
    option : Strategy or str
        "HEURISTIC", "PROFILE", "REPRODUCIBLE", or several joined as "PROFILE_REPRODUCIBLE".
    """
    set_execution_strategy(option)
