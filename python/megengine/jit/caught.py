"""Notes errors of operations that a body catches while it is recorded for dump: the shapes that
raised them are taken for numbers.
"""

import contextlib
import sys
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import Any

from .. import _core
from ..core._origin import PACKAGE
from ..tensor import Tensor

# An IndexError may follow from values, too: from a place beyond the end.
_ERRORS = (ValueError, IndexError, TypeError, RuntimeError)


@contextlib.contextmanager
def noting_caught_errors() -> Iterator[None]:
    """Notes the tensors of each call that raises an error in code of the program. If the error
    leaves the body, the recording ends and its notes with it.

    A debugger's own trace function stays, and nothing is noted beside it.
    """
    if sys.gettrace() is not None:
        yield
        return
    sys.settrace(_enter)
    try:
        yield
    finally:
        sys.settrace(None)


def _enter(frame: FrameType, event: str, arg: Any) -> Any:
    if frame.f_code.co_filename.startswith(PACKAGE):
        return None
    frame.f_trace_lines = False
    return _leave


def _leave(frame: FrameType, event: str, arg: Any) -> Any:
    if event == "exception" and issubclass(arg[0], _ERRORS):
        for tensor in _tensors_of(arg[2]):
            _core.note_caught(tensor, isinstance(arg[1], IndexError))
    return _leave


def _tensors_of(traceback: TracebackType | None) -> list[Tensor]:
    """Returns the tensors in the package's own calls below the program's. Python calls operators
    without such a call: the recorder notes their operands.
    """
    values: list[Any] = []
    while traceback is not None:
        is_ours = traceback.tb_frame.f_code.co_filename.startswith(PACKAGE)
        values = [*values, *traceback.tb_frame.f_locals.values()] if is_ours else []
        traceback = traceback.tb_next
    values += [item for value in values if isinstance(value, (list, tuple)) for item in value]
    return list({id(value): value for value in values if isinstance(value, Tensor)}.values())
