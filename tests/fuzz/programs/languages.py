"""The framework that a program is printed for: what differs in the text around its statements, and how values are given and read.

A statement is a row of the one grammar in every language; `in_torch.py` says how a row is written there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np

import megengine as mge
from megengine.core.tensor.dtype import is_quantize

LEARNED = ("mge.Parameter", "nn.Parameter")
TENSORS = ("mge.tensor", "torch.tensor")
MODULES = ("M.", "nn.")


@dataclass(frozen=True)
class Language:
    """head, call, restore and forget: lines of the program; forget follows restore where there is an optimizer. copy: an array of the tensor t.

    seed, tensor: calls of the framework. kind: dtype and shape of an operand, None of what is none. array: a copy of what a program gave.
    given: arguments as a function gets them, which trains or not. mode: where statements are tried.
    scale: multiplies a tensor of real numbers by an array, in place.
    row: how a row is written, None where it cannot be; caller: a row of what a caller does between calls; state: how a state is made, "" where there is none.
    trainings: where they are not those of rows_state.py. own: rows that no other language has. without: arguments that its programs do not have.
    """

    head: str
    call: str
    restore: str
    forget: str
    copy: str
    seed: str
    tensor: str
    kind: Callable[[Any], tuple[str, tuple[int, ...]] | None]
    array: Callable[[Any], np.ndarray]
    given: Callable[[dict[str, np.ndarray], bool], dict[str, Any]]
    mode: Callable[[bool], AbstractContextManager[Any]]
    scale: Callable[[Any, np.ndarray], None]
    row: Callable[[Any], Any]
    caller: Callable[[Any], Any]
    state: Callable[[str], str]
    trainings: Sequence[Any] = ()
    own: Sequence[Any] = ()
    without: Sequence[str] = ()


def kind(value: Any) -> tuple[str, tuple[int, ...]] | None:
    if not isinstance(value, mge.Tensor):
        return None
    return ("q" if is_quantize(value.dtype) else "") + value.dtype.name, tuple(map(int, value.shape))


def array(value: Any) -> np.ndarray:
    """A copy: the program goes on, and may write into what it gave."""
    return np.array(value.numpy() if isinstance(value, mge.Tensor) else value)


def scale(tensor: Any, factors: np.ndarray) -> None:
    if isinstance(tensor, mge.Tensor) and tensor.dtype.kind == "f":
        tensor[...] = tensor * mge.tensor(factors).astype(tensor.dtype)


MEGENGINE = Language(
    head='''\
import numpy as np
import megengine as mge
import megengine.functional as F
import megengine.module as M
import megengine.optimizer as optim
from megengine import amp, jit
from megengine.autodiff import GradManager
from megengine.core.tensor.dtype import qint8, quint8
''',
    call="""
def call(f, *args):
    try:
        return f(*args)
    except Exception as error:
        restore()
        return error
""",
    restore="""
def restore():
    globals().update(start_names)
    for tensor, value in start_values:
        tensor[...] = value
        if tensor.dtype != value.dtype:  # a step may update a state and fail afterwards
            tensor._reset(mge.tensor(value))
        tensor.grad = None
""",
    forget="""\
    for state in opt._state.values():
        for tensor in state.values():
            tensor[...] = tensor * 0
""",
    copy="t.numpy()",
    seed="mge.random.seed({})",
    tensor="mge.tensor(value)",
    kind=kind,
    array=array,
    given=lambda values, trains: {name: mge.tensor(value) for name, value in values.items()},
    mode=lambda trains: nullcontext(),
    scale=scale,
    row=lambda row: row,
    caller=lambda row: row,
    state=lambda made: made,
    without=("deep",),
)
