"""Spellings of the interpreter's internals that published programs import."""

from . import core2, ops, utils
from .core2 import Tensor, apply

__all__ = ["Tensor", "apply", "core2", "ops", "utils"]
