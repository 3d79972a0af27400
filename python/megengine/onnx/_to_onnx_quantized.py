"""Quantized models as QuantizeLinear and DequantizeLinear around operations on real numbers.

In a recording a quantization is a chain of element-wise ops; the rules find such chains. Scales
that the chains lack (those of integer convolutions) follow from those of the operands: the recorded
factor is scale(x) scale(w) / scale(y).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ._combine import Makers, rule
from ._emitter import Call, Emitter
from ._recorded import Node
from ._to_onnx import converts
from ._to_onnx_layers import window

_STORED = {"int8": (-128, 127), "uint8": (0, 255)}

# -- rules ----------------------------------------------------------------------------------------


@rule("cast")
def _quantize(makers: Makers, cast: Node) -> Node | None:
    """Finds min(max(round(x / scale) + zero_point, low), high), as 8 bit integers."""
    if makers.recording.types[cast.outputs[0]][0].name not in _STORED:
        return None
    value = cast.inputs[0]
    numbers: dict[str, Any] = {}
    for op, name in (("minimum", "high"), ("maximum", "low"), ("add", "zero_point"), ("round", ""), ("true_div", "scale")):
        node = makers.only(value, op)
        if node is None:
            return None
        if name:
            numbers[name] = makers.number(node.inputs[1])
        value = node.inputs[0]
    if None in numbers.values() or not _is_zero_point(numbers["zero_point"], makers.recording.types[cast.outputs[0]][0]):
        return None
    makers.recording.scales[cast.outputs[0]] = numbers["scale"]
    return Node("quantize", numbers, (value,), cast.outputs, cast.line)


@rule("mul")
def _dequantize(makers: Makers, mul: Node) -> Node | None:
    """Computes (q - zero_point) * scale, of 8 bit integers."""
    shift = makers.only(mul.inputs[0], "sub")
    cast = shift and makers.only(shift.inputs[0], "cast")
    if not shift or not cast or makers.recording.types[cast.inputs[0]][0].name not in _STORED:
        return None
    numbers: dict[str, Any] = {"zero_point": makers.number(shift.inputs[1]), "scale": makers.number(mul.inputs[1])}
    if None in numbers.values() or not _is_zero_point(numbers["zero_point"], makers.recording.types[cast.inputs[0]][0]):
        return None
    return Node("dequantize", numbers, cast.inputs, mul.outputs, mul.line)


def _is_zero_point(number: float, dtype: np.dtype) -> bool:
    low, high = _STORED[dtype.name]
    return number == int(number) and low <= number <= high


@rule("quantized_conv")
def _with_scales(makers: Makers, conv: Node) -> Node | None:
    """Gives a node its scales; 1 serves for an operand whose scale is not known, as the integers
    are the same.
    """
    x, w, factor, shift = conv.inputs
    number, shifts = makers.number(factor), makers.array(shift)
    if number is None or shifts is None:
        return None
    scales = makers.recording.scales
    known: dict[str, Any] = {"scale_x": scales.get(x, 1.0), "scale_w": scales.get(w, 1.0), "shift": shifts / number}
    known["scale_y"] = scales[conv.outputs[0]] = known["scale_x"] * known["scale_w"] / number
    return Node("quantized_window", {**conv.attrs, **known}, (x, w), conv.outputs, conv.line)


@rule("reshape")
@rule("transpose")
def _moved(makers: Makers, node: Node) -> None:
    """Moves the scale along with elements."""
    scales = makers.recording.scales
    if node.inputs[0] in scales:
        scales[node.outputs[0]] = scales[node.inputs[0]]


@rule("fake_quant")
def _fake(makers: Makers, node: Node) -> Node | None:
    """Returns the node with its scale and zero point as numbers; None if these are not known."""
    scale, zero_point = makers.array(node.inputs[1]), makers.array(node.inputs[2])
    if scale is None or zero_point is None or scale.size != 1 or zero_point.size != 1:
        return None
    numbers = {"scale": float(scale.reshape(())), "zero_point": float(zero_point.reshape(()))}
    stored = "int8" if node.attrs["qmin"] < 0 else "uint8"
    fits = _STORED[stored][0] <= node.attrs["qmin"] and node.attrs["qmax"] <= _STORED[stored][1]
    if not fits or not _is_zero_point(numbers["zero_point"], np.dtype(stored)):
        return None
    attrs = {**numbers, "low": node.attrs["qmin"], "high": node.attrs["qmax"], "stored": stored}
    return Node("fake_quantize", attrs, node.inputs[:1], node.outputs, node.line)


# -- converters -----------------------------------------------------------------------------------


def _grid(emit: Emitter, scale: float, zero_point: float, dtype: Any) -> tuple[str, str]:
    return emit.constant(scale, np.float32), emit.constant(int(zero_point), dtype)


def _quantized(emit: Emitter, x: str, attrs: dict[str, Any], dtype: Any) -> str:
    """Writes QuantizeLinear, which clips to the range of the dtype; a narrower range is clipped
    before it.
    """
    scale, zero_point = attrs["scale"], attrs["zero_point"]
    if (attrs["low"], attrs["high"]) != _STORED[np.dtype(dtype).name]:
        bounds = [(attrs[side] - zero_point) * scale for side in ("low", "high")]
        x = emit("Clip", x, *(emit.constant(bound, np.float32) for bound in bounds))
    return emit("QuantizeLinear", x, *_grid(emit, scale, zero_point, dtype))


@converts("quantize")
def _quantize_linear(emit: Emitter, call: Call) -> str:
    return _quantized(emit, call.inputs[0], call.attrs, call.dtype)


@converts("dequantize")
def _dequantize_linear(emit: Emitter, call: Call) -> str:
    grid = _grid(emit, call.attrs["scale"], call.attrs["zero_point"], call.types[0][0])
    return emit("DequantizeLinear", call.inputs[0], *grid)


@converts("fake_quantize")
def _fake_quantize(emit: Emitter, call: Call) -> str:
    stored = np.dtype(call.attrs["stored"])
    quantized = _quantized(emit, call.inputs[0], call.attrs, stored)
    return emit("DequantizeLinear", quantized, *_grid(emit, call.attrs["scale"], call.attrs["zero_point"], stored))


@converts("fake_quant")
def _fake_quant(emit: Emitter, call: Call) -> str:
    """Computes scales of several channels, or 16 bits, in real numbers; halves are rounded to the
    even number.
    """
    x, scale, zero_point = call.inputs[:3]
    shifted = emit("Add", emit("Round", emit("Div", x, scale)), zero_point)
    bounds = (emit.constant(call.attrs[name], call.dtype) for name in ("qmin", "qmax"))
    return emit("Mul", emit("Sub", emit("Clip", shifted, *bounds), zero_point), scale)


@converts("quantized_window")
def _quantized_conv(emit: Emitter, call: Call) -> str:
    scale_x, scale_w, scale_y = (call.attrs[name] for name in ("scale_x", "scale_w", "scale_y"))
    factors = [
        emit("DequantizeLinear", name, *_grid(emit, scale, 0, dtype))
        for name, scale, (dtype, _) in zip(call.inputs, (scale_x, scale_w), call.types, strict=True)
    ]
    bias = emit.constant(np.rint(call.attrs["shift"]), np.int32)
    real_bias = emit("DequantizeLinear", bias, emit.constant(scale_x * scale_w, np.float32))
    y = emit("Conv", *factors, real_bias, **window(call), kernel_shape=list(call.types[1][1][2:]))
    y = emit("Relu", y) if call.attrs["relu"] else y
    if call.dtype == np.float32:
        return emit("Div", y, emit.constant(scale_y, np.float32))
    return emit("QuantizeLinear", y, *_grid(emit, scale_y, 0, call.dtype))
