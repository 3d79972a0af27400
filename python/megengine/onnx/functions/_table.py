"""The table of counterparts, and what functions of them share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from ...core.tensor.dtype import dtype_name
from ...fx import wrap
from ...tensor import Tensor
from .._proto import held_as, onnx

_Function = TypeVar("_Function", bound=Callable[..., Any])


@dataclass(frozen=True)
class Counterpart:
    """function: what computes the op. plain: positions of inputs that it takes as Python numbers where they are known.
    takes_numbers: 0-d constants may be given to it as Python numbers. counts_results: it is told how many are wanted."""

    function: Callable[..., Any]
    plain: tuple[int, ...] = ()
    takes_numbers: bool = False
    counts_results: bool = False


COUNTERPARTS: dict[str, Counterpart] = {}


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
    """Returns our dtype for TensorProto's number. ValueError for one that there are no tensors of."""
    name = onnx().TensorProto.DataType.Name(element_type).lower()
    try:
        return dtype_name(held_as(name))
    except TypeError:
        raise ValueError(f"there are no tensors of {name}") from None


def is_float(x: Tensor) -> bool:
    return x.dtype.name in ("float32", "float16", "bfloat16")


def axis_of(axis: int, rank: int) -> int:
    """An axis counted from the front. ValueError for one that is not there."""
    if not -rank <= axis < max(rank, 1):
        raise ValueError(f"axis {axis} of a tensor with {rank} axes")
    return axis % rank if rank else 0
