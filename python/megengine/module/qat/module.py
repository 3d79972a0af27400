"""What the layers for quantization-aware training share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ... import functional as F
from ...quantization.fake_quant import _FakeQuantize
from ...quantization.observer import Observer
from ...quantization.qconfig import QConfig
from ...quantization.utils import QParams, QParamsModuleMixin, fake_quant_bias
from ...tensor import Tensor
from .._structure import with_state_of
from ..module import Module

__all__ = ["QATModule"]


class QATModule(Module):
    """Base of layers that observe and round their weight and their result.

    with_weight, with_act: whether there is a weight, and a result, to quantize. Observers and fake quantizers are None
    until `set_qconfig`, and where the QConfig has none.
    """

    with_weight = True
    with_act = True
    _repr_prefix = "QAT."

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._clear_quantizers()

    def _clear_quantizers(self) -> None:
        self.act_observer: Observer | None = None
        self.act_fake_quant: _FakeQuantize | None = None
        self.weight_observer: Observer | None = None
        self.weight_fake_quant: _FakeQuantize | None = None

    @classmethod
    def from_float_module(cls, float_module: Module) -> QATModule:
        """The layer that computes what ``float_module`` does, with the same Parameters and child modules."""
        module = with_state_of(float_module, cls)
        module._clear_quantizers()
        return module

    def set_qconfig(self, qconfig: QConfig) -> None:
        """Make new observers and fake quantizers."""

        def made(wanted: bool, factory: Callable[[], Module] | None) -> Any:
            return factory() if wanted and factory is not None else None

        self.act_observer = made(self.with_act, qconfig.act_observer)
        self.act_fake_quant = made(self.with_act, qconfig.act_fake_quant)
        self.weight_observer = made(self.with_weight, qconfig.weight_observer)
        self.weight_fake_quant = made(self.with_weight, qconfig.weight_fake_quant)

    def set_fake_quant(self, enable: bool) -> None:
        """Enable or disable the fake quantizers."""
        for fake_quant in (self.weight_fake_quant, self.act_fake_quant):
            if fake_quant is not None:
                fake_quant.enabled = enable

    def set_observer(self, enable: bool) -> None:
        """Enable or disable the observers."""
        for observer in (self.weight_observer, self.act_observer):
            if observer is not None:
                observer.enabled = enable

    def _apply_fakequant_with_observer(
        self, target: Tensor, fake_quant: _FakeQuantize | None, observer: Observer | None
    ) -> Tensor:
        """``target`` as the observer saw it and the fake quantizer rounded it."""
        if observer is not None:
            target = observer(target)
        if fake_quant is None or not fake_quant.enabled:
            return target
        return fake_quant(target, None if observer is None else observer.get_qparams())

    def apply_quant_weight(self, target: Tensor) -> Tensor:
        """``target``, rounded as a weight."""
        return self._apply_fakequant_with_observer(
            target, self.weight_fake_quant, self.weight_observer
        )

    def apply_quant_activation(self, target: Tensor) -> Tensor:
        """``target``, rounded as a result."""
        return self._apply_fakequant_with_observer(target, self.act_fake_quant, self.act_observer)

    def apply_quant_bias(self, target: Tensor | None, inp: Tensor, w_qat: Tensor) -> Tensor | None:
        """``target``, rounded as a 32-bit bias of what ``inp`` and ``w_qat`` carry; see `fake_quant_bias`."""
        return fake_quant_bias(target, inp, w_qat)

    def get_weight_dtype(self) -> np.dtype | None:
        """The quantized dtype of the weight, None without a quantizer. ValueError before any data was seen."""
        source = _source(self.weight_fake_quant, self.weight_observer)
        return None if source is None else source.get_quantized_dtype()

    def get_activation_dtype(self) -> np.dtype | None:
        """The quantized dtype of the result, None without a quantizer. ValueError before any data was seen."""
        source = _source(self.act_fake_quant, self.act_observer)
        return None if source is None else source.get_quantized_dtype()

    def get_weight_qparams(self) -> QParams | None:
        """Quantization parameters of the weight, None without a quantizer."""
        source = _source(self.weight_fake_quant, self.weight_observer)
        return None if source is None else source.get_qparams()

    def get_activation_qparams(self) -> QParams | None:
        """Quantization parameters of the result, None without a quantizer."""
        source = _source(self.act_fake_quant, self.act_observer)
        return None if source is None else source.get_qparams()


class RoundedQAT(QATModule):
    """A layer whose method ``_calc``, of (input, weight, bias), gets weight and bias rounded.

    Its public method, called as ``_calc`` with ``_ending`` behind, gives the result before it is rounded.
    """

    weight: Any
    bias: Any
    _calc = ""
    _ending = "_qat"

    def _calculated(self, inp: Tensor) -> Tensor:
        """The result of rounded weight and bias; it is not rounded itself."""
        weight = self.apply_quant_weight(self.weight)
        return getattr(self, self._calc)(inp, weight, self.apply_quant_bias(self.bias, inp, weight))

    def _activated(self, x: Tensor) -> Tensor:
        return x

    def forward(self, inp: Tensor) -> Tensor:
        result = getattr(self, self._calc + self._ending)(inp)
        return self.apply_quant_activation(self._activated(result))


class ReluQAT(QATModule):
    """Goes before a `RoundedQAT` among the bases of a class: relu, then the result is rounded."""

    def _activated(self, x: Tensor) -> Tensor:
        return F.nn.relu(x)


def _source(fake_quant: Any, observer: Any) -> QParamsModuleMixin | None:
    """Who knows the parameters: a fake quantizer that learns them, else the observer."""
    return fake_quant if isinstance(fake_quant, QParamsModuleMixin) else observer
