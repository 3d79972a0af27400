"""Fake quantizers: modules that round to what a quantized dtype can express, and stay in float."""

from __future__ import annotations

import math
from typing import Any

from .. import functional as F
from ..core.qparams import LSQParams, QParams, QuantMode, create_qparams
from ..core.tensor.dtype import QuantDtypeMeta
from ..tensor import Parameter, Tensor
from .observer import Switched
from .utils import QParamsModuleMixin, fake_quant_tensor, lsq_forward, tqt_forward

__all__ = ["LSQ", "TQT", "FakeQuantize"]


class _FakeQuantize(Switched):
    """Base of fake quantizers. dtype: kind of quantized dtype, or its name. While disabled, inputs pass unchanged."""

    def __init__(self, dtype: str | QuantDtypeMeta, enable: bool = True, **kwargs: Any) -> None:
        super().__init__(dtype, enable, **kwargs)

    def fake_quant_forward(self, inp: Tensor, qparams: QParams | None = None) -> Tensor:
        """Returns ``inp`` rounded; the result carries its quantization parameters."""
        raise TypeError(
            f"{type(self).__name__} does not define fake_quant_forward(self, inp, qparams)"
        )

    def forward(self, inp: Tensor, qparams: QParams | None = None) -> Tensor:
        """Returns ``inp`` rounded, or unchanged while disabled.

        Parameters
        ----------
        inp : Tensor
            Tensor of any shape, float32.
        qparams : QParams or None
            The observer's parameters, which `FakeQuantize` needs; `TQT` and `LSQ` learn theirs.

        Returns
        -------
        Tensor
            The result, of the same shape and dtype.
        """
        return self.fake_quant_forward(inp, qparams) if self.enabled else inp

    def _check_dtype(self, qparams: QParams) -> None:
        if qparams.dtype_meta != self.dtype:
            raise ValueError(
                f"{type(self).__name__} of {self.dtype.name} got {qparams!r}\n"
                "  fix: give observer and fake quantizer the same dtype in the QConfig"
            )


class FakeQuantize(_FakeQuantize):
    """Rounds a tensor, in float, to the values that a quantized dtype can express.

    Training with it lets a model adapt to quantization; the gradient passes straight through where
    the value is in range and is 0 elsewhere.

    Parameters
    ----------
    dtype : str or QuantDtypeMeta
        Kind of quantized dtype, or its name such as "qint8".
    enable : bool
        Whether to round from the start.
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.

    Raises
    ------
    ValueError
        For an unknown dtype.

    References
    ----------
    Jacob et al. 2018, "Quantization and Training of Neural Networks for Efficient
    Integer-Arithmetic-Only Inference".

    Examples
    --------
    >>> import megengine as mge, megengine.quantization as Q
    >>> qparams = Q.create_qparams(Q.QuantMode.SYMMERTIC, "qint8", mge.Tensor(0.5))
    >>> Q.FakeQuantize("qint8")(mge.Tensor([0.3, 1.2, 100.0]), qparams).tolist()
    [0.5, 1.0, 63.5]
    """

    def fake_quant_forward(self, inp: Tensor, qparams: QParams | None = None) -> Tensor:
        """Returns ``inp`` rounded as ``qparams`` say.

        Parameters
        ----------
        inp : Tensor
            Tensor of any shape, float32.
        qparams : QParams or None
            Quantization parameters of the quantizer's dtype.

        Returns
        -------
        Tensor
            The result, of the same shape and dtype.

        Raises
        ------
        ValueError
            Without qparams, or when their dtype is another.
        """
        if qparams is None:
            raise ValueError(
                "FakeQuantize needs the parameters of an observer; TQT and LSQ learn theirs"
            )
        self._check_dtype(qparams)
        return fake_quant_tensor(inp, qparams)


class TQT(_FakeQuantize, QParamsModuleMixin):
    """Rounds to multiples of a power whose exponent is learned; symmetric only.

    The levels are q * 2 ** scale with q in the range of dtype; gradients reach the input and the
    scale.

    Parameters
    ----------
    dtype : str or QuantDtypeMeta
        Kind of quantized dtype, or its name such as "qint8".
    enable : bool
        Whether to round from the start.
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.

    Notes
    -----
    ``scale``, the log2 of the distance of two levels, is a Parameter and starts at 0, which is a
    distance of 1.

    References
    ----------
    Jain et al. 2020, "Trained Quantization Thresholds for Accurate and Efficient Fixed-Point
    Inference of Deep Neural Networks".

    Examples
    --------
    >>> import megengine as mge, megengine.quantization as Q
    >>> Q.TQT("qint8")(mge.Tensor([0.3, 1.6, 200.0])).tolist()
    [0.0, 2.0, 127.0]
    """

    def __init__(self, dtype: str | QuantDtypeMeta, enable: bool = True, **kwargs: Any) -> None:
        super().__init__(dtype, enable, **kwargs)
        self.scale = Parameter(0.0)

    def fake_quant_forward(self, inp: Tensor, qparams: QParams | None = None) -> Tensor:
        """Returns ``inp`` rounded; ``qparams`` are not used.

        Parameters
        ----------
        inp : Tensor
            Tensor of any shape, float32.
        qparams : QParams or None
            Has no effect: it is not read.

        Returns
        -------
        Tensor
            The result, of the same shape and dtype.
        """
        out = tqt_forward(self.qmin, self.qmax, inp, self.scale)
        out.qparams.update(self.get_qparams())
        return out

    def set_qparams(self, qparams: QParams) -> None:
        """Starts from given parameters.

        Parameters
        ----------
        qparams : QParams
            Symmetric, of the same quantized dtype, with a scale.

        Raises
        ------
        ValueError
            For others.
        """
        self._check_dtype(qparams)
        if qparams.mode != QuantMode.SYMMERTIC:
            raise ValueError(f"TQT is symmetric and cannot take {qparams!r}")
        if qparams.scale is None:
            raise ValueError(f"TQT cannot start from {qparams!r}, which has no scale")
        self.scale[...] = F.log(qparams.scale) / math.log(2)

    def get_qparams(self) -> QParams:
        """Returns the parameters learned so far, with the scale ``2 ** scale``."""
        return create_qparams(QuantMode.SYMMERTIC, self.dtype, 2.0 ** self.scale.detach())


class LSQ(_FakeQuantize, QParamsModuleMixin):
    """Rounds to levels whose distance is learned.

    Parameters
    ----------
    dtype : str or QuantDtypeMeta
        Kind of quantized dtype, or its name such as "qint8".
    enable : bool
        Whether to round from the start.
    eps : float
        Smallest distance of two levels.
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.

    Notes
    -----
    ``step_size``, the distance of two levels, is a Parameter and starts at 1; below eps it counts
    as eps. ``grad_scale`` is the weight of its gradient; None takes the paper's 1 / sqrt(size *
    qmax).

    References
    ----------
    Esser et al. 2020, "Learned Step Size Quantization".

    Examples
    --------
    >>> import megengine as mge, megengine.quantization as Q
    >>> lsq = Q.LSQ("qint8")
    >>> lsq.set_qparams(Q.create_qparams(Q.QuantMode.SYMMERTIC, "qint8", mge.Tensor(0.5)))
    >>> lsq(mge.Tensor([0.3, 1.2, 100.0])).tolist()
    [0.5, 1.0, 63.5]
    """

    def __init__(
        self, dtype: str | QuantDtypeMeta, enable: bool = True, eps: float = 1e-5, **kwargs: Any
    ) -> None:
        super().__init__(dtype, enable, **kwargs)
        self.eps = eps
        self.step_size = Parameter(1.0)
        self.mode = QuantMode.SYMMERTIC
        self.zero_point: Tensor | None = None
        self.grad_scale: Tensor | None = None

    def set_qparams(self, qparams: QParams) -> None:
        """Starts from given parameters; `LSQParams` set grad_scale, too.

        Parameters
        ----------
        qparams : QParams
            Quantization parameters of the same quantized dtype.

        Raises
        ------
        ValueError
            For another dtype.
        """
        self._check_dtype(qparams)
        self.mode = qparams.mode
        self.zero_point = qparams.zero_point
        self.grad_scale = getattr(qparams, "grad_scale", None)
        self.step_size[...] = qparams.scale

    def _step(self) -> Tensor:
        return F.maximum(self.step_size, self.eps)

    def fake_quant_forward(self, inp: Tensor, qparams: QParams | None = None) -> Tensor:
        """Returns ``inp`` rounded; ``qparams`` are not used.

        Parameters
        ----------
        inp : Tensor
            Tensor of any shape, float32.
        qparams : QParams or None
            Has no effect: it is not read.

        Returns
        -------
        Tensor
            The result, of the same shape and dtype.
        """
        weight: Tensor | float | None = self.grad_scale
        if weight is None:
            weight = 1.0 / math.sqrt(max(inp.size * self.qmax, 1))
        out = lsq_forward(self.qmin, self.qmax, inp, self._step(), self.zero_point, weight)
        out.qparams.update(self.get_qparams())
        return out

    def get_qparams(self) -> LSQParams:
        """Returns the parameters learned so far."""
        return LSQParams(
            self.mode, self.dtype, self._step().detach(), self.zero_point, self.grad_scale
        )
