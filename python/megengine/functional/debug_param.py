"""How kernels are chosen: by rule or by measurement, and whether results must repeat bit for bit."""

import os
from enum import IntFlag

from ..core.no_effect import no_effect

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


def _checked(strategy: Strategy) -> Strategy:
    """Results repeat bit for bit in any case, so that REPRODUCIBLE is kept; to measure is what nobody does."""
    no_effect(
        "set_execution_strategy",
        "kernels are chosen by rule",
        PROFILE=bool(strategy & Strategy.PROFILE),
        OPTIMIZED=bool(strategy & Strategy.OPTIMIZED),
    )
    return strategy


_strategy = _checked(
    _parse(
        os.environ.get("MEGENGINE_EXECUTION_STRATEGY")
        or os.environ.get("MEGENGINE_CONV_EXECUTION_STRATEGY")
        or "HEURISTIC"
    )
)


def get_execution_strategy() -> Strategy:
    """The strategy in force."""
    return _strategy


def set_execution_strategy(option: Strategy | str) -> None:
    """Sets the strategy: "HEURISTIC", "PROFILE", "REPRODUCIBLE", or several joined as
    "PROFILE_REPRODUCIBLE".
    """
    global _strategy
    _strategy = _checked(_parse(option))


def get_conv_execution_strategy() -> Strategy:
    """Deprecated: `get_execution_strategy`."""
    return get_execution_strategy()


def set_conv_execution_strategy(option: Strategy | str) -> None:
    """Deprecated: `set_execution_strategy`."""
    set_execution_strategy(option)
