"""Convolution with batch normalization folded into it, on integers."""

from __future__ import annotations

from .conv import Conv2d, ConvRelu2d
from .module import Folded

__all__ = ["ConvBn2d", "ConvBnRelu2d"]


class ConvBn2d(Folded, Conv2d):
    """BatchNorm2d(Conv2d(x)) on integers."""


class ConvBnRelu2d(Folded, ConvRelu2d):
    """relu(BatchNorm2d(Conv2d(x))) on integers."""
