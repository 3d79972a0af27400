"""Linear and batch normalization as one layer, for quantization-aware training."""

from __future__ import annotations

from typing import Any

from ..tensor import Tensor
from ._weighted import Relu
from .batchnorm import BatchNorm1d
from .linear import Linear
from .module import Module

__all__ = ["LinearBn1d", "LinearBnRelu1d"]


class _LinearBnActivation1d(Module):
    """Has the children ``linear`` and ``bn``."""

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        compute_mode: str = "default",
        eps: float = 1e-05,
        momentum: float = 0.9,
        affine: bool = True,
        track_running_stats: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.linear = Linear(in_features, out_features, bias, compute_mode)
        self.bn = BatchNorm1d(out_features, eps, momentum, affine, track_running_stats)

    def forward(self, inp: Tensor) -> Tensor:
        """Returns ``bn(linear(inp))``.

        Parameters
        ----------
        inp : Tensor
            Tensor of shape (N, in_features).

        Returns
        -------
        Tensor
            Tensor of shape (N, out_features).
        """
        return self.bn(self.linear(inp))


class LinearBn1d(_LinearBnActivation1d):
    """Computes ``BatchNorm1d(Linear(x))`` as one layer; quantization folds the two.

    (N, in_features) to (N, out_features). Its children are ``linear`` and ``bn``.

    Parameters
    ----------
    in_features, out_features : int
        Extent of the last axis before and after.
    bias : bool
        Whether the linear map adds a learned bias.
    compute_mode : str
        "default" or "float32"; both accumulate in float32.
    eps, momentum : float
        Number that is added to the variance, and weight of the old running statistics: ``momentum *
        old + (1 - momentum) * batch``.
    affine, track_running_stats : bool
        Whether the normalization learns a scale and a shift, and whether it keeps running
        statistics for `eval` mode.
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.

    Examples
    --------
    >>> import megengine as mge, megengine.module as M
    >>> M.LinearBn1d(4, 2)(mge.functional.ones((8, 4))).shape
    (8, 2)
    """


class LinearBnRelu1d(Relu, _LinearBnActivation1d):
    """Computes ``relu(BatchNorm1d(Linear(x)))`` as one layer; quantization folds the three.

    Its children are those of `LinearBn1d`.

    Parameters
    ----------
    in_features, out_features : int
        Extent of the last axis before and after.
    bias : bool
        Whether the linear map adds a learned bias.
    compute_mode : str
        "default" or "float32"; both accumulate in float32.
    eps, momentum : float
        Number that is added to the variance, and weight of the old running statistics: ``momentum *
        old + (1 - momentum) * batch``.
    affine, track_running_stats : bool
        Whether the normalization learns a scale and a shift, and whether it keeps running
        statistics for `eval` mode.
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.

    Examples
    --------
    >>> import megengine as mge, megengine.module as M
    >>> M.LinearBnRelu1d(4, 2, bias=False)(mge.functional.ones((8, 4))).shape
    (8, 2)
    """
