"""Tells where code comes from: this package, a library, or the program."""

from __future__ import annotations

import functools
import os
import sys
import sysconfig
from types import FrameType

PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


def users_line() -> str:
    """ "file:line" of the nearest caller outside of this package, or ""."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith((PACKAGE, "<")):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame is not None else ""


def users_level() -> int:
    """Returns the ``stacklevel`` of the first line outside of the package, as the caller of this
    function counts it. Calls may be redirected on their way.
    """
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_code.co_filename.startswith(PACKAGE):
        frame, level = frame.f_back, level + 1
    return level


@functools.cache
def is_library(file: str) -> bool:
    """Whether a file lies where Python keeps its own modules and those that are installed: a program does not change these."""
    place = os.path.realpath(file)
    return place.startswith(_installed()) or not {"site-packages", "dist-packages"}.isdisjoint(place.split(os.sep))


@functools.cache
def _installed() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    return tuple(os.path.realpath(paths[key]) + os.sep for key in ("stdlib", "platstdlib", "purelib", "platlib"))
