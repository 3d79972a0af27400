"""Batch normalization as part of the layer before it.

y = (W x + b - mean) / sqrt(var + eps) * gamma + beta is a layer with the weight W * factor and the bias
beta + (b - mean) * factor, where factor = gamma / sqrt(var + eps) for each output channel.
"""

from __future__ import annotations

from .. import functional as F
from ..tensor import Tensor


def normalization(
    mean: Tensor,
    var: Tensor,
    eps: float,
    gamma: Tensor | None,
    beta: Tensor | None,
    bias: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Returns (factor, shift) of each channel, such that x + bias becomes x * factor + shift."""
    factor = 1.0 / F.sqrt(var.reshape(-1) + eps)
    if gamma is not None:
        factor = factor * gamma.reshape(-1)
    shift = (-mean.reshape(-1) if bias is None else bias.reshape(-1) - mean.reshape(-1)) * factor
    return factor, shift if beta is None else shift + beta.reshape(-1)


def beside_weight(factor: Tensor, weight: Tensor, transposed: bool = False) -> Tensor:
    """Returns the ``factor`` of each output channel in a shape that broadcasts to the layer's
    weight.

    transposed: the weight is one of a transposed 2-d convolution.
    """
    first = weight._tuple_shape[0]
    if transposed:
        return factor.reshape((first, 1, -1, 1, 1) if weight.ndim == 5 else (1, -1, 1, 1))
    leading = (-1,) if first == factor.size else (first, -1)
    return factor.reshape(leading + (1,) * (weight.ndim - len(leading)))
