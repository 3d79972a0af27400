"""Writes layers in ONNX: convolution, pooling, normalization, matrix products, quantized ops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ._emitter import Call, Emitter
from ._to_onnx import converts, operands, reduced

# -- convolution and pooling ----------------------------------------------------------------------


def window(call: Call) -> dict[str, Any]:
    """Returns strides, pads, dilations and group in ONNX's form."""
    dims = len(call.shape) - 2
    spread: Callable[[str], list[int]] = lambda name: list(call.attrs[name]) * (dims if len(call.attrs[name]) == 1 else 1)  # noqa: E731
    return {
        "strides": spread("stride"),
        "pads": spread("padding") * 2,
        "dilations": spread("dilation"),
        "group": call.attrs["groups"],
    }


@converts("conv")
def _conv(emit: Emitter, call: Call) -> str:
    """Writes a convolution; a third operand is a bias of shape [channels]."""
    return emit("Conv", *call.inputs, **window(call), kernel_shape=list(call.types[1][1][2:]))


@converts("conv_backward_data")
def _conv_transpose(emit: Emitter, call: Call) -> str:
    attrs, kernel = window(call), list(call.types[1][1][2:])
    sizes = zip(call.types[0][1][2:], attrs["strides"], attrs["pads"], attrs["dilations"], kernel, strict=False)
    least = [(extent - 1) * step - 2 * pad + gap * (size - 1) + 1 for extent, step, pad, gap, size in sizes]
    extra = [extent - low for extent, low in zip(call.shape[2:], least, strict=True)]
    return emit("ConvTranspose", *call.inputs, **attrs, kernel_shape=kernel, output_padding=extra)


@converts("max_pool", "avg_pool")
def _pool(emit: Emitter, call: Call) -> str:
    dims = len(call.shape) - 2
    kernel, stride, padding = (
        list(call.attrs[name]) * (dims if len(call.attrs[name]) == 1 else 1) for name in ("kernel", "stride", "padding")
    )
    window: dict[str, Any] = {"kernel_shape": kernel, "strides": stride, "pads": padding * 2}
    if call.op == "max_pool":
        return emit("MaxPool", call.inputs[0], **window)
    return emit("AveragePool", call.inputs[0], **window, count_include_pad=int(call.attrs["count_include_padding"]))


@converts("adaptive_avg_pool", "adaptive_max_pool")
def _adaptive_pool(emit: Emitter, call: Call) -> str:
    extents, outputs = call.types[0][1][2:], call.shape[2:]
    kind = "Average" if call.op == "adaptive_avg_pool" else "Max"
    if all(count == 1 for count in outputs):
        return emit(f"Global{kind}Pool", call.inputs[0])
    if all(extent % count == 0 for extent, count in zip(extents, outputs, strict=True)):
        kernel = [extent // count for extent, count in zip(extents, outputs, strict=True)]
        return emit(f"{kind}Pool", call.inputs[0], kernel_shape=kernel, strides=kernel)
    x = call.inputs[0]
    for axis, (extent, count) in enumerate(zip(extents, outputs, strict=True), 2):  # uneven parts: axis by axis
        x = _parts_along(emit, "ReduceMean" if kind == "Average" else "ReduceMax", x, axis, extent, count)
    return x


def _parts_along(emit: Emitter, op_type: str, x: str, axis: int, extent: int, count: int) -> str:
    """Returns the parts of an axis: part o of ``count`` covers [floor(o extent / count), ceil((o +
    1) extent / count)).
    """
    parts = []
    for part in range(count):
        begin, end = part * extent // count, -(-(part + 1) * extent // count)
        cut = emit("Slice", x, emit.ints([begin]), emit.ints([end]), emit.ints([axis]))
        parts.append(reduced(emit, op_type, cut, (axis,), 1))
    return emit("Concat", *parts, axis=axis)


# -- products -------------------------------------------------------------------------------------


@converts("matmul")
def _matmul(emit: Emitter, call: Call) -> str:
    """Writes a product; a third operand is a bias of shape [columns], and then both factors are
    matrices.
    """
    flags = call.attrs["transpose_a"], call.attrs["transpose_b"]
    if len(call.inputs) == 3:
        return emit("Gemm", *call.inputs, transA=int(flags[0]), transB=int(flags[1]))
    factors = [
        _transposed(emit, name, len(shape)) if flag else name
        for name, (_, shape), flag in zip(operands(emit, call, call.dtype), call.types, flags, strict=True)
    ]
    return emit("MatMul", *factors)


def _transposed(emit: Emitter, name: str, rank: int) -> str:
    return emit("Transpose", name, perm=[*range(rank - 2), rank - 1, rank - 2])


@converts("conv_epilogue", "matmul_epilogue")
def _epilogue(emit: Emitter, call: Call) -> str:
    """Writes a product with the steps that ``optimize_for_inference`` adds to it
    (runtime/ops/epilogue.h).
    """
    product = replace(call, inputs=call.inputs[:2], types=call.types[:2])
    y = (_conv if call.op == "conv_epilogue" else _matmul)(emit, product)
    operands_behind = iter(call.inputs[2:])
    for step in call.attrs["epilogue"].split():
        y = emit("Relu", y) if step == "relu" else emit("Add", y, next(operands_behind))
    return y


@converts("attention")
def _attention(emit: Emitter, call: Call) -> list[str]:
    """Writes attention as simpler ops: ONNX has an op for it only since opset 23. The softmax is
    float32, as ours.
    """
    q, k, v = operands(emit, replace(call, inputs=call.inputs[:3], types=call.types[:3]), call.dtype)
    heads, key_heads = call.types[0][1][1], call.types[1][1][1]
    if heads != key_heads:
        k, v = (_for_each_head(emit, x, shape, heads) for x, (_, shape) in zip((k, v), call.types[1:3], strict=True))
    product = emit("MatMul", q, _transposed(emit, k, 4))
    scores = emit("Mul", emit.cast(product, np.float32), emit.constant(call.attrs["scale"], np.float32))
    masks = call.attrs["masked"]
    for mask in call.inputs[3 : 3 + masks]:
        scores = emit("Add", scores, mask)
    if call.attrs["hides"]:
        seen, hidden = call.inputs[3 + masks : 5 + masks]
        scores = emit("Where", seen, scores, hidden)
    if call.attrs["causal"]:
        extents = emit.ints((call.shape[2], call.types[1][1][2]))
        seen = emit("Trilu", emit("Expand", emit.constant(1, np.int64), extents), upper=0)
        scores = emit("Where", emit.cast(seen, np.bool_), scores, emit.constant(-np.inf, np.float32))
    shares = emit("Softmax", scores, axis=3)
    if call.attrs["zeros"] and (masks or call.attrs["hides"]):
        is_blind = emit("Equal", reduced(emit, "ReduceMax", scores, (3,), 1), emit.constant(-np.inf, np.float32))
        shares = emit("Where", is_blind, emit.constant(0, np.float32), shares)
    return [emit("MatMul", emit.cast(shares, call.dtype), v), reduced(emit, "ReduceLogSumExp", scores, (3,), 0)]


def _for_each_head(emit: Emitter, x: str, shape: Sequence[int], heads: int) -> str:
    """Keys or values [n, fewer heads, length, width], each repeated for the heads that it serves."""
    n, own, length, width = shape
    apart = emit("Reshape", x, emit.ints((n, own, 1, length, width)))
    repeated = emit("Expand", apart, emit.ints((n, own, heads // own, length, width)))
    return emit("Reshape", repeated, emit.ints((n, heads, length, width)))


# -- recurrent layers -----------------------------------------------------------------------------


@converts("rnn", "lstm", "lstm_of_bytes", "gru", "gru_reset_first")
def _recurrent(emit: Emitter, call: Call) -> list[str]:
    """Writes a recurrent layer step by step, as ONNX's layers would multiply the inputs again.
    Gives h, and for lstm c, of all steps.
    """
    gates, weight, *state = operands(emit, call, call.dtype)
    last = state.pop() if call.op in ("lstm_of_bytes", "gru", "gru_reset_first") else ""
    if call.op == "lstm_of_bytes":
        weight = emit("Mul", weight, emit("Unsqueeze", last, emit.ints([1])))
    steps, hidden = call.shape[0], call.types[1][1][1]
    transposed, first = emit("Transpose", weight, perm=[1, 0]), emit.ints([0])
    if call.op == "gru_reset_first":
        parts_of_gates = [*zip(_chunks(emit, transposed, 3, hidden), _chunks(emit, last, 3, hidden, axis=0), strict=True)]
    results: list[list[str]] = [[""] * steps for _ in state]
    is_rounded = call.op == "lstm_of_bytes" or call.attrs.get("rounded")
    for time in reversed(range(steps)) if call.attrs["reverse"] else range(steps):
        now = emit("Gather", gates, emit.constant(time, np.int64), axis=0)
        h = _rounded_to_bytes(emit, state[0]) if is_rounded else state[0]
        if call.op == "gru_reset_first":
            state = [_gru_reset_first_step(emit, now, h, parts_of_gates, hidden)]
        elif call.op == "gru":
            state = [_gru_step(emit, now, emit("Add", emit("MatMul", h, transposed), last), h, hidden)]
        else:
            sums = emit("Add", now, emit("MatMul", h, transposed))
            state = _lstm_step(emit, sums, state[1], hidden) if call.op != "rnn" else [emit(_FUNCTIONS[call.attrs["nonlinearity"]], sums)]
        for parts, part in zip(results, state, strict=True):
            parts[time] = emit("Unsqueeze", part, first)
    return [emit("Concat", *parts, axis=0) for parts in results]


_FUNCTIONS = {"tanh": "Tanh", "relu": "Relu"}


def _rounded_to_bytes(emit: Emitter, h: str) -> str:
    return emit("DequantizeLinear", *emit("DynamicQuantizeLinear", h, results=3))


def _lstm_step(emit: Emitter, now: str, c: str, hidden: int) -> list[str]:
    i, f, g, o = _chunks(emit, now, 4, hidden)
    entering = emit("Mul", emit("Sigmoid", i), emit("Tanh", g))
    c = emit("Add", emit("Mul", emit("Sigmoid", f), c), entering)
    return [emit("Mul", emit("Sigmoid", o), emit("Tanh", c)), c]


def _gru_step(emit: Emitter, now: str, product: str, h: str, hidden: int) -> str:
    given, held = _chunks(emit, now, 3, hidden), _chunks(emit, product, 3, hidden)
    r, z = (emit("Sigmoid", emit("Add", given[k], held[k])) for k in range(2))
    n = emit("Tanh", emit("Add", given[2], emit("Mul", r, held[2])))
    return _between(emit, n, z, h)


def _gru_reset_first_step(emit: Emitter, now: str, h: str, parts: Sequence[tuple[str, str]], hidden: int) -> str:
    """parts: the weights and the bias of each gate."""
    given = _chunks(emit, now, 3, hidden)

    def sums(k: int, h: str) -> str:
        weight, bias = parts[k]
        return emit("Add", given[k], emit("Add", emit("MatMul", h, weight), bias))

    r, z = (emit("Sigmoid", sums(k, h)) for k in range(2))
    return _between(emit, emit("Tanh", sums(2, emit("Mul", r, h))), z, h)


def _between(emit: Emitter, n: str, z: str, h: str) -> str:
    return emit("Add", n, emit("Mul", z, emit("Sub", h, n)))


def _chunks(emit: Emitter, x: str, count: int, size: int, axis: int = 1) -> list[str]:
    return [emit("Slice", x, emit.ints([k * size]), emit.ints([(k + 1) * size]), emit.ints([axis])) for k in range(count)]


# -- normalization --------------------------------------------------------------------------------


@converts("softmax", "log_softmax")
def _softmax(emit: Emitter, call: Call) -> str:
    op_type = {"softmax": "Softmax", "log_softmax": "LogSoftmax"}[call.op]
    return emit(op_type, call.inputs[0], axis=call.attrs["axis"])


@converts("layer_norm")
def _layer_norm(emit: Emitter, call: Call) -> str:
    count = call.attrs["axes"]
    normalized = call.shape[len(call.shape) - count :]
    x, *affine = call.inputs
    if not call.attrs["affine"]:
        affine = [emit.constant(np.ones(normalized), call.dtype)]
    elif call.types[1][1] != normalized:
        affine = [emit("Reshape", name, emit.ints(normalized)) for name in affine]
    return emit("LayerNormalization", x, *affine, axis=-count, epsilon=call.attrs["eps"])


@converts("batch_norm")
def _batch_norm(emit: Emitter, call: Call) -> list[str]:
    """Normalizes by the statistics of the batch; gives the result, the mean and the variance."""
    rank, channels = len(call.shape), call.shape[1]
    axes = (0, *range(2, rank))
    x, scale, bias = operands(emit, call, np.float32)
    mean = reduced(emit, "ReduceMean", x, axes, 1)
    centred = emit("Sub", x, mean)
    variance = reduced(emit, "ReduceMean", emit("Mul", centred, centred), axes, 1)
    deviation = emit("Sqrt", emit("Add", variance, emit.constant(call.attrs["eps"], np.float32)))
    across = emit.ints([1, channels] + [1] * (rank - 2))
    scaled = emit("Mul", emit("Div", centred, deviation), emit("Reshape", scale, across))
    y = emit("Add", scaled, emit("Reshape", bias, across))
    statistics = [emit("Reshape", part, emit.ints([channels])) for part in (mean, variance)]
    return [y if call.dtype == np.float32 else emit.cast(y, call.dtype), *statistics]
