"""An affine map whose weights are stored in 8 bits and whose arithmetic is float."""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from .. import functional as F
from ..tensor import Parameter, Tensor
from ._structure import with_state_of
from .linear import Linear
from .module import Module

__all__ = ["WeightOnlyLinear"]


class WeightOnlyLinear(Module):
    """Computes ``y = (x @ weight.T) * scale + bias``, with int8 weights and a scale for each output
    feature.

    Inputs, products, sums and results are floats. The weights take a quarter of the memory of
    float32, and of the time if reading them takes most of it: on a CPU a traced function (level 3)
    with few rows, such as text that is written token by token, reads the int8 values. With more
    rows, and on a GPU, it converts them first. The layer is not trained: gradients reach ``x`` and
    ``bias`` only.

    Parameters
    ----------
    in_features, out_features : int
        Extent of the last axis before and after.
    bias : bool
        Whether to add a bias.
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.

    Notes
    -----
    ``weight`` (out_features, in_features) is 0 and ``scale`` (out_features,) 1 at first;
    `quantization.quantize_weights` makes such layers of trained ones.

    Examples
    --------
    >>> import megengine as mge, megengine.module as M
    >>> layer = M.quantized.WeightOnlyLinear.from_float_module(M.Linear(4, 2))
    >>> layer.weight.dtype.name, layer(mge.functional.ones((8, 5, 4))).shape
    ('int8', (8, 5, 2))
    """

    def __init__(self, in_features: int, out_features: int, bias: bool = True, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.in_features, self.out_features = in_features, out_features
        self.weight = Tensor(np.zeros((out_features, in_features), np.int8))
        self.scale = Tensor(np.ones(out_features, np.float32))
        self.bias = Parameter(np.zeros(out_features, np.float32)) if bias else None

    @classmethod
    def from_float_module(cls, linear: Linear) -> Self:
        """Returns the layer with the weights of ``linear``, each within half of its row's scale,
        and the same bias.

        A row's scale is its largest magnitude / 127 (symmetric, per channel: Jacob et al. 2018).

        Parameters
        ----------
        linear : Linear
            The trained layer, whose weight is rounded to int8.

        Returns
        -------
        Self
            The new layer.

        Raises
        ------
        ValueError
            If a weight is not finite, or if the layer has a ``forward`` of its own.
        """
        made = with_state_of(linear, cls)
        weight = linear.weight.numpy().astype(np.float32)
        if not np.isfinite(weight).all():
            raise ValueError(f"{cls.__name__}: a weight of {linear} is not finite\n  fix: look at its training, or leave this layer out")
        largest = np.abs(weight).max(axis=1, initial=0)
        scale = np.where(largest > 0, largest / np.float32(127), np.float32(1)).astype(np.float32)
        del vars(made)["compute_mode"]  # sums are float32 here
        made.weight = Tensor(np.rint(weight / scale[:, None]).astype(np.int8), device=linear.weight.device)
        made.scale = Tensor(scale, device=linear.weight.device)
        return made

    def forward(self, x: Tensor) -> Tensor:
        """Returns ``(x @ weight.T) * scale + bias`` for ``x`` (..., in_features): (...,
        out_features).

        Parameters
        ----------
        x : Tensor
            Tensor of shape (..., in_features), float dtype.

        Returns
        -------
        Tensor
            (..., out_features).
        """
        y = F.linear(x.astype("float32"), self.weight.astype("float32")) * self.scale
        return (y if self.bias is None else y + self.bias).astype(x.dtype)

    def _module_info_string(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"
