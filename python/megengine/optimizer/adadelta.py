"""Adadelta: Zeiler 2012, "ADADELTA: An Adaptive Learning Rate Method", algorithm 1."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..core import ops
from ..tensor import Parameter
from ._steps import Counted, counted
from .optimizer import decayed, option, rates, squared, write

__all__ = ["Adadelta"]


class Adadelta(Counted):
    """Scales each step by running averages of squared gradients and of squared steps.

    ``s = rho s + (1 - rho) g^2; d = sqrt(a + eps) / sqrt(s + eps) * g; a = rho a + (1 - rho) d^2; p
    -= lr d``, g the gradient plus weight_decay * p.

    Parameters
    ----------
    params : iterable of Parameter or iterable of dict of str
        Parameters, or groups of them: dicts with ``params`` and options of their own.
    lr : float
        Factor of each step.
    rho : float
        Weight of the old averages, in [0, 1].
    eps : float
        Number that is added to both averages.
    weight_decay : float
        Weight decay: this number times the parameter is added to the gradient.

    Raises
    ------
    ValueError
        For a rho outside of [0, 1].

    Notes
    -----
    State: ``square_avg`` (s), ``acc_delta`` (a) and ``step``.

    References
    ----------
    Zeiler, 2012, "ADADELTA: An Adaptive Learning Rate Method", algorithm 1.

    Examples
    --------
    >>> import megengine as mge, megengine.optimizer as optim
    >>> p = mge.Parameter([2.0])
    >>> p.grad = mge.Tensor([4.0])
    >>> opt = optim.Adadelta([p], rho=0.5).step()
    >>> opt.state_dict()["state"][0]["square_avg"].tolist()
    [8.0]
    """

    _is_elementwise = True
    _squares = ("square_avg", "acc_delta")

    def __init__(
        self,
        params: Iterable[Parameter] | Iterable[dict[str, Any]],
        lr: float = 1.0,
        rho: float = 0.9,
        eps: float = 1e-6,
        weight_decay: float = 0.0,
    ) -> None:
        if not 0.0 <= rho <= 1.0:
            raise ValueError(f"Invalid rho value: {rho}\n  why: rho of Adadelta must lie in [0, 1]")
        super().__init__(params, {"lr": lr, "rho": rho, "eps": eps, "weight_decay": weight_decay})

    def _updates(self, param_group: dict[str, Any]) -> None:
        minus_lr, decay = rates(param_group)
        eps = option(param_group, lambda group: group["eps"])
        rho = option(param_group, lambda group: group["rho"])
        rest = option(param_group, lambda group: 1 - group["rho"])
        for _, params in counted(self._state, param_group["params"]):
            for param in params:
                states = self._state[param]
                grad = decayed(param, decay, param.grad)
                square = ops.fma3(states["square_avg"], rho, squared(grad) * rest)
                moved = states["acc_delta"]
                delta = grad * ops.sqrt(moved + eps) / ops.sqrt(square + eps)
                write(states["square_avg"], square)
                write(moved, ops.fma3(moved, rho, ops.square(delta) * rest))
                write(param, ops.fma3(delta, minus_lr, param))
