"""Convolutions for quantization-aware training."""

from __future__ import annotations

from .. import conv as Float
from .module import ReluQAT, RoundedQAT

__all__ = ["Conv2d", "ConvRelu2d", "ConvTranspose2d", "ConvTransposeRelu2d"]


class Conv2d(Float.Conv2d, RoundedQAT):
    """Conv2d with rounded weight, bias and result."""

    _calc = "calc_conv"
    calc_conv_qat = RoundedQAT._calculated
    forward = RoundedQAT.forward


class ConvRelu2d(ReluQAT, Conv2d):
    """relu(Conv2d(x)), rounded after the relu."""


class ConvTranspose2d(Float.ConvTranspose2d, RoundedQAT):
    """ConvTranspose2d with rounded weight, bias and result."""

    _calc = "calc_conv_transpose2d"
    calc_conv_transpose2d_qat = RoundedQAT._calculated
    forward = RoundedQAT.forward


class ConvTransposeRelu2d(ReluQAT, ConvTranspose2d):
    """relu(ConvTranspose2d(x)), rounded after the relu."""
