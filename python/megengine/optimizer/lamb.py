"""LAMB: You et al. 2020, "Large Batch Optimization for Deep Learning: Training BERT in 76 minutes", algorithm 2."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from .. import functional as F
from ..core import ops
from ..tensor import Parameter, Tensor
from ._steps import add_steps, counted
from .adam import Adam, Moments
from .optimizer import decayed, rates, scalar, write

__all__ = ["LAMB", "LAMBFp16"]


class LAMB(Adam):
    """`Adam` whose step for each parameter has a length in proportion to the parameter's norm.

    ``u = m' / (sqrt(v') + eps) + weight_decay * p; p -= lr * trust * u``, trust = |p| / |u|; trust
    is 1 where a norm is 0, and without weight decay unless always_adapt.

    Parameters
    ----------
    params : iterable of Parameter or iterable of dict of str
        Parameters, or groups of them: dicts with ``params`` and options of their own.
    lr : float
        Learning rate, the factor of each step.
    betas : (float, float)
        Weights (b1, b2) of the old averages of the gradient and of its square, each in [0, 1).
    eps : float
        Number that is added to the root, so that nothing is divided by 0.
    bias_correction : bool
        Whether m and v are corrected for their start at 0, as in `Adam`.
    weight_decay : float
        Weight decay beside the gradient: this number times the parameter is added to u.
    always_adapt : bool
        Whether trust counts without weight decay, too.

    See Also
    --------
    Adam : Does not scale steps by norms.
    LAMBFp16 : Is for float16 parameters.

    Notes
    -----
    The state is that of `Adam`.

    References
    ----------
    You et al. 2020, "Large Batch Optimization for Deep Learning: Training BERT in 76 minutes",
    algorithm 2.

    Examples
    --------
    >>> import megengine as mge, megengine.optimizer as optim
    >>> p = mge.Parameter([4.0])
    >>> p.grad = mge.Tensor([1.0])
    >>> opt = optim.LAMB([p], lr=0.25, always_adapt=True).step()  # 0.25 of p's norm
    >>> round(p.item(), 3)
    3.0
    """

    _is_elementwise = _takes_rows = False  # norms of whole parameters

    def __init__(
        self,
        params: Iterable[Parameter] | Iterable[dict[str, Any]],
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        bias_correction: bool = True,
        weight_decay: float = 0.0,
        always_adapt: bool = False,
    ) -> None:
        super().__init__(params, lr, betas, eps, weight_decay)
        self.bias_correction = bias_correction
        self.always_adapt = always_adapt

    def _weight_of(self, param: Parameter) -> Tensor:
        """Returns the tensor that is updated for this parameter."""
        return param

    def _write_weight(self, param: Parameter, value: Tensor) -> None:
        write(param, value)

    def _updates(self, param_group: dict[str, Any]) -> None:
        moments = Moments(param_group)
        minus_lr, decay = rates(param_group)
        adapts = self.always_adapt or param_group["weight_decay"] > 0
        for step, params in counted(self._state, param_group["params"]):
            inverse, root_correction = None, scalar(1.0, param_group["params"][0])
            if self.bias_correction:
                correction, root_correction = moments.corrections(step)
                inverse = 1.0 / correction
            for param in params:
                weight: Tensor = self._weight_of(param)
                grad: Any = param.grad  # never None: counted
                if grad.dtype != weight.dtype:
                    grad = grad.astype(weight.dtype)
                first, second = moments.update(self._state[param], grad)
                update = moments.direction(first, ops.sqrt(second), root_correction)
                if inverse is not None:
                    update = update * inverse
                update = decayed(weight, decay, update)
                rate = minus_lr * _trust(weight, update) if adapts else minus_lr
                self._write_weight(param, ops.fma3(update, rate, weight))


def _trust(weight: Tensor, update: Tensor) -> Tensor:
    """Returns |weight| / |update|, 1 if either is 0."""
    weight_norm = ops.sqrt(F.sum(ops.square(weight)))
    update_norm = ops.sqrt(F.sum(ops.square(update)))
    usable = F.logical_and(weight_norm > 0.0, update_norm > 0.0)
    one = F.ones_like(update_norm)
    return F.where(usable, weight_norm / F.where(usable, update_norm, one), one)


class LAMBFp16(LAMB):
    """`LAMB` for float16 parameters: keeps and updates float32 copies of them.

    The state is that of `LAMB`, all float32, and ``param_fp32``, the copies.

    Parameters
    ----------
    params : iterable of Parameter or iterable of dict of str
        Parameters, or groups of them: dicts with ``params`` and options of their own.
    lr : float
        Learning rate, the factor of each step.
    betas : (float, float)
        Weights (b1, b2) of the old averages of the gradient and of its square, each in [0, 1).
    eps : float
        Number that is added to the root, so that nothing is divided by 0.
    bias_correction : bool
        Whether m and v are corrected for their start at 0, as in `Adam`.
    weight_decay : float
        Weight decay beside the gradient: this number times the parameter is added to u.
    always_adapt : bool
        Whether trust counts without weight decay, too.

    Examples
    --------
    >>> import megengine as mge, megengine.optimizer as optim
    >>> p = mge.Parameter([4.0], dtype="float16")
    >>> opt = optim.LAMBFp16([p], lr=0.1)
    >>> opt.state_dict()["state"][0]["param_fp32"].dtype.name
    'float32'
    """

    def _create_state(self, param_group: dict[str, Any]) -> None:
        for param in param_group["params"]:
            self._add_state(param, "param_fp32", param.numpy().astype("float32"))
            for name in ("exp_avg", "exp_avg_sq"):
                self._add_state(param, name, dtype=np.float32)
        add_steps(self._state, param_group["params"])

    def _weight_of(self, param: Parameter) -> Tensor:
        return self._state[param]["param_fp32"]

    def _write_weight(self, param: Parameter, value: Tensor) -> None:
        self._state[param]["param_fp32"]._reset(value)
        write(param, value)
