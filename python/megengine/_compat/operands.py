"""Conversion of operands, under the names that older programs import."""

import math
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import numpy as np

from .._core import apply_const, custom_apply
from .._core import convert_inputs as _convert_inputs
from ..core import ops
from ..core._telling import no_effect
from ..core.op_objects import OpDef
from ..core.tensor.dtype import dtype_name
from ..core.tensor.elemwise_modes import function_of
from ..core.tensor.shapes import as_ints as make_shape_tuple
from ..tensor import Tensor
from .builtin import Composed

__all__ = [
    "astensor1d", "convert_inputs", "convert_single_value", "dtype_promotion", "get_device", "isscalar", "make_shape_tuple", "result_type", "subgraph",
    "subgraph_fn",
]  # fmt: skip


def convert_single_value(v: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """``v`` as a tensor of ``dtype`` on ``device``."""
    if not isinstance(v, Tensor):
        v = apply_const(np.asarray(v))
    if dtype is not None and v.dtype != np.dtype(dtype_name(dtype)):
        v = ops.cast(v, dtype=dtype_name(dtype))
    return v if device is None else v.to(device)


def convert_inputs(*args: Any, device: Any = None) -> tuple[Tensor | None, ...]:
    """All operands as tensors of their common dtype; None stays None."""
    given = [a for a in args if a is not None]
    converted = iter(_convert_inputs(*given))
    out = tuple(None if a is None else next(converted) for a in args)
    return out if device is None else tuple(a if a is None else a.to(device) for a in out)


def result_type(*args: Any) -> np.dtype:
    """Returns the common dtype of the operands."""
    return _convert_inputs(*args)[0].dtype


def dtype_promotion(operands: Sequence[Any]) -> np.dtype:
    """Returns the common dtype of these operands."""
    return result_type(*operands)


def isscalar(x: Any) -> bool:
    """Whether it is a number (or text) of Python or NumPy, or a 0-d tensor; a 0-d array is none."""
    return x._tuple_shape == () if isinstance(x, Tensor) else bool(np.isscalar(x))


def get_device(operands: Any) -> Any:
    """Returns the device of the first tensor among ``operands``. TypeError if there is none."""
    for x in [operands] if isinstance(operands, Tensor) else operands:
        if isinstance(x, Tensor):
            return x.device
    raise TypeError("get_device: no tensor among the operands")


def astensor1d(x: Any, *reference: Any, dtype: Any = None, device: Any = None) -> Tensor:
    """``x`` (int, sequence or tensor) as a 1-d tensor."""
    if isinstance(x, (list, tuple)) and any(isinstance(v, Tensor) for v in x):
        parts = [
            ops.reshape(v, shape=(-1 if v.ndim else 1,)) if isinstance(v, Tensor) else v for v in x
        ]
        x = np.concatenate(
            [np.atleast_1d(p.numpy() if isinstance(p, Tensor) else p) for p in parts]
        )
    y = convert_single_value(x, dtype=dtype, device=device)
    return ops.reshape(y, shape=(math.prod(y._tuple_shape),)) if y.ndim != 1 else y


_SYMBOLS = {
    ("+", 2): "add", ("-", 2): "sub", ("-", 1): "neg", ("*", 2): "mul", ("/", 2): "true_div", ("//", 2): "floor_div",
    ("**", 2): "pow", ("max", 2): "maximum", ("min", 2): "minimum", ("additive", 2): "add", ("fma3", 3): "fma3",
    ("fma4", 4): "fuse_mul_add4", (">", 2): "gt", (">=", 2): "geq", ("<", 2): "lt", ("<=", 2): "leq", ("==", 2): "eq",
}  # fmt: skip


def _applied(dtype: str, device: Any) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The arguments that a function of `subgraph_fn` builds with: ``f(op, *operands)`` and
    ``c(value, dtype, device)``.
    """
    own_dtype, own_device = dtype, device

    def apply(op: Any, *operands: Any) -> Any:
        if not isinstance(op, str):
            out = op(*operands)
            return out[0] if isinstance(out, list) and len(out) == 1 else out
        return function_of(_SYMBOLS.get((op, len(operands)), op))(*operands)

    def constant(value: Any, dtype: Any = None, device: Any = None) -> Tensor:
        made = convert_single_value(value, dtype=own_dtype if dtype is None else dtype, device=device or own_device)
        return made if made.ndim else ops.reshape(made, shape=(1,))

    return apply, constant


def subgraph(name: str, *args: Any, **kwargs: Any) -> Callable[[Callable[..., Any]], Callable[[], OpDef]]:
    """Turns a builder into a function without arguments that returns its op for ``apply``; see
    `subgraph_fn`.
    """
    decorate = subgraph_fn(name, *args, **kwargs)

    def decorated(function: Callable[..., Any]) -> Callable[[], OpDef]:
        op = Composed(name, decorate(function))
        return lambda: op

    return decorated


def subgraph_fn(
    name: str,
    dtype: Any,
    device: Any,
    nr_inputs: int,
    gopt_level: int | None = None,
    jit_fusion: bool = False,
    custom_grad: bool = False,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: an op of ``nr_inputs`` tensors, composed of others; it is recorded as its parts, which traces may join.

    The function gets (inputs, f, c). ``f(op, *operands)`` applies "+", "*", "relu", any name of an element-wise op, or
    an op of `core.ops.builtin`; ``c(value, dtype=None, device=None)`` is a constant, a number one of shape (1,), by default of the
    op's dtype and device. It returns (outputs, whether each has a gradient); the op gives a
    tuple. With custom_grad the function yields the outputs, is sent the gradients of all (``dys = yield outputs``), and yields
    those of the inputs.
    gopt_level and jit_fusion warn: optimization belongs to the trace around.
    """
    no_effect("subgraph_fn", "optimization belongs to the trace around", gopt_level=gopt_level, jit_fusion=jit_fusion)
    apply, constant = _applied(dtype_name(dtype), device)

    def with_own_gradient(function: Callable[..., Any], inputs: tuple[Any, ...]) -> Any:
        steps = function(list(inputs), apply, constant)
        outputs = list(next(steps))

        def backward(grads: Sequence[Any]) -> list[Any]:
            known = [ops.mul(y, 0.0) if dy is None else dy for y, dy in zip(outputs, grads, strict=True)]
            return list(steps.send(known))

        return tuple(custom_apply(list(inputs), outputs, backward))

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def op(*inputs: Any) -> Any:
            if len(inputs) != nr_inputs:
                raise TypeError(f"{name}: {len(inputs)} operands, {nr_inputs} wanted")
            if custom_grad:
                return with_own_gradient(function, inputs)
            outputs, has_gradient = function(list(inputs), apply, constant)
            return tuple(y if has else y.detach() for y, has in zip(outputs, has_gradient, strict=True))

        return op

    return decorate
