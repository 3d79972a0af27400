"""Gradients: GradManager records what is computed and differentiates it; Function defines gradients by hand; jvp, jacobian, hessian and vmap are functions of functions."""

from .function import Function
from .grad_manager import GradManager
from .mapping import vmap
from .transforms import hessian, jacobian, jvp

__all__ = ["Function", "GradManager", "hessian", "jacobian", "jvp", "vmap"]
