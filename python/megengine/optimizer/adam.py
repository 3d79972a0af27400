"""Adam: Kingma & Ba 2015, "Adam: A Method for Stochastic Optimization", algorithm 1."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .. import functional as F
from ..core import ops
from ..core.row_gradient import RowGradient, rows_at
from ..tensor import Parameter, Tensor
from ._steps import Counted, counted
from .optimizer import decayed, option, rates, squared, write, write_rows

__all__ = ["Adam"]


class Moments:
    """The options of one group as Tensors, and the updates of both moments by them."""

    def __init__(self, param_group: dict[str, Any]) -> None:
        self.beta1 = option(param_group, lambda group: group["betas"][0])
        self.rest1 = option(param_group, lambda group: 1 - group["betas"][0])
        self.beta2 = option(param_group, lambda group: group["betas"][1])
        self.rest2 = option(param_group, lambda group: 1 - group["betas"][1])
        self.eps = option(param_group, lambda group: group["eps"])

    def corrections(self, step: Tensor) -> tuple[Tensor, Tensor]:
        """Returns 1 - beta1^step and 1 / sqrt(1 - beta2^step)."""
        return 1.0 - F.pow(self.beta1, step), ops.rsqrt(1.0 - F.pow(self.beta2, step))

    def update(self, states: dict[str, Tensor], grad: Tensor) -> tuple[Tensor, Tensor]:
        """Moves ``exp_avg`` and ``exp_avg_sq`` towards the gradient and its square."""
        first = ops.fma3(states["exp_avg"], self.beta1, grad * self.rest1)
        second = ops.fma3(states["exp_avg_sq"], self.beta2, squared(grad) * self.rest2)
        write(states["exp_avg"], first)
        write(states["exp_avg_sq"], second)
        return first, second

    def direction(self, first: Tensor, root: Tensor, root_correction: Tensor) -> Tensor:
        """Computes first / (root * root_correction + eps). root: the root of the second moment."""
        return first / ops.fma3(root, root_correction, self.eps)


class Adam(Counted):
    """Scales each step by running averages of the gradient and of its square.

    ``m = b1 m + (1 - b1) g; v = b2 v + (1 - b2) g^2; p -= lr * m' / (sqrt(v') + eps)``, where m'
    and v' are corrected for their start at 0: m / (1 - b1^step), v / (1 - b2^step).

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
    weight_decay : float
        Weight decay: this number times the parameter is added to the gradient. `AdamW` subtracts it
        from the parameter instead.

    Raises
    ------
    ValueError
        For betas outside of [0, 1).

    See Also
    --------
    AdamW : Has the weight decay beside the gradient.
    SGD : Has less state.
    Adafactor : Keeps averages of rows and columns alone.
    Adam8bit : Keeps both averages in 8 bits.

    Notes
    -----
    State: ``exp_avg`` (m), ``exp_avg_sq`` (v, float32 whatever the parameter is), ``step``. For an
    `autodiff.RowGradient` only the rows that were looked up are updated, with their m and v; other
    rows and their m and v stay (also known as lazy or sparse Adam).

    References
    ----------
    Kingma & Ba 2015, "Adam: A Method for Stochastic Optimization", algorithm 1.

    Examples
    --------
    >>> import megengine as mge, megengine.optimizer as optim
    >>> p = mge.Parameter([2.0])
    >>> p.grad = mge.Tensor([1000.0])
    >>> opt = optim.Adam([p], lr=0.5).step()  # the first step is lr, whatever the gradient's size
    >>> round(p.item(), 3)
    1.5
    """

    _is_elementwise = True
    _takes_rows = True
    _states, _squares = ("exp_avg",), ("exp_avg_sq",)
    # whether weight_decay is added to the update, not to the gradient, as in AdamW
    _decoupled = False

    def __init__(
        self,
        params: Iterable[Parameter] | Iterable[dict[str, Any]],
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(
            params, {"lr": lr, "weight_decay": weight_decay, "betas": betas, "eps": eps}
        )

    def _updates(self, param_group: dict[str, Any]) -> None:
        moments = Moments(param_group)
        minus_lr, decay = rates(param_group)
        for step, params in counted(self._state, param_group["params"]):
            correction, root_correction = moments.corrections(step)
            rate = minus_lr / correction
            # AdamW: p - lr * (u / c + wd * p) = p + rate * (u + c * wd * p), with rate = -lr / c
            behind = decay * correction if self._decoupled and decay is not None else None
            for param in params:
                if isinstance(param.grad, RowGradient):
                    self._update_rows(param, param.grad, moments, rate, root_correction)
                    continue
                grad: Any = param.grad if self._decoupled else decayed(param, decay, param.grad)
                first, root = self._moved(param, grad, moments)
                old = param if first._tuple_shape == param._tuple_shape else param.reshape(first._tuple_shape)
                update = decayed(old, behind, moments.direction(first, root, root_correction))
                write(param, _shaped_like(ops.fma3(update, rate, old), param))

    def _moved(self, param: Parameter, grad: Tensor, moments: Moments) -> tuple[Tensor, Tensor]:
        """Updates the moments of a parameter. Returns the first and the root of the second, in a shape of as many elements."""
        first, second = moments.update(self._state[param], grad)
        return first, ops.sqrt(second)

    def _update_rows(self, param: Parameter, grad: RowGradient, moments: Moments, rate: Tensor, root_correction: Tensor) -> None:
        """Updates the rows that were looked up, as `_updates` does whole parameters."""
        rows, totals = grad.totals()
        states = self._state[param]
        own = {name: rows_at(states[name], rows) for name in (*self._states, *self._squares)}
        first, second = moments.update(own, totals)
        update = moments.direction(first, ops.sqrt(second), root_correction)
        write_rows(param, rows, ops.fma3(update, rate, rows_at(param, rows)))
        for name, value in own.items():
            write_rows(states[name], rows, value)


def _shaped_like(value: Tensor, param: Parameter) -> Tensor:
    """Returns the value in the shape of the parameter and, if the shape differed, in its format."""
    if value._tuple_shape == param._tuple_shape:
        return value
    value = value.reshape(param._tuple_shape)
    return ops.relayout(value, layout="channels_last") if param.format == "nhwc" else value
