"""Quantization parameters, and rounding to the grid of a quantized dtype with a straight-through gradient."""

from __future__ import annotations

import abc
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ..autodiff import Function
from ..core import ops
from ..core.qparams import LSQParams, QParams, QuantMode, create_qparams
from ..core.tensor.dtype import create_quantized_dtype
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


class QParamsModuleMixin(abc.ABC):
    """Base of modules that know the quantization parameters of a tensor."""

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
