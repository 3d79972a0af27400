"""Local response normalization: Krizhevsky et al. 2012, section 3.3."""

from __future__ import annotations

from typing import Any

from .. import functional as F
from ..tensor import Tensor
from .module import Module

__all__ = ["LocalResponseNorm"]


class LocalResponseNorm(Module):
    """Divides each element by a norm over neighbouring channels, for (N, C, H, W) inputs.

    ``y = x / (k + alpha * s) ** beta``, s the sum of squares over the kernel_size channels around
    that of x.

    Parameters
    ----------
    kernel_size : int
        Number of channels in the sum, odd (ValueError when called).
    k, alpha, beta : float
        Constants of the formula. Unlike some libraries' layers, alpha is not divided by
        kernel_size.
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.

    References
    ----------
    Krizhevsky et al. 2012, "ImageNet Classification with Deep Convolutional Neural Networks",
    section 3.3.

    Examples
    --------
    >>> import megengine as mge, megengine.module as M
    >>> lrn = M.LocalResponseNorm(kernel_size=3, k=1.0, alpha=1.0, beta=1.0)
    >>> [round(y, 2) for y in lrn(mge.functional.ones((1, 4, 1, 1))).reshape(-1).tolist()]
    [0.33, 0.25, 0.25, 0.33]
    """

    _repr_facts = "kernel_size={0.kernel_size}, k={0.k}, alpha={0.alpha}, beta={0.beta}"

    def __init__(
        self,
        kernel_size: int = 5,
        k: float = 2.0,
        alpha: float = 1e-4,
        beta: float = 0.75,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.kernel_size = kernel_size
        self.k = k
        self.alpha = alpha
        self.beta = beta

    def forward(self, inp: Tensor) -> Tensor:
        """Returns the result for ``inp`` (N, C, H, W), of the same shape.

        Parameters
        ----------
        inp : Tensor
            Tensor of shape (N, C, H, W).

        Returns
        -------
        Tensor
            The result, of the same shape.
        """
        return F.local_response_norm(inp, self.kernel_size, self.k, self.alpha, self.beta)
