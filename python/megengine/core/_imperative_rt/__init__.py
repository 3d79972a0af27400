"""Spellings of the interpreter's internals that published programs import."""

from typing import Any

from . import common, core2, ops, utils
from .common import CompNode, DeviceType
from .core2 import Tensor, apply

__all__ = ["CompNode", "DeviceType", "Tensor", "apply", "common", "core2", "make_h2d", "ops", "utils"]


def make_h2d(graph: Any, comp_node: Any, dtype: Any, shape: Any = None, name: str | None = None) -> Any:
    """A new input of the graph that a variable has as its ``graph``. ValueError without a shape."""
    from ..tensor.megbrain_graph import Graph

    return Graph.of(graph).make_h2d(dtype=dtype, device=comp_node, shape=shape, name=name)
