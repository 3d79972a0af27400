"""Affine map of the last axis."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import functional as F
from ..tensor import Parameter, Tensor
from ._weighted import Relu, Weighted, check_extents

__all__ = ["Linear", "LinearRelu"]


class Linear(Weighted):
    """Computes ``y = x @ weight.T + bias``, a fully connected layer: (..., in_features) to (...,
    out_features).

    Parameters
    ----------
    in_features, out_features : int
        Extent of the last axis before and after.
    bias : bool
        Whether to add a learned bias.
    compute_mode : str
        "default" or "float32"; both accumulate in float32.
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.

    See Also
    --------
    functional.linear : The function.
    Bilinear : A bilinear map of two inputs.

    Notes
    -----
    weight (out_features, in_features) is normal with variance 1 / in_features at first; bias
    (out_features,) is zero.

    Examples
    --------
    >>> import megengine as mge, megengine.module as M
    >>> M.Linear(4, 2)(mge.functional.ones((8, 5, 4))).shape
    (8, 5, 2)
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        compute_mode: str = "default",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_extents(self, in_features=in_features, out_features=out_features)
        self.out_features = out_features
        self.in_features = in_features
        self.weight = Parameter(np.zeros((out_features, in_features), np.float32))
        self.bias = Parameter(np.zeros(out_features, np.float32)) if bias else None
        self.compute_mode = compute_mode
        self.reset_parameters()

    def _get_fanin(self) -> int:
        return self.in_features

    def calc_linear(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """Returns ``x @ weight.T + bias`` with the given weight and bias instead of the module's.

        Parameters
        ----------
        x : Tensor
            Tensor of shape (..., in_features).
        weight : Tensor
            Matrix of the shape of the module's weight.
        bias : Tensor or None
            Of the shape of the module's bias; None adds none.

        Returns
        -------
        Tensor
            (..., out_features).
        """
        return F.linear(x, weight, bias, self.compute_mode)

    def forward(self, x: Tensor) -> Tensor:
        """Returns ``x @ weight.T + bias`` for ``x`` (..., in_features): (..., out_features).

        Parameters
        ----------
        x : Tensor
            Tensor of shape (..., in_features).

        Returns
        -------
        Tensor
            (..., out_features).
        """
        return self.calc_linear(x, self.weight, self.bias)

    def _module_info_string(self) -> str:
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, "
            f"bias={self.bias is not None}"
        )


class LinearRelu(Relu, Linear):
    """Computes ``relu(Linear(x))`` as one layer; quantization rounds after the relu.

    Its parameters are those of `Linear`.

    Parameters
    ----------
    in_features, out_features : int
        Extent of the last axis before and after.
    bias : bool
        Whether the linear map adds a learned bias.
    compute_mode : str
        "default" or "float32"; both accumulate in float32.
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.

    Examples
    --------
    >>> import megengine as mge, megengine.module as M
    >>> M.LinearRelu(4, 2)(mge.functional.ones((8, 4))).shape
    (8, 2)
    """
