"""AdamW: Loshchilov & Hutter 2019, "Decoupled Weight Decay Regularization"."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..core import ops
from ..tensor import Parameter
from ._steps import counted
from .adam import Adam, Moments
from .optimizer import is_tracing, option, write

__all__ = ["AdamW"]


class AdamW(Adam):
    """Adam with the decay beside the gradient: ``p -= lr * (m' / (sqrt(v') + eps) + weight_decay * p)``.

    State: ``exp_avg``, ``exp_avg_sq``, ``step``.
    """

    def __init__(
        self,
        params: Iterable[Parameter] | Iterable[dict[str, Any]],
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.01,
    ) -> None:
        super().__init__(params, lr, betas, eps, weight_decay)

    def _updates(self, param_group: dict[str, Any]) -> None:
        moments = Moments(param_group)
        minus_lr = option(param_group, lambda group: -group["lr"])
        decays = param_group["weight_decay"] != 0.0 or is_tracing()
        decay = option(param_group, lambda group: group["weight_decay"]) if decays else None
        for step, params in counted(self._state, param_group["params"]):
            correction, root_correction = moments.corrections(step)
            rate = minus_lr / correction
            # p - lr * (u / c + wd * p) = p + rate * (u + c * wd * p), with rate = -lr / c
            corrected_decay = decay * correction if decays else None
            for param in params:
                first, second = moments.update(self._state[param], param.grad)  # type: ignore[arg-type]  # counted: has one
                update = moments.direction(first, second, root_correction)
                if decays:
                    update = ops.fma3(param, corrected_decay, update)
                write(param, ops.fma3(update, rate, param))
