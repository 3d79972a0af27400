"""Layers with batch normalization behind them, in quantization-aware training; `module._folding` has the formulas."""

from __future__ import annotations

from typing import Any

from ... import functional as F
from ...tensor import Tensor
from .._folding import beside_weight, normalization
from ..batchnorm import _BatchNorm
from .module import RoundedQAT


def training_factor(bn: _BatchNorm) -> Tensor:
    """What the weight is scaled by before it is rounded in training; never 0, for the result is divided by it.

    It is the factor of the running statistics, so that training rounds the weight as the folded layer will
    (Krishnamoorthi 2018, "Quantizing deep convolutional networks for efficient inference", section 3.2.2).
    """
    factor: Tensor | float = 1.0
    if bn.running_var is not None:
        factor = 1.0 / F.sqrt(bn.running_var + bn.eps)
    if bn.weight is not None:
        factor = factor * F.where(bn.weight == 0.0, F.ones_like(bn.weight), bn.weight)
    return factor.detach() if isinstance(factor, Tensor) else Tensor([factor] * bn.num_features)


def running_statistics(bn: _BatchNorm) -> tuple[Tensor, Tensor]:
    """(mean, variance) of a normalization that keeps them."""
    if bn.running_mean is None or bn.running_var is None:
        raise AssertionError("bn.running_mean is not None and bn.running_var is not None does not hold")
    return bn.running_mean, bn.running_var


def uses_running_statistics(bn: _BatchNorm, training: bool) -> bool:
    """Whether the normalization is a fixed affine map, which can be folded."""
    return bn.freeze or (bn.running_mean is not None and not training)


def folded(layer: Any, bn: _BatchNorm, mean: Tensor, var: Tensor, transposed: bool = False) -> tuple[Tensor, Tensor]:
    """Weight and bias (out_channels,) of the layer that also normalizes by these statistics."""
    factor, shift = normalization(mean, var, bn.eps, bn.weight, bn.bias, layer.bias)
    return layer.weight * beside_weight(factor, layer.weight, transposed), shift


class FoldedQAT(RoundedQAT):
    """A layer, the child called ``_layer``, and the batch normalization behind it, the child ``bn``.

    ``_calc`` is a method of the layer; ``_bias_shape`` sets a channel's number beside the elements of a result.
    """

    bn: Any
    _layer = ""
    _ending = "_bn_qat"
    _bias_shape: tuple[int, ...] = (1, -1, 1, 1)
    _transposed = False

    def _folded_layer(self) -> Any:
        return getattr(self, self._layer)

    def fold_weight_bias(self, bn_mean: Tensor, bn_var: Tensor) -> tuple[Tensor, Tensor]:
        """Rounded weight, and bias, of the layer that also normalizes."""
        raise TypeError(f"{type(self).__name__} does not define fold_weight_bias(bn_mean, bn_var)")

    def _calculated(self, inp: Tensor) -> Tensor:
        """The normalized result, not rounded.

        In training the weight is rounded as folded with the running statistics, and the batch normalizes.
        """
        layer, bn = self._folded_layer(), self.bn
        calculate = getattr(layer, self._calc)
        if uses_running_statistics(bn, bn.training):
            weight, bias = self.fold_weight_bias(*running_statistics(bn))
            return calculate(inp, weight, self.apply_quant_bias(bias, inp, weight))
        factor = training_factor(bn)
        weight = self.apply_quant_weight(layer.weight * beside_weight(factor, layer.weight, self._transposed))
        out = calculate(inp, weight, None) / factor.reshape(self._bias_shape)
        return bn(out if layer.bias is None else out + layer.bias)
