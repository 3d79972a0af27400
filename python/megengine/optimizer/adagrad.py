"""Adagrad: Duchi et al. 2011, "Adaptive Subgradient Methods for Online Learning and Stochastic Optimization"."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..core import ops
from ..tensor import Parameter
from ._steps import Counted, counted
from .optimizer import decayed, option, rates, write

__all__ = ["Adagrad"]


class Adagrad(Counted):
    """``s += g^2; p -= lr / (1 + (step - 1) * lr_decay) * g / (sqrt(s) + eps)``, g with weight decay.

    State: ``square_avg`` (s) and ``step``.
    """

    _states = ("square_avg",)

    def __init__(
        self,
        params: Iterable[Parameter] | Iterable[dict[str, Any]],
        lr: float = 1e-2,
        lr_decay: float = 0.0,
        eps: float = 1e-10,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(
            params, {"lr": lr, "lr_decay": lr_decay, "eps": eps, "weight_decay": weight_decay}
        )

    def _updates(self, param_group: dict[str, Any]) -> None:
        minus_lr, decay = rates(param_group)
        lr_decay = option(param_group, lambda group: group["lr_decay"])
        eps = option(param_group, lambda group: group["eps"])
        for step, params in counted(self._state, param_group["params"]):
            rate = minus_lr / ((step - 1.0) * lr_decay + 1.0)
            for param in params:
                grad = decayed(param, decay, param.grad)
                total = self._state[param]["square_avg"]
                write(total, ops.fma3(grad, grad, total))
                write(param, ops.fma3(grad / (ops.sqrt(total) + eps), rate, param))
