"""AdamW: Loshchilov & Hutter 2019, "Decoupled Weight Decay Regularization"."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..tensor import Parameter
from .adam import Adam

__all__ = ["AdamW"]


class AdamW(Adam):
    """`Adam` with the weight decay beside the gradient, not in it.

    ``p -= lr * (m' / (sqrt(v') + eps) + weight_decay * p)``. The state is that of `Adam`.

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
        Weight decay beside the gradient: each step subtracts ``lr * weight_decay * p``.

    See Also
    --------
    Adam : Has the weight decay in the gradient.
    AdamW8bit : Keeps both averages in 8 bits.
    LAMB : Scales steps by the norm of the parameter.
    Lion : Steps by signs, with half of the state.

    References
    ----------
    Loshchilov & Hutter 2019, "Decoupled Weight Decay Regularization".

    Examples
    --------
    >>> import megengine as mge, megengine.optimizer as optim
    >>> p = mge.Parameter([2.0])
    >>> p.grad = mge.Tensor([0.0])
    >>> opt = optim.AdamW([p], lr=0.5, weight_decay=0.1).step()
    >>> round(p.item(), 3)
    1.9
    """

    _decoupled = True

    def __init__(
        self,
        params: Iterable[Parameter] | Iterable[dict[str, Any]],
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.01,
    ) -> None:
        super().__init__(params, lr, betas, eps, weight_decay)
