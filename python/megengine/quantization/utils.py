"""Quantization parameters, and rounding to the grid of a quantized dtype with a straight-through gradient."""

from __future__ import annotations

import abc
from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import Any

import numpy as np

from ..autodiff import Function
from ..core import ops
from ..core.tensor.dtype import (
    QuantDtypeMeta,
    _builtin_quant_dtypes,
    create_quantized_dtype,
)
from ..tensor import Tensor

__all__ = [
    "LSQParams",
    "QParams",
    "QParamsModuleMixin",
    "QuantMode",
    "Round",
    "create_qparams",
    "fake_quant_bias",
    "fake_quant_tensor",
    "lsq_forward",
    "register_method_to_class",
    "tqt_forward",
]


class Round(Function):
    """Rounds, halves away from 0; the gradient passes straight through."""

    def forward(self, x: Tensor) -> Tensor:
        return ops.round(x)

    def backward(self, output_grads: Tensor) -> Tensor:
        return output_grads


def tqt_forward(qmin: int, qmax: int, inp: Tensor, scale: Tensor) -> Tensor:
    """Rounds ``inp`` to ``q * 2 ** scale`` with q in [qmin, qmax]; differentiable in inp and scale.

    Parameters
    ----------
    qmin, qmax : int
        Smallest and largest value of q.
    inp : Tensor
        Tensor of any shape, float32.
    scale : Tensor
        The log2 of the distance of two levels, 0-d.

    Returns
    -------
    Tensor
        Tensor of the shape and dtype of ``inp``.

    References
    ----------
    Jain et al., 2020, "Trained Quantization Thresholds" (gradients).
    """
    return ops.fake_quant(inp, 2.0**scale, 0.0, 1.0, qmin=qmin, qmax=qmax)


def lsq_forward(
    qmin: int,
    qmax: int,
    inp: Tensor,
    step_size: Tensor,
    zero_point: Tensor | float | None = None,
    scale_grad: Tensor | float | None = None,
) -> Tensor:
    """Rounds ``inp`` to ``step_size * (q - zero_point)`` with q in [qmin, qmax]; differentiable in
    inp and step_size.

    Parameters
    ----------
    qmin, qmax : int
        Smallest and largest value of q.
    inp : Tensor
        Tensor of any shape, float32.
    step_size : Tensor
        The distance of two levels, 0-d.
    zero_point : Tensor, float or None
        Zero point, which is subtracted from q; None is 0.
    scale_grad : Tensor, float or None
        Weight of step_size's gradient; None means 1.

    Returns
    -------
    Tensor
        Tensor of the shape and dtype of ``inp``.

    References
    ----------
    Esser et al., 2020, "Learned Step Size Quantization" (gradients).
    """
    zero_point = 0.0 if zero_point is None else zero_point
    scale_grad = 1.0 if scale_grad is None else scale_grad
    return ops.fake_quant(inp, step_size, zero_point, scale_grad, qmin=qmin, qmax=qmax)


def register_method_to_class(cls: type) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Returns a decorator that makes a function, or functools.partial, a method of ``cls``.

    Returns
    -------
    callable
        The decorator.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        if isinstance(function, partial):
            name, inner = function.func.__name__, function

            def method(self: Any, *args: Any, **kwargs: Any) -> Any:
                return inner(self, *args, **kwargs)

        else:
            name, method = function.__name__, function
        setattr(cls, name, method)
        return function

    return decorate


class QuantMode(Enum):
    """Names how the range of a quantized tensor lies about 0.

    SYMMERTIC: 0 is the middle of the range. ASYMMERTIC: the range is that of the data, with a zero
    point. The spelling is that of MegEngine 1.x.

    Examples
    --------
    >>> import megengine.quantization as Q
    >>> [mode.name for mode in Q.QuantMode]
    ['SYMMERTIC', 'ASYMMERTIC']
    """

    SYMMERTIC = 1
    ASYMMERTIC = 2

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return QuantMode, (
            self.value,
        )  # Enum's own way is a getattr, which `megengine.load` refuses


def dtype_meta_of(dtype: str | QuantDtypeMeta) -> QuantDtypeMeta:
    """The kind of quantized dtype of that name. ValueError for an unknown one."""
    if isinstance(dtype, QuantDtypeMeta):
        return dtype
    if dtype not in _builtin_quant_dtypes:
        known = ", ".join(sorted(_builtin_quant_dtypes))
        raise ValueError(f"quantized dtype {dtype!r} is unknown; there are {known}")
    return _builtin_quant_dtypes[dtype]


class QParams:
    """Describes how a tensor is quantized: real value = scale * (q - zero_point), where q is an
    integer.

    Parameters
    ----------
    mode : QuantMode
        Whether 0 is the middle of the range.
    dtype_meta : QuantDtypeMeta or None
        Kind of quantized dtype, which bounds q.
    scale, zero_point : Tensor or None
        0-d, or None while unknown (a zero_point of None is 0).

    Notes
    -----
    Two objects are equal if all their values are. `create_qparams` makes one from a dtype's name.

    Examples
    --------
    >>> import megengine as mge, megengine.quantization as Q
    >>> qparams = Q.create_qparams(Q.QuantMode.SYMMERTIC, "qint8", mge.Tensor(0.5))
    >>> qparams.mode.name, qparams.dtype_meta.name, qparams.scale.item()
    ('SYMMERTIC', 'qint8', 0.5)
    """

    __slots__ = ("dtype_meta", "mode", "scale", "zero_point")

    def __init__(
        self,
        mode: QuantMode,
        dtype_meta: QuantDtypeMeta | None,
        scale: Tensor | None,
        zero_point: Tensor | None,
    ) -> None:
        self.mode = mode
        self.dtype_meta = dtype_meta
        self.scale = scale
        self.zero_point = zero_point

    def update(self, qparams: QParams) -> None:
        """Takes over the values of ``qparams``.

        Parameters
        ----------
        qparams : QParams
            Quantization parameters whose values are taken.
        """
        for name in QParams.__slots__:
            setattr(self, name, getattr(qparams, name))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, QParams):
            return NotImplemented
        return (
            self.mode == other.mode
            and self.dtype_meta == other.dtype_meta
            and _same(self.scale, other.scale)
            and _same(self.zero_point, other.zero_point)
        )

    __hash__ = None  # type: ignore[assignment]  # scale and zero_point change

    def __repr__(self) -> str:
        name = None if self.dtype_meta is None else self.dtype_meta.name
        return (
            f"{type(self).__name__}(mode={self.mode.name}, dtype_meta={name}, "
            f"scale={self.scale}, zero_point={self.zero_point})"
        )


class LSQParams(QParams):
    """Holds `QParams` and ``grad_scale``, the weight of the scale's gradient.

    Parameters
    ----------
    mode : QuantMode
        Whether 0 is the middle of the range.
    dtype_meta : QuantDtypeMeta or None
        Kind of quantized dtype, which bounds q.
    scale, zero_point : Tensor or None
        0-d tensors, or None while unknown (a zero_point of None is 0).
    grad_scale : Tensor or None
        0-d, or None for the formula of `LSQ`.
    """

    __slots__ = ("grad_scale",)

    def __init__(
        self,
        mode: QuantMode,
        dtype_meta: QuantDtypeMeta | None,
        scale: Tensor | None,
        zero_point: Tensor | None,
        grad_scale: Tensor | None,
    ) -> None:
        super().__init__(mode, dtype_meta, scale, zero_point)
        self.grad_scale = grad_scale


def _same(a: Tensor | None, b: Tensor | None) -> bool:
    if a is None or b is None:
        return a is b
    return np.array_equal(np.asarray(a), np.asarray(b))


class QParamsModuleMixin(abc.ABC):
    """Modules that know how a tensor is quantized."""

    @abc.abstractmethod
    def get_qparams(self) -> QParams:
        """Returns mode, dtype, scale and zero point found so far."""

    def get_quantized_dtype(self) -> np.dtype:
        """Returns the NumPy dtype that carries scale and zero point. ValueError while they are
        unknown.
        """
        qparams = self.get_qparams()
        meta = qparams.dtype_meta
        if qparams.scale is None or meta is None:
            raise ValueError(f"{type(self).__name__} has seen no data, so its scale is unknown")
        zero_point = None if qparams.zero_point is None else int(qparams.zero_point)
        if meta.is_unsigned and zero_point is None:
            zero_point = 0
        return create_quantized_dtype(meta, float(qparams.scale), zero_point)


def create_qparams(
    mode: QuantMode = QuantMode.SYMMERTIC,
    dtype_meta: str | QuantDtypeMeta | None = None,
    scale: Tensor | None = None,
    zero_point: Tensor | None = None,
) -> QParams:
    """Makes `QParams` from a dtype or its name.

    Parameters
    ----------
    mode : QuantMode
        Whether 0 is the middle of the range.
    dtype_meta : str, QuantDtypeMeta or None
        Kind of quantized dtype, or its name: qint8, qint8_narrow (without -128), quint8, qint4,
        quint4, qint32, ....
    scale, zero_point : Tensor or None
        0-d, or None while unknown.

    Returns
    -------
    QParams
        The description of how a tensor is quantized.

    Raises
    ------
    ValueError
        For an unknown dtype.

    Examples
    --------
    >>> import megengine as mge, megengine.quantization as Q
    >>> meta = Q.create_qparams(dtype_meta="qint8_narrow", scale=mge.Tensor(0.5)).dtype_meta
    >>> meta.qmin, meta.qmax
    (-127, 127)
    """
    meta = None if dtype_meta is None else dtype_meta_of(dtype_meta)
    return QParams(mode, meta, scale, zero_point)


Tensor._new_qparams = staticmethod(create_qparams)


def fake_quant_tensor(inp: Tensor, qparams: QParams) -> Tensor:
    """Rounds ``inp`` to what ``qparams`` can express, in its float dtype.

    Parameters
    ----------
    inp : Tensor
        Any shape. The gradient passes where the value is in range and is 0 elsewhere.
    qparams : QParams
        Quantization parameters of the wanted dtype.

    Returns
    -------
    Tensor
        The same shape and dtype; it carries ``qparams``.

    Raises
    ------
    ValueError
        While scale or dtype is unknown.

    Examples
    --------
    >>> import megengine as mge, megengine.quantization as Q
    >>> scale, zero_point = mge.Tensor(0.5), mge.Tensor(2.0)
    >>> qparams = Q.create_qparams(Q.QuantMode.ASYMMERTIC, "quint8", scale, zero_point)
    >>> Q.fake_quant_tensor(mge.Tensor([-9.0, 0.3, 200.0]), qparams).tolist()
    [-1.0, 0.5, 126.5]
    """
    meta, scale, zero_point = qparams.dtype_meta, qparams.scale, qparams.zero_point
    if meta is None or scale is None:
        raise ValueError(
            f"fake_quant_tensor: {qparams!r} is not complete\n"
            "  fix: let the observer see data first, or set_qparams"
        )
    offset = 0.0 if zero_point is None else zero_point
    scale = scale.detach() if isinstance(scale, Tensor) else scale
    out = ops.fake_quant(inp, scale, offset, 1.0, qmin=meta.qmin, qmax=meta.qmax)
    out.qparams.update(qparams)
    return out


def fake_quant_bias(bias: Tensor | None, inp: Tensor, w_qat: Tensor) -> Tensor | None:
    """Rounds a bias as a 32-bit accumulator holds it: to (scale of inp) * (scale of w_qat).

    Parameters
    ----------
    bias : Tensor or None
        Any shape, or None, which is returned.
    inp, w_qat : Tensor
        Input and weight of the layer; unless both carry symmetric 8-bit quantization parameters,
        the bias is returned unchanged.

    Returns
    -------
    Tensor or None
        The rounded bias, of the same shape; None for None.

    Examples
    --------
    >>> import megengine as mge, megengine.quantization as Q
    >>> qparams = Q.create_qparams(Q.QuantMode.SYMMERTIC, "qint8", mge.Tensor(0.5))
    >>> x = w = Q.fake_quant_tensor(mge.Tensor([1.0]), qparams)
    >>> Q.fake_quant_bias(mge.Tensor([0.3, 0.4]), x, w).tolist()
    [0.25, 0.5]
    """
    scales = _scale_of_8_bit(inp._qparams), _scale_of_8_bit(w_qat._qparams)
    if bias is None or scales[0] is None or scales[1] is None:
        return bias
    scale = scales[0] * scales[1]
    return fake_quant_tensor(bias, create_qparams(QuantMode.SYMMERTIC, "qint32", scale))


def _scale_of_8_bit(qparams: QParams | None) -> Tensor | None:
    """The scale, if ``qparams`` are symmetric and of 8 bits."""
    if qparams is None or qparams.dtype_meta is None or qparams.mode != QuantMode.SYMMERTIC:
        return None
    is_8_bit = qparams.dtype_meta.name in ("qint8", "qint8_narrow", "quint8")
    return qparams.scale if is_8_bit else None
