"""Spellings of the interpreter's internals that published programs import."""

from . import common, core2, ops, utils
from .common import CompNode, DeviceType
from .core2 import Tensor, apply

__all__ = ["CompNode", "DeviceType", "Tensor", "apply", "common", "core2", "ops", "utils"]
