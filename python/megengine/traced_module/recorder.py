"""What recording while tracing and while inserting share: exprs with nodes for their results."""

from __future__ import annotations

import abc
import functools
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
from .expr import Apply, CallFunction, CallMethod, Constant, Expr, GetAttr, Input
from .packing import pack
from .pytree import tree_flatten

if TYPE_CHECKING:
    from .internal_graph import InternalGraph


Arguments = tuple[tuple[Any, ...], dict[str, Any]]


def has_tensor(tree: object) -> bool:
    """Whether a tensor or node stands in a tree of arguments or results."""
    return bool(tree_flatten(tree)[0])


def listed(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Arguments:
    """Arguments whose iterators are lists, for they are read twice."""
    make: Callable[[Any], Any] = lambda x: list(x) if isinstance(x, Iterator) else x  # noqa: E731
    return tuple(make(arg) for arg in args), {key: make(value) for key, value in kwargs.items()}


def function_expr(func: Callable[..., Any], args: tuple[Any, ...]) -> tuple[Expr, tuple[Any, ...]]:
    """The expr of a call, and the arguments that it takes; a method of the global random generator is the function of megengine.random."""
    if func is op_objects.apply:
        return Apply(args[0]), args[1:]
    public: Any = getattr(random, func.__name__, None) if args and isinstance(args[0], RNG) else None
    if getattr(public, "__self__", None) is not None and public.__self__ is args[0]:
        return CallFunction(public), args[1:]
    return CallFunction(func), args


class Recorder(_watch.Watcher, abc.ABC):
    """Adds exprs to graphs. ``inserts`` tells whether calls are given nodes rather than tensors."""

    inserts = False
    functions = module_tracer.FUNCTIONS

    @property
    @abc.abstractmethod
    def graph(self) -> InternalGraph:
        """Where exprs go now."""

    @abc.abstractmethod
    def node_of(self, leaf: object) -> Any:
        """The node for an argument that is a tensor, module or node."""

    @abc.abstractmethod
    def record(self, expr: Expr, arguments: Arguments, run: Callable[[], Any], written: Tensor | None = None) -> Any:
        """What the call gives, which ``expr`` makes; or ``written``, which it writes. run: calls it as the program does."""

    def sees(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Whether a call with these arguments becomes an expr."""
        return True

    def call_function(self, func: Callable[..., Any], original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        args, kwargs = listed(args, kwargs)
        if not self.sees(args, kwargs):
            with suspended():
                return original(*args, **kwargs)
        expr, shown = function_expr(func, args)
        return self.record(expr, self.arguments(shown, kwargs), lambda: original(*args, **kwargs))

    def call_method(
        self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], original: Callable[..., Any] | None = None
    ) -> Any:
        args, kwargs = listed(args, kwargs)
        run = functools.partial(original, *args, **kwargs) if original is not None else lambda: None
        if not self.sees(args, kwargs):
            with suspended():
                return run()
        return self.record_method(name, self.arguments(args, kwargs), run, args[0] if module_tracer.writes_in_place(name) else None)

    def record_method(self, name: str, arguments: Arguments, run: Callable[[], Any], written: Tensor | None = None) -> Any:
        target = arguments[0][0]
        expr = CallMethod(target, name)
        expr.set_arguments((), {})  # `finish` gives it these: what fails, or makes no tensor, reads nothing
        if module_tracer.writes_in_place(name) and (self.inserts or isinstance(target.expr, (Input, GetAttr, Constant))):
            expr.disable_remove()  # it is seen from outside
        return self.record(expr, arguments, run, written)

    def items(self, tensor: Tensor) -> Iterator[Any]:
        return iter([tensor[i] for i in range(len(tensor))])

    def arguments(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Arguments:
        """args and kwargs with nodes in the places of tensors and modules. AssertionError for unsupported types."""
        tree_flatten((args, kwargs))
        return map_leaves(
            (tuple(pack(arg) for arg in args), {key: pack(value) for key, value in kwargs.items()}),
            lambda leaf: self.node_of(leaf) if isinstance(leaf, (Tensor, Module, Value)) else leaf,
        )

    def finish(self, expr: Expr, arguments: Arguments, result: object) -> None:
        """Give ``expr`` its arguments, and nodes for the tensors in ``result``."""
        expr.set_arguments(*expr._arranged(*arguments))
        expr.add_outputs(result)
        name, qualname = expr._names_of_outputs(self.graph.qualname)
        for node in expr.outputs:
            node._name, node._qualname = name, qualname
        expr.source = users_line()


def suspended() -> AbstractContextManager[Any]:
    return _watch.active(None)
