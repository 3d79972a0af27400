"""Batch normalization folded into the linear layer before it.

y = (W x + b - mean) / sqrt(var + eps) * gamma + beta is a linear layer with the weight W * factor and the bias
beta + (b - mean) * factor, where factor = gamma / sqrt(var + eps) for each output channel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ... import functional as F
from ...tensor import Tensor
from ..batchnorm import _BatchNorm
from .module import QATModule


def folded(
    weight: Tensor,
    bias: Tensor | None,
    bn: _BatchNorm,
    statistics: tuple[Tensor, Tensor],
    weight_channels: Sequence[int],
    bias_shape: Sequence[int],
) -> tuple[Tensor, Tensor]:
    """Weight and bias of the layer followed by ``bn`` with the statistics (mean, var).

    weight_channels: shape that sets a channel's number beside the elements of its weight.
    """
    mean, var = (value.reshape(bias_shape) for value in statistics)
    factor = 1.0 / F.sqrt(var + bn.eps)
    if bn.weight is not None:
        factor = factor * bn.weight.reshape(bias_shape)
    shift = -mean if bias is None else bias.reshape(bias_shape) - mean
    shift = shift * factor
    if bn.bias is not None:
        shift = shift + bn.bias.reshape(bias_shape)
    return weight * factor.reshape(weight_channels), shift


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
    assert bn.running_mean is not None and bn.running_var is not None
    return bn.running_mean, bn.running_var


def uses_running_statistics(bn: _BatchNorm, training: bool) -> bool:
    """Whether the normalization is a fixed affine map, which can be folded."""
    return bn.freeze or (bn.running_mean is not None and not training)


class FoldedQAT(QATModule):
    """What a layer and the batch normalization behind it share in quantization-aware training.

    A subclass says which child the layer is, how it is applied, the shapes that set a channel's number beside the
    elements of its weight and its bias, and how both are folded.
    """

    bn: Any
    _bias_shape: tuple[int, ...] = (1, -1, 1, 1)

    def _parts(self) -> tuple[Any, Callable[..., Tensor], tuple[int, ...]]:
        """The layer, its function (input, weight, bias), and the shape for weights."""
        raise TypeError(f"{type(self).__name__} does not define _parts()")

    def fold_weight_bias(self, bn_mean: Tensor, bn_var: Tensor) -> tuple[Tensor, Tensor]:
        """Rounded weight, and bias, of the layer that also normalizes."""
        raise TypeError(f"{type(self).__name__} does not define fold_weight_bias(bn_mean, bn_var)")

    def _normalized(self, inp: Tensor) -> Tensor:
        """The normalized result, not rounded.

        In training the weight is rounded as folded with the running statistics, and the batch normalizes.
        """
        (layer, apply, channels), bn = self._parts(), self.bn
        if uses_running_statistics(bn, bn.training):
            weight, bias = self.fold_weight_bias(*running_statistics(bn))
            return apply(inp, weight, self.apply_quant_bias(bias, inp, weight))
        factor = training_factor(bn)
        weight = self.apply_quant_weight(layer.weight * factor.reshape(channels))
        out = apply(inp, weight, None) / factor.reshape(self._bias_shape)
        return bn(out if layer.bias is None else out + layer.bias)
