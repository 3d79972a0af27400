"""Transposed convolution with batch normalization folded into it, of quantized inputs."""

from __future__ import annotations

from .conv import ConvTranspose2d, ConvTransposeRelu2d
from .module import Folded

__all__ = ["ConvTransposeBn2d", "ConvTransposeBnRelu2d"]


class ConvTransposeBn2d(Folded, ConvTranspose2d):
    """BatchNorm2d(ConvTranspose2d(x)) of a quantized input."""


class ConvTransposeBnRelu2d(Folded, ConvTransposeRelu2d):
    """relu(BatchNorm2d(ConvTranspose2d(x))) of a quantized input."""
