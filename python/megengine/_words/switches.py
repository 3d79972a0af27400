"""Warns, when the package is imported, about environment variables of ours that are unknown or have
values that are not understood.
"""

from __future__ import annotations

import os
import re
import warnings

from .. import _core

# Switches that the project's tests and builds read.
_ELSEWHERE = tuple(f"MEGJIT_{name}" for name in "FAKE FUZZ KILL_RANKS LIBHALIDE ONNX_NODES REMAT_PLANS SITE STAND_IN TEST WITH_".split())
# Variables whose other values raise no error when they are read.
_VALUES = {
    "MEGJIT_CHECK": (r"\d*", "0 or 1, or to N for each N-th call without a body", "any other value means 1"),
    "MEGJIT_COMPILE_BUDGET": (r"(\d+(\.\d*)?)?", "seconds, such as 60", "it is read as 0"),
    "MEGJIT_CROSS_MEMORY": ("[01]?", "0 or 1", "any other value means 1"),
    "MEGJIT_EMULATED_GPUS": (r"\d*", "a number", "it is read as 0"),
    "MEGJIT_OVERFLOW": ("(silent|error)?", "silent, or leave it unset", "an overflow is an error"),
    "MEGJIT_PROGRESS": ("[01]?", "0 or 1", "any other value means 1"),
    "OMP_NUM_THREADS": (r"(\s*\d+\s*(,\s*\d+\s*)*)?", "a number", "it is read as 0: all cores"),
}


def remarks(environment: dict[str, str]) -> list[str]:
    """A text for each variable that has no effect, or not the one that its value seems to ask for."""
    known = _core.switches()
    found = []
    for name, value in environment.items():
        if name.startswith("MEGJIT_") and name not in known and not name.startswith(_ELSEWHERE):
            names = {one.removeprefix("MEGJIT_"): one for one in known}
            from difflib import get_close_matches  # slow to import

            near = [names[one] for one in get_close_matches(name.removeprefix("MEGJIT_"), names, 1)]
            found.append(f"{name}={value} has no effect: there is no such variable" + (f"\n  fix: write {near[0]}" if near else "; docs/devices.md lists them"))
        elif name in _VALUES and not re.fullmatch(_VALUES[name][0], value):
            _, valid, meant = _VALUES[name]
            found.append(f"{name}={value} is not understood: {meant}\n  fix: set it to {valid}")
    return found


def warn() -> None:
    """A UserWarning for each of `remarks`."""
    for remark in remarks(dict(os.environ)):
        warnings.warn(remark, stacklevel=3)
