"""What recording while tracing and while inserting share: exprs with nodes for their results."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from .. import random
from .._graph.tree import Value, map_leaves
from ..core import op_objects
from ..core._origin import users_line
from ..fx import _watch
from ..module import Module
from ..random import RNG
from ..tensor import Tensor
from . import module_tracer
from .expr import Apply, CallFunction, Expr
from .node import TensorNode
from .packing import pack
from .pytree import tree_flatten

if TYPE_CHECKING:
    from .internal_graph import InternalGraph


def has_tensor(tree: object) -> bool:
    """Whether a tensor or node stands in a tree of arguments or results."""
    return bool(tree_flatten(tree)[0])


def listed(
    args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments whose iterators are lists, for they are read twice."""
    make: Callable[[Any], Any] = lambda x: list(x) if isinstance(x, Iterator) else x  # noqa: E731
    return tuple(make(arg) for arg in args), {key: make(value) for key, value in kwargs.items()}


def named_function(
    func: Callable[..., Any], args: tuple[Any, ...]
) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """A method of the global random generator is the function of megengine.random."""
    if args and isinstance(args[0], RNG):
        public: Any = getattr(random, func.__name__, None)
        if getattr(public, "__self__", None) is args[0]:
            return public, args[1:]
    return func, args


def function_expr(func: Callable[..., Any], args: tuple[Any, ...]) -> tuple[Expr, tuple[Any, ...]]:
    """The expr of a call, and the arguments that it takes."""
    if func is op_objects.apply:
        return Apply(args[0]), args[1:]
    func, args = named_function(func, args)
    return CallFunction(func), args


class Recorder(_watch.Watcher):
    """Adds exprs to graphs. ``inserts`` tells whether calls are given nodes rather than tensors."""

    inserts = False
    functions = module_tracer.FUNCTIONS

    def items(self, tensor: Tensor) -> Iterator[Any]:
        return iter([tensor[i] for i in range(len(tensor))])

    def node_of(self, leaf: object) -> Any:
        """The node for an argument that is a tensor, module or node; constants stay."""
        raise TypeError(f"{type(self).__name__} has no nodes")

    def arguments(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """args and kwargs with nodes in the places of tensors and modules. AssertionError for unsupported types."""
        tree_flatten((args, kwargs))
        return map_leaves(
            (tuple(pack(arg) for arg in args), {key: pack(value) for key, value in kwargs.items()}),
            lambda leaf: self.node_of(leaf) if isinstance(leaf, (Tensor, Module, Value)) else leaf,
        )

    def finish(
        self,
        expr: Expr,
        arguments: tuple[tuple[Any, ...], dict[str, Any]],
        result: object,
        base: str,
        qualname: str,
    ) -> list[tuple[Tensor, TensorNode]]:
        """Give ``expr`` its arguments, and nodes for the tensors in ``result``."""
        made: list[tuple[Tensor, TensorNode]] = []

        def node_for(leaf: Any) -> Any:
            if not isinstance(leaf, Tensor):
                return leaf
            node = TensorNode(expr, base, qualname)
            node._describe(leaf)
            made.append((leaf, node))
            return node

        expr.set_arguments(*expr._arranged(*arguments))
        expr._result = map_leaves(pack(result), node_for)
        expr._outputs = [node for _, node in made]
        expr.source = users_line()
        return made


def method_base(method: str) -> str:
    return f"{method.strip('_')}_out"


def function_qualname(graph: InternalGraph, function: str) -> str:
    return f"{graph.qualname}.[func_{function}]"


def method_qualname(graph: InternalGraph, method: str) -> str:
    return f"{graph.qualname}.[method_{method.strip('_')}]"


def suspended() -> AbstractContextManager[Any]:
    return _watch.active(None)
