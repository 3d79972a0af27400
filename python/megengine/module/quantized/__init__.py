"""Layers that compute on integers. `quantization.quantize` makes them of the layers of `module.qat`; those whose weights alone are integers (`WeightOnlyLinear`, `BlockwiseLinear`, `BlockwiseEmbedding`) are made by `quantization.quantize_weights`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Self

import numpy as np

from ... import functional as F
from ...core import ops
from ...core.tensor.elemwise_modes import function_of, mode_of
from ...core.tensor.quantized import QuantizedTensor, convert, in_dtype, real_values
from ...functional import quantized as FQ
from ...tensor import Tensor
from .. import batch_matmul_activation as float_batch_matmul_activation
from .. import conv as float_conv
from .._conv_base import Size
from .._structure import with_state_of
from ..blockwise import BlockwiseEmbedding, BlockwiseLinear
from ..module import Module
from ..qat import FoldedQAT, QATModule, running_statistics
from ..weight_only import WeightOnlyLinear

__all__ = [
    "BatchMatMulActivation", "BlockwiseEmbedding", "BlockwiseLinear", "Concat", "Conv2d", "ConvBn2d", "ConvBnRelu2d", "ConvRelu2d", "ConvTranspose2d", "ConvTransposeBn2d",
    "ConvTransposeBnRelu2d", "ConvTransposeRelu2d", "DequantStub", "Elemwise", "Linear", "LinearBn1d", "LinearBnRelu1d", "LinearRelu",
    "QuantStub", "QuantizedModule", "WeightOnlyLinear",
]  # fmt: skip


class QuantizedModule(Module):
    """Base of layers that compute on integers.

    They infer only: a call in training mode is a ValueError.

    Parameters
    ----------
    name : str or None
        Name of the module in dumped graphs; None takes the name of its attribute.
    """

    _repr_prefix = "Quantized."
    _nonlinear_mode = "identity"  # subclasses have "relu"

    @classmethod
    def from_qat_module(cls, qat_module: Any) -> Self:
        """Returns the layer that computes on integers what ``qat_module`` computes on rounded
        numbers.

        Parameters
        ----------
        qat_module : object
            The layer of `module.qat` that it replaces.

        Returns
        -------
        Self
            The new layer.

        Raises
        ------
        TypeError
            Unless a subclass defines it.
        """
        raise TypeError(f"{cls.__name__} does not define from_qat_module(cls, qat_module)")

    def __call__(self, *inputs: Any, **kwargs: Any) -> Any:
        """Calls the module, as `Module` does. ValueError in training mode."""
        if self.training:
            raise ValueError(
                f"{type(self).__name__} computes on integers and cannot be trained\n  fix: call eval() of the model"
            )
        return super().__call__(*inputs, **kwargs)


def made_like(cls: type[QuantizedModule], layer: Module, qat_module: QATModule) -> Any:
    """A ``cls`` with the sizes of the float ``layer`` and the name, mode, hooks and result dtype of ``qat_module``."""
    made: Any = with_state_of(layer, cls, qat_module)
    for name in ("weight_observer", "act_observer", "weight_fake_quant", "act_fake_quant"):
        vars(made).pop(name, None)
    made._list_holders()
    made.output_dtype = qat_module.get_activation_dtype()
    return made


class Plain(QuantizedModule):
    """Base of layers that take a layer of `module.qat` over unchanged."""

    @classmethod
    def from_qat_module(cls, qat_module: Any) -> Self:
        made = made_like(cls, qat_module, qat_module)
        return made if "weight" not in vars(qat_module) else with_weights(made, qat_module, qat_module.weight, qat_module.bias)


class Folded(QuantizedModule):
    """Base of layers whose weight and bias contain the running statistics of a batch normalization.
    """

    @classmethod
    def from_qat_module(cls, qat_module: FoldedQAT) -> Self:
        weight, bias = qat_module.fold_weight_bias(*running_statistics(qat_module.bn))
        return with_weights(made_like(cls, qat_module._folded_layer(), qat_module), qat_module, weight, bias)


def with_weights(made: Any, qat_module: QATModule, weight: Tensor, bias: Tensor | None) -> Any:
    """Gives ``made`` the weight in qat_module's dtype, and the bias unchanged."""
    made.weight = convert(weight.detach(), qat_module.get_weight_dtype())
    made.bias = None if bias is None else Tensor(bias.detach())
    return made


class BatchMatMulActivation(float_batch_matmul_activation.BatchMatMulActivation, Plain):
    """Computes the batched product of a quantized input, in float32 between the roundings.

    Parameters
    ----------
    batch, in_features, out_features : int
        Number of matrices, and number of their rows before and after.
    bias : bool
        Whether to add a learned bias.
    nonlinear_mode : str
        The activation: "identity" or "relu".
    dtype : numpy.dtype or None
        Quantized dtype of the result, which `quantization.quantize` sets.
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.
    """

    def __init__(
        self,
        batch: int,
        in_features: int,
        out_features: int,
        bias: bool = True,
        nonlinear_mode: str = "identity",
        dtype: np.dtype | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(batch, in_features, out_features, bias, nonlinear_mode, **kwargs)
        self.output_dtype = dtype

    def calc_bmm_quantized(self, inp: Tensor) -> Tensor:
        """Returns the product, with bias and activation.

        Parameters
        ----------
        inp : Tensor
            Quantized tensor of the layer's input shape.

        Returns
        -------
        Tensor
            The result, as `forward` returns it.
        """
        y = self._calc_linear(real_values(inp), real_values(self.weight), self.bias)
        return in_dtype(y, self.output_dtype)

    def forward(self, inp: Tensor) -> Tensor:
        return self.calc_bmm_quantized(inp)


class Concat(Plain):
    """Converts the parts to one dtype and joins them.

    Parameters
    ----------
    dtype : numpy.dtype or None
        Quantized dtype of the result, which `quantization.quantize` sets.
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.
    """

    def __init__(self, dtype: np.dtype | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.output_dtype = dtype

    def forward(self, inps: Iterable[Tensor], axis: int = 0) -> Tensor:
        return in_dtype(F.concat([real_values(inp) for inp in inps], axis), self.output_dtype)


class Conv2d(float_conv.Conv2d, Plain):
    """Convolves a quantized input.

    ``weight`` is quantized; ``bias`` is float32, rounded to the accumulator's scale when used.

    Parameters
    ----------
    in_channels, out_channels : int
        Number of channels of the input and of the output; groups must divide both.
    kernel_size, stride, padding, dilation : int or sequence of int
        Extent of a kernel, distance from one window to the next, pixels added on every side, and
        distance of a kernel's elements: each an int for both axes, or (height, width).
    groups : int
        Number of groups of channels; an output channel sees the input channels of its group only.
    conv_mode, compute_mode : str
        "cross_correlation", the only one; and "default" or "float32", which both accumulate in
        float32.
    dtype : numpy.dtype or None
        Quantized dtype of the result, which `quantization.quantize` sets.
    padding_mode : str
        What the padding holds: "zeros", "reflect" or "replicate".
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Size,
        stride: Size = 1,
        padding: Size = 0,
        dilation: Size = 1,
        groups: int = 1,
        conv_mode: str = "cross_correlation",
        compute_mode: str = "default",
        dtype: np.dtype | None = None,
        padding_mode: str = "zeros",
        **kwargs: Any,
    ) -> None:
        super().__init__(
            in_channels,
            out_channels,
            kernel_size,
            stride,
            padding,
            dilation,
            groups,
            True,
            conv_mode,
            compute_mode,
            padding_mode,
            **kwargs,
        )
        self.output_dtype = dtype

    def calc_conv_quantized(self, inp: Tensor, nonlinear_mode: str = "identity") -> Tensor:
        """Returns the convolution, with an activation.

        Parameters
        ----------
        inp : Tensor
            Quantized tensor of the layer's input shape.
        nonlinear_mode : str
            The activation: "identity" or "relu".

        Returns
        -------
        Tensor
            The result, as `forward` returns it.
        """
        inp, padding = self._padded(inp)
        return FQ.conv_bias_activation(
            inp,
            self.weight,
            self.bias,
            self.output_dtype,
            self.stride,
            padding,
            self.dilation,
            self.groups,
            nonlinear_mode,
            self.conv_mode,
            self.compute_mode,
        )

    def forward(self, inp: Tensor) -> Tensor:
        return self.calc_conv_quantized(inp, self._nonlinear_mode)


class ConvRelu2d(Conv2d):
    """Computes relu(Conv2d(x)) on integers.

    Parameters
    ----------
    in_channels, out_channels : int
        Number of channels of the input and of the output; groups must divide both.
    kernel_size, stride, padding, dilation : int or sequence of int
        Extent of a kernel, distance from one window to the next, pixels added on every side, and
        distance of a kernel's elements: each an int for both axes, or (height, width).
    groups : int
        Number of groups of channels; an output channel sees the input channels of its group only.
    conv_mode, compute_mode : str
        "cross_correlation", the only one; and "default" or "float32", which both accumulate in
        float32.
    dtype : numpy.dtype or None
        Quantized dtype of the result, which `quantization.quantize` sets.
    padding_mode : str
        What the padding holds: "zeros", "reflect" or "replicate".
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.
    """

    _nonlinear_mode = "relu"


class ConvTranspose2d(float_conv.ConvTranspose2d, Plain):
    """Computes the transposed convolution of a quantized input, in float32 between the roundings.

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
    dtype : numpy.dtype or None
        Quantized dtype of the result, which `quantization.quantize` sets.
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Size,
        stride: Size = 1,
        padding: Size = 0,
        output_padding: Size = 0,
        dilation: Size = 1,
        groups: int = 1,
        bias: bool = True,
        conv_mode: str = "cross_correlation",
        compute_mode: str = "default",
        dtype: np.dtype | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            in_channels,
            out_channels,
            kernel_size,
            stride,
            padding,
            output_padding,
            dilation,
            groups,
            bias,
            conv_mode,
            compute_mode,
            **kwargs,
        )
        self.output_dtype = dtype

    def calc_conv_transpose2d_quantized(
        self, inp: Tensor, nonlinear_mode: str = "identity"
    ) -> Tensor:
        """Returns the transposed convolution, with an activation.

        Parameters
        ----------
        inp : Tensor
            Quantized tensor of the layer's input shape.
        nonlinear_mode : str
            The activation: "identity" or "relu".

        Returns
        -------
        Tensor
            The result, as `forward` returns it.
        """
        use_relu = FQ.is_relu(nonlinear_mode)
        y = self.calc_conv_transpose2d(real_values(inp), real_values(self.weight), self.bias)
        return in_dtype(F.relu(y) if use_relu else y, self.output_dtype)

    def forward(self, inp: Tensor) -> Tensor:
        return self.calc_conv_transpose2d_quantized(inp, self._nonlinear_mode)


class ConvTransposeRelu2d(ConvTranspose2d):
    """Computes relu(ConvTranspose2d(x)) of a quantized input.

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
    dtype : numpy.dtype or None
        Quantized dtype of the result, which `quantization.quantize` sets.
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.
    """

    _nonlinear_mode = "relu"


class ConvBn2d(Folded, Conv2d):
    """Computes BatchNorm2d(Conv2d(x)) on integers.

    Parameters
    ----------
    in_channels, out_channels : int
        Number of channels of the input and of the output; groups must divide both.
    kernel_size, stride, padding, dilation : int or sequence of int
        Extent of a kernel, distance from one window to the next, pixels added on every side, and
        distance of a kernel's elements: each an int for both axes, or (height, width).
    groups : int
        Number of groups of channels; an output channel sees the input channels of its group only.
    conv_mode, compute_mode : str
        "cross_correlation", the only one; and "default" or "float32", which both accumulate in
        float32.
    dtype : numpy.dtype or None
        Quantized dtype of the result, which `quantization.quantize` sets.
    padding_mode : str
        What the padding holds: "zeros", "reflect" or "replicate".
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.
    """


class ConvBnRelu2d(Folded, ConvRelu2d):
    """Computes relu(BatchNorm2d(Conv2d(x))) on integers.

    Parameters
    ----------
    in_channels, out_channels : int
        Number of channels of the input and of the output; groups must divide both.
    kernel_size, stride, padding, dilation : int or sequence of int
        Extent of a kernel, distance from one window to the next, pixels added on every side, and
        distance of a kernel's elements: each an int for both axes, or (height, width).
    groups : int
        Number of groups of channels; an output channel sees the input channels of its group only.
    conv_mode, compute_mode : str
        "cross_correlation", the only one; and "default" or "float32", which both accumulate in
        float32.
    dtype : numpy.dtype or None
        Quantized dtype of the result, which `quantization.quantize` sets.
    padding_mode : str
        What the padding holds: "zeros", "reflect" or "replicate".
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.
    """


class ConvTransposeBn2d(Folded, ConvTranspose2d):
    """Computes BatchNorm2d(ConvTranspose2d(x)) of a quantized input.

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
    dtype : numpy.dtype or None
        Quantized dtype of the result, which `quantization.quantize` sets.
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.
    """


class ConvTransposeBnRelu2d(Folded, ConvTransposeRelu2d):
    """Computes relu(BatchNorm2d(ConvTranspose2d(x))) of a quantized input.

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
    dtype : numpy.dtype or None
        Quantized dtype of the result, which `quantization.quantize` sets.
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.
    """


class Elemwise(Plain):
    """Applies the function named ``method`` to the real values.

    Parameters
    ----------
    method : object
        Name of a function in any case: "add", "RELU", "fuse_add_relu" and others.
    dtype : numpy.dtype or None
        Quantized dtype of the result, which `quantization.quantize` sets.
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.
    """

    def __init__(self, method: object, dtype: np.dtype | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.method = mode_of(method)
        function_of(self.method)
        self.output_dtype = dtype

    def forward(self, *inps: Tensor) -> Tensor:
        return in_dtype(function_of(self.method)(*map(real_values, inps)), self.output_dtype)


class Linear(Plain):
    """Computes the linear map of a quantized input.

    ``weight`` (out, in) is quantized; ``bias`` is float32.

    Parameters
    ----------
    dtype : numpy.dtype or None
        Quantized dtype of the result, which `quantization.quantize` sets.
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.
    """

    def __init__(self, dtype: np.dtype | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.weight: Any = None  # a Tensor when made from a QAT module
        self.bias: Tensor | None = None
        self.output_dtype = dtype

    def calc_linear_quantized(self, inp: Tensor, nonlinear_mode: str = "identity") -> Tensor:
        """Returns the linear map, with an activation.

        Parameters
        ----------
        inp : Tensor
            Quantized tensor of the layer's input shape.
        nonlinear_mode : str
            The activation: "identity" or "relu".

        Returns
        -------
        Tensor
            The result, as `forward` returns it.
        """
        use_relu = FQ.is_relu(nonlinear_mode)
        weight, dtype = self.weight, self.output_dtype
        if dtype is None or not FQ.is_8_bit(inp.dtype, weight.dtype, dtype):
            y = F.linear(real_values(inp), real_values(weight), self.bias)
            return in_dtype(F.relu(y) if use_relu else y, dtype)
        *batch, features = inp._tuple_shape
        pixels = ops.reshape(inp, shape=(int(np.prod(batch)), features, 1, 1))
        kernels = ops.reshape(weight, shape=(*weight._tuple_shape, 1, 1))
        y = FQ.conv_8_bit(
            QuantizedTensor(pixels, inp.dtype),
            QuantizedTensor(kernels, weight.dtype),
            self.bias,
            dtype,
            use_relu,
        )
        return QuantizedTensor(ops.reshape(y, shape=(*batch, weight._tuple_shape[0])), dtype)

    def forward(self, inp: Tensor) -> Tensor:
        return self.calc_linear_quantized(inp, self._nonlinear_mode)


class LinearRelu(Linear):
    """Computes relu(Linear(x)) on integers.

    Parameters
    ----------
    dtype : numpy.dtype or None
        Quantized dtype of the result, which `quantization.quantize` sets.
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.
    """

    _nonlinear_mode = "relu"


class LinearBn1d(Folded, Linear):
    """Computes BatchNorm1d(Linear(x)) on integers.

    Parameters
    ----------
    dtype : numpy.dtype or None
        Quantized dtype of the result, which `quantization.quantize` sets.
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.
    """


class LinearBnRelu1d(Folded, LinearRelu):
    """Computes relu(BatchNorm1d(Linear(x))) on integers.

    Parameters
    ----------
    dtype : numpy.dtype or None
        Quantized dtype of the result, which `quantization.quantize` sets.
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.
    """


class QuantStub(Plain):
    """Converts real numbers to integers of ``dtype``.

    Parameters
    ----------
    dtype : numpy.dtype or None
        Quantized dtype of the result, which `quantization.quantize` sets.
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.
    """

    def __init__(self, dtype: np.dtype | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.output_dtype = dtype

    def forward(self, inp: Tensor) -> Tensor:
        return in_dtype(inp, self.output_dtype)


class DequantStub(Plain):
    """Converts integers to real numbers.

    Parameters
    ----------
    name : str or None
        Name of the module in dumped graphs; None takes the name of its attribute.
    """

    def forward(self, inp: Tensor) -> Tensor:
        return real_values(inp)
