"""Linear with batch normalization folded into it, on integers."""

from __future__ import annotations

from ...tensor import Tensor
from .linear import Linear
from .module import Folded

__all__ = ["LinearBn1d", "LinearBnRelu1d"]


class LinearBn1d(Folded, Linear):
    """BatchNorm1d(Linear(x)) on integers."""

    def forward(self, inp: Tensor) -> Tensor:
        return self.calc_linear_quantized(inp)


class LinearBnRelu1d(Folded, Linear):
    """relu(BatchNorm1d(Linear(x))) on integers."""

    def forward(self, inp: Tensor) -> Tensor:
        return self.calc_linear_quantized(inp, "relu")
