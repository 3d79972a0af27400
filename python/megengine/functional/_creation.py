"""Tensors made from numbers."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from .. import _core
from ..core import apply_const, ops
from ..core.tensor.array_method import as_tensor
from ..core.tensor.dtype import dtype_name
from ..core.tensor.host_names import named
from ..core.tensor.shapes import IntsLike, as_int, as_ints
from ..core.tensor.shapes import broadcast_to as _broadcast_to
from ..device import Device
from ..tensor import Tensor

__all__ = [
    "arange", "complex", "eye", "full", "full_like", "imag", "linspace", "ones", "ones_like",
    "polar", "real", "zeros", "zeros_like",
]  # fmt: skip

Shape = IntsLike  # ints, tensors, or a sequence that mixes them


def on(device: str | Device | None, x: Tensor) -> Tensor:
    """``x`` on ``device``; None leaves it where it is."""
    return x if device is None else x.to(device)


def full(
    shape: Shape,
    value: bool | int | float | Tensor,
    *,
    dtype: DTypeLike | None = None,
    device: str | Device | None = None,
) -> Tensor:
    """Every element is ``value``. dtype None takes the value's: float32, int32 or bool.

    >>> full((2,), 1.5).numpy()
    array([1.5, 1.5], dtype=float32)
    """
    extents = as_ints(shape)
    if isinstance(value, Tensor):
        if dtype is not None:
            value = ops.cast(value, dtype=dtype_name(dtype))
        return on(device, _broadcast_to(value, extents))
    if dtype is None:
        dtype = np.asarray(value).dtype
    return _filled(extents, float(value), dtype, device)


def _filled(
    shape: tuple[int, ...], value: float, dtype: DTypeLike, device: str | Device | None
) -> Tensor:
    for extent in shape:
        if extent < 0:
            raise ValueError(f"shape {list(shape)} has a negative extent")
    place = None if device is None else _core.find_device(str(device))
    made = ops.full(shape=shape, value=value, dtype=dtype_name(dtype), device=place)
    return made if device is None else named(made, str(device))


def zeros(
    shape: Shape, *, dtype: DTypeLike = "float32", device: str | Device | None = None
) -> Tensor:
    """Every element is 0."""
    return _filled(as_ints(shape), 0.0, dtype, device)


def ones(
    shape: Shape, *, dtype: DTypeLike = "float32", device: str | Device | None = None
) -> Tensor:
    """Every element is 1."""
    return _filled(as_ints(shape), 1.0, dtype, device)


def full_like(inp: Tensor, value: int | float) -> Tensor:
    """``value`` in the shape, dtype and device of ``inp``."""
    if isinstance(value, Tensor):
        return _broadcast_to(ops.cast(value, dtype=inp.dtype.name), inp._tuple_shape)
    return ops.full(shape=inp._tuple_shape, value=float(value), dtype=inp.dtype.name, device=inp)


def zeros_like(inp: Tensor) -> Tensor:
    """0 in the shape, dtype and device of ``inp``."""
    return ops.full(shape=inp._tuple_shape, value=0.0, dtype=inp.dtype.name, device=inp)


def ones_like(inp: Tensor) -> Tensor:
    """1 in the shape, dtype and device of ``inp``."""
    return ops.full(shape=inp._tuple_shape, value=1.0, dtype=inp.dtype.name, device=inp)


def eye(
    N: int | Sequence[int] | Tensor,
    M: int | None = None,
    *,
    dtype: DTypeLike = "float32",
    device: str | Device | None = None,
) -> Tensor:
    """Ones on the diagonal of an [N, M] matrix; M defaults to N."""
    if isinstance(N, (tuple, list)) or getattr(N, "ndim", 0) == 1:
        N, M = as_ints(N)
    n = as_int(N, "eye")
    array = np.eye(n, n if M is None else as_int(M, "eye"), dtype=np.dtype("float32"))
    return on(device, _constant(array, dtype))


def _constant(array: np.ndarray, dtype: DTypeLike) -> Tensor:
    name = dtype_name(dtype)
    if name == "bfloat16":
        return ops.cast(apply_const(array.astype(np.float32)), dtype=name)
    return apply_const(array.astype(name))


def _number(value: Any) -> Any:
    return value.item() if isinstance(value, (Tensor, np.ndarray)) else value


def arange(
    start: int | float | Tensor = 0,
    stop: int | float | Tensor | None = None,
    step: int | float | Tensor = 1,
    *,
    dtype: DTypeLike = "float32",
    device: str | Device | None = None,
) -> Tensor:
    """start, start + step, ... below stop. With one argument that is stop, and start is 0.

    >>> arange(5, 1, -2).numpy()
    array([5., 3.], dtype=float32)
    """
    if stop is None:
        start, stop = 0, start
    first, last, by = _number(start), _number(stop), _number(step)
    if by == 0:
        raise ValueError("arange: step is 0")
    count = int(np.ceil((last - first) / by))
    values = first + by * np.arange(max(count, 0), dtype=np.float64)
    return on(device, _constant(values, dtype))


def linspace(
    start: int | float | Tensor,
    stop: int | float | Tensor,
    num: int | Tensor,
    *,
    dtype: DTypeLike = "float32",
    device: str | Device | None = None,
) -> Tensor:
    """``num`` evenly spaced values from start to stop, both included."""
    count = as_int(num, "linspace: num")
    if count < 1:
        raise ValueError(f"linspace: num {count} is below 1")
    if isinstance(start, Tensor) or isinstance(
        stop, Tensor
    ):  # stays differentiable, and live in a trace
        weight = apply_const(np.linspace(0, 1, count, dtype=np.float32))
        values = ops.add(start, ops.mul(weight, ops.sub(stop, start)))
        return on(device, ops.cast(values, dtype=dtype_name(dtype)))
    return on(device, _constant(np.linspace(start, stop, count), dtype))


def complex(real: Tensor, imag: Tensor) -> Tensor:
    """complex64 from a real and an imaginary part, which broadcast."""
    parts = [ops.cast(as_tensor(part), dtype="float32") for part in (real, imag)]
    shape = np.broadcast_shapes(*(part._tuple_shape for part in parts))
    return ops.complex(*(_broadcast_to(part, shape) for part in parts))


def real(complex: Tensor) -> Tensor:
    """Real part of a complex64 tensor, float32."""
    return ops.real(complex)


def imag(complex: Tensor) -> Tensor:
    """Imaginary part of a complex64 tensor, float32."""
    return ops.imag(complex)


def polar(abs: Tensor, angle: Tensor) -> Tensor:
    """complex64 of the given magnitude and angle (radians)."""
    return complex(ops.mul(abs, ops.cos(angle)), ops.mul(abs, ops.sin(angle)))
