"""The table of counterparts, and helpers that their functions share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from ...core.tensor.dtype import dtype_name
from ...fx import wrap
from ...jit import exclude_from_trace
from ...tensor import Tensor
from .._proto import held_as, onnx

_Function = TypeVar("_Function", bound=Callable[..., Any])


@dataclass(frozen=True)
class Counterpart:
    """function: computes the op. plain: positions of inputs that it takes as Python numbers if they
    are known.
    takes_numbers: 0-d constants may be given to it as Python numbers. counts_results: whether it
    takes the number of wanted results.
    """

    function: Callable[..., Any]
    plain: tuple[int, ...] = ()
    takes_numbers: bool = False
    counts_results: bool = False


COUNTERPARTS: dict[str, Counterpart] = {}
_HAS_VALUES = ContextVar("_HAS_VALUES", default=True)


def counterpart(
    *ops: str, plain: tuple[int, ...] = (), takes_numbers: bool = False, counts_results: bool = False
) -> Callable[[_Function], _Function]:
    """Puts a function into the table. Tracers record its calls, as they do those of `megengine.functional`."""

    def put(function: _Function) -> _Function:
        if function.__module__.startswith(__package__):
            wrap(function)
        row = Counterpart(function, plain, takes_numbers, counts_results)
        COUNTERPARTS.update(dict.fromkeys(ops, row))
        return function

    return put


def ints(values: object) -> tuple[int, ...]:
    """Axes or extents, from plain numbers or a Tensor."""
    if isinstance(values, Tensor):
        values = values.numpy()
    return tuple(int(value) for value in np.asarray(values).reshape(-1))


def number(value: object) -> Any:
    """One number, from a plain one or a Tensor of one element."""
    return value.item() if isinstance(value, Tensor) else np.asarray(value).reshape(()).item()


def dtype_of(element_type: int) -> str:
    """Returns our dtype for TensorProto's number. ValueError for a dtype that tensors do not have.
    """
    name = onnx().TensorProto.DataType.Name(element_type).lower()
    try:
        return dtype_name(held_as(name))
    except TypeError:
        raise ValueError(f"there are no tensors of {name}") from None


def is_float(x: Tensor) -> bool:
    return x.dtype.name in ("float64", "float32", "float16", "bfloat16")


def wide(x: Tensor) -> Tensor:
    """Casts x to a dtype in which sums lose nothing: float64 stays, others become float32."""
    return x if x.dtype.name in ("float64", "float32") else x.astype("float32")


def need_no_double(op: str, x: Tensor) -> None:
    """Raises TypeError for an operator that would compute with half of the bits of float64."""
    if x.dtype.name == "float64":
        raise TypeError(f'{op}: does not compute float64\n  fix: x.astype("float32") before it')


def axis_of(axis: int, rank: int) -> int:
    """An axis counted from the front. ValueError for one that is not there."""
    if not -rank <= axis < max(rank, 1):
        raise ValueError(f"axis {axis} of a tensor with {rank} axes")
    return axis % rank if rank else 0


@contextmanager
def without_values() -> Iterator[None]:
    """A block whose calls only infer types; reading a value in it raises TypeError."""
    token = _HAS_VALUES.set(False)
    try:
        yield
    finally:
        _HAS_VALUES.reset(token)


def left_graph() -> AbstractContextManager[Any]:
    """A block that a trace runs outside of its graph."""
    if not _HAS_VALUES.get():
        raise TypeError("the types of these results depend on values")
    return exclude_from_trace()
