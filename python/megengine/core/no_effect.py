"""Parameters and settings of the interface that change nothing here: whoever gives one is told so, and why, once."""

import os
import sys
import warnings
from typing import Any

_PACKAGE = os.path.dirname(os.path.dirname(__file__)) + os.sep
_told: set[tuple[str, str]] = set()


def no_effect(where: str, why: str, /, **given: Any) -> None:
    """A UserWarning for each of ``given`` that is not None, False or 0, the first time that ``where`` gets it.

    For a parameter with another default, give a comparison: ``version=version != 2``.
    """
    for name, value in given.items():
        if value is not None and value is not False and value != 0 and (where, name) not in _told:
            _told.add((where, name))
            warnings.warn(f"{where}: {name} has no effect here: {why}", stacklevel=_level_of_the_user())


def _level_of_the_user() -> int:
    """``stacklevel``, for who calls this, of the first line outside of the package: calls may be redirected on their way."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame, level = frame.f_back, level + 1
    return level
