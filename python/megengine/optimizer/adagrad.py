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
    """Divides each step by the root of the sum of all squared gradients so far.

    ``s += g^2; p -= lr / (1 + (step - 1) * lr_decay) * g / (sqrt(s) + eps)``, g the gradient plus
    weight_decay * p.

    Parameters
    ----------
    params : iterable of Parameter or iterable of dict of str
        Parameters, or groups of them: dicts with ``params`` and options of their own.
    lr : float
        Learning rate of the first step.
    lr_decay : float
        Decay of the learning rate: step k has the rate ``lr / (1 + (k - 1) * lr_decay)``.
    eps : float
        Number that is added to the root, so that nothing is divided by 0.
    weight_decay : float
        Weight decay: this number times the parameter is added to the gradient.

    Notes
    -----
    State: ``square_avg`` (s) and ``step``.

    References
    ----------
    Duchi et al. 2011, "Adaptive Subgradient Methods for Online Learning and Stochastic
    Optimization".

    Examples
    --------
    >>> import megengine as mge, megengine.optimizer as optim
    >>> p = mge.Parameter([2.0])
    >>> p.grad = mge.Tensor([4.0])
    >>> opt = optim.Adagrad([p], lr=0.5).step()
    >>> round(p.item(), 3)
    1.5
    """

    _is_elementwise = True
    _squares = ("square_avg",)

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
