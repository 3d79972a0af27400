"""Affine maps on integers: a convolution of 1x1 images, which multiplies 8 bits and adds 32."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core import ops
from ...core.tensor.quantized import QuantizedTensor, in_dtype, real_values
from ...functional import quantized as FQ
from ...functional.nn import linear, relu
from ...tensor import Tensor
from .module import Plain

__all__ = ["Linear", "LinearRelu"]


class Linear(Plain):
    """Linear of a quantized input. weight: quantized (out, in); bias: float32. dtype: of the result, quantized."""

    def __init__(self, dtype: np.dtype | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.weight: Any = None  # a Tensor when made from a QAT module
        self.bias: Tensor | None = None
        self.output_dtype = dtype

    def calc_linear_quantized(self, inp: Tensor, nonlinear_mode: str = "identity") -> Tensor:
        """The map, with an activation: "identity" or "relu"."""
        use_relu = FQ.is_relu(nonlinear_mode)
        weight, dtype = self.weight, self.output_dtype
        if dtype is None or not FQ.is_8_bit(inp.dtype, weight.dtype, dtype):
            y = linear(real_values(inp), real_values(weight), self.bias)
            return in_dtype(relu(y) if use_relu else y, dtype)
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
    """relu(Linear(x)) on integers."""

    _nonlinear_mode = "relu"
