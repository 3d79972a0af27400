"""Base of layers with a weight and a bias, and relu behind a layer."""

from __future__ import annotations

import math

from .. import functional as F
from ..tensor import Parameter, Tensor
from . import init
from .module import Module


def check_extents(layer: Module, **extents: object) -> None:
    """Raises TypeError for an extent that is no integer, ValueError for one below 1."""
    for name, extent in extents.items():
        if isinstance(extent, bool) or not hasattr(extent, "__index__"):
            raise TypeError(f"{type(layer).__name__}: {name} is {extent!r}, not an integer\n  fix: give the number of features as an int")
        if extent.__index__() < 1:
            raise ValueError(f"{type(layer).__name__}: {name} is {extent!r}\n  fix: give at least 1")


class Weighted(Module):
    """Base with a weight, first normal with variance 1 / fan-in, and a bias, first zero, or None.
    """

    weight: Parameter
    bias: Parameter | None

    def _get_fanin(self) -> int:
        """Returns the number of input elements that are summed for an element of the result."""
        raise TypeError(f"{type(self).__name__} does not define _get_fanin()")

    def reset_parameters(self) -> None:
        """Draws new initial values: weight normal with variance 1 / fan-in, bias zero."""
        init.normal_(self.weight, 0.0, 1.0 / math.sqrt(self._get_fanin()))
        if self.bias is not None:
            init.zeros_(self.bias)


class Relu(Module):
    """Makes a class compute relu(layer(x)), if it stands before the layer among its bases."""

    def forward(self, inp: Tensor) -> Tensor:
        """Returns the relu of the result of the layer.

        Parameters
        ----------
        inp : Tensor
            Input of the layer.

        Returns
        -------
        Tensor
            The result, with 0 for negative elements.
        """
        return F.nn.relu(super().forward(inp))
