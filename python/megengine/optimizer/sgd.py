"""Stochastic gradient descent with momentum."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..core import ops
from ..core.row_gradient import RowGradient, rows_at
from ..tensor import Parameter
from .optimizer import Optimizer, decayed, option, rates, write, write_rows

__all__ = ["SGD"]


class SGD(Optimizer):
    """Stochastic gradient descent, with momentum and weight decay.

    ``v = momentum * v + g; p -= lr * v``, g the gradient plus weight_decay * p.

    Parameters
    ----------
    params : iterable of Parameter or iterable of dict of str
        Parameters, or groups of them: dicts with ``params`` and options of their own.
    lr : float
        Learning rate, the factor of each step.
    momentum : float
        Factor of the last step in v; 0 keeps no state.
    nesterov : bool
        Whether to step by ``g + momentum * v`` instead of v.
    weight_decay : float
        Weight decay: this number times the parameter is added to the gradient.

    Raises
    ------
    ValueError
        For nesterov without a momentum.

    See Also
    --------
    Adam : Scales each step by averages of the gradients.
    AdamW : Has the weight decay beside the gradient.

    Notes
    -----
    State with a momentum: ``momentum_buffer`` (v). Without momentum and weight decay it updates the
    rows of an `autodiff.RowGradient` alone.

    References
    ----------
    Sutskever et al., 2013, "On the importance of initialization and momentum in deep learning"
    (nesterov).

    Examples
    --------
    >>> import megengine as mge, megengine.optimizer as optim
    >>> p = mge.Parameter([2.0])
    >>> opt = optim.SGD([p], lr=0.5, momentum=0.5)
    >>> for _ in range(2):  # v is 1, then 1.5
    ...     p.grad = mge.Tensor([1.0])
    ...     opt = opt.step()
    >>> p.tolist()
    [0.75]
    """

    _is_elementwise = True
    _takes_rows = True
    _later_states = ("momentum_buffer",)

    def __init__(
        self,
        params: Iterable[Parameter] | Iterable[dict[str, Any]],
        lr: float,
        momentum: float = 0.0,
        nesterov: bool = False,
        weight_decay: float = 0.0,
    ) -> None:
        if nesterov and momentum <= 0:
            raise ValueError(f"Nesterov momentum requires a momentum\n  why: SGD got momentum={momentum}, not one above 0")
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
            if isinstance(grad, RowGradient):
                rows, totals = grad.totals()
                write_rows(param, rows, fma(totals, minus_lr, rows_at(param, rows)))
                continue
            grad = decayed(param, decay, grad)
            if momentum is not None:
                if "momentum_buffer" not in states.get(param, ()):
                    self._add_state(param, "momentum_buffer")  # the momentum was set later
                buffer = states[param]["momentum_buffer"]
                velocity = fma(buffer, momentum, grad)
                write(buffer, velocity)
                grad = fma(velocity, momentum, grad) if self.nesterov else velocity
            write(param, fma(grad, minus_lr, param))
