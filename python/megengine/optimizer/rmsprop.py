"""RMSprop: Hinton 2012, "Neural Networks for Machine Learning", lecture 6e."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from .. import functional as F
from ..core import ops
from ..tensor import Parameter
from .optimizer import Optimizer, decayed, option, rates, squared, write

__all__ = ["RMSprop"]


class RMSprop(Optimizer):
    """Divides each step by the root of a running average of the squared gradient.

    ``s = alpha s + (1 - alpha) g^2; v = momentum v + g / (sqrt(s) + eps); p -= lr * v``, g the
    gradient plus weight_decay * p.

    Parameters
    ----------
    params : iterable of Parameter or iterable of dict of str
        Parameters, or groups of them: dicts with ``params`` and options of their own.
    lr : float
        Learning rate, the factor of each step.
    alpha : float
        Weight of the old average of squares.
    eps : float
        Number that is added to the root, so that nothing is divided by 0.
    weight_decay : float
        Weight decay: this number times the parameter is added to the gradient.
    momentum : float
        Factor of the last step in v; 0 keeps no state for it.
    centered : bool
        Whether s is a variance: the average of squares less the square of the gradient's own
        average.

    Notes
    -----
    State: ``square_avg`` (s, float32 whatever the parameter is), with centered ``grad_avg``, with a
    momentum ``momentum_buffer`` (v).

    References
    ----------
    Hinton 2012, "Neural Networks for Machine Learning", lecture 6e; Graves 2013, "Generating
    Sequences With Recurrent Neural Networks" (centered).

    Examples
    --------
    >>> import megengine as mge, megengine.optimizer as optim
    >>> p = mge.Parameter([2.0])
    >>> p.grad = mge.Tensor([1000.0])
    >>> opt = optim.RMSprop([p], lr=0.1, alpha=0.75).step()  # 0.1 / sqrt(0.25), whatever the gradient's size
    >>> round(p.item(), 3)
    1.8
    """

    _is_elementwise = True
    _later_states = ("momentum_buffer",)

    def __init__(
        self,
        params: Iterable[Parameter] | Iterable[dict[str, Any]],
        lr: float = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        momentum: float = 0.0,
        centered: bool = False,
    ) -> None:
        self.centered = centered
        options = {"lr": lr, "alpha": alpha, "eps": eps, "weight_decay": weight_decay, "momentum": momentum}
        super().__init__(params, options)

    def _create_state(self, param_group: dict[str, Any]) -> None:
        for param in param_group["params"]:
            self._add_state(param, "square_avg", dtype=np.float32)
            if self.centered:
                self._add_state(param, "grad_avg", dtype=np.float32)
            if param_group["momentum"] != 0.0:
                self._add_state(param, "momentum_buffer")

    def _updates(self, param_group: dict[str, Any]) -> None:
        minus_lr, decay = rates(param_group)
        old = option(param_group, lambda group: group["alpha"])
        new = option(param_group, lambda group: 1 - group["alpha"])
        eps = option(param_group, lambda group: group["eps"])
        momentum = None
        if param_group["momentum"] != 0.0:
            momentum = option(param_group, lambda group: group["momentum"])
        for param in param_group["params"]:
            if param.grad is None:
                continue
            grad = decayed(param, decay, param.grad)
            states = self._state[param]
            second = ops.fma3(states["square_avg"], old, squared(grad) * new)
            write(states["square_avg"], second)
            if self.centered:
                first = ops.fma3(states["grad_avg"], old, grad * new)
                write(states["grad_avg"], first)
                second = F.maximum(second - ops.square(first), 0.0)  # rounding may leave less than 0
            update = grad / (ops.sqrt(second) + eps)
            if momentum is not None:
                if "momentum_buffer" not in states:
                    self._add_state(param, "momentum_buffer")  # the momentum was set later
                update = ops.fma3(states["momentum_buffer"], momentum, update)
                write(states["momentum_buffer"], update)
            write(param, ops.fma3(update, minus_lr, param))
