"""Fake quantizers: modules that round to what a quantized dtype can express, and stay in float."""

from __future__ import annotations

import math
from typing import Any

from .. import functional as F
from ..core.tensor.dtype import QuantDtypeMeta
from ..tensor import Parameter, Tensor
from .observer import Switched
from .utils import (
    LSQParams,
    QParams,
    QParamsModuleMixin,
    QuantMode,
    create_qparams,
    fake_quant_tensor,
    lsq_forward,
    tqt_forward,
)

__all__ = ["LSQ", "TQT", "FakeQuantize"]


class _FakeQuantize(Switched):
    """Base of fake quantizers. dtype: kind of quantized dtype, or its name. While disabled, inputs pass unchanged."""

    def __init__(self, dtype: str | QuantDtypeMeta, enable: bool = True, **kwargs: Any) -> None:
        super().__init__(dtype, enable, **kwargs)

    def fake_quant_forward(self, inp: Tensor, qparams: QParams | None = None) -> Tensor:
        """``inp`` rounded; the result carries its quantization parameters."""
        raise TypeError(
            f"{type(self).__name__} does not define fake_quant_forward(self, inp, qparams)"
        )

    def forward(self, inp: Tensor, qparams: QParams | None = None) -> Tensor:
        return self.fake_quant_forward(inp, qparams) if self.enabled else inp

    def _check_dtype(self, qparams: QParams) -> None:
        if qparams.dtype_meta != self.dtype:
            raise ValueError(
                f"{type(self).__name__} of {self.dtype.name} got {qparams!r}\n"
                "  fix: give observer and fake quantizer the same dtype in the QConfig"
            )

    def _module_info_string(self) -> str:
        return f"dtype={self.dtype.name}, enabled={self.enabled}"


class FakeQuantize(_FakeQuantize):
    """Rounds by the observer's parameters. ValueError when they are of another dtype."""

    def fake_quant_forward(self, inp: Tensor, qparams: QParams | None = None) -> Tensor:
        if qparams is None:
            raise ValueError(
                "FakeQuantize needs the parameters of an observer; TQT and LSQ learn theirs"
            )
        self._check_dtype(qparams)
        return fake_quant_tensor(inp, qparams)


class TQT(_FakeQuantize, QParamsModuleMixin):
    """Learns log2 of the scale: Jain et al. 2020, "Trained Quantization Thresholds". Symmetric only.

    scale: the Parameter, 0 (a scale of 1) at first.
    """

    def __init__(self, dtype: str | QuantDtypeMeta, enable: bool = True, **kwargs: Any) -> None:
        super().__init__(dtype, enable, **kwargs)
        self.scale = Parameter(0.0)

    def fake_quant_forward(self, inp: Tensor, qparams: QParams | None = None) -> Tensor:
        out = tqt_forward(self.qmin, self.qmax, inp, self.scale)
        out.qparams.update(self.get_qparams())
        return out

    def set_qparams(self, qparams: QParams) -> None:
        """Start from these. ValueError unless symmetric and of the same dtype."""
        self._check_dtype(qparams)
        if qparams.mode != QuantMode.SYMMERTIC:
            raise ValueError(f"TQT is symmetric and cannot take {qparams!r}")
        if qparams.scale is None:
            raise ValueError(f"TQT cannot start from {qparams!r}, which has no scale")
        self.scale[...] = F.log(qparams.scale) / math.log(2)

    def get_qparams(self) -> QParams:
        return create_qparams(QuantMode.SYMMERTIC, self.dtype, 2.0 ** self.scale.detach())


class LSQ(_FakeQuantize, QParamsModuleMixin):
    """Learns the step between two levels: Esser et al. 2020, "Learned Step Size Quantization".

    step_size: the Parameter, 1 at first; a step below ``eps`` counts as eps. grad_scale: weight of its gradient; None
    takes the paper's 1 / sqrt(size * qmax).
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
        """Start from these; LSQParams also set grad_scale. ValueError for another dtype."""
        self._check_dtype(qparams)
        self.mode = qparams.mode
        self.zero_point = qparams.zero_point
        self.grad_scale = getattr(qparams, "grad_scale", None)
        self.step_size[...] = qparams.scale

    def _step(self) -> Tensor:
        return F.maximum(self.step_size, self.eps)

    def fake_quant_forward(self, inp: Tensor, qparams: QParams | None = None) -> Tensor:
        weight: Tensor | float | None = self.grad_scale
        if weight is None:
            weight = 1.0 / math.sqrt(max(inp.size * self.qmax, 1))
        out = lsq_forward(self.qmin, self.qmax, inp, self._step(), self.zero_point, weight)
        out.qparams.update(self.get_qparams())
        return out

    def get_qparams(self) -> LSQParams:
        return LSQParams(
            self.mode, self.dtype, self._step().detach(), self.zero_point, self.grad_scale
        )
