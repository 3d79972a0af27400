"""Batched matrix product with an activation, for quantization-aware training."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import functional as F
from ..tensor import Parameter, Tensor
from ._weighted import Weighted

__all__ = ["BatchMatMulActivation"]


class BatchMatMulActivation(Weighted):
    """Multiplies each matrix of a batch by a weight of its own, then adds a bias and activates.

    Computes ``act(weight[b] @ x[b] + bias)``: (batch, in_features, n) to (batch, out_features, n).

    Parameters
    ----------
    batch : int
        Number of matrices, which is fixed.
    in_features, out_features : int
        Number of rows of a matrix before and after.
    bias : bool
        Whether to add a bias of shape (out_features,), zero at first.
    nonlinear_mode : str
        The activation: "identity" or "relu".
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.

    Raises
    ------
    ValueError
        For another nonlinear_mode.

    Notes
    -----
    weight (batch, out_features, in_features) is normal with variance 1 / in_features at first.

    Examples
    --------
    >>> import megengine as mge, megengine.module as M
    >>> layer = M.BatchMatMulActivation(2, 3, 4, nonlinear_mode="relu")
    >>> layer(mge.functional.ones((2, 3, 5))).shape
    (2, 4, 5)
    """

    def __init__(
        self,
        batch: int,
        in_features: int,
        out_features: int,
        bias: bool = True,
        nonlinear_mode: str = "identity",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        mode = str(nonlinear_mode).lower()
        if mode not in ("identity", "relu"):
            raise ValueError(f"nonlinear_mode {nonlinear_mode!r} is neither 'identity' nor 'relu'")
        self.batch = batch
        self.out_features = out_features
        self.in_features = in_features
        self.weight = Parameter(np.zeros((batch, out_features, in_features), np.float32))
        self.bias = Parameter(np.zeros(out_features, np.float32)) if bias else None
        self.nonlinear_mode = mode
        self.reset_parameters()

    def _get_fanin(self) -> int:
        return self.in_features

    def _calc_linear(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        y = F.matmul(weight, x)
        if bias is not None:
            y = y + bias.reshape(-1, 1)
        return F.nn.relu(y) if self.nonlinear_mode == "relu" else y

    def forward(self, x: Tensor) -> Tensor:
        """Returns the products with ``x`` (batch, in_features, n): (batch, out_features, n).

        Parameters
        ----------
        x : Tensor
            Matrices of shape (batch, in_features, n).

        Returns
        -------
        Tensor
            (batch, out_features, n).
        """
        return self._calc_linear(x, self.weight, self.bias)

    def _module_info_string(self) -> str:
        return (
            f"batch={self.batch}, in_features={self.in_features}, out_features={self.out_features}, "
            f"bias={self.bias is not None}"
        )
