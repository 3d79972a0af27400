"""A fake quantizer with parameters of its own, for quantizers that observers do not feed."""

from __future__ import annotations

from typing import Any

from ..core.qparams import QParams
from ..core.tensor.dtype import QuantDtypeMeta
from ..quantization.fake_quant import _FakeQuantize
from ..quantization.utils import QParamsModuleMixin, fake_quant_tensor
from ..tensor import Tensor

__all__ = ["FakeQuantize"]


class FakeQuantize(_FakeQuantize, QParamsModuleMixin):
    """Rounds by the parameters that it is called with, or by those of `set_qparams` if there are
    none.

    Parameters
    ----------
    dtype : str or QuantDtypeMeta
        Kind of quantized dtype, or its name such as "qint8".
    enable : bool
        Whether to round from the start.
    **kwargs : object
        `name`, as of `Module`.

    Raises
    ------
    ValueError
        For an unknown dtype.
    """

    def __init__(self, dtype: str | QuantDtypeMeta, enable: bool = True, **kwargs: Any) -> None:
        super().__init__(dtype, enable, **kwargs)
        self.qparams: QParams | None = None

    def fake_quant_forward(self, inp: Tensor, qparams: QParams | None = None) -> Tensor:
        qparams = self.get_qparams() if qparams is None else qparams
        self._check_dtype(qparams)
        return fake_quant_tensor(inp, qparams)

    def get_qparams(self) -> QParams:
        """Returns the parameters of `set_qparams`. ValueError before that call."""
        if self.qparams is None:
            raise ValueError(
                f"{type(self).__name__} has no parameters yet\n  fix: call set_qparams"
            )
        return self.qparams

    def set_qparams(self, qparams: QParams) -> None:
        """Rounds by ``qparams`` from now on.

        Parameters
        ----------
        qparams : QParams
            Scale, zero point and dtype.

        Raises
        ------
        ValueError
            For another dtype than the quantizer's.
        """
        self._check_dtype(qparams)
        self.qparams = qparams
