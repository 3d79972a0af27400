"""Products and convolutions of numbers of 8 bits: those of QLinearConv and QLinearMatMul, and those whose operands come
from DequantizeLinear.

With x = sx (qx - zx), w = sw qw and y = sy (qy - zy) the real sum and its bias give
    qy = round((sum(qx qw) + bias / (sx sw) - zx sum(qw)) sx sw / sy) + zy.
The last two terms in the sum are a whole number where the bias is one of int32. They and the factor are known while a
model is loaded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .. import fx
from ._builder import Builder, Operand
from .functions import quantized

_BYTES = frozenset({"uint8", "int8"})
_LEAST_STEP = 2.0**-100


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

    def is_like(self, other: Grid) -> bool:
        """Whether both are one grid for all elements, on which rounding changes no number: none is beyond float32's."""
        is_same = self.is_one and other.is_one and self.zero.dtype == other.zero.dtype and self.zero[0] == other.zero[0]
        return bool(is_same and self.scale[0] == other.scale[0] and _LEAST_STEP < self.scale[0] < 1 / _LEAST_STEP)


def grid_of(values: Operand | None, scale: Operand | None, zero: Operand | None) -> Grid | None:
    """Returns the grid of bytes. None where it is not known, or they are no bytes."""
    if values is None or scale is None or scale.array is None or (zero is not None and zero.array is None):
        return None
    number = np.zeros(1, values.dtype or "float32") if zero is None else np.asarray(zero.array)
    if number.dtype.name not in _BYTES or values.narrow or scale.array.ndim > 1:
        return None
    return Grid(values, scale.array.astype(np.float64).reshape(-1), number.reshape(-1))


def dequantized(operand: Operand | None, axis: int) -> Grid | None:
    """Returns the grid of a result of DequantizeLinear, whose steps are one for all or lie along the axis."""
    maker = None if operand is None else operand.maker
    if maker is None or maker.op != "DequantizeLinear" or maker.attrs.get("block_size") or maker.attrs.get("output_dtype"):
        return None
    found = grid_of(*(maker.input(place) for place in range(3)))
    rank = len(found.of.shape or ()) if found is not None else 0
    is_along = found is not None and (found.is_one or (rank and maker.attrs.get("axis", 1) % rank == axis % rank))
    return found if is_along else None


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
        x_zero, step = int(self.x.zero[0]), 1.0 if y is None else float(y.scale[0])
        terms = self.weights.astype(np.int64).reshape(columns, -1).sum(1)
        shift = (0.0 if self.bias is None else self.bias / self.factor) - x_zero * terms
        scale = np.broadcast_to(self.factor / step, columns)
        if self.window is not None:
            scale = scale.reshape(-1, *[1] * (self.weights.ndim - 2))
        key = ("bytes", self.name)
        if key not in builder.laid_out:
            builder.laid_out[key] = [builder.store(f"{self.name}_bytes", self.weights)]
        numbers = {"shift": shift, "scale": scale}
        stored = [*builder.laid_out[key], *(builder.store(f"{self.name}_{end}", array.astype(np.float32)) for end, array in numbers.items())]
        function = quantized.product_of_bytes if self.window is None else quantized.conv_of_bytes
        more = {} if self.window is None else {**self.window, "x_zero": x_zero}
        if y is not None:
            more["zero"] = int(y.zero[0])
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


def _conv(a: Any, w: Grid, bias: np.ndarray | None, x: Grid) -> Sums | None:
    dims = len(w.of.shape or ()) - 2
    if not 1 <= dims <= 3 or a.attrs.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
        return None
    pads = tuple(a.attrs.get("pads", (0,) * 2 * dims))
    window = {name: tuple(a.attrs.get(f"{name}s", (1,) * dims)) for name in ("stride", "dilation")}
    if min(pads) < 0:
        return None
    return _sums(x, w, lambda array: array, bias=bias, window={**window, "pads": pads, "groups": a.attrs.get("group", 1)})


def _product(a: Any, w: Grid, bias: np.ndarray | None, x: Grid) -> Sums | None:
    if len(w.of.shape or ()) != 2 or len(x.of.shape or ()) < 2:
        return None
    return _sums(x, w, lambda array: array if a.attrs.get("transB") else array.T, bias=bias)


def _of_reals(a: Any) -> Sums | None:
    """Returns the sums of Conv, MatMul or Gemm on results of DequantizeLinear."""
    if a.op == "Gemm" and not (a.attrs.get("alpha", 1) == a.attrs.get("beta", 1) == 1 and not a.attrs.get("transA")):
        return None
    columns = 0 if a.op == "Conv" or a.attrs.get("transB") else -1
    x, w = dequantized(a.input(0), 0), dequantized(a.input(1), columns)
    if x is None or w is None:
        return None
    bias = _bias_of(a.input(2), x.scale * w.scale)
    return None if bias is None else (_conv if a.op == "Conv" else _product)(a, w, bias, x)


def real_sums(a: Any) -> fx.Node | None:
    """Returns the call for Conv, MatMul or Gemm of results of DequantizeLinear; None where it is not one of bytes."""
    sums = _of_reals(a)
    return None if sums is None else sums.call(a.builder, a.node.output[0])


def rounded_sums(a: Any) -> fx.Node | None:
    """Returns the call for a QuantizeLinear of such sums, which computes them once more, without real numbers between."""
    maker, scale, zero = a.inputs[0].maker, a.input(1), a.input(2)
    if maker is None or maker.op not in ("Conv", "MatMul", "Gemm") or a.attrs.get("output_dtype") or a.attrs.get("block_size"):
        return None
    y = None if zero is None else grid_of(replace(zero, shape=None), scale, zero)
    sums = _of_reals(maker) if y is not None and y.is_one else None
    return None if sums is None else sums.call(a.builder, a.node.output[0], y)


# Results have elements of the first operand, and what Pad adds.
_MOVING = frozenset({"Expand", "Flatten", "Gather", "Pad", "Reshape", "Slice", "Squeeze", "Tile", "Transpose", "Unsqueeze"})


def mover_of_bytes(a: Any) -> Any:
    """Returns the application that moves bytes for a QuantizeLinear of moved real numbers, which were bytes of the same grid;
    None where a rounding between may change them.
    """
    maker, scale, zero = a.inputs[0].maker, a.input(1), a.input(2)
    if maker is None or maker.op not in _MOVING or a.attrs.get("output_dtype") or a.attrs.get("block_size"):
        return None
    x, y = dequantized(maker.input(0), 0), grid_of(zero, scale, zero)
    if x is None or y is None or not x.is_like(y):
        return None
    inputs = [x.of, *maker.inputs[1:]]
    if maker.op == "Pad" and maker.attrs.get("mode", "constant") == "constant":
        value = maker.input(2)
        if value is not None and (value.array is None or value.array.any()):
            return None
        inputs[2:3] = [replace(a.inputs[2], node=None, array=y.zero.reshape(()), shape=())]
    return replace(maker, inputs=inputs)


def real_zeros(a: Any) -> list[Any] | None:
    """Gives a QuantizeLinear or DequantizeLinear its known zero points as real numbers, or none where all are 0: a call
    does not convert them. Returns its arguments.
    """
    zero = a.input(2)
    if zero is None or zero.array is None or zero.narrow or zero.array.dtype.name not in _BYTES:
        return None
    key = ("zero points", zero.name)
    if key not in a.builder.laid_out:
        real = zero.array.astype(np.float32)
        a.builder.laid_out[key] = [a.builder.store(f"{zero.name}_real", real) if real.any() else None]
    return [a.tensor(0), a.tensor(1), *a.builder.laid_out[key]]


def linear_sums(a: Any) -> fx.Node | None:
    """Returns the call for QLinearConv or QLinearMatMul."""
    x, w, y = (grid_of(*(a.input(place) for place in places)) for places in ((0, 1, 2), (3, 4, 5), (7, 6, 7)))
    if x is None or w is None or y is None or not y.is_one:
        return None
    bias = _bias_of(a.input(8), x.scale * w.scale)
    sums = None if bias is None else (_conv if a.op == "QLinearConv" else _product)(a, w, bias, x)
    return None if sums is None else sums.call(a.builder, a.node.output[0], y)
