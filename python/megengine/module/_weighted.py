"""What layers with a weight and a bias share, and relu behind a layer."""

from __future__ import annotations

import math

from .. import functional as F
from ..tensor import Parameter, Tensor
from . import init
from .module import Module


class Weighted(Module):
    """weight: normal with variance 1 / fan-in at first. bias: zero at first; None where there is none."""

    weight: Parameter
    bias: Parameter | None

    def _get_fanin(self) -> int:
        """How many elements of the input an element of the result is summed over."""
        raise TypeError(f"{type(self).__name__} does not define _get_fanin()")

    def reset_parameters(self) -> None:
        """Draw new initial values: weight normal with variance 1 / fan-in, bias zero."""
        init.normal_(self.weight, 0.0, 1.0 / math.sqrt(self._get_fanin()))
        if self.bias is not None:
            init.zeros_(self.bias)


class Relu(Module):
    """Goes before a layer among the bases of a class, which is then relu(layer(x))."""

    def forward(self, inp: Tensor) -> Tensor:
        """Return ``relu`` of what the layer without it makes of ``inp``."""
        return F.nn.relu(super().forward(inp))
