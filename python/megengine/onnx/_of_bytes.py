"""Products and convolutions of numbers of 8 bits: those of QLinearConv and QLinearMatMul, and those whose operands come
from DequantizeLinear.

With x = sx (qx - zx), w = sw qw and y = sy (qy - zy) the real sum and its bias give
    qy = sum(qx qw) sx sw / sy + (bias - zx sum(qw) sx sw) / sy + zy,
which `quantized_conv` computes as ``sum * scale + shift`` with numbers that are known while a model is loaded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import fx
from ._builder import Builder, Operand
from .functions import quantized

_ZERO = {"uint8": 128, "int8": 0}  # what the least number of int8 stands for, plus 128


@dataclass
class Grid:
    """Known steps and zero points of an operand; ``of`` holds its bytes."""

    of: Operand
    scale: np.ndarray
    zero: np.ndarray

    @property
    def is_one(self) -> bool:
        """Whether all elements have the same step."""
        return self.scale.size == 1 and self.zero.size == 1


def grid_of(values: Operand | None, scale: Operand | None, zero: Operand | None) -> Grid | None:
    """Returns the grid of bytes. None where it is not known, or they are no bytes."""
    if values is None or scale is None or scale.array is None or (zero is not None and zero.array is None):
        return None
    if values.dtype not in _ZERO or values.narrow or scale.array.ndim > 1:
        return None
    number = np.zeros(1, values.dtype) if zero is None else np.asarray(zero.array)
    return Grid(values, scale.array.astype(np.float64).reshape(-1), number.reshape(-1))


def dequantized(operand: Operand | None) -> Grid | None:
    """Returns the grid of a result of DequantizeLinear."""
    maker = None if operand is None else operand.maker
    if maker is None or maker.op != "DequantizeLinear" or maker.attrs.get("block_size") or maker.attrs.get("output_dtype"):
        return None
    return grid_of(*(maker.input(place) for place in range(3)))


@dataclass
class Sums:
    """A convolution or a product of bytes. weights: [columns, terms of a sum...], of int8."""

    x: Grid
    weights: np.ndarray
    factor: np.ndarray  # the real number that one in a sum stands for, of each column
    bias: np.ndarray | None  # in real numbers
    name: str  # of the weights
    window: dict[str, Any] | None = None  # of a convolution

    def call(self, builder: Builder, name: str, y: Grid | None = None) -> fx.Node:
        """Returns the node that gives real numbers, or bytes of the grid ``y``."""
        columns = len(self.weights)
        sums = self.weights.astype(np.int64).reshape(columns, -1).sum(1)
        bias = np.zeros(columns) if self.bias is None else self.bias
        step, zero = (1.0, 0.0) if y is None else (float(y.scale[0]), float(y.zero[0]))
        x_zero = int(self.x.zero[0])
        shift = (bias - x_zero * sums * self.factor) / step + zero
        numbers = {"": self.weights, "_scale": np.broadcast_to(self.factor / step, columns), "_shift": shift}
        stored = [
            builder.store(f"{self.name}_bytes{end}", array if array.dtype == np.int8 else array.astype(np.float32)) for end, array in numbers.items()
        ]
        function = quantized.product_of_bytes if self.window is None else quantized.conv_of_bytes
        more = {} if self.window is None else {**self.window, "x_zero": x_zero}
        dtype = "float32" if y is None else y.zero.dtype.name
        return builder.call(function, builder.tensor(self.x.of), *stored, name=name, dtype=dtype, **more)


def _sums(x: Grid | None, w: Grid | None, weights: Callable[[np.ndarray], np.ndarray], **more: Any) -> Sums | None:
    """Returns the sums of constant weights without zero points. weights: brings them into the order of `Sums`."""
    if x is None or w is None or not x.is_one or w.of.array is None:
        return None
    moved = w.of.array.astype(np.int64) - w.zero.astype(np.int64) if w.zero.size == 1 else w.of.array.astype(np.int64)
    if (w.zero.size > 1 and w.zero.any()) or moved.min(initial=0) < -128 or moved.max(initial=0) > 127:
        return None
    arranged = np.ascontiguousarray(weights(moved).astype(np.int8))
    return Sums(x, arranged, x.scale * w.scale, name=w.of.name, **more) if w.scale.size in (1, len(arranged)) else None


def _bias_of(operand: Operand | None, scale: np.ndarray) -> np.ndarray | None:
    """Returns a constant bias in real numbers: from int32, in steps of ``scale``, or from real numbers."""
    if operand is None:
        return np.zeros(1)
    maker = operand.maker
    if maker is not None and maker.op == "DequantizeLinear" and all(part.array is not None for part in maker.inputs):
        values, steps, *zero = (part.array.astype(np.float64) for part in maker.inputs)
        return (values - zero[0] if zero else values) * steps
    if operand.array is None:
        return None
    return operand.array.astype(np.float64) * (scale if operand.array.dtype == np.int32 else 1)
