"""Records calls as exprs with nodes for their results, for tracing and `insert_exprs`; and traces
modules.

While a module's forward is traced it computes with tensors as usual, and the graph has a node for
each.
"""

from __future__ import annotations

import abc
import functools
import inspect
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from itertools import accumulate
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from .. import random
from .._graph.tree import Value, leaves, map_leaves
from ..core import op_objects
from ..core._origin import users_level, users_line
from ..fx import _watch
from ..module import Module
from ..module._structure import _members
from ..random import RNG
from ..tensor import Tensor
from . import module_tracer
from .expr import Apply, CallFunction, CallMethod, Constant, Expr, GetAttr, Input, shape_tensor
from .node import ModuleNode, Node, TensorNode
from .packing import pack
from .pytree import tree_flatten
from .utils import get_subattr

if TYPE_CHECKING:
    from .internal_graph import InternalGraph
    from .traced_module import TracedModule


Arguments = tuple[tuple[Any, ...], dict[str, Any]]


def listed(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Arguments:
    """Returns arguments with lists in place of iterators, because they are read twice."""
    make: Callable[[Any], Any] = lambda x: list(x) if isinstance(x, Iterator) else x  # noqa: E731
    return tuple(make(arg) for arg in args), {key: make(value) for key, value in kwargs.items()}


def function_expr(func: Callable[..., Any], args: tuple[Any, ...]) -> tuple[Expr, tuple[Any, ...]]:
    """Returns the expr of a call, and its arguments; a method of the global random generator
    becomes the function of megengine.random.
    """
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
    graph: InternalGraph  # where exprs go now

    @abc.abstractmethod
    def node_of(self, leaf: object) -> Any:
        """The node for an argument that is a tensor, module or node."""

    @abc.abstractmethod
    def record(self, expr: Expr, arguments: Arguments, run: Callable[[], Any], written: Tensor | None = None) -> Any:
        """Records ``expr`` and returns its result, or ``written`` if the call writes that. run:
        calls the function as the program does.
        """

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
        # `finish` sets the arguments, so a call that fails, or makes no tensor, reads nothing
        expr.set_arguments((), {})
        if module_tracer.writes_in_place(name) and (self.inserts or isinstance(target.expr, (Input, GetAttr, Constant))):
            expr.disable_remove()  # the write is seen from outside
        return self.record(expr, arguments, run, written)

    def items(self, tensor: Tensor) -> Iterator[Any]:
        return iter([tensor[i] for i in range(len(tensor))])

    def arguments(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Arguments:
        """Returns args and kwargs with nodes in the places of tensors and modules. AssertionError
        for unsupported types.
        """
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


# Attributes of a module for quantization-aware training that converters ask a traced one for.
QUANTIZERS = ("act_observer", "act_fake_quant", "weight_observer", "weight_fake_quant", "with_act", "with_weight")


class _Scope:
    """One module's forward while it runs."""

    def __init__(self, graph: InternalGraph, module: Module) -> None:
        self.graph = graph
        self.module = module
        self.nodes: dict[int, Node] = {}  # id of a tensor or module -> its node
        self._kept: list[Any] = []  # keeps the objects alive, so that ids stay valid

    def know(self, value: Any, node: Node) -> None:
        self.nodes[id(value)] = node
        self._kept.append(value)

    @functools.cached_property
    def paths(self) -> dict[int, str]:
        """Id of a tensor or module -> the dotted path at which the module holds it; its own members
        have the paths that they have in it.
        """
        held = [*self.module.named_tensors(), *self.module.named_modules(), *_members(self.module)]
        return {id(item): path for path, item in held if path}


class Tracer(Recorder):
    """Builds the traced copy of a tree of modules, as modules of class ``made``, and the graphs of
    their calls.
    """

    def __init__(self, made: type[TracedModule], keep_values: bool = False) -> None:
        self._made = made
        self._built: dict[int, Module] = {}
        self._kept: list[Module] = []
        self._scopes: list[_Scope] = []
        # Values of the exprs of the outermost graph, for the check of exprs one by one.
        self.values: dict[Expr, list[np.ndarray]] | None = {} if keep_values else None

    # -- the tree --------------------------------------------------------------------------------

    def build(self, module: Module, is_root: bool = False) -> Module:
        """The traced copy of ``module``; built-in modules below the root and all tensors are shared with it."""
        if id(module) not in self._built:
            self._kept.append(module)
            if isinstance(module, self._made):
                self._built[id(module)] = module._as_child()
            elif module_tracer.is_builtin(module) and not is_root:
                self._built[id(module)] = module
            else:
                traced = self._built[id(module)] = self._made(False, {}, {})
                traced._take_over(module, self.build)
        return self._built[id(module)]

    def trace(
        self, module: Module, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[TracedModule, Any]:
        """Returns the traced copy of ``module`` with a graph for these arguments, and its result.
        """
        traced = cast("TracedModule", self.build(module, is_root=True))
        with _watch.watching(self):
            result = self._trace_graph(module, traced, name, name, args, kwargs)
        _drop_unread(traced)
        return traced, result

    def _trace_graph(
        self,
        module: Module,
        traced: TracedModule,
        name: str,
        qualname: str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        graph = traced._new_graph(name, qualname)
        scope = _Scope(graph, module)
        canonical = traced._canonical(args, kwargs)
        leaves, argdef = tree_flatten(canonical)
        self._scopes.append(scope)
        try:
            self._add_inputs(scope, canonical)
            result = _watch.MODULE_CALL(module, *args, **kwargs)
            graph._result = self.arguments((result,), {})[0][0]
        finally:
            self._scopes.pop()
        traced.argdef_graph_map[argdef] = graph
        graph.compile()
        return result

    def _add_inputs(self, scope: _Scope, canonical: tuple[tuple[Any, ...], dict[str, Any]]) -> None:
        graph = scope.graph
        node = Input.make(ModuleNode, "self", graph.qualname)
        graph._add(node.expr)
        scope.know(scope.module, node)
        for name, value in graph._module._by_name(*canonical):
            for leaf in tree_flatten(value)[0]:
                node = Input.make(TensorNode, name, f"{graph.qualname}.[{name}]")
                node._describe(leaf)
                graph._add(node.expr)
                if id(leaf) not in scope.nodes:
                    scope.know(leaf, node)

    # -- nodes -----------------------------------------------------------------------------------

    def node_of(self, leaf: object) -> Node:
        if isinstance(leaf, Node):
            return leaf
        scope = self._scopes[-1]
        node = scope.nodes.get(id(leaf))
        if node is None:
            node = self._read(scope, leaf)
            scope.know(leaf, node)
        return node

    def _read(self, scope: _Scope, value: Any) -> Node:
        """An attribute of the module, or a constant."""
        graph = scope.graph
        path = scope.paths.get(id(value))
        if path is not None:
            node = GetAttr.of(cast("ModuleNode", graph.inputs[0]), path, value)
        else:
            if any(id(value) in outer.nodes for outer in self._scopes[:-1]):
                raise AssertionError(
                    f"{graph.qualname} reads a tensor of the calling module that is not one of its arguments\n"
                    "  fix: pass it to the module as an argument"
                )
            kept = self.build(value) if isinstance(value, Module) else value
            node = Constant.make(kept, qualname=f"{graph.qualname}.[const]")
        graph._add(node.expr)
        return node

    def _add(self, expr: Expr, arguments: Arguments, result: Any) -> None:
        scope = self._scopes[-1]
        self.finish(expr, arguments, result)
        scope.graph._add(expr)
        tensors = [leaf for leaf in leaves(pack(result)) if isinstance(leaf, Tensor)]
        for tensor, node in zip(tensors, expr.outputs, strict=True):
            scope.know(tensor, node)
        if self.values is not None and len(self._scopes) == 1:
            with suspended():
                self.values[expr] = [tensor.numpy() for tensor in tensors]

    # -- what is called --------------------------------------------------------------------------

    @property
    def graph(self) -> InternalGraph:  # type: ignore[override]  # it changes with each scope
        return self._scopes[-1].graph

    def record(self, expr: Expr, arguments: Arguments, run: Callable[[], Any], written: Tensor | None = None) -> Any:
        with suspended():
            result = run()
        if result is NotImplemented:
            return result
        made = result if written is None else written
        if tree_flatten(made)[0]:  # it has a tensor
            self._add(expr, arguments, made)
        return result

    def shape_of(self, tensor: Tensor, shape: object) -> Any:
        if not shape and not isinstance(shape, Tensor):
            return shape
        return self.record_method("shape", self.arguments((tensor,), {}), lambda: shape_tensor(tensor))

    def value_of(self, tensor: Tensor) -> None:
        node = self._scopes[-1].nodes.get(id(tensor))
        if node is None or isinstance(node.expr, (Constant, GetAttr)):
            return
        warnings.warn(
            f"trace_module: the value of {node.name} is read, and what follows from it is the same for every input of the traced module\n"
            "  fix: choose with F.where, or return the tensor and read it outside",
            stacklevel=users_level(),
        )

    def made_from(
        self, result: Tensor, data: object, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        """Records ``Tensor(data)`` of a tensor as a call."""
        if isinstance(data, Tensor):
            self._add(CallFunction(type(result)), self.arguments((data, *args), kwargs), result)

    def named(self, tensor: Tensor, name: str) -> None:
        node = self._scopes[-1].nodes.get(id(tensor))
        if node is not None and name:
            node.name = name

    def write(self, module: Module, name: str, value: object) -> None:
        # `self.count += 1` assigns the same tensor
        if isinstance(value, (Tensor, Module)) and vars(module).get(name) is not value:
            raise AssertionError(
                f"{type(module).__name__}.{name} is assigned in forward, which a graph does not repeat\n"
                "  fix: write into the tensor in place, or assign it before tracing"
            )
        super().write(module, name, value)

    def call_module(self, module: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        args, kwargs = listed(args, kwargs)
        node = self.node_of(module)
        traced = self.build(module)
        arguments = self.arguments((node, *args), kwargs)
        if self._is_whole(traced, args, kwargs):
            with suspended():
                result = _watch.MODULE_CALL(module, *args, **kwargs)
        else:
            name = f"{self.graph.name}_{node.name}"
            result = self._trace_graph(module, cast("TracedModule", traced), name, node.qualname, args, kwargs)
        self._add(CallMethod(node), arguments, result)
        return result

    def _is_whole(self, traced: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Whether a call is one expr whose inside is known already, or never will be."""
        if not isinstance(traced, self._made):
            return True
        argdef = tree_flatten(traced._canonical(args, kwargs))[1]
        return argdef in traced.argdef_graph_map


def _drop_unread(top: TracedModule) -> None:
    """Drops from each traced module below ``top`` what no graph reads, but for its quantizers."""
    called = [module for module in top.modules() if isinstance(module, type(top)) and module.argdef_graph_map]
    read: set[int] = set()
    for module in called:
        for graph in module.argdef_graph_map.values():
            for expr in graph:
                if isinstance(expr, GetAttr):
                    read.update(map(id, accumulate(expr.attr_name.split("."), get_subattr, initial=module)))
    for module in called:
        kept = {path.partition(".")[0] for path, item in _members(module) if id(item) in read}
        for key in {path.partition(".")[0] for path, _ in _members(module)}.difference(kept):
            if not module.is_qat or key not in QUANTIZERS:
                delattr(module, key)


def parameters_of(signature: inspect.Signature) -> list[tuple[Any, ...]]:
    """Returns name, kind and default, if any, of each parameter, for files."""
    return [(p.name, int(p.kind), *([] if p.default is p.empty else [p.default])) for p in signature.parameters.values()]


def parameter_from(name: str, kind: int, *default: Any) -> inspect.Parameter:
    """Returns the parameter of an item from `parameters_of`. ValueError for an unknown kind."""
    kinds: Any = type(inspect.Parameter.KEYWORD_ONLY)
    return inspect.Parameter(name, kinds(kind), **{"default": value for value in default})


def signature_of(forward: Callable[..., Any]) -> inspect.Signature:
    """Parameters by name, without annotations; defaults that a graph cannot hold become None."""

    def held(default: Any) -> Any:
        try:
            tree_flatten(default)
        except AssertionError:
            return None
        return default

    found = inspect.signature(forward).parameters.values()
    return inspect.Signature([inspect.Parameter(p.name, p.kind, default=held(p.default)) for p in found])
