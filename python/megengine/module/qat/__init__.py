"""Layers for quantization-aware training: the float layers, with weights and results rounded as int8 would.

`quantization.quantize_qat` makes them of float layers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from ... import functional as F
from ...core.qparams import QParams
from ...quantization.fake_quant import _FakeQuantize
from ...quantization.observer import Observer
from ...quantization.qconfig import QConfig
from ...quantization.utils import QParamsModuleMixin, fake_quant_bias
from ...tensor import Tensor
from .. import batch_matmul_activation as float_batch_matmul_activation
from .. import conv as float_conv
from .. import conv_bn as float_conv_bn
from .. import conv_transpose_bn as float_conv_transpose_bn
from .. import elemwise as float_elemwise
from .. import linear as float_linear
from .. import linear_bn as float_linear_bn
from .. import quant_dequant as float_quant_dequant
from .._folding import beside_weight, normalization
from .._structure import with_state_of
from ..batchnorm import _BatchNorm
from ..module import Module

__all__ = [
    "BatchMatMulActivation", "Concat", "Conv2d", "ConvBn2d", "ConvBnRelu2d", "ConvRelu2d", "ConvTranspose2d", "ConvTransposeBn2d",
    "ConvTransposeBnRelu2d", "ConvTransposeRelu2d", "DequantStub", "Elemwise", "Linear", "LinearBn1d", "LinearBnRelu1d", "LinearRelu",
    "QATModule", "QuantStub",
]  # fmt: skip


class QATModule(Module):
    """Base of layers that observe and round their weight and their result.

    Observers and fake quantizers are None until `set_qconfig`, and where the QConfig has none.
    Subclasses say ``with_weight`` and ``with_act``: whether there is a weight, and a result, to
    quantize.

    Parameters
    ----------
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.
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
        """Returns the layer that computes what ``float_module`` does, with the same Parameters and
        child modules.

        Parameters
        ----------
        float_module : Module
            The layer of `module` that it replaces.

        Returns
        -------
        QATModule
            The new layer.
        """
        module = with_state_of(float_module, cls)
        module._clear_quantizers()
        return module

    def set_qconfig(self, qconfig: QConfig) -> None:
        """Makes new observers and fake quantizers.

        Parameters
        ----------
        qconfig : QConfig
            Names the classes of the new observers and fake quantizers.
        """

        def made(wanted: bool, factory: Callable[[], Module] | None) -> Any:
            return factory() if wanted and factory is not None else None

        self.act_observer = made(self.with_act, qconfig.act_observer)
        self.act_fake_quant = made(self.with_act, qconfig.act_fake_quant)
        self.weight_observer = made(self.with_weight, qconfig.weight_observer)
        self.weight_fake_quant = made(self.with_weight, qconfig.weight_fake_quant)

    def set_fake_quant(self, enable: bool) -> None:
        """Enables or disables the fake quantizers.

        Parameters
        ----------
        enable : bool
            Whether they work: True enables them, False disables them.
        """
        for fake_quant in (self.weight_fake_quant, self.act_fake_quant):
            if fake_quant is not None:
                fake_quant.enabled = enable

    def set_observer(self, enable: bool) -> None:
        """Enables or disables the observers.

        Parameters
        ----------
        enable : bool
            Whether they work: True enables them, False disables them.
        """
        for observer in (self.weight_observer, self.act_observer):
            if observer is not None:
                observer.enabled = enable

    def _apply_fakequant_with_observer(
        self, target: Tensor, fake_quant: _FakeQuantize | None, observer: Observer | None
    ) -> Tensor:
        """Shows ``target`` to the observer and rounds it by the fake quantizer."""
        if observer is not None:
            target = observer(target)
        if fake_quant is None or not fake_quant.enabled:
            return target
        return fake_quant(target, None if observer is None else observer.get_qparams())

    def apply_quant_weight(self, target: Tensor) -> Tensor:
        """Returns ``target``, rounded as a weight.

        Parameters
        ----------
        target : Tensor
            Tensor of any shape, float32; the bias may be None.

        Returns
        -------
        Tensor
            The result, of the same shape and dtype.
        """
        return self._apply_fakequant_with_observer(
            target, self.weight_fake_quant, self.weight_observer
        )

    def apply_quant_activation(self, target: Tensor) -> Tensor:
        """Returns ``target``, rounded as a result.

        Parameters
        ----------
        target : Tensor
            Tensor of any shape, float32; the bias may be None.

        Returns
        -------
        Tensor
            The result, of the same shape and dtype.
        """
        return self._apply_fakequant_with_observer(target, self.act_fake_quant, self.act_observer)

    def apply_quant_bias(self, target: Tensor | None, inp: Tensor, w_qat: Tensor) -> Tensor | None:
        """Returns ``target``, rounded as a 32-bit bias with the scales of ``inp`` and ``w_qat``;
        see `fake_quant_bias`.

        Parameters
        ----------
        target : Tensor or None
            Tensor of any shape, float32; the bias may be None.
        inp : Tensor
            The layer's input, which carries its quantization parameters.
        w_qat : Tensor
            The layer's rounded weight, which carries its quantization parameters.

        Returns
        -------
        Tensor or None
            The result, of the same shape and dtype.
        """
        return fake_quant_bias(target, inp, w_qat)

    def get_weight_dtype(self) -> np.dtype | None:
        """Returns the quantized dtype of the weight, None without a quantizer.

        Returns
        -------
        numpy.dtype or None
            The dtype.

        Raises
        ------
        ValueError
            Before any data was seen.
        """
        source = _source(self.weight_fake_quant, self.weight_observer)
        return None if source is None else source.get_quantized_dtype()

    def get_activation_dtype(self) -> np.dtype | None:
        """Returns the quantized dtype of the result, None without a quantizer.

        Returns
        -------
        numpy.dtype or None
            The dtype.

        Raises
        ------
        ValueError
            Before any data was seen.
        """
        source = _source(self.act_fake_quant, self.act_observer)
        return None if source is None else source.get_quantized_dtype()

    def get_weight_qparams(self) -> QParams | None:
        """Returns the quantization parameters of the weight, None without a quantizer.

        Returns
        -------
        QParams or None
            The parameters that the quantizer holds.
        """
        source = _source(self.weight_fake_quant, self.weight_observer)
        return None if source is None else source.get_qparams()

    def get_activation_qparams(self) -> QParams | None:
        """Returns the quantization parameters of the result, None without a quantizer.

        Returns
        -------
        QParams or None
            The parameters that the quantizer holds.
        """
        source = _source(self.act_fake_quant, self.act_observer)
        return None if source is None else source.get_qparams()


class RoundedQAT(QATModule):
    """A layer whose method ``_calc`` (input, weight, bias) gets rounded weight and bias. Its public
    method, named ``_calc`` plus ``_ending``, returns the result before rounding.
    """

    weight: Any
    bias: Any
    _calc = ""
    _ending = "_qat"

    def _calculated(self, inp: Tensor) -> Tensor:
        """Computes the layer with rounded weight and bias; the result is not rounded.

        Parameters
        ----------
        inp : Tensor
            The layer's input, float32.

        Returns
        -------
        Tensor
            Result of the convolution, float32.
        """
        weight = self.apply_quant_weight(self.weight)
        return getattr(self, self._calc)(inp, weight, self.apply_quant_bias(self.bias, inp, weight))

    def _activated(self, x: Tensor) -> Tensor:
        return x

    def forward(self, inp: Tensor) -> Tensor:
        result = getattr(self, self._calc + self._ending)(inp)
        return self.apply_quant_activation(self._activated(result))


class ReluQAT(QATModule):
    """Applies relu before the result is rounded, if it stands before a `RoundedQAT` among the bases
    of a class.
    """

    def _activated(self, x: Tensor) -> Tensor:
        return F.nn.relu(x)


def _source(fake_quant: Any, observer: Any) -> QParamsModuleMixin | None:
    """Returns the object that knows the parameters: a fake quantizer that learns them, else the
    observer.
    """
    return fake_quant if isinstance(fake_quant, QParamsModuleMixin) else observer


def training_factor(bn: _BatchNorm) -> Tensor:
    """Returns the factor of the weight before it is rounded in training; never 0, for the result is
    divided by it.

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
    """Returns (mean, variance) of a normalization that keeps them."""
    if bn.running_mean is None or bn.running_var is None:
        raise AssertionError("bn.running_mean is not None and bn.running_var is not None does not hold")
    return bn.running_mean, bn.running_var


def uses_running_statistics(bn: _BatchNorm, training: bool) -> bool:
    """Whether the normalization is a fixed affine map, which can be folded."""
    return bn.freeze or (bn.running_mean is not None and not training)


def folded(layer: Any, bn: _BatchNorm, mean: Tensor, var: Tensor, transposed: bool = False) -> tuple[Tensor, Tensor]:
    """Returns weight and bias (out_channels,) of a layer that also normalizes by these statistics.
    """
    factor, shift = normalization(mean, var, bn.eps, bn.weight, bn.bias, layer.bias)
    return layer.weight * beside_weight(factor, layer.weight, transposed), shift


class FoldedQAT(RoundedQAT):
    """A layer, the child called ``_layer``, and the batch normalization behind it, the child ``bn``.

    ``_calc`` is a method of the layer; numbers of channels in the shape ``_bias_shape`` broadcast
    to a result.
    """

    bn: Any
    _layer = ""
    _ending = "_bn_qat"
    _bias_shape: tuple[int, ...] = (1, -1, 1, 1)
    _transposed = False

    def _folded_layer(self) -> Any:
        return getattr(self, self._layer)

    def fold_weight_bias(self, bn_mean: Tensor, bn_var: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the weight and the bias of the layer that also normalizes.

        Parameters
        ----------
        bn_mean, bn_var : Tensor
            Mean and variance of the normalization, one element per channel.

        Returns
        -------
        weight : Tensor
            The weight, rounded.
        bias : Tensor
            The bias, not rounded.

        Raises
        ------
        TypeError
            Unless a subclass defines it.
        """
        raise TypeError(f"{type(self).__name__} does not define fold_weight_bias(bn_mean, bn_var)")

    def _calculated(self, inp: Tensor) -> Tensor:
        """Computes the normalized result, not rounded.

        In training the weight is rounded as folded with the running statistics, and the batch
        normalizes.

        Parameters
        ----------
        inp : Tensor
            The layer's input, float32.

        Returns
        -------
        Tensor
            The normalized result, float32.
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


class BatchMatMulActivation(float_batch_matmul_activation.BatchMatMulActivation, QATModule):
    """Computes the batched product with rounded weight, bias and result.

    Parameters
    ----------
    batch, in_features, out_features : int
        Number of matrices, and number of their rows before and after.
    bias : bool
        Whether to add a learned bias.
    nonlinear_mode : str
        The activation: "identity" or "relu".
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.

    Raises
    ------
    ValueError
        For another nonlinear_mode.
    """

    def forward(self, inp: Tensor) -> Tensor:
        weight = self.apply_quant_weight(self.weight)
        bias = self.apply_quant_bias(self.bias, inp, weight)
        return self.apply_quant_activation(self._calc_linear(inp, weight, bias))


class Concat(float_elemwise.Concat, QATModule):
    """Joins parts and rounds the result: the parts, whose scales may differ, get one scale.

    Parameters
    ----------
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.
    """

    def forward(self, inps: Iterable[Tensor], axis: int = 0) -> Tensor:
        return self.apply_quant_activation(super().forward(inps, axis))


class Conv2d(float_conv.Conv2d, RoundedQAT):
    """Convolves images with rounded weight, bias and result.

    Parameters
    ----------
    in_channels, out_channels : int
        Number of channels of the input and of the output; groups must divide both.
    kernel_size, stride, padding, dilation : int or sequence of int
        Extent of a kernel, distance from one window to the next, pixels added on every side, and
        distance of a kernel's elements: each an int for both axes, or (height, width).
    groups : int
        Number of groups of channels; an output channel sees the input channels of its group only.
    bias : bool
        Whether the convolution adds a learned number to each output channel.
    conv_mode, compute_mode, padding_mode : str
        "cross_correlation", the only one; "default" or "float32", which both accumulate in float32;
        and what the padding holds, "zeros", "reflect" or "replicate".
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.
    """

    _calc = "calc_conv"
    calc_conv_qat = RoundedQAT._calculated
    forward = RoundedQAT.forward


class ConvRelu2d(ReluQAT, Conv2d):
    """Computes relu(Conv2d(x)), rounded after the relu.

    Parameters
    ----------
    in_channels, out_channels : int
        Number of channels of the input and of the output; groups must divide both.
    kernel_size, stride, padding, dilation : int or sequence of int
        Extent of a kernel, distance from one window to the next, pixels added on every side, and
        distance of a kernel's elements: each an int for both axes, or (height, width).
    groups : int
        Number of groups of channels; an output channel sees the input channels of its group only.
    bias : bool
        Whether the convolution adds a learned number to each output channel.
    conv_mode, compute_mode, padding_mode : str
        "cross_correlation", the only one; "default" or "float32", which both accumulate in float32;
        and what the padding holds, "zeros", "reflect" or "replicate".
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.
    """


class ConvTranspose2d(float_conv.ConvTranspose2d, RoundedQAT):
    """Computes the transposed convolution with rounded weight, bias and result.

    Parameters
    ----------
    in_channels, out_channels : int
        Number of channels of the input and of the output; groups must divide both.
    kernel_size, stride, padding, output_padding, dilation : int or sequence of int
        Extent of a kernel, distance of the windows of two neighbouring input pixels, pixels cut off
        on every side of the output, rows and columns added at its end, and distance of a kernel's
        elements: each an int for both axes, or (height, width).
    groups : int
        Number of groups of channels; an output channel sees the input channels of its group only.
    bias : bool
        Whether the convolution adds a learned number to each output channel.
    conv_mode, compute_mode : str
        "cross_correlation", the only one; and "default" or "float32", which both accumulate in
        float32.
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.
    """

    _calc = "calc_conv_transpose2d"
    calc_conv_transpose2d_qat = RoundedQAT._calculated
    forward = RoundedQAT.forward


class ConvTransposeRelu2d(ReluQAT, ConvTranspose2d):
    """Computes relu(ConvTranspose2d(x)), rounded after the relu.

    Parameters
    ----------
    in_channels, out_channels : int
        Number of channels of the input and of the output; groups must divide both.
    kernel_size, stride, padding, output_padding, dilation : int or sequence of int
        Extent of a kernel, distance of the windows of two neighbouring input pixels, pixels cut off
        on every side of the output, rows and columns added at its end, and distance of a kernel's
        elements: each an int for both axes, or (height, width).
    groups : int
        Number of groups of channels; an output channel sees the input channels of its group only.
    bias : bool
        Whether the convolution adds a learned number to each output channel.
    conv_mode, compute_mode : str
        "cross_correlation", the only one; and "default" or "float32", which both accumulate in
        float32.
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.
    """


class _ConvBnActivation2d(float_conv_bn._ConvBnActivation2d, FoldedQAT):
    _layer = "conv"
    _calc = "calc_conv"
    calc_conv_bn_qat = FoldedQAT._calculated
    forward = FoldedQAT.forward

    def fold_weight_bias(self, bn_mean: Tensor, bn_var: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the weight and the bias of the convolution that also normalizes.

        Parameters
        ----------
        bn_mean, bn_var : Tensor
            Mean and variance of the normalization, one element per channel.

        Returns
        -------
        weight : Tensor
            The weight, rounded.
        bias : Tensor
            The bias (1, out_channels, 1, 1), not rounded.
        """
        weight, bias = folded(self.conv, self.bn, bn_mean, bn_var)
        return self.apply_quant_weight(weight), bias.reshape(1, -1, 1, 1)


class ConvBn2d(_ConvBnActivation2d):
    """Computes BatchNorm2d(Conv2d(x)) with rounded weight, bias and result.

    Parameters
    ----------
    in_channels, out_channels : int
        Number of channels of the input and of the output; groups must divide both.
    kernel_size, stride, padding, dilation : int or sequence of int
        Extent of a kernel, distance from one window to the next, pixels added on every side, and
        distance of a kernel's elements: each an int for both axes, or (height, width).
    groups : int
        Number of groups of channels; an output channel sees the input channels of its group only.
    bias : bool
        Whether the convolution adds a learned number to each output channel.
    conv_mode, compute_mode : str
        "cross_correlation", the only one; and "default" or "float32", which both accumulate in
        float32.
    eps, momentum : float
        Number that is added to the variance, and weight of the old running statistics: ``momentum *
        old + (1 - momentum) * batch``.
    affine, track_running_stats : bool
        Whether the normalization learns a scale and a shift, and whether it keeps running
        statistics for `eval` mode.
    padding_mode : str
        What the padding holds: "zeros", "reflect" or "replicate".
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.
    """


class ConvBnRelu2d(ReluQAT, _ConvBnActivation2d):
    """Computes relu(BatchNorm2d(Conv2d(x))), rounded after the relu.

    Parameters
    ----------
    in_channels, out_channels : int
        Number of channels of the input and of the output; groups must divide both.
    kernel_size, stride, padding, dilation : int or sequence of int
        Extent of a kernel, distance from one window to the next, pixels added on every side, and
        distance of a kernel's elements: each an int for both axes, or (height, width).
    groups : int
        Number of groups of channels; an output channel sees the input channels of its group only.
    bias : bool
        Whether the convolution adds a learned number to each output channel.
    conv_mode, compute_mode : str
        "cross_correlation", the only one; and "default" or "float32", which both accumulate in
        float32.
    eps, momentum : float
        Number that is added to the variance, and weight of the old running statistics: ``momentum *
        old + (1 - momentum) * batch``.
    affine, track_running_stats : bool
        Whether the normalization learns a scale and a shift, and whether it keeps running
        statistics for `eval` mode.
    padding_mode : str
        What the padding holds: "zeros", "reflect" or "replicate".
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.
    """


class _ConvTransposeBnActivation2d(float_conv_transpose_bn._ConvTransposeBnActivation2d, FoldedQAT):
    _layer = "conv_transpose2d"
    _calc = "calc_conv_transpose2d"
    _transposed = True
    calc_conv_transpose2d_bn_qat = FoldedQAT._calculated
    forward = FoldedQAT.forward

    def fold_weight_bias(self, bn_mean: Tensor, bn_var: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the weight and the bias of the convolution that also normalizes.

        Parameters
        ----------
        bn_mean, bn_var : Tensor
            Mean and variance of the normalization, one element per channel.

        Returns
        -------
        weight : Tensor
            The weight, rounded.
        bias : Tensor
            The bias (1, out_channels, 1, 1), not rounded.
        """
        weight, bias = folded(self.conv_transpose2d, self.bn, bn_mean, bn_var, transposed=True)
        return self.apply_quant_weight(weight), bias.reshape(1, -1, 1, 1)


class ConvTransposeBn2d(_ConvTransposeBnActivation2d):
    """Computes BatchNorm2d(ConvTranspose2d(x)) with rounded weight, bias and result.

    Parameters
    ----------
    in_channels, out_channels : int
        Number of channels of the input and of the output; groups must divide both.
    kernel_size, stride, padding, output_padding, dilation : int or sequence of int
        Extent of a kernel, distance of the windows of two neighbouring input pixels, pixels cut off
        on every side of the output, rows and columns added at its end, and distance of a kernel's
        elements: each an int for both axes, or (height, width).
    groups : int
        Number of groups of channels; an output channel sees the input channels of its group only.
    bias : bool
        Whether the convolution adds a learned number to each output channel.
    conv_mode, compute_mode : str
        "cross_correlation", the only one; and "default" or "float32", which both accumulate in
        float32.
    eps, momentum : float
        Number that is added to the variance, and weight of the old running statistics: ``momentum *
        old + (1 - momentum) * batch``.
    affine, track_running_stats : bool
        Whether the normalization learns a scale and a shift, and whether it keeps running
        statistics for `eval` mode.
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.
    """


class ConvTransposeBnRelu2d(ReluQAT, _ConvTransposeBnActivation2d):
    """Computes relu(BatchNorm2d(ConvTranspose2d(x))), rounded after the relu.

    Parameters
    ----------
    in_channels, out_channels : int
        Number of channels of the input and of the output; groups must divide both.
    kernel_size, stride, padding, output_padding, dilation : int or sequence of int
        Extent of a kernel, distance of the windows of two neighbouring input pixels, pixels cut off
        on every side of the output, rows and columns added at its end, and distance of a kernel's
        elements: each an int for both axes, or (height, width).
    groups : int
        Number of groups of channels; an output channel sees the input channels of its group only.
    bias : bool
        Whether the convolution adds a learned number to each output channel.
    conv_mode, compute_mode : str
        "cross_correlation", the only one; and "default" or "float32", which both accumulate in
        float32.
    eps, momentum : float
        Number that is added to the variance, and weight of the old running statistics: ``momentum *
        old + (1 - momentum) * batch``.
    affine, track_running_stats : bool
        Whether the normalization learns a scale and a shift, and whether it keeps running
        statistics for `eval` mode.
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.
    """


class Elemwise(float_elemwise.Elemwise, QATModule):
    """Applies a function by name and rounds the result.

    Parameters
    ----------
    method : object
        Name of a function in any case: "add", "RELU", "fuse_add_relu" and others.
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.
    """

    with_weight = False

    def forward(self, *inps: Tensor) -> Tensor:
        return self.apply_quant_activation(super().forward(*inps))


class Linear(float_linear.Linear, RoundedQAT):
    """Computes the linear map with rounded weight, bias and result.

    Parameters
    ----------
    in_features, out_features : int
        Extent of the last axis before and after.
    bias : bool
        Whether to add a learned bias.
    compute_mode : str
        "default" or "float32"; both accumulate in float32.
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.
    """

    _calc = "calc_linear"
    calc_linear_qat = RoundedQAT._calculated
    forward = RoundedQAT.forward  # type: ignore[assignment]  # its argument has another name in Linear


class LinearRelu(ReluQAT, Linear):
    """Computes relu(Linear(x)), rounded after the relu.

    Parameters
    ----------
    in_features, out_features : int
        Extent of the last axis before and after.
    bias : bool
        Whether to add a learned bias.
    compute_mode : str
        "default" or "float32"; both accumulate in float32.
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.
    """


class _LinearBnActivation1d(float_linear_bn._LinearBnActivation1d, FoldedQAT):
    _layer = "linear"
    _calc = "calc_linear"
    _bias_shape = (-1,)
    calc_linear_bn_qat = FoldedQAT._calculated
    forward = FoldedQAT.forward

    def fold_weight_bias(self, bn_mean: Tensor, bn_var: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the weight and the bias of the linear layer that also normalizes.

        Parameters
        ----------
        bn_mean, bn_var : Tensor
            Mean and variance of the normalization, one element per channel.

        Returns
        -------
        weight : Tensor
            The weight, rounded.
        bias : Tensor
            The bias (out_features,), not rounded.
        """
        weight, bias = folded(self.linear, self.bn, bn_mean, bn_var)
        return self.apply_quant_weight(weight), bias


class LinearBn1d(_LinearBnActivation1d):
    """Computes BatchNorm1d(Linear(x)) with rounded weight, bias and result.

    Parameters
    ----------
    in_features, out_features : int
        Extent of the last axis before and after.
    bias : bool
        Whether to add a learned bias.
    compute_mode : str
        "default" or "float32"; both accumulate in float32.
    eps, momentum : float
        Number that is added to the variance, and weight of the old running statistics: ``momentum *
        old + (1 - momentum) * batch``.
    affine, track_running_stats : bool
        Whether the normalization learns a scale and a shift, and whether it keeps running
        statistics for `eval` mode.
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.
    """


class LinearBnRelu1d(ReluQAT, _LinearBnActivation1d):
    """Computes relu(BatchNorm1d(Linear(x))), rounded after the relu.

    Parameters
    ----------
    in_features, out_features : int
        Extent of the last axis before and after.
    bias : bool
        Whether to add a learned bias.
    compute_mode : str
        "default" or "float32"; both accumulate in float32.
    eps, momentum : float
        Number that is added to the variance, and weight of the old running statistics: ``momentum *
        old + (1 - momentum) * batch``.
    affine, track_running_stats : bool
        Whether the normalization learns a scale and a shift, and whether it keeps running
        statistics for `eval` mode.
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.
    """


class QuantStub(float_quant_dequant.QuantStub, QATModule):
    """Rounds its input.

    Parameters
    ----------
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.
    """

    with_weight = False

    def forward(self, inp: Tensor) -> Tensor:
        return self.apply_quant_activation(inp)


class DequantStub(float_quant_dequant.DequantStub, QATModule):
    """Returns its input: values are in float already.

    Parameters
    ----------
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.
    """

    with_weight = False
    with_act = False
