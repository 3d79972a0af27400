"""Linear and batch normalization as one layer, for quantization-aware training."""

from __future__ import annotations

from typing import Any

from ..tensor import Tensor
from ._weighted import Relu
from .batchnorm import BatchNorm1d
from .linear import Linear
from .module import Module

__all__ = ["LinearBn1d", "LinearBnRelu1d"]


class _LinearBnActivation1d(Module):
    """Children: ``linear`` and ``bn``."""

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        compute_mode: str = "default",
        eps: float = 1e-05,
        momentum: float = 0.9,
        affine: bool = True,
        track_running_stats: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.linear = Linear(in_features, out_features, bias, compute_mode)
        self.bn = BatchNorm1d(out_features, eps, momentum, affine, track_running_stats)

    def forward(self, inp: Tensor) -> Tensor:
        return self.bn(self.linear(inp))


class LinearBn1d(_LinearBnActivation1d):
    """BatchNorm1d(Linear(x)): (N, in_features) to (N, out_features)."""


class LinearBnRelu1d(Relu, _LinearBnActivation1d):
    """relu(BatchNorm1d(Linear(x))): (N, in_features) to (N, out_features)."""
