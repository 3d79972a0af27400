"""Local response normalization: Krizhevsky et al. 2012, section 3.3."""

from __future__ import annotations

from typing import Any

from .. import functional as F
from ..tensor import Tensor
from .module import Module

__all__ = ["LocalResponseNorm"]


class LocalResponseNorm(Module):
    """x / (k + alpha * sum of squares over kernel_size neighbouring channels) ** beta, for (N, C, H, W)."""

    _repr_facts = "kernel_size={0.kernel_size}, k={0.k}, alpha={0.alpha}, beta={0.beta}"

    def __init__(
        self,
        kernel_size: int = 5,
        k: float = 2.0,
        alpha: float = 1e-4,
        beta: float = 0.75,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.kernel_size = kernel_size
        self.k = k
        self.alpha = alpha
        self.beta = beta

    def forward(self, inp: Tensor) -> Tensor:
        return F.local_response_norm(inp, self.kernel_size, self.k, self.alpha, self.beta)
