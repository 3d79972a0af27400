"""Writes ops in ONNX: element-wise ops, reductions, and the table of all converters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..core._registry import enters
from ._dynamic import Dim
from ._emitter import Call, Emitter
from ._recorded import Node

Converter = Callable[[Emitter, Call], Any]

# op of ours -> converter. Ops that are not in it are refused, all of them at once.
CONVERTERS: dict[str, Converter] = {}


def converts(*ops: str) -> Callable[[Converter], Converter]:
    """Puts a converter into the table."""
    return enters(CONVERTERS, ops)


def write_node(emit: Emitter, node: Node) -> None:
    """Writes a recorded node, or notes with ``emit`` what of it cannot be written."""
    why = _convert(emit, node)
    if why:
        emit.problems.setdefault(why, []).append(node.line)
        emit.skip(node)


def _convert(emit: Emitter, node: Node) -> str:
    if node.attrs.get("drop_prob"):
        return "dropout_mask"
    if node.op not in CONVERTERS:
        return node.op
    if node.op in _BITS and emit.opset < 18:
        return f"{node.op} before opset 18"
    try:
        emit.convert(node, CONVERTERS[node.op])
    except TypeError:  # a Dim is not a number
        values = (*node.inputs, *node.outputs)
        if not any(isinstance(extent, Dim) for value in values for extent in emit.recording.types[value][1]):
            raise
        return f"{node.op} over axes that are open"
    return ""


# -- dtypes ---------------------------------------------------------------------------------------

_NARROW = frozenset({"int8", "uint8", "int16", "uint16", "bool"})


def is_real(dtype: np.dtype) -> bool:
    return dtype.name in ("float32", "float16", "bfloat16")


def operands(emit: Emitter, call: Call, dtype: Any) -> list[str]:
    """The operands in one dtype."""
    wanted = np.dtype(dtype)
    return [
        name if own == wanted else emit.cast(name, wanted)
        for name, (own, _) in zip(call.inputs, call.types, strict=True)
    ]


def calculated(emit: Emitter, call: Call, compute: Callable[..., str]) -> str:
    """Computes in the dtype of the result; 8 and 16 bit integers and bools are computed in int32,
    and then wrap or become true if not 0.
    """
    if call.dtype.name in _NARROW:
        return emit.cast(compute(*operands(emit, call, np.int32)), call.dtype)
    return compute(*operands(emit, call, call.dtype))


# -- one op, one op -------------------------------------------------------------------------------

_SAME: dict[str, tuple[str, dict[str, Any]]] = {
    "add": ("Add", {}), "sub": ("Sub", {}), "mul": ("Mul", {}), "true_div": ("Div", {}), "pow": ("Pow", {}),
    "maximum": ("Max", {}), "minimum": ("Min", {}), "even_maximum": ("Max", {}), "even_minimum": ("Min", {}), "neg": ("Neg", {}), "abs": ("Abs", {}), "even_abs": ("Abs", {}), "sign": ("Sign", {}),
    "sqrt": ("Sqrt", {}), "norm_root": ("Sqrt", {}), "reciprocal": ("Reciprocal", {}), "exp": ("Exp", {}), "log": ("Log", {}), "sin": ("Sin", {}),
    "cos": ("Cos", {}), "tan": ("Tan", {}), "asin": ("Asin", {}), "acos": ("Acos", {}), "atan": ("Atan", {}),
    "sinh": ("Sinh", {}), "cosh": ("Cosh", {}), "tanh": ("Tanh", {}), "asinh": ("Asinh", {}), "acosh": ("Acosh", {}),
    "atanh": ("Atanh", {}), "erf": ("Erf", {}), "sigmoid": ("Sigmoid", {}), "relu": ("Relu", {}), "softplus": ("Softplus", {}),
    "selu": ("Selu", {}), "hswish": ("HardSwish", {}), "hsigmoid": ("HardSigmoid", {"alpha": 1 / 6, "beta": 0.5}),
    "prelu": ("PRelu", {}), "left_prelu": ("PRelu", {}), "identity": ("Identity", {}), "stop_gradient": ("Identity", {}),
}  # fmt: skip


def _same(op_type: str, attrs: dict[str, Any]) -> Converter:
    return lambda emit, call: calculated(emit, call, lambda *xs: emit(op_type, *xs, **attrs))


CONVERTERS.update({op: _same(*row) for op, row in _SAME.items()})

_WITH_ATTRIBUTE = {
    "leaky_relu": ("LeakyRelu", "negative_slope"),
    "left_leaky_relu": ("LeakyRelu", "negative_slope"),
    "elu": ("Elu", "alpha"),
    "celu": ("Celu", "alpha"),
}


@converts(*_WITH_ATTRIBUTE)
def _with_attribute(emit: Emitter, call: Call) -> str:
    op_type, name = _WITH_ATTRIBUTE[call.op]
    return emit(op_type, *operands(emit, call, call.dtype), alpha=call.attrs[name])


_LOGIC = {"logical_and": "And", "logical_or": "Or", "logical_xor": "Xor", "logical_not": "Not"}


@converts(*_LOGIC)
def _logic(emit: Emitter, call: Call) -> str:
    return emit(_LOGIC[call.op], *operands(emit, call, bool))


_COMPARISONS = {
    "equal": "Equal", "less": "Less", "less_equal": "LessOrEqual", "greater": "Greater", "greater_equal": "GreaterOrEqual",
}  # fmt: skip


@converts(*_COMPARISONS, "not_equal")
def _compare(emit: Emitter, call: Call) -> str:
    dtypes = {dtype.name for dtype, _ in call.types}
    dtype = "float32" if "float32" in dtypes else dtypes.pop() if len(dtypes) == 1 else "int32"
    xs = operands(emit, call, "int32" if dtype in _NARROW else dtype)
    if call.op == "not_equal":
        return emit("Not", emit("Equal", *xs))
    return emit(_COMPARISONS[call.op], *xs)


@converts("isnan", "isinf", "isfinite")
def _classify(emit: Emitter, call: Call) -> str:
    (x,) = operands(emit, call, np.float32)
    if call.op == "isfinite":
        return emit("Not", emit("Or", emit("IsNaN", x), emit("IsInf", x)))
    return emit({"isnan": "IsNaN", "isinf": "IsInf"}[call.op], x)


_BITS = {"bit_and": "BitwiseAnd", "bit_or": "BitwiseOr", "bit_xor": "BitwiseXor", "bit_not": "BitwiseNot"}
CONVERTERS.update({op: _same(op_type, {}) for op, op_type in _BITS.items()})


@converts("cast")
def _cast(emit: Emitter, call: Call) -> str:
    return emit.cast(call.inputs[0], call.dtype)


@converts("where")
def _where(emit: Emitter, call: Call) -> str:
    mask = call.inputs[0] if call.types[0][0].kind == "b" else emit.cast(call.inputs[0], bool)
    x, y = operands(emit, Call(call.op, {}, call.inputs[1:], call.types[1:], call.results), call.dtype)
    return emit("Where", mask, x, y)


# -- formulas -------------------------------------------------------------------------------------


Number = Callable[[float], str]  # a scalar of the dtype in which a formula is computed


def formula(op: str) -> Callable[[Callable[..., str]], Callable[..., str]]:
    """Registers a function (emit, number, *operands) as the converter of an element-wise op."""

    def put(compute: Callable[..., str]) -> Callable[..., str]:
        def converter(emit: Emitter, call: Call) -> str:
            dtype = np.dtype(np.int32) if call.dtype.name in _NARROW else call.dtype
            return calculated(emit, call, lambda *xs: compute(emit, lambda v: emit.constant(v, dtype), *xs))

        CONVERTERS[op] = converter
        return compute

    return put


_SHORT: dict[str, Callable[..., str]] = {
    "square": lambda emit, number, x: emit("Mul", x, x),
    "fma3": lambda emit, number, a, b, c: emit("Add", emit("Mul", a, b), c),
    "rsqrt": lambda emit, number, x: emit("Reciprocal", emit("Sqrt", x)),
    "relu6": lambda emit, number, x: emit("Clip", x, number(0), number(6)),
    "silu": lambda emit, number, x: emit("Mul", x, emit("Sigmoid", x)),
    "logsigmoid": lambda emit, number, x: emit("Neg", emit("Softplus", emit("Neg", x))),
    "erfc": lambda emit, number, x: emit("Sub", number(1), emit("Erf", x)),
}
for _op, _compute in _SHORT.items():
    formula(_op)(_compute)


@formula("mish")
def _mish(emit: Emitter, number: Number, x: str) -> str:
    if emit.opset >= 18:
        return emit("Mish", x)
    return emit("Mul", x, emit("Tanh", emit("Softplus", x)))


@formula("gelu")
def _gelu(emit: Emitter, number: Number, x: str) -> str:
    if emit.opset >= 20:
        return emit("Gelu", x)
    below = emit("Add", emit("Erf", emit("Mul", x, number(0.5**0.5))), number(1))
    return emit("Mul", emit("Mul", x, number(0.5)), below)


@formula("expm1")
def _expm1(emit: Emitter, number: Number, x: str) -> str:
    # 2 t / (1 - t) with t = tanh(x / 2) keeps the digits near 0.
    t = emit("Tanh", emit("Mul", x, number(0.5)))
    near = emit("Div", emit("Add", t, t), emit("Sub", number(1), t))
    is_near = emit("Less", emit("Abs", x), number(1))
    return emit("Where", is_near, near, emit("Sub", emit("Exp", x), number(1)))


@formula("log1p")
def _log1p(emit: Emitter, number: Number, x: str) -> str:
    # With u the rounded 1 + x, log(u) x / (u - 1) keeps the digits: Goldberg 1991, theorem 4.
    u = emit("Add", x, number(1))
    corrected = emit("Div", emit("Mul", emit("Log", u), x), emit("Sub", u, number(1)))
    is_plain = emit("Or", emit("Equal", u, number(1)), emit("IsInf", u))
    return emit("Where", is_plain, x, corrected)


@formula("logaddexp")
def _logaddexp(emit: Emitter, number: Number, x: str, y: str) -> str:
    distance = emit("Abs", emit("Sub", x, y))
    return emit("Add", emit("Max", x, y), emit("Softplus", emit("Neg", distance)))


@formula("atan2")
def _atan2(emit: Emitter, number: Number, y: str, x: str) -> str:
    # The angle's half plane follows from the signs, also those of zeros; on the vertical axis it is a quarter turn.
    zero, one = number(0), number(1)
    are_infinite = emit("And", emit("IsInf", x), emit("IsInf", y))
    x, y = (emit("Where", are_infinite, emit("Sign", each), each) for each in (x, y))
    is_left, is_below = (emit("Or", emit("Less", each, zero), emit("Less", emit("Div", one, each), zero)) for each in (x, y))
    turn = emit("Where", is_below, number(-np.pi), number(np.pi))
    angle = emit("Atan", emit("Div", y, x))
    beside = emit("Where", is_left, emit("Add", angle, turn), angle)
    upright = emit("Mul", emit("Sign", y), number(np.pi / 2))
    angle = emit("Where", emit("Equal", x, zero), upright, beside)
    is_level = emit("And", emit("Equal", y, zero), emit("Equal", x, x))
    return emit("Where", is_level, emit("Where", is_left, turn, y), angle)


def _truncated(emit: Emitter, x: str) -> str:
    return emit("Mul", emit("Sign", x), emit("Floor", emit("Abs", x)))


def _rounding(rounded: Callable[[Emitter, Callable[..., Any], str], str]) -> Converter:
    """Rounds floats, and leaves integers as they are."""

    def converter(emit: Emitter, call: Call) -> str:
        if call.dtype.kind in "iub":
            return emit("Identity", call.inputs[0])
        return rounded(emit, lambda v: emit.constant(v, call.dtype), call.inputs[0])

    return converter


def _half_away(emit: Emitter, number: Number, x: str) -> str:
    whole = _truncated(emit, x)
    is_below = emit("Less", emit("Abs", emit("Sub", x, whole)), number(0.5))
    return emit("Where", is_below, whole, emit("Add", whole, emit("Sign", x)))


CONVERTERS["ceil"] = _rounding(lambda emit, number, x: emit("Ceil", x))
CONVERTERS["floor"] = _rounding(lambda emit, number, x: emit("Floor", x))
CONVERTERS["trunc"] = _rounding(lambda emit, number, x: _truncated(emit, x))
CONVERTERS["round"] = _rounding(_half_away)


def _floor_quotient(emit: Emitter, x: str, y: str, dtype: Any) -> str:
    """Writes floor division of integers. ONNX rounds quotients towards 0, and two stop the program:
    x / 0, which is 0 here, and the least number / -1, which wraps.
    """
    zero, one = (emit.constant(each, dtype) for each in (0, 1))
    by_zero, by_less = emit("Equal", y, zero), emit("Equal", y, emit.constant(-1, dtype))
    safe = emit("Where", emit("Or", by_zero, by_less), one, y)
    quotient = emit("Div", x, safe)
    rest = emit("Sub", x, emit("Mul", quotient, safe))
    differs = emit("Xor", emit("Less", rest, zero), emit("Less", safe, zero))
    rounds = emit("And", differs, emit("Not", emit("Equal", rest, zero)))
    down = emit("Where", rounds, emit("Sub", quotient, one), quotient)
    return emit("Where", by_zero, zero, emit("Where", by_less, emit("Neg", x), down))


@converts("floor_div")
def _floor_div(emit: Emitter, call: Call) -> str:
    if is_real(call.dtype):
        return emit("Floor", emit("Div", *operands(emit, call, call.dtype)))
    dtype = np.int64 if call.dtype == np.int64 else np.int32
    x, y = operands(emit, call, dtype)
    quotient = _floor_quotient(emit, x, y, dtype)
    return quotient if call.dtype == dtype else emit.cast(quotient, call.dtype)


@converts("mod")
def _mod(emit: Emitter, call: Call) -> str:
    def rest(x: str, y: str) -> str:
        if is_real(call.dtype):
            return emit("Mod", x, y, fmod=1)
        # The remainder of x / 0 is 0 here; in onnxruntime it stops the program, as that of the least number by -1.
        zero, one, less = (emit.constant(each, np.int32 if call.dtype.name in _NARROW else call.dtype) for each in (0, 1, -1))
        leaves_none = emit("Or", emit("Equal", y, zero), emit("Equal", y, less))
        return emit("Mod", x, emit("Where", leaves_none, one, y))

    return calculated(emit, call, rest)


@converts("left_shift", "right_shift")
def _shift(emit: Emitter, call: Call) -> str:
    x, count = operands(emit, call, np.int32)
    factor = emit.cast(emit("Pow", emit.constant(2.0, np.float32), emit.cast(count, np.float32)), np.int32)
    if call.op == "left_shift":
        shifted = emit("Mul", x, factor)
    else:
        shifted = _floor_quotient(emit, x, factor, np.int32)
    return shifted if call.dtype == np.int32 else emit.cast(shifted, call.dtype)


# -- reductions -----------------------------------------------------------------------------------

_REDUCTIONS = {
    "reduce_sum": "ReduceSum", "reduce_mean": "ReduceMean", "reduce_prod": "ReduceProd", "reduce_max": "ReduceMax",
    "reduce_min": "ReduceMin", "even_max": "ReduceMax", "even_min": "ReduceMin",
}  # fmt: skip


@converts(*_REDUCTIONS)
def _reduce(emit: Emitter, call: Call) -> str:
    dtype, shape = call.types[0]
    # ONNX's mean of nothing is 0, ours is 0 / 0
    if call.op == "reduce_mean" and not all(shape[axis] for axis in call.attrs["axes"]):
        total = reduced(emit, "ReduceSum", emit.cast(call.inputs[0], call.dtype), call.attrs["axes"], call.attrs["keepdims"])
        return emit("Div", total, emit.constant(0, call.dtype))
    computed = np.dtype(np.int32) if call.dtype.name in _NARROW else call.dtype
    if call.op == "reduce_sum" and computed == np.int32:
        # runtimes saturate sums out of range; casts wrap, like our sums
        computed = np.dtype(np.int64)
    if call.op == "reduce_mean" and dtype.kind in "biu":
        computed = np.dtype(np.float64)  # our means add integers in it
    x = call.inputs[0] if dtype == computed else emit.cast(call.inputs[0], computed)
    y = reduced(emit, _REDUCTIONS[call.op], x, call.attrs["axes"], call.attrs["keepdims"])
    return y if computed == call.dtype else emit.cast(y, call.dtype)


def reduced(emit: Emitter, op_type: str, x: str, axes: tuple[int, ...], keepdims: int) -> str:
    """A reduction; ReduceSum takes axes as an operand, the others since opset 18."""
    if not axes:
        return emit("Identity", x)
    if op_type == "ReduceSum" or emit.opset >= 18:
        return emit(op_type, x, emit.ints(axes), keepdims=int(keepdims))
    return emit(op_type, x, axes=list(axes), keepdims=int(keepdims))


@converts("argmax", "argmin")
def _arg(emit: Emitter, call: Call) -> str:
    x = call.inputs[0]
    if not is_real(call.types[0][0]):
        x = emit.cast(x, np.int32)
    op_type = {"argmax": "ArgMax", "argmin": "ArgMin"}[call.op]
    place = emit(op_type, x, axis=call.attrs["axis"], keepdims=int(call.attrs["keepdims"]))
    return emit.cast(place, np.int32)


@converts("sort", "topk")
def _order(emit: Emitter, call: Call) -> list[str]:
    axis, dtype = call.attrs["axis"], call.types[0][0]
    computed = np.dtype(np.int32) if dtype.name in _NARROW else dtype
    x = call.inputs[0] if computed == dtype else emit.cast(call.inputs[0], computed)
    count = emit.ints([call.shape[axis]])
    values, places = emit("TopK", x, count, results=2, axis=axis, largest=int(call.attrs["descending"]), sorted=1)
    return [values if computed == dtype else emit.cast(values, dtype), emit.cast(places, np.int32)]


@converts("cumsum")
def _cumsum(emit: Emitter, call: Call) -> str:
    rank = len(call.shape)
    axis = emit.constant(call.attrs["axis"] % rank if rank else 0, np.int64)
    exclusive, reverse = int(call.attrs["exclusive"]), int(call.attrs["reverse"])
    return calculated(emit, call, lambda x: emit("CumSum", x, axis, exclusive=exclusive, reverse=reverse))
