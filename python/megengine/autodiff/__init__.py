"""Gradients: GradManager records what is computed and differentiates it, RowGradient is the gradient of a table that is looked up; Function defines gradients by hand; jvp, jacobian, hessian and vmap are functions of functions."""

from ..core.row_gradient import RowGradient
from .function import Function
from .grad_manager import GradManager
from .mapping import vmap
from .transforms import hessian, jacobian, jvp

__all__ = ["Function", "GradManager", "RowGradient", "hessian", "jacobian", "jvp", "vmap"]
