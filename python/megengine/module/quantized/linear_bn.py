"""Linear with batch normalization folded into it, on integers."""

from __future__ import annotations

from ...tensor import Tensor
from ..qat import linear_bn as QAT
from ..qat._folding import running_statistics
from .linear import Linear
from .module import made_like, with_weights

__all__ = ["LinearBn1d", "LinearBnRelu1d"]


class _LinearBnActivation1d(Linear):
    """One Linear: the running statistics are in its weight and bias."""

    @classmethod
    def from_qat_module(  # type: ignore[override]  # made of another layer than its base
        cls, qat_module: QAT._LinearBnActivation1d
    ) -> _LinearBnActivation1d:
        weight, bias = qat_module.fold_weight_bias(*running_statistics(qat_module.bn))
        return with_weights(made_like(cls, qat_module.linear, qat_module), qat_module, weight, bias)


class LinearBn1d(_LinearBnActivation1d):
    """BatchNorm1d(Linear(x)) on integers."""

    def forward(self, inp: Tensor) -> Tensor:
        return self.calc_linear_quantized(inp)


class LinearBnRelu1d(_LinearBnActivation1d):
    """relu(BatchNorm1d(Linear(x))) on integers."""

    def forward(self, inp: Tensor) -> Tensor:
        return self.calc_linear_quantized(inp, "relu")
