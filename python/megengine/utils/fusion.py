"""Folding a batch normalization with fixed statistics into the convolution before it
(module/_folding.py).
"""

from __future__ import annotations

import copy
from typing import Any

from .. import functional as F
from ..module import Module
from ..module._folding import beside_weight, normalization
from ..tensor import Parameter, Tensor

__all__ = ["fuse_conv_bn_eval", "fuse_conv_bn_weights"]

ONLY_FOR_EVAL = (
    "Fusion only for eval! In training mode batch normalization uses the statistics of each batch\n"
    "  fix: call model.eval() first"
)


def fuse_conv_bn_eval(conv: Module, bn: Module) -> Module:
    """Returns a copy of ``conv`` (1-d, 2-d or 3-d) that computes ``bn(conv(x))`` as in eval mode.

    Parameters
    ----------
    conv : Module
        Convolution in eval mode, which is copied.
    bn : Module
        Batch normalization behind it, in eval mode.

    Returns
    -------
    Module
        The copy.

    Raises
    ------
    AssertionError
        When one of them is in training mode.
    ValueError
        For a ``bn`` without running statistics.
    """
    if conv.training or bn.training:
        raise AssertionError(ONLY_FOR_EVAL)
    norm: Any = bn
    if norm.running_mean is None:
        raise ValueError("batch normalization without running statistics cannot be folded")
    fused: Any = copy.deepcopy(conv)
    bias = F.zeros(fused._infer_bias_shape()) if fused.bias is None else fused.bias
    fused.weight, fused.bias = fuse_conv_bn_weights(
        fused.weight, bias, norm.running_mean, norm.running_var, norm.eps, norm.weight, norm.bias
    )
    return fused


def fuse_conv_bn_weights(
    conv_w: Tensor,
    conv_b: Tensor | None,
    bn_rm: Tensor,
    bn_rv: Tensor,
    bn_eps: float,
    bn_w: Tensor | None,
    bn_b: Tensor | None,
) -> tuple[Parameter, Parameter]:
    """Returns (weight, bias) of a convolution that computes what the convolution and the
    normalization compute.

    Parameters
    ----------
    conv_w : Tensor
        (out, in, *kernel) or (groups, out / groups, in / groups, *kernel).
    conv_b : Tensor or None
        One value per out channel, None for 0.
    bn_rm, bn_rv : Tensor
        Mean and variance, one value per out channel each.
    bn_eps : float
        Added to the variance.
    bn_w, bn_b : Tensor or None
        Scale and shift, one value per out channel each; None means 1 and 0.

    Returns
    -------
    weight : Parameter
        The new weight, of the shape of ``conv_w``.
    bias : Parameter
        The new bias, of the shape of ``conv_b``, or (1, out, 1, ...) with as many axes as an
        ungrouped ``conv_w``.
    """
    factor, shift = normalization(bn_rm, bn_rv, bn_eps, bn_w, bn_b, conv_b)
    grouped = conv_w.shape[0] != bn_rm.size
    shape = conv_b.shape if conv_b is not None else (1, -1) + (1,) * (conv_w.ndim - (3 if grouped else 2))
    return Parameter(conv_w * beside_weight(factor, conv_w)), Parameter(shift.reshape(shape))
