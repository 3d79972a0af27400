"""Runs a script as ``python script`` would, and tells how it ended."""

from __future__ import annotations

import os
import runpy
import sys
import traceback

from .. import _core


class Enough(BaseException):
    """Ends the script; no ``except Exception`` of it stops that."""


def run_script(script: str, arguments: list[str], **switches: str) -> BaseException | None:
    """Runs it with these environment variables. Returns what ended it: None for its last line. Raises OSError when there is no such script."""
    with open(script, "rb"):
        pass
    os.environ.update(switches)
    _core.reload_debug()
    sys.argv = [script, *arguments]
    sys.path[0] = os.path.dirname(os.path.abspath(script))
    try:
        runpy.run_path(script, run_name="__main__")
    except (Exception, SystemExit, KeyboardInterrupt, Enough) as end:
        return end
    return None


def status_of(end: BaseException | None) -> int:
    """The exit status of a script that ended so; an error is printed."""
    if isinstance(end, SystemExit):
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    if isinstance(end, KeyboardInterrupt):
        return 130  # the status of shells for an interrupted program
    if isinstance(end, Exception):
        traceback.print_exception(end)
    return int(isinstance(end, Exception))
