"""Adagrad: Duchi et al. 2011, "Adaptive Subgradient Methods for Online Learning and Stochastic Optimization"."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..core import ops
from ..tensor import Parameter
from ._steps import add_steps, counted
from .optimizer import Optimizer, is_tracing, option, write

__all__ = ["Adagrad"]


class Adagrad(Optimizer):
    """``s += g^2; p -= lr / (1 + (step - 1) * lr_decay) * g / (sqrt(s) + eps)``, g with weight decay.

    State: ``square_avg`` (s) and ``step``.
    """

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

    def _create_state(self, param_group: dict[str, Any]) -> None:
        for param in param_group["params"]:
            self._add_state(param, "square_avg")
        add_steps(self._state, param_group["params"])

    def _updates(self, param_group: dict[str, Any]) -> None:
        minus_lr = option(param_group, lambda group: -group["lr"])
        lr_decay = option(param_group, lambda group: group["lr_decay"])
        eps = option(param_group, lambda group: group["eps"])
        decays = param_group["weight_decay"] != 0.0 or is_tracing()
        decay = option(param_group, lambda group: group["weight_decay"]) if decays else None
        for step, params in counted(self._state, param_group["params"]):
            rate = minus_lr / ((step - 1.0) * lr_decay + 1.0)
            for param in params:
                grad = ops.fma3(param, decay, param.grad) if decays else param.grad
                total = self._state[param]["square_avg"]
                write(total, ops.fma3(grad, grad, total))
                write(param, ops.fma3(grad / (ops.sqrt(total) + eps), rate, param))
