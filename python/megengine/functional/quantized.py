"""Functions of quantized tensors. Where input, weight and result are symmetric 8-bit, the products are 8-bit and
summed in 32 bits; other kinds are computed in float32 between the two roundings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..core import ops
from ..core.tensor.dtype import get_quantize_entry, get_scale, is_quantize
from ..core.tensor.quantized import QuantizedTensor, in_dtype, real_values
from ..core.tensor.shapes import as_pair
from ..tensor import Tensor
from . import _conv
from .block_weights import dequantize_blocks, linear_of_blocks, quantize_blocks

__all__ = [
    "batch_conv_bias_activation",
    "conv_bias_activation",
    "conv_transpose2d",
    "dequantize_blocks",
    "linear_of_blocks",
    "quantize_blocks",
]

IntPair = int | Sequence[int]  # one for both axes, or one each


def is_8_bit(*dtypes: Any) -> bool:
    """Whether all are symmetric 8-bit dtypes, signed."""
    return all(
        is_quantize(dtype) and get_quantize_entry(dtype)["name"] == "QuantizedS8"
        for dtype in dtypes
    )


def is_relu(nonlinear_mode: str) -> bool:
    """Whether the mode is "relu" and not "identity". ValueError for another one."""
    mode = str(nonlinear_mode).lower()
    if mode not in ("identity", "relu"):
        raise ValueError(f"nonlinear_mode {nonlinear_mode!r} is neither 'identity' nor 'relu'")
    return mode == "relu"


def _rounded_bias(bias: Tensor, inp: Tensor, weight: Tensor) -> Tensor:
    """The bias as numbers of the 32-bit accumulator, in float32."""
    bias = real_values(bias)
    return ops.round(
        ops.reshape(bias, shape=(bias.size,)) / (get_scale(inp.dtype) * get_scale(weight.dtype))
    )


def conv_8_bit(
    inp: Tensor, weight: Tensor, bias: Tensor | None, dtype: np.dtype, use_relu: bool, **window: Any
) -> QuantizedTensor:
    """Convolves 8-bit integers. weight: [oc, c / groups, kernel...]. dtype: that of the result,
    symmetric 8-bit.
    """
    scale = get_scale(inp.dtype) * get_scale(weight.dtype) / get_scale(dtype)
    scales = ops.full(shape=(1,), value=scale, dtype="float32", device=inp)
    channels = weight._tuple_shape[0]
    if bias is None:
        shift = ops.full(shape=(channels,), value=0.0, dtype="float32", device=inp)
    else:
        shift = _rounded_bias(bias, inp, weight) * scale
    y = ops.quantized_conv(inp, weight, scales, shift, relu=int(use_relu), dtype="int8", **window)
    return QuantizedTensor(y, dtype)


def conv_bias_activation(
    inp: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    dtype: np.dtype | None = None,
    stride: IntPair = 1,
    padding: IntPair = 0,
    dilation: IntPair = 1,
    groups: int = 1,
    nonlinear_mode: str = "identity",
    conv_mode: str = "cross_correlation",
    compute_mode: str = "default",
) -> Tensor:
    """Convolves quantized tensors, adds a bias and applies an activation.

    Parameters
    ----------
    inp : Tensor
        [n, c, h, w], quantized.
    weight : Tensor
        Shaped as in `conv2d`, quantized.
    bias : Tensor or None
        Added to each output channel: float32 or qint32, [1, out, 1, 1]; None adds none.
    dtype : numpy.dtype or None
        Quantized dtype of the result; None gives float32.
    stride, padding, dilation : int or sequence of int
        Pixels from one window to the next, zeros added on every side, and pixels from one element
        of a kernel to the next: each an int for both axes, or (height, width).
    groups : int
        Number of groups of channels; an output channel sees the input channels of its group only.
    nonlinear_mode : str
        The activation: "identity" or "relu".
    conv_mode : str
        "cross_correlation", the only one.
    compute_mode : str
        "default" or "float32"; both accumulate in float32.

    Returns
    -------
    Tensor
        [n, out, oh, ow] of ``dtype``.
    """
    _conv._check_modes(conv_mode, compute_mode)
    use_relu = is_relu(nonlinear_mode)
    if dtype is not None and is_8_bit(inp.dtype, weight.dtype, dtype):
        plain = _conv._ungrouped(weight, groups, 4, "conv_bias_activation")
        plain = weight if plain is weight else QuantizedTensor(plain, weight.dtype)
        window = {
            "stride": as_pair(stride, "conv_bias_activation: stride"),
            "padding": as_pair(padding, "conv_bias_activation: padding"),
            "dilation": as_pair(dilation, "conv_bias_activation: dilation"),
            "groups": groups,
        }
        return conv_8_bit(inp, plain, bias, dtype, use_relu, **window)
    inp, weight = real_values(inp), real_values(weight)
    bias = None if bias is None else real_values(bias)
    y = _conv.conv2d(inp, weight, bias, stride, padding, dilation, groups)
    y = ops.relu(y) if use_relu else y
    return in_dtype(y, dtype)


def batch_conv_bias_activation(
    inp: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    dtype: np.dtype | None = None,
    stride: IntPair = 1,
    padding: IntPair = 0,
    dilation: IntPair = 1,
    groups: int = 1,
    nonlinear_mode: str = "identity",
    conv_mode: str = "cross_correlation",
    compute_mode: str = "default",
) -> Tensor:
    """Computes `conv_bias_activation` with a weight of its own for each sample.

    Parameters
    ----------
    inp : Tensor
        Tensor of shape [n, c, h, w].
    weight : Tensor
        [n, out, c, kh, kw], with groups > 1 [n, groups, out / groups, c / groups, kh, kw].
    bias : Tensor or None
        Tensor of shape [1 or n, out, 1, 1].
    dtype : numpy.dtype or None
        Quantized dtype of the result; None gives float32.
    stride, padding, dilation : int or sequence of int
        Pixels from one window to the next, zeros added on every side, and pixels from one element
        of a kernel to the next: each an int for both axes, or (height, width).
    groups : int
        Number of groups of channels; an output channel sees the input channels of its group only.
    nonlinear_mode, conv_mode, compute_mode : str
        The activation, "identity" or "relu"; "cross_correlation", the only one; and "default" or
        "float32", which both accumulate in float32.

    Returns
    -------
    Tensor
        [n, out, oh, ow] of ``dtype``.

    Raises
    ------
    ValueError
        For another number of weights than samples.
    """
    count, channels, *image = inp._tuple_shape
    outputs = math.prod(weight._tuple_shape[1:-3])
    if weight._tuple_shape[0] != count:
        raise ValueError(
            f"batch_conv_bias_activation: {count} samples and {weight._tuple_shape[0]} weights"
        )
    # Samples become groups of one convolution.
    leading = (count * groups, outputs // groups) if count * groups > 1 else (outputs,)
    kernels = weight.reshape(*leading, *weight._tuple_shape[-3:])
    if bias is not None:
        bias = real_values(bias)
        bias = ops.broadcast_to(bias, shape=(count, outputs, 1, 1))
        bias = ops.reshape(bias, shape=(1, count * outputs, 1, 1))
    y = conv_bias_activation(
        inp.reshape(1, count * channels, *image),
        kernels,
        bias,
        dtype,
        stride,
        padding,
        dilation,
        count * groups,
        nonlinear_mode,
        conv_mode,
        compute_mode,
    )
    return y.reshape(count, outputs, *y._tuple_shape[2:])


def conv_transpose2d(
    inp: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    dtype: np.dtype | None = None,
    stride: IntPair = 1,
    padding: IntPair = 0,
    output_padding: IntPair = 0,
    dilation: IntPair = 1,
    groups: int = 1,
    conv_mode: str = "cross_correlation",
    compute_mode: str = "default",
) -> Tensor:
    """Computes the transposed convolution of quantized tensors, in float32.

    Parameters
    ----------
    inp : Tensor
        [n, c, h, w], quantized.
    weight : Tensor
        Shaped as in `functional.conv_transpose2d`, quantized.
    bias : Tensor or None
        Float32, [1, out, 1, 1], or None.
    dtype : numpy.dtype or None
        Quantized dtype of the result; None gives float32.
    stride, padding, output_padding, dilation : int or sequence of int
        Distance of the windows of two neighbouring input pixels, pixels cut off on every side of
        the result, rows and columns added at its bottom and right, and distance of a kernel's
        elements: each an int for both axes, or (height, width).
    groups : int
        Number of groups of channels; an output channel sees the input channels of its group only.
    conv_mode : str
        "cross_correlation", the only one.
    compute_mode : str
        "default" or "float32"; both accumulate in float32.

    Returns
    -------
    Tensor
        [n, out, oh, ow] of ``dtype``.
    """
    y = _conv.conv_transpose2d(
        real_values(inp),
        real_values(weight),
        None if bias is None else real_values(bias),
        stride,
        padding,
        output_padding,
        dilation,
        groups,
        conv_mode,
        compute_mode,
    )
    return in_dtype(y, dtype)
