"""Loggers of the package: one format, one level, an optional log file.

In: names and levels. Out: ``logging.Logger`` objects that write short lines to stderr and, after
``set_log_file``, full plain lines to that file. Importing this module writes nothing.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import IO, Any

_LEVELS = {
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "WARNING": logging.WARNING,
    "ERROR": logging.ERROR,
    "CRITICAL": logging.CRITICAL,
}

_all_loggers: list[logging.Logger] = []
_owned_log_file: IO[str] | None = None  # opened by set_log_file from a path, so closed by it too
_countlog_calls: dict[Any, int] = {}


def _as_level(level: int | str, source: str = "level") -> int:
    if isinstance(level, int) and not isinstance(level, bool):
        return level
    if isinstance(level, str) and level.upper() in _LEVELS:
        return _LEVELS[level.upper()]
    raise ValueError(f"{source} must be an int or one of {', '.join(_LEVELS)}, got {level!r}")


def _level_from_env() -> int:
    text = os.environ.get("MEGENGINE_LOGGING_LEVEL", "INFO")
    # An environment variable must not break an import, so a bad value means the default.
    return _LEVELS.get(text.upper(), logging.INFO)


_default_level = _level_from_env()
_mgb_level = _default_level


class MegEngineLogFormatter(logging.Formatter):
    """Formats messages as short coloured lines for a terminal, and as full plain lines for
    ``log_fout``.

    Messages longer than ``max_lines`` lines keep their head and tail and say how many were cut.

    Parameters
    ----------
    fmt, datefmt : str or None
        Format of a line and of its date, as for ``logging.Formatter``.
    **kwargs : object
        Other arguments of ``logging.Formatter``, by name.
    """

    log_fout: IO[str] | None = None
    date_full = "[%(asctime)s %(lineno)d@%(filename)s:%(name)s] "
    date = "%(asctime)s "
    msg = "%(message)s"
    max_lines = 256

    _COLORS = {
        logging.DEBUG: "34",
        logging.WARNING: "1;31",
        logging.ERROR: "1;41",
        logging.CRITICAL: "1;41",
    }
    _MARKS = {
        logging.DEBUG: "DBG ",
        logging.WARNING: "WRN ",
        logging.ERROR: "ERR ",
        logging.CRITICAL: "CRT ",
    }

    def __init__(
        self, fmt: str | None = None, datefmt: str | None = "%d %H:%M:%S", **kwargs: Any
    ) -> None:
        super().__init__(fmt, datefmt, **kwargs)

    def format(self, record: logging.LogRecord) -> str:
        """Returns the text of one record, and writes the full text to ``log_fout`` if there is one.

        Parameters
        ----------
        record : LogRecord
            Record of the message, with its level and place.

        Returns
        -------
        str
            The text.
        """
        mark = self._MARKS.get(record.levelno, "")
        body = self.msg % {"message": self._shorten(self._text_of(record))}
        fields = {**record.__dict__, "asctime": self.formatTime(record, self.datefmt)}
        if self.log_fout is not None:
            full = {**fields, "asctime": self.formatTime(record)}
            self.log_fout.write(self.date_full % full + mark + body + "\n")
            self.log_fout.flush()
        head, color = self.date % fields, self._COLORS.get(record.levelno)
        if not stderr_is_terminal():
            return head + mark + body
        text = f"\x1b[{color}m{mark}{body}\x1b[0m" if color else mark + body
        return f"\x1b[32m{head}\x1b[0m{text}"

    def _text_of(self, record: logging.LogRecord) -> str:
        text = record.getMessage()
        if record.exc_info and not record.exc_text:
            record.exc_text = self.formatException(record.exc_info)
        for extra in (record.exc_text, record.stack_info and self.formatStack(record.stack_info)):
            if extra:
                text = f"{text}\n{extra}"
        return text

    def _shorten(self, text: str) -> str:
        lines = text.split("\n")
        if len(lines) <= self.max_lines:
            return text
        half = self.max_lines // 2
        cut = f"... {len(lines) - 2 * half} lines left out ..."
        return "\n".join([*lines[:half], cut, *lines[len(lines) - half :]])


class MegBrainLogFormatter(MegEngineLogFormatter):
    """Formats messages of the native runtime: the same lines, marked ``[mgb]``.

    Parameters
    ----------
    fmt, datefmt : str or None
        Format of a line and of its date, as for ``logging.Formatter``.
    **kwargs : object
        Other arguments of ``logging.Formatter``, by name.
    """

    date = "%(asctime)s[mgb] "


def stderr_is_terminal() -> bool:
    """Tells whether ``sys.stderr`` writes to a terminal now.

    Returns
    -------
    bool
        True if it does.
    """
    try:
        return sys.stderr.isatty()
    except (AttributeError, ValueError):  # replaced or closed by the program
        return False


class _StderrHandler(logging.StreamHandler[Any]):
    """Writes to whatever ``sys.stderr`` is now, not to what it was when the logger was made."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> Any:
        return sys.stderr


def get_logger(
    name: str | None = None, formatter: type[logging.Formatter] = MegEngineLogFormatter
) -> logging.Logger:
    """Returns the logger of a name, set up on the first call: level, format, stderr, no
    propagation.

    Parameters
    ----------
    name : str or None
        Name of the logger, as for ``logging.getLogger``; None is the root logger.
    formatter : subclass of Formatter
        Class of the formatter.

    Returns
    -------
    Logger
        The logger.

    Examples
    --------
    >>> import megengine as mge
    >>> logger = mge.get_logger("example")
    >>> logger is mge.get_logger("example"), logger.propagate
    (True, False)
    """
    logger = logging.getLogger(name)
    if getattr(logger, "_megengine_ready", False):
        return logger
    logger._megengine_ready = True  # type: ignore[attr-defined]  # a mark of ours
    logger.propagate = False
    logger.setLevel(_default_level)
    handler = _StderrHandler()
    handler.setFormatter(formatter())
    logger.addHandler(handler)
    _all_loggers.append(logger)
    return logger


def set_log_file(fout: str | os.PathLike[str] | IO[str] | None, mode: str = "a") -> None:
    """Writes all messages to a file as well.

    Parameters
    ----------
    fout : str, PathLike, IO or None
        A path, an open text file, or None to stop.
    mode : str
        Mode in which a path is opened: "a" appends, "w" begins anew.

    Raises
    ------
    OSError
        If the path cannot be opened.

    Examples
    --------
    >>> import io, megengine as mge
    >>> file = io.StringIO()
    >>> mge.set_log_file(file)
    >>> mge.get_logger("example").error("the disk is full")
    >>> mge.set_log_file(None)
    >>> "ERR the disk is full" in file.getvalue()
    True
    """
    global _owned_log_file
    opened = open(fout, mode, encoding="utf-8") if isinstance(fout, (str, os.PathLike)) else None
    MegEngineLogFormatter.log_fout = opened if opened is not None else fout  # type: ignore[assignment]  # no path is left
    if _owned_log_file is not None:
        _owned_log_file.close()
    _owned_log_file = opened


def set_log_level(level: int | str, update_existing: bool = True) -> int:
    """Sets the level of loggers.

    Parameters
    ----------
    level : int or str
        A ``logging`` number or one of DEBUG, INFO, WARN, ERROR. The variable
        ``MEGENGINE_LOGGING_LEVEL`` sets it from the start.
    update_existing : bool
        Whether to set it for existing loggers, too; False sets it for loggers made from now on.

    Returns
    -------
    int
        The level before.

    Raises
    ------
    ValueError
        For another name.

    Examples
    --------
    >>> import megengine as mge
    >>> logger = mge.get_logger("example")
    >>> before = mge.set_log_level("ERROR")
    >>> logger.level  # logging.ERROR
    40
    >>> mge.set_log_level(before)
    40
    """
    global _default_level
    before, _default_level = _default_level, _as_level(level)
    if update_existing:
        for logger in _all_loggers:
            logger.setLevel(_default_level)
    return before


_NO_NATIVE_LOG = "the level of the native runtime's messages has no effect here: it writes none; MEGJIT_DUMP shows what it does"


def set_mgb_log_level(level: int | str) -> int:
    """Sets the level of the native runtime's messages, and warns that it has none.

    Parameters
    ----------
    level : int or str
        A ``logging`` number or one of DEBUG, INFO, WARN, ERROR.

    Returns
    -------
    int
        The level that was set before.
    """
    warnings.warn(_NO_NATIVE_LOG, stacklevel=2)
    return _set_mgb_level(level)


def _set_mgb_level(level: int | str) -> int:
    global _mgb_level
    previous, _mgb_level = _mgb_level, _as_level(level)
    get_logger("megbrain", MegBrainLogFormatter).setLevel(_mgb_level)
    return previous


@contextlib.contextmanager
def replace_mgb_log_level(level: int | str) -> Iterator[None]:
    """Sets the level of the native runtime's messages inside a ``with`` block.

    Parameters
    ----------
    level : int or str
        A ``logging`` number or one of DEBUG, INFO, WARN, ERROR.

    Yields
    ------
    None
        Nothing.
    """
    warnings.warn(_NO_NATIVE_LOG, stacklevel=3)
    previous = _set_mgb_level(level)
    try:
        yield
    finally:
        _set_mgb_level(previous)


def enable_debug_log() -> None:
    """Shows debug messages of the package and of the native runtime.

    Examples
    --------
    >>> import megengine as mge
    >>> before = mge.get_logger("example").level
    >>> mge.enable_debug_log()
    >>> mge.get_logger("example").level  # logging.DEBUG
    10
    >>> mge.set_log_level(before)
    10
    """
    set_log_level(logging.DEBUG)
    _set_mgb_level(logging.DEBUG)


def call_countlog_func(func: Callable[..., Any], count: int = 1, msg: str | None = None) -> None:
    """Calls ``func(msg)`` (``func()`` without a message) at most ``count`` times for this pair.

    Parameters
    ----------
    func : callable
        Function that is called with ``msg``.
    count : int
        Largest number of calls for this pair.
    msg : str or None
        Argument of the call; None calls without one.
    """
    key = (
        (owner := getattr(func, "__self__", None)) and id(owner),
        getattr(func, "__qualname__", repr(func)),
        msg,
    )
    done = _countlog_calls.get(key, 0)
    if done < count:
        _countlog_calls[key] = done + 1
        func() if msg is None else func(msg)
