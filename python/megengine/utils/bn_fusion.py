"""Joins a convolution or a linear layer, the batch normalization after it, and a relu into one
layer.

>>> import megengine.module as M
>>> fuse_conv_bn_relu_module(M.Conv2d(3, 8, 1).eval(), M.BatchNorm2d(8).eval(), M.ReLU())
ConvRelu2d(3, 8, kernel_size=(1, 1))
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from .. import module as M
from ..module._folding import beside_weight, normalization
from ..tensor import Parameter, Tensor

__all__ = ["fold_weight_bias", "fuse_conv_bn_relu_module", "fuse_linear_bn_relu_module"]

# (layer, has a normalization that stays, has a relu) -> class of the fused layer.
_FUSED: dict[tuple[type, bool, bool], type[M.Module]] = {
    (layer, has_bn, has_relu): kind
    for layer, kinds in {
        M.Conv2d: (M.Conv2d, M.ConvRelu2d, M.ConvBn2d, M.ConvBnRelu2d),
        M.ConvTranspose2d: (M.ConvTranspose2d, M.ConvTransposeRelu2d, M.ConvTransposeBn2d, M.ConvTransposeBnRelu2d),
        M.Linear: (M.Linear, M.LinearRelu, M.LinearBn1d, M.LinearBnRelu1d),
    }.items()
    for (has_bn, has_relu), kind in zip(((False, False), (False, True), (True, False), (True, True)), kinds, strict=True)
}  # fmt: skip


def fold_weight_bias(
    weight: Tensor,
    bias: Tensor | None,
    gamma: Tensor | None,
    beta: Tensor | None,
    bn_mean: Tensor,
    bn_var: Tensor,
    eps: float = 1e-5,
    transpose: bool = False,
) -> tuple[Tensor, Tensor]:
    """Returns (weight, bias) of a layer that computes what the layer and the normalization behind
    it compute.

    Parameters
    ----------
    weight : Tensor
        Weight of a linear layer (out, in), of a convolution (out, in, h, w), or of a transposed one
        (in, out, h, w); groups have one more axis in front.
    bias : Tensor or None
        One value per out channel, None for 0.
    gamma, beta : Tensor or None
        Scale and shift; None means 1 and 0.
    bn_mean, bn_var : Tensor
        Statistics; a value for each of the out channels, in any shape.
    eps : float
        Added to the variance.
    transpose : bool
        Whether it is a transposed convolution.

    Returns
    -------
    weight : Tensor
        The new weight, of the shape of ``weight``.
    bias : Tensor
        The new bias, of the shape of ``bn_mean``.
    """
    factor, shift = normalization(bn_mean, bn_var, eps, gamma, beta, bias)
    return weight * beside_weight(factor, weight, transpose), shift.reshape(bn_mean._tuple_shape)


def _empty(kind: type[M.Module], layer: M.Module) -> Any:
    """A module of ``kind`` with the arguments of ``layer``, and a bias."""
    names = ["in_features", "out_features", "compute_mode"] if isinstance(layer, M.Linear) else [
        "in_channels", "out_channels", "kernel_size", "stride", "padding", "dilation", "groups", "conv_mode", "compute_mode",
        "padding_mode", "output_padding",
    ]  # fmt: skip
    return kind(bias=True, **{name: getattr(layer, name) for name in names if hasattr(layer, name)})


def _fused(layer: Any, bn: Any, relu: M.Module | None) -> M.Module:
    bn_stays = bn is not None and layer.training
    kind = _FUSED.get((type(layer), bn_stays, relu is not None))
    if kind is None:
        raise TypeError(f"{layer!r} is not a Conv2d, ConvTranspose2d or Linear, and cannot be fused")
    module = _empty(kind, layer)
    if bn_stays:
        part = next(name for name, child in module.named_children() if type(child) is type(layer))
        setattr(module, part, deepcopy(layer))
        module.bn = deepcopy(bn)
    elif bn is None:
        module.weight, module.bias = deepcopy(layer.weight), deepcopy(layer.bias)
    else:
        if bn.running_mean is None:
            raise ValueError(f"{bn!r} has no running statistics, so that it cannot be folded")
        weight, bias = fold_weight_bias(
            layer.weight, layer.bias, bn.weight, bn.bias, bn.running_mean, bn.running_var, bn.eps,
            isinstance(layer, M.ConvTranspose2d),
        )  # fmt: skip
        module.weight = Parameter(weight)
        module.bias = Parameter(bias.reshape(-1) if isinstance(layer, M.Linear) else bias.reshape(1, -1, 1, 1))
    module.train(layer.training)
    return module


def fuse_conv_bn_relu_module(
    conv: M.Conv2d | M.ConvTranspose2d, bn: M.BatchNorm2d | None, relu: M.ReLU | None
) -> M.Module:
    """Returns a new layer with copies of the parameters: ConvBn2d or ConvBnRelu2d in training;
    otherwise the normalization is folded.

    Parameters
    ----------
    conv : Conv2d or ConvTranspose2d
        Convolution whose parameters are copied.
    bn : BatchNorm2d or None
        The normalization behind it, None for none.
    relu : ReLU or None
        The activation behind that, None for none.

    Returns
    -------
    Module
        The layer.

    Raises
    ------
    TypeError
        For another layer.
    ValueError
        For a ``bn`` without statistics.
    """
    return _fused(conv, bn, relu)


def fuse_linear_bn_relu_module(
    linear: M.Linear, bn: M.BatchNorm1d | None, relu: M.ReLU | None
) -> M.Module:
    """Returns a new layer for a linear one, as `fuse_conv_bn_relu_module`: LinearBn1d,
    LinearBnRelu1d, LinearRelu or Linear.

    Parameters
    ----------
    linear : Linear
        Linear layer whose parameters are copied.
    bn : BatchNorm1d or None
        The normalization behind it, None for none.
    relu : ReLU or None
        The activation behind that, None for none.

    Returns
    -------
    Module
        The layer.
    """
    return _fused(linear, bn, relu)
