"""Weights in blocks of 4 and 8 bits.

From opset 21 on a product reads DequantizeLinear with a ``block_size``, which runtimes multiply
directly. For older opsets, and for rows that are looked up, the blocks are decoded by simple
operations.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ._combine import Makers, rule
from ._dynamic import Dim
from ._emitter import Call, Emitter
from ._recorded import Node
from ._to_onnx import converts

_SCALE_BYTES = 2
_FIRST_WITH_BLOCKS = 21  # opset


@rule("dequantize_blocks")
def _rows(makers: Makers, node: Node) -> Node | None:
    """Returns rows of a table, or all of it."""
    taken = makers.only(node.inputs[0], "index_get")
    table = taken.inputs[0] if taken and taken.attrs["axes"] == (0,) else node.inputs[0]
    blocks = makers.array(table)
    if blocks is None:
        return None
    attrs = {"bits": node.attrs["bits"], "blocks": blocks, "name": makers.recording.names[table]}
    return Node("rows_of_blocks", attrs, taken.inputs[1:] if taken else (), node.outputs, node.line)


@rule("matmul_of_blocks")
def _product(makers: Makers, node: Node) -> Node | None:
    """A product with weights that are known."""
    x, weights = node.inputs
    blocks = makers.array(weights)
    if blocks is None:
        return None
    attrs = {**node.attrs, "blocks": blocks, "name": makers.recording.names[weights]}
    return Node("product_of_blocks", attrs, (x,), node.outputs, node.line)


def _split(attrs: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Scales [..., blocks, 1] in float16, and the bytes of the integers [..., blocks, bytes]."""
    blocks = attrs["blocks"]
    scales, integers = np.split(blocks, [_SCALE_BYTES], axis=-1)
    return np.ascontiguousarray(scales).view(np.float16), np.ascontiguousarray(integers)


def _stored(emit: Emitter, scales: np.ndarray, integers: np.ndarray, attrs: dict[str, Any]) -> tuple[str, str]:
    """Returns the tensor that `_decoded` reads; bytes of two integers stay as they are."""
    whole = integers if attrs["bits"] == 4 else integers.view(np.int8)
    return emit.initializer(scales, f"{attrs['name']}.scales"), emit.initializer(whole, attrs["name"])


def _decoded(emit: Emitter, scales: str, integers: str, bits: int, shape: Sequence[int | Dim]) -> str:
    """The values of blocks, as float32 of ``shape``."""
    if bits == 4:
        low = emit("Mod", integers, emit.constant(16, np.uint8))
        high = emit("BitShift", integers, emit.constant(4, np.uint8), direction="RIGHT")
        halves = emit.cast(emit("Concat", low, high, axis=-1), np.float32)
        numbers = emit("Sub", halves, emit.constant(8, np.float32))
    else:
        numbers = emit.cast(integers, np.float32)
    return emit("Reshape", emit("Mul", numbers, emit.cast(scales, np.float32)), emit.ints(shape))


@converts("rows_of_blocks")
def _decoded_rows(emit: Emitter, call: Call) -> str:
    bits = call.attrs["bits"]
    scales, integers = _split(call.attrs)
    factors, numbers = _stored(emit, scales, integers, call.attrs)
    if call.inputs:
        factors, numbers = (emit("Gather", part, call.inputs[0], axis=0) for part in (factors, numbers))
    return _decoded(emit, factors, numbers, bits, call.shape)


@converts("product_of_blocks")
def _product_of_blocks(emit: Emitter, call: Call) -> str:
    by_columns = not call.attrs["transposed"]  # weights are [rows, columns], and x @ W.T sums along columns
    if emit.opset >= _FIRST_WITH_BLOCKS:
        return emit("MatMul", call.inputs[0], _dequantized(emit, call.attrs, by_columns))
    bits = call.attrs["bits"]
    scales, integers = _split(call.attrs)
    shape = (len(integers), integers[0].size * 8 // bits)
    weights = _decoded(emit, *_stored(emit, scales, integers, call.attrs), bits, shape)
    return emit("MatMul", call.inputs[0], emit("Transpose", weights, perm=[1, 0]) if by_columns else weights)


def _dequantized(emit: Emitter, attrs: dict[str, Any], is_transposed: bool) -> str:
    """DequantizeLinear of the weights [rows, columns], or of them transposed."""
    scales, integers = _split(attrs)
    rows, name, bits = len(integers), attrs["name"], attrs["bits"]
    block_size = integers.shape[-1] * 8 // bits
    if bits == 4:
        halves = np.concatenate([integers & 15, integers >> 4], axis=-1)
        numbers = (halves.astype(np.int8) - 8).reshape(rows, -1)
    else:
        numbers = integers.view(np.int8).reshape(rows, -1)
    scales = scales.reshape(rows, -1).astype(np.float32)
    if is_transposed:
        numbers, scales = np.ascontiguousarray(numbers.T), np.ascontiguousarray(scales.T)
    stored = emit.initializer_of_nibbles(numbers, name) if bits == 4 else emit.initializer(numbers, name)
    axis = 0 if is_transposed else 1
    return emit("DequantizeLinear", stored, emit.initializer(scales, f"{name}.scales"), axis=axis, block_size=block_size)
