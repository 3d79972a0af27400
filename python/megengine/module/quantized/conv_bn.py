"""Convolution with batch normalization folded into it, on integers."""

from __future__ import annotations

from ...tensor import Tensor
from ..qat import conv_bn as QAT
from ..qat._folding import running_statistics
from .conv import Conv2d
from .module import made_like, with_weights

__all__ = ["ConvBn2d", "ConvBnRelu2d"]


class _ConvBnActivation2d(Conv2d):
    """One Conv2d: the running statistics are in its weight and bias."""

    @classmethod
    def from_qat_module(  # type: ignore[override]  # made of another layer than its base
        cls, qat_module: QAT._ConvBnActivation2d
    ) -> _ConvBnActivation2d:
        weight, bias = qat_module.fold_weight_bias(*running_statistics(qat_module.bn))
        return with_weights(made_like(cls, qat_module.conv, qat_module), qat_module, weight, bias)


class ConvBn2d(_ConvBnActivation2d):
    """BatchNorm2d(Conv2d(x)) on integers."""

    def forward(self, inp: Tensor) -> Tensor:
        return self.calc_conv_quantized(inp)


class ConvBnRelu2d(_ConvBnActivation2d):
    """relu(BatchNorm2d(Conv2d(x))) on integers."""

    def forward(self, inp: Tensor) -> Tensor:
        return self.calc_conv_quantized(inp, "relu")
