"""Tensors made from numbers."""

from collections.abc import Sequence
from typing import Any, Never

import numpy as np
from numpy.typing import DTypeLike

from .. import _core
from ..core import apply_const, ops
from ..core.tensor.array_method import as_tensor
from ..core.tensor.dtype import dtype_name
from ..core.tensor.shapes import IntsLike, as_int, as_ints
from ..core.tensor.shapes import broadcast_to as _broadcast_to
from ..core.tensor.shapes import full_like as _full_like
from ..device import Device
from ..tensor import Tensor
from ._docs import Operand

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
    """Makes a tensor whose elements are all ``value``.

    Parameters
    ----------
    shape : int, Tensor or sequence of int or Tensor
        Extents of the result: an int for a vector, or a sequence of ints and integer tensors.
    value : bool, int, float or Tensor
        A number or a tensor that broadcasts to shape.
    dtype : DTypeLike or None
        Data type of the result; None takes that of the value: float32, int32 or bool.
    device : str, Device or None
        None means the default device.

    Returns
    -------
    Tensor
        Tensor of the given shape and dtype.

    Raises
    ------
    ValueError
        For a negative extent.
    OverflowError
        For a value that an integer dtype cannot hold.

    Examples
    --------
    >>> from megengine import functional as F
    >>> F.full((2,), 1.5).numpy()
    array([1.5, 1.5], dtype=float32)
    >>> F.full((2,), 1).dtype, F.full((2,), True).dtype
    (dtype('int32'), dtype('bool'))
    """
    extents = as_ints(shape)
    if isinstance(value, Tensor):
        if dtype is not None:
            value = ops.cast(value, dtype=dtype_name(dtype))
        return on(device, _broadcast_to(value, extents))
    if dtype is None:
        dtype = "bool" if isinstance(value, bool | np.bool_) else "int32" if isinstance(value, int | np.integer) else "float32"
    return _filled(extents, value, dtype, device)


def _filled(
    shape: tuple[int, ...], value: float, dtype: DTypeLike, device: str | Device | None
) -> Tensor:
    for axis, extent in enumerate(shape):
        if extent < 0:
            raise ValueError(f"expect shape[{axis}] >= 0, got {extent}\n  why: shape {list(shape)} has a negative extent")
    name = dtype_name(dtype)
    _core.check_number(value, name)
    if name == "int64" and float(value) != value:  # digits that no double has
        return on(device, _broadcast_to(Tensor(value, dtype=name), shape))
    return ops.full(shape=shape, value=float(value), dtype=name, device=None if device is None else str(device))


def _check_one_shape(op: str, shape: object, more: tuple[object, ...]) -> None:
    if more:
        extents = ", ".join(map(repr, (shape, *more)))
        raise TypeError(f"{op}: {1 + len(more)} positional arguments, {extents}\n  fix: give the extents as one shape, {op}(({extents}))")


def zeros(
    shape: Shape, *more: Never, dtype: DTypeLike = "float32", device: str | Device | None = None
) -> Tensor:
    """Makes a tensor of zeros.

    Parameters
    ----------
    shape : int, Tensor or sequence of int or Tensor
        Extents of the result: an int for a vector, or a sequence of ints and integer tensors.
    *more : Never
        Not to be given: several extents are one sequence, such as ``(2, 3)``.
    dtype : DTypeLike
        Data type of the result, float32 by default.
    device : str, Device or None
        None means the default device.

    Returns
    -------
    Tensor
        Tensor of the given shape and dtype.

    Raises
    ------
    ValueError
        For a negative extent.
    TypeError
        For extents that are not one sequence.

    Examples
    --------
    >>> from megengine import functional as F
    >>> F.zeros((2, 2), dtype="int32").numpy()
    array([[0, 0],
           [0, 0]], dtype=int32)
    """
    _check_one_shape("zeros", shape, more)
    return _filled(as_ints(shape), 0.0, dtype, device)


def ones(
    shape: Shape, *more: Never, dtype: DTypeLike = "float32", device: str | Device | None = None
) -> Tensor:
    """Makes a tensor of ones.

    Parameters
    ----------
    shape : int, Tensor or sequence of int or Tensor
        Extents of the result: an int for a vector, or a sequence of ints and integer tensors.
    *more : Never
        Not to be given: several extents are one sequence, such as ``(2, 3)``.
    dtype : DTypeLike
        Data type of the result, float32 by default.
    device : str, Device or None
        None means the default device.

    Returns
    -------
    Tensor
        Tensor of the given shape and dtype.

    Raises
    ------
    ValueError
        For a negative extent.
    TypeError
        For extents that are not one sequence.

    Examples
    --------
    >>> from megengine import functional as F
    >>> F.ones(3).numpy()
    array([1., 1., 1.], dtype=float32)
    """
    _check_one_shape("ones", shape, more)
    return _filled(as_ints(shape), 1.0, dtype, device)


def full_like(inp: Tensor, value: int | float) -> Tensor:
    """Makes a tensor of the shape, dtype and device of ``inp`` whose elements are all ``value``.

    Parameters
    ----------
    inp : Tensor
        Tensor of any shape, whose shape, dtype and device are taken.
    value : int or float
        A number or a tensor that broadcasts to inp's shape; it is cast to inp's dtype.

    Returns
    -------
    Tensor
        The shape, dtype and device of ``inp``.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.full_like(Tensor([1, 2, 3]), 7.9).numpy()  # int32, like inp
    array([7, 7, 7], dtype=int32)
    """
    if isinstance(value, Tensor):
        return _broadcast_to(ops.cast(value, dtype=inp.dtype.name), inp._tuple_shape)
    _core.check_number(value, inp.dtype)
    return _full_like(inp, float(value))


def zeros_like(inp: Tensor) -> Tensor:
    """Makes a tensor of zeros of the shape, dtype and device of ``inp``.

    Parameters
    ----------
    inp : Tensor
        Tensor of any shape, whose shape, dtype and device are taken.

    Returns
    -------
    Tensor
        The shape, dtype and device of ``inp``.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.zeros_like(Tensor([1, 2, 3])).numpy()
    array([0, 0, 0], dtype=int32)
    """
    return _full_like(inp, 0.0)


def ones_like(inp: Tensor) -> Tensor:
    """Makes a tensor of ones of the shape, dtype and device of ``inp``.

    Parameters
    ----------
    inp : Tensor
        Tensor of any shape, whose shape, dtype and device are taken.

    Returns
    -------
    Tensor
        The shape, dtype and device of ``inp``.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.ones_like(Tensor([[0.5], [2.5]])).numpy()
    array([[1.],
           [1.]], dtype=float32)
    """
    return _full_like(inp, 1.0)


def eye(
    N: int | Sequence[int] | Tensor,
    M: int | None = None,
    *,
    dtype: DTypeLike = "float32",
    device: str | Device | None = None,
) -> Tensor:
    """Makes a matrix with ones on the diagonal and zeros elsewhere.

    Parameters
    ----------
    N : int, sequence of int or Tensor
        Number of rows, or the pair (rows, columns), or (rows,).
    M : int or None
        Number of columns; None means as many as rows.
    dtype : DTypeLike
        Data type of the result, float32 by default.
    device : str, Device or None
        None means the default device.

    Returns
    -------
    Tensor
        [rows, columns].

    Raises
    ------
    ValueError
        For more than two extents, or one below 0.

    Examples
    --------
    >>> from megengine import functional as F
    >>> F.eye(2, 3).numpy()
    array([[1., 0., 0.],
           [0., 1., 0.]], dtype=float32)
    """
    if isinstance(N, (tuple, list)) or getattr(N, "ndim", 0) == 1:
        extents = as_ints(N)
        if len(extents) > 2 or (len(extents) == 2 and M is not None):
            raise ValueError(f"eye: N must be rows, or the pair (rows, columns), got {extents} and M = {M}")
        N, M = extents[0], extents[1] if len(extents) == 2 else M
    n = as_int(N, "eye")
    m = n if M is None else as_int(M, "eye")
    if n < 0 or m < 0:
        raise ValueError(f"eye: [{n}, {m}] has a negative extent")
    array = np.eye(n, m, dtype=np.dtype("float32"))
    return on(device, _constant(array, dtype))


def _constant(array: np.ndarray, dtype: DTypeLike) -> Tensor:
    name = dtype_name(dtype)
    if name == "bfloat16":
        return apply_const(array.astype(np.float32), name)
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
    """Makes the vector ``start``, ``start + step``, ... up to ``stop``, which is excluded.

    Parameters
    ----------
    start : int, float or Tensor
        First element. With one argument that argument is ``stop``, and start is 0.
    stop : int, float, Tensor or None
        End of the vector, which is excluded.
    step : int, float or Tensor
        Difference of neighbouring elements, not 0.
    dtype : DTypeLike
        Data type of the result, float32 by default, for ints as well.
    device : str, Device or None
        None means the default device.

    Returns
    -------
    Tensor
        [ceil((stop - start) / step)].

    Raises
    ------
    ValueError
        For a step of 0.

    Examples
    --------
    >>> from megengine import functional as F
    >>> F.arange(3).numpy()
    array([0., 1., 2.], dtype=float32)
    >>> F.arange(5, 1, -2, dtype="int32").numpy()
    array([5, 3], dtype=int32)
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
    num: int | float | Tensor,
    *,
    dtype: DTypeLike = "float32",
    device: str | Device | None = None,
) -> Tensor:
    """Makes a vector of ``num`` evenly spaced values from ``start`` to ``stop``, both included.

    Parameters
    ----------
    start, stop : int, float or Tensor
        First and last element: numbers or 0-d tensors, to which gradients flow.
    num : int, float or Tensor
        Number of elements, at least 0; a float without a fraction will do.
    dtype : DTypeLike
        Data type of the result, float32 by default.
    device : str, Device or None
        None means the default device.

    Returns
    -------
    Tensor
        [num].

    Raises
    ------
    ValueError
        For num < 0.

    Examples
    --------
    >>> from megengine import functional as F
    >>> F.linspace(0, 1, 5).numpy()
    array([0.  , 0.25, 0.5 , 0.75, 1.  ], dtype=float32)
    """
    count = int(num) if isinstance(num, float) and num.is_integer() else as_int(num, "linspace: num")
    if count < 0:
        raise ValueError(f"linspace: num {count} is below 0")
    if isinstance(start, Tensor) or isinstance(
        stop, Tensor
    ):  # stays differentiable, and live in a trace
        weight = apply_const(np.linspace(0, 1, count, dtype=np.float32))
        values = ops.add(start, ops.mul(weight, ops.sub(stop, start)))
        return on(device, ops.cast(values, dtype=dtype_name(dtype)))
    return on(device, _constant(np.linspace(start, stop, count), dtype))


def complex(real: Operand, imag: Operand) -> Tensor:
    """Makes complex64 numbers from their real and imaginary parts.

    Parameters
    ----------
    real, imag : Tensor or number
        Shapes that broadcast; they are cast to float32.

    Returns
    -------
    Tensor
        The broadcast shape, complex64.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.complex(Tensor([1.0, 2.0]), Tensor(0.5)).numpy().tolist()
    [(1+0.5j), (2+0.5j)]
    """
    parts = [ops.cast(as_tensor(part), dtype="float32") for part in (real, imag)]
    shape = np.broadcast_shapes(*(part._tuple_shape for part in parts))
    return ops.complex(*(_broadcast_to(part, shape) for part in parts))


def real(complex: Tensor) -> Tensor:
    """Returns the real part of a complex64 tensor, in float32.

    Parameters
    ----------
    complex : Tensor
        Tensor of any shape, complex64.

    Returns
    -------
    Tensor
        The same shape, float32.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.real(F.complex(Tensor([1.0]), Tensor([2.0]))).numpy()
    array([1.], dtype=float32)
    """
    return ops.real(complex)


def imag(complex: Tensor) -> Tensor:
    """Returns the imaginary part of a complex64 tensor, in float32.

    Parameters
    ----------
    complex : Tensor
        Tensor of any shape, complex64.

    Returns
    -------
    Tensor
        The same shape, float32.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.imag(F.complex(Tensor([1.0]), Tensor([2.0]))).numpy()
    array([2.], dtype=float32)
    """
    return ops.imag(complex)


def polar(abs: Operand, angle: Operand) -> Tensor:
    """Makes complex64 numbers from their magnitudes and angles, ``abs * exp(1j * angle)``.

    Parameters
    ----------
    abs, angle : Tensor or number
        Float32, shapes that broadcast; angle is in radians.

    Returns
    -------
    Tensor
        The broadcast shape, complex64.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.polar(Tensor([2.0, 3.0]), Tensor(0.0)).numpy().tolist()
    [(2+0j), (3+0j)]
    """
    return complex(ops.mul(abs, ops.cos(angle)), ops.mul(abs, ops.sin(angle)))
