"""Gradients: GradManager records what is computed and differentiates it; Function defines gradients by hand."""

from .function import Function
from .grad_manager import GradManager

__all__ = ["Function", "GradManager"]
