"""Layers of two inputs: a bilinear map, the cosine of two vectors, their distance."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import functional as F
from ..tensor import Parameter, Tensor
from ._weighted import Weighted, check_extents
from .module import Module

__all__ = ["Bilinear", "CosineSimilarity", "PairwiseDistance"]


class Bilinear(Weighted):
    """Computes the bilinear map ``y[o] = x1 @ weight[o] @ x2 + bias[o]`` of the last axes.

    Parameters
    ----------
    in1_features, in2_features, out_features : int
        Extents of the last axes of both inputs, and of the result.
    bias : bool
        Whether to add a learned bias.
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.

    Notes
    -----
    weight (out_features, in1_features, in2_features) is normal with variance 1 / (in1_features *
    in2_features) at first; bias (out_features,) is zero.

    Examples
    --------
    >>> import megengine as mge, megengine.module as M
    >>> M.Bilinear(4, 3, 2)(mge.functional.ones((8, 4)), mge.functional.ones((8, 3))).shape
    (8, 2)
    """

    _repr_facts = "in1_features={0.in1_features}, in2_features={0.in2_features}, out_features={0.out_features}"

    def __init__(self, in1_features: int, in2_features: int, out_features: int, bias: bool = True, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check_extents(self, in1_features=in1_features, in2_features=in2_features, out_features=out_features)
        self.in1_features = in1_features
        self.in2_features = in2_features
        self.out_features = out_features
        self.weight = Parameter(np.zeros((out_features, in1_features, in2_features), np.float32))
        self.bias = Parameter(np.zeros(out_features, np.float32)) if bias else None
        self.reset_parameters()

    def _get_fanin(self) -> int:
        return self.in1_features * self.in2_features

    def forward(self, inp1: Tensor, inp2: Tensor) -> Tensor:
        """Returns the bilinear map of both inputs.

        Parameters
        ----------
        inp1 : Tensor
            Tensor of shape (..., in1_features).
        inp2 : Tensor
            (..., in2_features), with the other extents of inp1.

        Returns
        -------
        Tensor
            (..., out_features).

        Raises
        ------
        ValueError
            For shapes that do not fit.
        """
        return F.bilinear(inp1, inp2, self.weight, self.bias)


class CosineSimilarity(Module):
    """Computes the cosine of the angle between vectors along an axis.

    Parameters
    ----------
    axis : int
        The axis of the vectors' elements.
    eps : float
        Lengths below this number count as this number.
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.

    Examples
    --------
    >>> import megengine as mge, megengine.module as M
    >>> [round(y, 3) for y in M.CosineSimilarity()(mge.Tensor([[3.0, 0.0]]), mge.Tensor([[1.0, 1.0]])).tolist()]
    [0.707]
    """

    _repr_facts = "axis={0.axis}, eps={0.eps}"

    def __init__(self, axis: int = 1, eps: float = 1e-8, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.axis = axis
        self.eps = eps

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        """Returns the cosines.

        Parameters
        ----------
        x1, x2 : Tensor
            Tensors that broadcast, float dtype.

        Returns
        -------
        Tensor
            The broadcast shape without the axis.
        """
        return F.cosine_similarity(x1, x2, self.axis, self.eps)


class PairwiseDistance(Module):
    """Computes the norm of ``x1 - x2 + eps`` along the last axis.

    Parameters
    ----------
    p : float
        The order of the norm.
    eps : float
        Added to each difference, so that equal vectors have a gradient.
    keepdims : bool
        Leaves the last axis in the result with size 1.
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.

    Examples
    --------
    >>> import megengine as mge, megengine.module as M
    >>> [round(y, 3) for y in M.PairwiseDistance()(mge.Tensor([[3.0, 4.0]]), mge.Tensor([[0.0, 0.0]])).tolist()]
    [5.0]
    """

    _repr_facts = "p={0.p}, eps={0.eps}, keepdims={0.keepdims}"

    def __init__(self, p: float = 2.0, eps: float = 1e-6, keepdims: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.p = p
        self.eps = eps
        self.keepdims = keepdims

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        """Returns the distances.

        Parameters
        ----------
        x1, x2 : Tensor
            (..., size), tensors that broadcast.

        Returns
        -------
        Tensor
            (...), or (..., 1) with keepdims.
        """
        return F.pairwise_distance(x1, x2, self.p, self.eps, self.keepdims)
