"""Transposed convolution with batch normalization folded into it, of quantized inputs."""

from __future__ import annotations

from ...tensor import Tensor
from ..qat import conv_transpose_bn as QAT
from ..qat._folding import running_statistics
from .conv import ConvTranspose2d
from .module import made_like, with_weights

__all__ = ["ConvTransposeBn2d", "ConvTransposeBnRelu2d"]


class _ConvTransposeBnActivation2d(ConvTranspose2d):
    """One ConvTranspose2d: the running statistics are in its weight and bias."""

    @classmethod
    def from_qat_module(  # type: ignore[override]  # made of another layer than its base
        cls, qat_module: QAT._ConvTransposeBnActivation2d
    ) -> _ConvTransposeBnActivation2d:
        weight, bias = qat_module.fold_weight_bias(*running_statistics(qat_module.bn))
        made = made_like(cls, qat_module.conv_transpose, qat_module)
        return with_weights(made, qat_module, weight, bias)


class ConvTransposeBn2d(_ConvTransposeBnActivation2d):
    """BatchNorm2d(ConvTranspose2d(x)) of a quantized input."""

    def forward(self, inp: Tensor) -> Tensor:
        return self.calc_conv_transpose2d_quantized(inp)


class ConvTransposeBnRelu2d(_ConvTransposeBnActivation2d):
    """relu(BatchNorm2d(ConvTranspose2d(x))) of a quantized input."""

    def forward(self, inp: Tensor) -> Tensor:
        return self.calc_conv_transpose2d_quantized(inp, "relu")
