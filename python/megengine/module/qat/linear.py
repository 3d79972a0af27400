"""Affine maps for quantization-aware training."""

from __future__ import annotations

from .. import linear as Float
from .module import ReluQAT, RoundedQAT

__all__ = ["Linear", "LinearRelu"]


class Linear(Float.Linear, RoundedQAT):
    """Linear with rounded weight, bias and result."""

    _calc = "calc_linear"
    calc_linear_qat = RoundedQAT._calculated
    forward = RoundedQAT.forward  # type: ignore[assignment]  # its argument has another name in Linear


class LinearRelu(ReluQAT, Linear):
    """relu(Linear(x)), rounded after the relu."""
