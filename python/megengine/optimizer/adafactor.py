"""Adafactor: Shazeer & Stern 2018, "Adafactor: Adaptive Learning Rates with Sublinear Memory Cost", algorithms 4 and 5."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from .. import functional as F
from ..core import ops
from ..tensor import Parameter, Tensor
from ._steps import add_steps, counted
from .optimizer import Optimizer, option, rates, squared, write

__all__ = ["Adafactor"]


class Adafactor(Optimizer):
    """Scales each step by averages of the squared gradient; for a matrix only those of rows and
    columns are kept.

    A matrix of n by m has a state of n + m numbers, where `Adam` has 2 n m. ``v`` is the product of
    both averages; ``u = g / sqrt(v)``, scaled down if its root mean square is above d; ``p -=
    max(eps2, rms(p)) * min(lr, 1 / sqrt(step)) * u``. The averages forget by 1 - step **
    beta2_decay.

    Parameters
    ----------
    params : iterable of Parameter or iterable of dict of str
        Parameters, or groups of them: dicts with ``params`` and options of their own.
    lr : float
        Largest step relative to the parameter's root mean square.
    beta2_decay : float
        Exponent of ``step``, below 0.
    eps : (float or None, float)
        (eps1, eps2). The root of v is at least eps1, where None is float32's machine epsilon. The
        parameter's root mean square counts as at least eps2.
    d : float
        Root mean square of u above which the step is scaled down.
    weight_decay : float
        Weight decay beside the gradient: each step subtracts ``lr * weight_decay * p``.

    Notes
    -----
    State: ``row_var`` and ``col_var`` of parameters with two axes or more (the last two are a
    matrix), ``variance`` of others, in float32, and ``step``.

    References
    ----------
    Shazeer & Stern 2018, "Adafactor: Adaptive Learning Rates with Sublinear Memory Cost",
    algorithms 4 and 5.

    Examples
    --------
    >>> import megengine as mge, megengine.optimizer as optim
    >>> p = mge.Parameter([[2.0, -2.0]])
    >>> p.grad = mge.Tensor([[1000.0, 1000.0]])
    >>> opt = optim.Adafactor([p], lr=0.1).step()  # lr times the parameter's root mean square, 2
    >>> p.numpy().round(3).tolist()[0][1]
    -2.200000047683716
    """

    def __init__(
        self,
        params: Iterable[Parameter] | Iterable[dict[str, Any]],
        lr: float = 1e-2,
        beta2_decay: float = -0.8,
        eps: tuple[float | None, float] = (None, 1e-3),
        d: float = 1.0,
        weight_decay: float = 0.0,
    ) -> None:
        options = {"lr": lr, "beta2_decay": beta2_decay, "eps": eps, "d": d, "weight_decay": weight_decay}
        super().__init__(params, options)

    def _check_options(self, group: Mapping[str, Any]) -> None:
        super()._check_options(group)
        eps = group["eps"]
        if not isinstance(eps, (tuple, list)) or len(eps) != 2:
            raise TypeError(f"Adafactor: eps must be a pair (eps1, eps2), got {eps!r}")
        if (eps[0] is not None and not eps[0] >= 0) or not eps[1] >= 0:
            raise ValueError(f"Invalid epsilon value: {eps}\n  why: both of Adafactor must be at least 0")
        if not group["beta2_decay"] <= 0:
            raise ValueError(f"Invalid beta2_decay: {group['beta2_decay']}\n  why: averages of Adafactor forget by 1 - step ** beta2_decay, which must not be below 0")
        if not group["d"] > 0:
            raise ValueError(f"Invalid clipping threshold d: {group['d']}\n  why: a step of Adafactor is divided by it")

    def _create_state(self, param_group: dict[str, Any]) -> None:
        for param in param_group["params"]:
            shape = param._tuple_shape
            if len(shape) < 2:
                self._add_state(param, "variance", np.zeros(shape, np.float32))
                continue
            self._add_state(param, "row_var", np.zeros((*shape[:-1], 1), np.float32))
            self._add_state(param, "col_var", np.zeros((*shape[:-2], 1, shape[-1]), np.float32))
        add_steps(self._state, param_group["params"])

    def _updates(self, param_group: dict[str, Any]) -> None:
        minus_lr, decay = rates(param_group)
        exponent = option(param_group, lambda group: group["beta2_decay"])
        eps1 = option(param_group, lambda group: 2.0**-23 if group["eps"][0] is None else group["eps"][0])
        eps2 = option(param_group, lambda group: group["eps"][1])
        bound = option(param_group, lambda group: group["d"])
        for step, params in counted(self._state, param_group["params"]):
            new = F.pow(step, exponent)
            minus_rate = F.maximum(minus_lr, -ops.rsqrt(step))
            for param in params:
                grad: Any = param.grad
                variance = self._variance(self._state[param], squared(grad), new, eps1)
                update = grad * ops.rsqrt(F.maximum(variance, ops.square(eps1)))
                update = update / F.maximum(1.0, _root_mean_square(update) / bound)
                size = F.maximum(eps2, _root_mean_square(param)) * minus_rate
                kept = param if decay is None else param * (1.0 + minus_lr * decay)
                write(param, ops.fma3(update, size, kept))

    def _variance(self, states: dict[str, Tensor], squares: Tensor, new: Tensor, eps1: Tensor) -> Tensor:
        """Moves the averages of a parameter towards ``squares`` by the share ``new``, and returns what they say of each element."""

        def moved(name: str, towards: Tensor) -> Tensor:
            average = states[name] + (towards - states[name]) * new
            write(states[name], average)
            return average

        if "variance" in states:
            return moved("variance", squares)
        rows = moved("row_var", F.mean(squares, axis=-1, keepdims=True))
        columns = moved("col_var", F.mean(squares, axis=-2, keepdims=True))
        return rows * columns / F.maximum(F.mean(rows, axis=-2, keepdims=True), eps1)


def _root_mean_square(x: Tensor) -> Tensor:
    return ops.sqrt(F.mean(squared(x)))
