"""Linear with batch normalization folded into it, on integers."""

from __future__ import annotations

from .linear import Linear, LinearRelu
from .module import Folded

__all__ = ["LinearBn1d", "LinearBnRelu1d"]


class LinearBn1d(Folded, Linear):
    """BatchNorm1d(Linear(x)) on integers."""


class LinearBnRelu1d(Folded, LinearRelu):
    """relu(BatchNorm1d(Linear(x))) on integers."""
