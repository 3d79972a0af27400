"""Tensors of a quantized dtype: integers that stand for real numbers."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import FunctionType
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import DTypeLike

from ...tensor import Tensor
from .. import ops
from .dtype import _meta_of, dtype_name, get_quantize_entry, get_scale, is_quantize

_Function = TypeVar("_Function", bound=Callable[..., Any])


class QuantizedTensor(Tensor):
    """Its dtype carries scale and zero point: real value = scale * (integer - zero point).

    Made by ``x.astype(qint8(scale))`` and the layers of `module.quantized`; `astype` gives real values back.
    """

    _quantized_dtype: np.dtype

    def __new__(cls, data: Any, dtype: np.dtype, *args: Any, **kwargs: Any) -> QuantizedTensor:
        stored = None if isinstance(data, Tensor) else dtype
        self = Tensor.__new__(cls, data, stored, *args, **kwargs)
        self._quantized_dtype = dtype
        return self

    @property
    def dtype(self) -> np.dtype:
        """The dtype, with metadata that `core.tensor.dtype.get_scale` and `get_zero_point` read."""
        return self._quantized_dtype

    def numpy(self) -> np.ndarray:
        """Returns the stored integers, as an array of this dtype."""
        return super().numpy().view(self._quantized_dtype)

    def reshape(self, *args: Any) -> QuantizedTensor:
        return QuantizedTensor(super().reshape(*args), self.dtype)

    def flatten(self, start_axis: int = 0, end_axis: int = -1) -> QuantizedTensor:
        return QuantizedTensor(super().flatten(start_axis, end_axis), self.dtype)

    def transpose(self, *args: Any) -> QuantizedTensor:
        return QuantizedTensor(super().transpose(*args), self.dtype)


def convert(x: Tensor, dtype: Any) -> Tensor:
    """``x.astype(dtype)`` where either side is quantized: rounded half away from zero, and clipped."""
    if isinstance(x, QuantizedTensor):
        if x.dtype.metadata == getattr(dtype, "metadata", None):
            return x
        zero_point = get_quantize_entry(x.dtype).get("zero_point", 0)
        x = (ops.cast(x, dtype="float32") - float(zero_point)) * get_scale(x.dtype)
    if not is_quantize(dtype):
        return ops.cast(x, dtype=dtype_name(dtype))
    meta, zero_point = _meta_of(dtype), get_quantize_entry(dtype).get("zero_point", 0)
    levels = ops.round(ops.cast(x, dtype="float32") / get_scale(dtype)) + float(zero_point)
    levels = ops.minimum(ops.maximum(levels, float(meta.qmin)), float(meta.qmax))
    return QuantizedTensor(ops.cast(levels, dtype=np.dtype(dtype).name), dtype)


Tensor._quantized_as = convert  # `astype` calls it; tensors do not know quantized dtypes


def in_dtype(x: Tensor, dtype: DTypeLike | None) -> Tensor:
    """``x`` in a quantized dtype, if there is one."""
    return x if dtype is None else convert(x, dtype)


def real_values(x: Tensor) -> Tensor:
    """Returns the real numbers that ``x`` represents, float32. TypeError for integers without a
    scale.
    """
    if isinstance(x, QuantizedTensor):
        return convert(x, "float32")
    if x.dtype.kind in "iu":
        raise TypeError(
            f"a tensor of {x.dtype} has no scale, so it is not a quantized one\n"
            "  fix: x.astype(qint8(scale)); after a function that has lost the dtype, dequantize before it"
        )
    return x


def keeps_quantized_dtype(function: _Function) -> _Function:
    """Lets a function of real numbers take a QuantizedTensor as its first argument; the result gets
    its dtype.
    """
    first = cast(FunctionType, function).__code__.co_varnames[0]

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Tensor:
        if first in kwargs and not args:
            args = (kwargs.pop(first),)
        if not args or not isinstance(args[0], QuantizedTensor):
            return function(*args, **kwargs)
        return convert(function(convert(args[0], "float32"), *args[1:], **kwargs), args[0].dtype)

    return cast(_Function, wrapper)
