"""Graphs of calls at the level of modules: what `megengine.fx` and `megengine.traced_module` stand on.

A `Graph` is an ordered list of `Call`s. A call's ``args`` and ``kwargs`` are trees that hold `Value`s
of earlier calls; every value knows its ``users``, and edits keep them right. A call that makes one value
may be that value itself (fx: ``class Node(Call, Value)``); a call with several results, or a graph inside
a call, keeps them in ``outputs`` (traced_module: ``Expr(Call)`` and ``Node(Value)``).
Knows no tensor, no module and nothing about tracing.
"""

from .._origin import users_line
from .core import Call, Graph, GraphError, Pictured, copy_calls
from .names import Namespace
from .remarks import remarks_on_sharing
from .rows import KINDS, Measured, Row, dot, link, nested, rows_of, table, type_text
from .tree import (
    FrozenDict,
    FrozenList,
    Value,
    container_text,
    freeze,
    leaves,
    map_leaves,
    map_values,
    rebuild,
    tree_text,
    values_in,
)
from .unknown import Unknown

__all__ = [
    "Call", "FrozenDict", "FrozenList", "Graph", "GraphError", "KINDS", "Measured", "Namespace", "Pictured", "Row", "Unknown", "Value",
    "container_text", "copy_calls", "dot", "freeze", "leaves", "link", "map_leaves", "map_values", "nested", "rebuild",
    "remarks_on_sharing", "rows_of", "table", "tree_text",
    "type_text", "users_line", "values_in",
]  # fmt: skip
