"""Lion: Chen et al. 2023, "Symbolic Discovery of Optimization Algorithms", program 1."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .. import functional as F
from ..core import ops
from ..tensor import Parameter
from .optimizer import Optimizer, decayed, option, rates, write

__all__ = ["Lion"]


class Lion(Optimizer):
    """Steps by the sign of an average of the gradient: each element by lr, up or down.

    ``p -= lr * (sign(b1 m + (1 - b1) g) + weight_decay * p); m = b2 m + (1 - b2) g``. Its learning
    rate is a third to a tenth of that of `AdamW`, and its weight decay is larger by the same
    factor.

    Parameters
    ----------
    params : iterable of Parameter or iterable of dict of str
        Parameters, or groups of them: dicts with ``params`` and options of their own.
    lr : float
        Learning rate, the factor of each step.
    betas : (float, float)
        Weights (b1, b2) of the old average in the step, and in the next average, each in [0, 1).
    weight_decay : float
        Weight decay beside the gradient: each step subtracts ``lr * weight_decay * p``.

    Raises
    ------
    ValueError
        For betas outside of [0, 1).

    See Also
    --------
    AdamW : Scales each step by averages of the gradients.

    Notes
    -----
    State: ``exp_avg`` (m), half of `Adam`'s.

    References
    ----------
    Chen et al. 2023, "Symbolic Discovery of Optimization Algorithms", program 1.

    Examples
    --------
    >>> import megengine as mge, megengine.optimizer as optim
    >>> p = mge.Parameter([2.0, 2.0])
    >>> p.grad = mge.Tensor([1000.0, -0.001])
    >>> opt = optim.Lion([p], lr=0.5).step()
    >>> p.tolist()
    [1.5, 2.5]
    """

    _is_elementwise = True

    def __init__(
        self,
        params: Iterable[Parameter] | Iterable[dict[str, Any]],
        lr: float = 1e-4,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    def _create_state(self, param_group: dict[str, Any]) -> None:
        for param in param_group["params"]:
            self._add_state(param, "exp_avg")

    def _updates(self, param_group: dict[str, Any]) -> None:
        minus_lr, decay = rates(param_group)
        beta1 = option(param_group, lambda group: group["betas"][0])
        rest1 = option(param_group, lambda group: 1 - group["betas"][0])
        beta2 = option(param_group, lambda group: group["betas"][1])
        rest2 = option(param_group, lambda group: 1 - group["betas"][1])
        for param in param_group["params"]:
            if param.grad is None:
                continue
            average = self._state[param]["exp_avg"]
            direction = F.sign(ops.fma3(average, beta1, param.grad * rest1))
            write(average, ops.fma3(average, beta2, param.grad * rest2))
            write(param, ops.fma3(decayed(param, decay, direction), minus_lr, param))
