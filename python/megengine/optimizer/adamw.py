"""AdamW: Loshchilov & Hutter 2019, "Decoupled Weight Decay Regularization"."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..tensor import Parameter
from .adam import Adam

__all__ = ["AdamW"]


class AdamW(Adam):
    """Adam with the decay beside the gradient: ``p -= lr * (m' / (sqrt(v') + eps) + weight_decay * p)``.

    State: ``exp_avg``, ``exp_avg_sq``, ``step``.
    """

    _decoupled = True

    def __init__(
        self,
        params: Iterable[Parameter] | Iterable[dict[str, Any]],
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.01,
    ) -> None:
        super().__init__(params, lr, betas, eps, weight_decay)
