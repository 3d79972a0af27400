"""Stochastic gradient descent with momentum."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..core import ops
from ..tensor import Parameter
from .optimizer import Optimizer, decayed, option, rates, write

__all__ = ["SGD"]


class SGD(Optimizer):
    """``v = momentum * v + (grad + weight_decay * p); p -= lr * v``.

    nesterov: ``p -= lr * (g + momentum * v)``, g the gradient with decay (Sutskever et al. 2013); it needs a
    momentum (ValueError). State with a momentum: ``momentum_buffer``.
    """

    def __init__(
        self,
        params: Iterable[Parameter] | Iterable[dict[str, Any]],
        lr: float,
        momentum: float = 0.0,
        nesterov: bool = False,
        weight_decay: float = 0.0,
    ) -> None:
        if nesterov and momentum <= 0:
            raise ValueError(f"SGD: nesterov needs a momentum above 0, got {momentum}")
        self.nesterov = nesterov
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    def _create_state(self, param_group: dict[str, Any]) -> None:
        if param_group["momentum"] != 0.0:
            for param in param_group["params"]:
                self._add_state(param, "momentum_buffer")

    def _updates(self, param_group: dict[str, Any]) -> None:
        fma, states = ops.fma3, self._state  # fma3(a, b, c) = a * b + c
        minus_lr, decay = rates(param_group)
        momentum = None
        if param_group["momentum"] != 0.0:
            momentum = option(param_group, lambda group: group["momentum"])
        for param in param_group["params"]:
            grad = param.grad
            if grad is None:
                continue
            grad = decayed(param, decay, grad)
            if momentum is not None:
                buffer = states[param]["momentum_buffer"]
                velocity = fma(buffer, momentum, grad)
                write(buffer, velocity)
                grad = fma(velocity, momentum, grad) if self.nesterov else velocity
            write(param, fma(grad, minus_lr, param))
