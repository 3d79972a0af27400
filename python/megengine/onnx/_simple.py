"""Nodes that are functions of `megengine.functional` as they stand. Other operators, and those for
which the function here returns None, are calls of counterparts in `megengine.onnx.functions`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from .. import functional as F
from .. import fx
from ..core._registry import enters
from ._builder import Builder, Operand
from ._folding import OF_SIZES
from ._of_bytes import linear_sums, mover_of_bytes, real_sums, real_zeros, rounded_sums
from ._proto import element_type
from ._read import name_of as name_of_op
from .functions import COUNTERPARTS, quantized, recurrent
from .functions._table import axis_of, dtype_of
from .functions.elementwise import cast
from .functions.narrow import name_of


@dataclass
class Application:
    """A node with its operands, about to become nodes of ours."""

    builder: Builder
    node: Any
    inputs: list[Any]  # Operands; None, as `input` says, for those left out between others
    attrs: dict[str, Any]
    values: dict[str, Operand]

    def __post_init__(self) -> None:
        self.inputs = list(self.inputs)
        while self.inputs and self.inputs[-1] is None:
            self.inputs.pop()

    @property
    def op(self) -> str:
        """The operator, as the tables have it."""
        return name_of_op(self.node)

    @property
    def result(self) -> Operand:
        return self.values[self.node.output[0]]

    def input(self, place: int) -> Operand | None:
        return self.inputs[place] if place < len(self.inputs) else None

    def known(self, place: int) -> Any:
        """The numbers of an operand; None if there is none, ``...`` where they are not known yet."""
        operand = self.input(place)
        if operand is None:
            return None
        return operand.plain() if operand.array is not None else ...

    @cached_property
    def is_of_sizes(self) -> bool:
        """Whether the result follows from extents and constants alone."""
        if self.op in ("Shape", "Size"):
            return True
        if self.op not in OF_SIZES:
            return False
        plain = COUNTERPARTS[self.op].plain  # known operands in these places are numbers of the call
        tensors = [o for place, o in enumerate(self.inputs) if o is not None and not (place in plain and o.array is not None)]
        return any(o.is_of_sizes for o in tensors) and all(o.is_of_sizes or o.is_small for o in tensors)

    @property
    def narrow(self) -> int:
        """TensorProto's number of the result's dtype if that is one of narrow numbers, else 0."""
        op = self.op
        if op == "Constant":
            found = next((attribute.t.data_type for attribute in self.node.attribute if attribute.name == "value"), 0)
            return found if found and name_of(found) else 0
        if op in ("Cast", "QuantizeLinear"):
            element_type = self.attrs.get("to", self.attrs.get("output_dtype", 0))
            return element_type if name_of(element_type) else 0
        place = 1 if op == "CastLike" else 0
        operand = self.input(place) if op in _KEEPING_DTYPE else None
        return 0 if operand is None else operand.narrow

    @property
    def gives_tensors(self) -> bool:
        """Whether results are tensors; otherwise they are sequences, or optional values."""
        if self.op in ("Identity", "OptionalGetElement"):
            return bool(self.inputs[0].is_tensor)
        return self.op not in _GIVING_OTHERS

    def tensor(self, place: int) -> fx.Node:
        return self._tensor_of(self.inputs[place])

    def tensors(self) -> list[fx.Node]:
        return [self._tensor_of(operand) for operand in self.inputs]

    def _tensor_of(self, operand: Operand) -> fx.Node:
        return self.builder.made(operand) if self.is_of_sizes else self.builder.tensor(operand)

    def call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> fx.Node:
        is_one = len(self.node.output) == 1 and not self.gives_several()
        return self.builder.call(function, *args, name=self.node.output[0] if is_one else "", **kwargs)

    def gives_several(self) -> bool:
        """Whether the counterpart returns a sequence even if one result is wanted."""
        return self.op in _SEQUENCES

    def converted(self) -> fx.Node | Operand:
        """Returns the results by the table of simple operators, else by the counterpart."""
        made = SIMPLE[self.op](self) if self.op in SIMPLE else None
        return self.generic() if made is None else made

    def number_or_tensor(self, place: int) -> Any:
        """A 0-d constant as a number, if the other operand is a tensor."""
        operand, others = self.inputs[place], [o for k, o in enumerate(self.inputs) if k != place and o is not None]
        is_number = operand.array is not None and operand.array.ndim == 0 and not operand.is_stored
        is_safe = is_number and operand.array.dtype.kind in "if" and any(o.array is None for o in others)
        return operand.plain() if is_safe else self._tensor_of(operand)

    def generic(self) -> fx.Node:
        """A call of the counterpart, with the attributes as keywords."""
        row = COUNTERPARTS[self.op]
        args: list[Any] = []
        for place, operand in enumerate(self.inputs):
            if operand is None:
                args.append(None)
            elif place in row.plain and operand.array is not None and operand.array.ndim <= 1:
                args.append(operand.plain())
            elif row.takes_numbers:
                args.append(self.number_or_tensor(place))
            else:
                args.append(self._tensor_of(operand))
        kwargs = dict(self.attrs)
        if row.counts_results and len(self.node.output) > 1:
            kwargs["results"] = len(self.node.output)
        return self.call(row.function, *args, **kwargs)


# Ops on narrow numbers: the result has the dtype of an operand.
_KEEPING_DTYPE = frozenset({
    "CastLike", "Concat", "Expand", "Flatten", "Gather", "GatherElements", "Identity", "Pad", "Reshape", "Slice", "Split", "Squeeze", "Tile",
    "Transpose", "Unsqueeze", "Where",
})  # fmt: skip
_GIVING_OTHERS = frozenset({"SequenceConstruct", "SequenceEmpty", "SequenceInsert", "SequenceErase", "SplitToSequence", "Optional"})
_SEQUENCES = frozenset({
    "Split", "TopK", "Unique", "RNN", "GRU", "LSTM", "DynamicQuantizeLinear", "com.microsoft.DynamicQuantizeLSTM",
})  # fmt: skip

SIMPLE: dict[str, Callable[[Application], fx.Node | Operand | None]] = {}


def simple(*ops: str) -> Callable[..., Any]:
    """Puts a converter into the table."""
    return enters(SIMPLE, ops)


# -- nothing to compute ---------------------------------------------------------------------------


@simple("Identity")
def _identity(a: Application) -> Operand:
    return a.inputs[0]


@simple("Dropout")
def _dropout(a: Application) -> Operand | None:
    return a.inputs[0] if len(a.node.output) == 1 and not a.known(2) else None


# -- element-wise ---------------------------------------------------------------------------------

_OF_REALS = {"Div": F.div, "Pow": F.pow}


@simple(*_OF_REALS)
def _of_reals(a: Application) -> fx.Node | None:
    if not a.inputs[0].is_float or a.inputs[1].dtype != a.inputs[0].dtype:
        return None
    return a.call(_OF_REALS[a.node.op_type], a.number_or_tensor(0), a.number_or_tensor(1))


@simple("Max", "Min", "Sum")
def _of_two(a: Application) -> fx.Node | None:
    function = {"Max": F.maximum, "Min": F.minimum, "Sum": F.add}[a.node.op_type]
    return a.call(function, a.number_or_tensor(0), a.number_or_tensor(1)) if len(a.inputs) == 2 else None


@simple("Clip")
def _clip(a: Application) -> fx.Node | None:
    bounds = [a.known(1), a.known(2)]
    if any(bound is ... or isinstance(bound, tuple) for bound in bounds) or bounds == [None, None] or not a.inputs[0].is_float:
        return None
    if None not in bounds and bounds[0] > bounds[1]:
        return None
    return a.call(F.clip, a.tensor(0), *bounds)


@simple("Pow")
def _power(a: Application) -> fx.Node | None:
    """A known exponent is a number of the call, though it is a tensor of the file: many have formulas of their own."""
    exponent = a.inputs[1].array
    if exponent is None or exponent.size != 1 or exponent.ndim > len(a.inputs[0].shape or ()):
        return None
    return a.call(COUNTERPARTS["Pow"].function, a.tensor(0), exponent.reshape(()).item())


@simple("Cast")
def _cast(a: Application) -> Operand | fx.Node | None:
    dtype = dtype_of(a.attrs["to"])
    if name_of(a.attrs["to"]):
        return None
    if a.inputs[0].dtype == dtype:
        return a.inputs[0]
    return a.builder.graph.call_method("astype", (a.tensor(0), dtype))


@simple("CastLike")
def _cast_like(a: Application) -> fx.Node | None:
    """Converts CastLike; the dtype of narrow numbers is known only while a model is loaded."""
    like = a.inputs[1].narrow
    return a.call(cast, a.tensor(0), to=like, **a.attrs) if like else None


@simple("QuantizeLinear")
def _quantize_linear(a: Application) -> fx.Node | None:
    """Gives the result the dtype of the zero point; sums of bytes are rounded where they are made."""
    if len(a.inputs) > 2 and a.inputs[2] is not None and a.inputs[2].narrow:
        a.attrs["output_dtype"] = a.inputs[2].narrow
    mover = mover_of_bytes(a)
    made = rounded_sums(a) if mover is None else mover.converted()
    args = real_zeros(a) if made is None else None
    if args is None:
        return made
    attrs = {**a.attrs, "output_dtype": a.attrs.get("output_dtype") or element_type(a.inputs[2].dtype)}
    return a.call(quantized.quantize_linear, *args, **attrs)


@simple("DequantizeLinear")
def _dequantize_linear(a: Application) -> fx.Node | None:
    args = real_zeros(a)
    return None if args is None else a.call(quantized.dequantize_linear, *args, **a.attrs)


@simple("QLinearConv", "QLinearMatMul")
def _sums_of_bytes(a: Application) -> fx.Node | None:
    return linear_sums(a)


@simple("LeakyRelu")
def _leaky_relu(a: Application) -> fx.Node:
    return a.call(F.nn.leaky_relu, a.tensor(0), a.attrs.get("alpha", 0.01))


@simple("Gelu")
def _gelu(a: Application) -> fx.Node | None:
    return a.call(F.nn.gelu, a.tensor(0)) if a.attrs.get("approximate", "none") == "none" else None


# -- arrangement ----------------------------------------------------------------------------------


def _is_full(values: Any) -> bool:
    return isinstance(values, tuple) and len(values) > 0


@simple("Reshape")
def _reshape(a: Application) -> fx.Node | None:
    """Converts Reshape; extents of 0 are those of the operand."""
    shape = _target_shape(a.inputs[1])
    if shape is None or 0 in (a.inputs[0].shape or ()):
        return None
    own = a.inputs[0].shape or ()
    if not a.attrs.get("allowzero"):
        shape = tuple(own[place] if extent == 0 and place < len(own) else extent for place, extent in enumerate(shape))
    return a.call(F.reshape, a.tensor(0), shape) if 0 not in shape and None not in shape else None


def _target_shape(operand: Operand) -> tuple[int, ...] | None:
    """Returns the extents, -1 for one that is not known: it is what is left. None if that does not say them all."""
    if operand.array is not None:
        return operand.plain()
    partial = operand.partial
    if partial is None or np.ma.getmaskarray(partial).sum() != 1 or (partial == -1).any():
        return None
    return tuple(partial.filled(-1).tolist())


@simple("Flatten")
def _flatten(a: Application) -> fx.Node | None:
    shape = a.inputs[0].shape
    return a.call(F.flatten, a.tensor(0), 1) if a.attrs.get("axis", 1) == 1 and shape and len(shape) > 1 else None


@simple("Transpose")
def _transpose(a: Application) -> fx.Node | None:
    return a.call(F.transpose, a.tensor(0), tuple(a.attrs["perm"])) if _is_full(a.attrs.get("perm")) else None


@simple("Concat")
def _concat(a: Application) -> fx.Node:
    return a.call(F.concat, a.tensors(), axis=a.attrs["axis"])


@simple("Squeeze", "Unsqueeze")
def _one_axis(a: Application) -> fx.Node | None:
    axes = a.known(1)
    if not _is_full(axes) or len(axes) != 1:
        return None
    return a.call(F.squeeze if a.node.op_type == "Squeeze" else F.expand_dims, a.tensor(0), axes[0])


@simple("Slice")
def _slice(a: Application) -> fx.Node | None:
    """Slices as Python does if all steps are positive."""
    starts, ends, axes, steps = (a.known(place) for place in range(1, 5))
    shape = a.inputs[0].shape
    if ... in (starts, ends, axes, steps) or shape is None:
        return None
    axes = tuple(range(len(starts))) if axes is None else axes
    steps = (1,) * len(starts) if steps is None else steps
    if any(step <= 0 for step in steps):
        return None
    cut = [slice(None)] * len(shape)
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        axis = axis_of(axis, len(shape))
        if shape[axis] is None:
            return None
        start, end, step = slice(start, end, step).indices(shape[axis])
        is_all = (start, end, step) == (0, shape[axis], 1)
        cut[axis] = slice(None) if is_all else slice(start, end) if step == 1 else slice(start, end, step)
    while cut and cut[-1] == slice(None):
        cut.pop()
    return a.call(operator.getitem, a.tensor(0), tuple(cut)) if cut else None


@simple("ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin")
def _reduce(a: Application) -> fx.Node | None:
    axes = a.attrs.get("axes", a.known(1))
    if not _is_full(axes) or a.inputs[0].dtype != "float32":  # the mean of no elements must be NaN
        return None
    function = {"ReduceMean": F.mean, "ReduceSum": F.sum, "ReduceMax": F.max, "ReduceMin": F.min}[a.node.op_type]
    return a.call(function, a.tensor(0), axis=tuple(axes), keepdims=bool(a.attrs.get("keepdims", 1)))


# -- layers ---------------------------------------------------------------------------------------


def _even_padding(a: Application, dims: int) -> tuple[int, ...] | None:
    """Returns the padding of an axis if both sides have the same."""
    pads = tuple(a.attrs.get("pads", (0,) * 2 * dims))
    is_even = a.attrs.get("auto_pad", "NOTSET") in ("NOTSET", "VALID") and pads[:dims] == pads[dims:]
    return pads[:dims] if is_even and min(pads, default=0) >= 0 else None


@simple("Conv")
def _conv(a: Application) -> fx.Node | None:
    """Converts Conv; here weights of groups have a leading axis for these, and biases the axes of
    the result.
    """
    if (of_bytes := real_sums(a)) is not None:
        return of_bytes
    w, bias, groups = a.inputs[1], a.input(2), a.attrs.get("group", 1)
    dims = len(w.shape or ()) - 2
    padding = _even_padding(a, dims) if 1 <= dims <= 3 else None
    if padding is None or w.array is None or (bias is not None and bias.array is None):
        return None
    function = getattr(F.nn, f"conv{dims}d")
    weight = a.builder.shaped(w, w.shape if groups == 1 else (groups, w.shape[0] // groups, *w.shape[1:]))
    more = [] if bias is None else [a.builder.shaped(bias, (1, w.shape[0]) + (1,) * dims)]
    spread: Callable[[str], Any] = lambda name: _window(a.attrs.get(name, (1,) * dims))  # noqa: E731
    window = {"stride": spread("strides"), "padding": _window(padding), "dilation": spread("dilations"), "groups": groups}
    return a.call(function, a.tensor(0), weight, *more, **window)


def _window(values: Any) -> Any:
    """Returns one number for one axis."""
    values = tuple(values)
    return values[0] if len(values) == 1 else values


@simple("RNN", "GRU", "LSTM")
def _recurrent(a: Application) -> fx.Node | None:
    """Converts recurrent layers; constant weights are stored in the form of our op, once for each
    direction.
    """
    op, (w, r, b) = a.node.op_type, (a.input(place) for place in (1, 2, 3))
    directions = 2 if a.attrs.get("direction") == "bidirectional" else 1
    modes = [recurrent.mode_of(op, number, **a.attrs) for number in range(directions)]
    if None in modes or not _have_full_length(a) or a.input(7) is not None or w is None or r is None:
        return None
    if any(operand is not None and operand.array is None for operand in (w, r, b)):
        return None
    weights = [_laid_out(a.builder, op, number, w, r, b) for number in range(directions)]
    states = [a.input(place) and a.tensor(place) for place in ((5, 6) if op == "LSTM" else (5,))]
    more = {key: a.attrs[key] for key in ("direction", "layout") if key in a.attrs}
    return a.call(recurrent.layers, a.tensor(0), states, weights, modes=modes, **more)


def _have_full_length(a: Application) -> bool:
    """Whether all sequences of a batch are known to have full length."""
    lengths, shape = a.input(4), a.inputs[0].shape or (None, None)
    times = shape[1 if a.attrs.get("layout") else 0]
    return lengths is None or (lengths.array is not None and times is not None and bool((lengths.array >= times).all()))


def _laid_out(builder: Builder, op: str, number: int, w: Operand, r: Operand, b: Operand | None) -> list[fx.Node | None]:
    """Stores weights and biases of a direction, once for all nodes that share them."""
    key = (op, number, w.name, r.name, b and b.name)
    if key not in builder.laid_out:
        arrays = list(recurrent.laid_out(op, number, w.array, r.array, b and b.array, np.concatenate))
        if op != "GRU" and b is not None:  # other cells add both biases
            arrays[2:] = [arrays[2] + arrays[3], None]
        names = [w.name, r.name, *((b.name, f"{b.name}_hidden") if b is not None else ("", ""))]
        names = [f"{name}_reverse" if number else name for name in names]
        builder.laid_out[key] = [None if array is None else builder.store(name, array) for name, array in zip(names, arrays, strict=True)]
    return builder.laid_out[key]


@simple("com.microsoft.DynamicQuantizeLSTM")
def _recurrent_of_8_bits(a: Application) -> fx.Node | None:
    """Converts recurrent layers of 8 bits. Constant weights stay bytes where our op takes them;
    others are stored as real numbers, so that no call converts them.
    """
    known: list[Any] = [operand and operand.array for operand in map(a.input, (1, 8, 9, 2, 10, 11))]
    if any(array is None for array in known):
        return None
    b = a.input(3)
    directions = 2 if a.attrs.get("direction") == "bidirectional" else 1
    modes = [recurrent.mode_of("LSTM", number, **a.attrs) for number in range(directions)]
    states = [a.input(place) and a.tensor(place) for place in (5, 6)]
    more = {key: a.attrs[key] for key in ("direction",) if key in a.attrs}
    is_whole = None not in modes and _have_full_length(a) and a.input(7) is None and (b is None or b.array is not None)
    if is_whole and all(array.dtype == np.int8 for array in known[::3]) and not known[2].any() and not known[5].any():
        rows = [_bytes_laid_out(a, number, b) for number in range(directions)]
        return a.call(recurrent.layers_of_bytes, a.tensor(0), states, rows, **more)
    w, r = (replace(a.inputs[k], array=recurrent.real_weights(*rows)) for k, rows in ((1, known[:3]), (2, known[3:])))
    if is_whole:
        rows = [_laid_out(a.builder, "LSTM", number, w, r, b) for number in range(directions)]
        return a.call(recurrent.layers, a.tensor(0), states, rows, modes=modes, rounded=True, **more)
    weights = [a.builder.store(operand.name, operand.array) for operand in (w, r)]
    others = [a.input(place) and a.tensor(place) for place in range(3, 8)]
    return a.call(recurrent.lstm_of_rounded, a.tensor(0), *weights, *others, **a.attrs)


def _bytes_laid_out(a: Application, number: int, b: Operand | None) -> list[fx.Node | None]:
    w, r, w_scale, r_scale = (a.inputs[place] for place in (1, 2, 8, 10))
    key = ("DynamicQuantizeLSTM", number, *(operand.name for operand in (w, r, w_scale, r_scale)), b and b.name)
    if key not in a.builder.laid_out:
        arrays = recurrent.bytes_laid_out(number, w.array, w_scale.array, r.array, r_scale.array, None if b is None else b.array)
        names = [w.name, f"{w.name}_columns", w_scale.name, r.name, r_scale.name, b.name if b is not None else f"{r.name}_bias"]
        names = [f"{name}_reverse" if number else name for name in names]
        a.builder.laid_out[key] = [a.builder.store(name, array) for name, array in zip(names, arrays, strict=True)]
    return a.builder.laid_out[key]


@simple("MaxPool", "AveragePool")
def _pool(a: Application) -> fx.Node | None:
    kernel = tuple(a.attrs["kernel_shape"])
    padding = _even_padding(a, len(kernel))
    plain = len(kernel) == 2 and padding is not None and all(p < k for p, k in zip(padding, kernel, strict=True))
    plain = plain and not a.attrs.get("ceil_mode") and set(a.attrs.get("dilations", (1,))) == {1} and len(a.node.output) == 1
    if not plain or not a.inputs[0].is_float:
        return None
    window = (kernel, tuple(a.attrs.get("strides", (1, 1))), padding)
    if a.node.op_type == "MaxPool":
        return a.call(F.nn.max_pool2d, a.tensor(0), *window)
    mode = "average" if a.attrs.get("count_include_pad") else "average_count_exclude_padding"
    return a.call(F.nn.avg_pool2d, a.tensor(0), *window, mode)


@simple("BatchNormalization")
def _batch_norm(a: Application) -> fx.Node | None:
    if a.inputs[0].dtype == "float64" or a.attrs.get("training_mode") or len(a.node.output) > 1:
        return None
    x, weight, bias, mean, var = a.tensors()
    return a.call(F.nn.batch_norm, x, mean, var, weight, bias, eps=a.attrs.get("epsilon", 1e-5))


@simple("LayerNormalization")
def _layer_norm(a: Application) -> fx.Node | None:
    scale, axis = a.inputs[1], a.attrs.get("axis", -1)
    if a.inputs[0].dtype == "float64" or len(a.node.output) > 1 or len(a.inputs) < 3 or scale.shape is None or axis >= 0 or len(scale.shape) != -axis:
        return None
    x, weight, bias = a.tensors()
    return a.call(F.nn.layer_norm, x, scale.shape, True, weight, bias, a.attrs.get("epsilon", 1e-5))


@simple("Softmax", "LogSoftmax")
def _softmax(a: Application) -> fx.Node | None:
    if a.inputs[0].dtype == "float64":
        return None
    return a.call(F.nn.softmax if a.node.op_type == "Softmax" else F.nn.logsoftmax, a.tensor(0), a.attrs.get("axis", -1))


@simple("MatMul")
def _matmul(a: Application) -> fx.Node | None:
    if (of_bytes := real_sums(a)) is not None:
        return of_bytes
    shapes = [operand.shape for operand in a.inputs]
    if a.inputs[0].dtype in ("int64", "float64"):
        return None
    return a.call(F.matmul, *a.tensors()) if None not in shapes and all(len(shape) > 1 for shape in shapes) else None


@simple("MatMulInteger")
def _matmul_of_bytes(a: Application) -> fx.Node | None:
    """A constant right factor is stored as int8, with the sums of its columns."""
    b, zero, ranks = a.inputs[1], a.input(3), [len(operand.shape or ()) for operand in a.inputs[:2]]
    if b.array is None or min(ranks) < 2 or (zero is not None and (zero.array is None or zero.array.ndim > 1)):
        return None
    key = ("MatMulInteger", b.name, zero and zero.name)
    if key not in a.builder.laid_out:
        names = (b.name, f"{b.name}_columns", f"{b.name}_zero")
        arrays = quantized.signed_factor(b.array, None if zero is None else zero.array)
        a.builder.laid_out[key] = [None if array is None else a.builder.store(name, array) for name, array in zip(names, arrays, strict=True)]
    return a.call(quantized.times_bytes, a.tensor(0), *a.builder.laid_out[key], a.input(2) and a.tensor(2))


@simple("Gemm")
def _gemm(a: Application) -> fx.Node | None:
    if (of_bytes := real_sums(a)) is not None:
        return of_bytes
    bias, columns = a.input(2), a.inputs[1].shape
    fits = a.inputs[0].dtype != "float64" and a.attrs.get("alpha", 1) == a.attrs.get("beta", 1) == 1 and not a.attrs.get("transA") and a.attrs.get("transB")
    if not fits or columns is None or (bias is not None and bias.shape != columns[:1]):
        return None
    return a.call(F.nn.linear, *a.tensors())
