"""Log level of the native layers."""

import enum
import logging


class Logger:
    """Sets how much is logged."""

    class LogLevel(enum.IntEnum):
        Debug = logging.DEBUG
        Info = logging.INFO
        Warn = logging.WARNING
        Error = logging.ERROR

    @staticmethod
    def set_log_level(level: int) -> "Logger.LogLevel":
        """Sets the level; returns the one before."""
        log = logging.getLogger("megengine")
        before = Logger.LogLevel(min(max(log.getEffectiveLevel() // 10 * 10, 10), 40))
        log.setLevel(int(level))
        return before


def _set_defrag(enable: bool) -> None:
    """Kept for programs that ask for it: arenas are planned, there is nothing to defragment."""
    bool(enable)
