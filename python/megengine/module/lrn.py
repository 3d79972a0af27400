"""Local response normalization: Krizhevsky et al. 2012, section 3.3."""

from __future__ import annotations

from typing import Any

from .. import functional as F
from ..tensor import Tensor
from .module import Module

__all__ = ["LocalResponseNorm"]


class LocalResponseNorm(Module):
    """x / (k + alpha * sum of squares over kernel_size neighbouring channels) ** beta, for (N, C, H, W)."""

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

    def _module_info_string(self) -> str:
        return f"kernel_size={self.kernel_size}, k={self.k}, alpha={self.alpha}, beta={self.beta}"
