"""Shapes and dtypes of all values, found by running the graph."""

from __future__ import annotations

from typing import Any, NamedTuple

from ..._graph.tree import map_leaves
from ...module._reach import tensors_in
from ...tensor import Tensor
from .._running import Interpreter
from ..node import Node

__all__ = ["ShapeProp", "TensorMetadata"]


class TensorMetadata(NamedTuple):
    """Facts about a tensor without its values: shape (elements along each axis), dtype, device."""

    shape: tuple[int, ...]
    dtype: Any
    device: str


def _metadata(value: Any) -> TensorMetadata | None:
    if not isinstance(value, Tensor):
        return None
    return TensorMetadata(tuple(value._tuple_shape), value.dtype, value.device.logical_name)


class ShapeProp(Interpreter):
    """Runs a graph and notes in each node what it made.

    ``node.meta["tensor_meta"]``: a `TensorMetadata`, or a tree of them for several tensors; missing where
    there is no tensor. ``node.meta["type"]``: type of the value. ``node.shape``, ``node.dtype``:
    those of a single tensor.

    >>> import megengine as mge, megengine.functional as F
    >>> from megengine import fx
    >>> gm = fx.symbolic_trace(lambda x: F.flatten(x, 1))
    >>> _ = fx.passes.shape_prop.ShapeProp(gm).propagate(F.zeros((2, 3, 4)))
    >>> [node.shape for node in gm.graph.nodes]
    [(2, 3, 4), (2, 12), (2, 12)]
    """

    def run_node(self, n: Node) -> Any:
        """Runs a node, notes its type, and returns its value."""
        result = super().run_node(n)
        noted = map_leaves(result, _metadata)
        if isinstance(noted, TensorMetadata):
            noted_on: Any = n
            noted_on.shape, noted_on.dtype = noted.shape, noted.dtype
        if tensors_in(result):
            n.meta["tensor_meta"] = noted
        n.meta["type"] = type(result)
        return result

    def propagate(self, *args: Any) -> Any:
        """Run on these inputs; returns the result."""
        return self.run(*args)
