"""Lazy selections of exprs and nodes, which look at the graph when they are iterated."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from .._graph.selection import Selection, name_pattern
from ..module import Module
from .expr import CallFunction, CallMethod, Expr, is_among, is_call_function, is_call_tensor_method
from .node import ModuleNode, Node

if TYPE_CHECKING:  # every checker knows this module, whose defaults say what a plain ``ExprFilter`` gives
    import typing_extensions

    _T = TypeVar("_T", bound=Expr | Node)
    _E = typing_extensions.TypeVar("_E", bound=Expr, default=Expr)
    _N = typing_extensions.TypeVar("_N", bound=Node, default=Node)
    _M = typing_extensions.TypeVar("_M", bound=Module, default=Module)
else:
    _T = TypeVar("_T")
    _E = TypeVar("_E")
    _N = TypeVar("_N")
    _M = TypeVar("_M")


__all__ = [
    "BaseFilter", "ExprFilter", "ExprFilterCallFunction", "ExprFilterCallMethod", "ExprFilterExprId", "NodeFilter", "NodeFilterName",
    "NodeFilterNodeId", "NodeFilterType",
]  # fmt: skip


class BaseFilter(Selection[_T]):
    """Something to iterate; iterate it before changing the graph, with ``as_list``."""

    def as_dict(self) -> dict[int, _T]:
        """Returns a dict of the items by id."""
        items: Iterable[Any] = self
        return {item._id: item for item in items}


class ExprFilter(BaseFilter[_E]):
    """Exprs of a graph."""

    def call_function(
        self, func: Callable[..., Any] | Sequence[Callable[..., Any]] | None
    ) -> ExprFilterCallFunction:
        """Calls of ``func``; of any function when None."""
        return ExprFilterCallFunction(self, func)

    def call_method(self, method: str | Sequence[str] | None) -> ExprFilterCallMethod:
        """Calls of the method ``method`` of tensors, or of modules for ``__call__``; any when None."""
        return ExprFilterCallMethod(self, method)

    def expr_id(self, expr_id: int | Sequence[int] | None) -> ExprFilterExprId:
        """Exprs with these ids."""
        return ExprFilterExprId(self, expr_id)


class ExprFilterCallFunction(ExprFilter[CallFunction]):
    def __init__(
        self,
        expr_iter: Iterable[Expr],
        func: Callable[..., Any] | Sequence[Callable[..., Any]] | None = None,
    ) -> None:
        super().__init__(lambda: (expr for expr in expr_iter if is_call_function(expr, func)))


class ExprFilterCallMethod(ExprFilter[CallMethod]):
    def __init__(
        self, expr_iter: Iterable[Expr], method: str | Sequence[str] | None = None
    ) -> None:
        def is_one(expr: Expr) -> bool:
            if not method:
                return is_call_tensor_method(expr)
            return isinstance(expr, CallMethod) and is_among(expr.method, method)

        super().__init__(lambda: filter(is_one, expr_iter))


class ExprFilterExprId(ExprFilter[Expr]):
    def __init__(self, expr_iter: Iterable[Expr], expr_id: int | Sequence[int] | None) -> None:
        super().__init__(lambda: (expr for expr in expr_iter if is_among(expr._id, expr_id)))


class NodeFilter(BaseFilter[_N]):
    """Nodes of a graph."""

    def type(self, owner_type: type[_M] | Sequence[type[_M]]) -> NodeFilterType[_M]:
        """Module nodes whose modules are of ``owner_type``."""
        return NodeFilterType(self, owner_type)

    def node_id(self, node_id: int | Sequence[int] | None) -> NodeFilterNodeId:
        """Nodes with these ids."""
        return NodeFilterNodeId(self, node_id)

    def name(self, name: str | None, ignorecase: bool = True) -> NodeFilterName:
        """Nodes whose full name, graph name + "_" + node name, matches a pattern with * and ?."""
        return NodeFilterName(self, name, ignorecase)


class NodeFilterType(NodeFilter[ModuleNode[_M]], Generic[_M]):
    def __init__(self, expr_iter: Iterable[Node], owner_type: type[_M] | Sequence[type[_M]]) -> None:
        kinds = owner_type if isinstance(owner_type, type) else tuple(owner_type)

        def is_one(node: Node) -> bool:
            return isinstance(node, ModuleNode) and isinstance(node.owner, kinds)

        super().__init__(lambda: filter(is_one, expr_iter))


class NodeFilterNodeId(NodeFilter[Node]):
    def __init__(self, expr_iter: Iterable[Node], node_id: int | Sequence[int] | None) -> None:
        super().__init__(lambda: (node for node in expr_iter if is_among(node._id, node_id)))


class NodeFilterName(NodeFilter[Node]):
    def __init__(self, node_iter: Iterable[Node], pattern: str | None, ignorecase: bool) -> None:
        found = self.make_re(pattern, ignorecase)
        super().__init__(lambda: (node for node in node_iter if found.match(format(node, "p"))))

    @classmethod
    def make_re(cls, pattern: str | None, ignorecase: bool = True) -> re.Pattern[str]:
        """Returns the pattern as a regular expression; None matches everything."""
        return name_pattern(pattern or None, ignorecase)
