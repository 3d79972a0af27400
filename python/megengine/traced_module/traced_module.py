"""Modules whose forward is a graph that can be read, changed and saved."""

from __future__ import annotations

import copy
import inspect
import os
import types
from collections.abc import Callable, Sequence
from typing import IO, Any, cast

from .._files import admitted, modules
from .._graph.tree import leaves, map_leaves, opened
from ..fx.graph import Graph
from ..module import Module
from ..module._structure import INTERNAL
from ..module.qat import QATModule
from ..tensor import Tensor
from ..version import __version__
from .base_expr import Expr
from .checking import traced_and_checked
from .filters import *  # noqa: F403 (programs find them here)
from .flattening import flattened
from .internal_graph import InternalGraph
from .module_tracer import (  # noqa: F401 (is_builtin: as above)
    USER_REGISTERED_FUNCTION,
    USER_REGISTERED_MODULE,
    is_builtin,
    see_calls_of,
)
from .node import Node
from .packing import unpack
from .pytree import TreeDef, tree_flatten
from .serialization import upgrade
from .tracing import QUANTIZERS, parameter_from, parameters_of, signature_of

__all__ = ["InternalGraph", "TracedModule", "register_as_builtin", "trace_module", "wrap"]

class _EndReached(BaseException):
    """Raised when all end points are computed. It is no Exception, so that nothing notes or handles
    it on its way.
    """


class _Watch:
    """Values that are kept while graphs run."""

    def __init__(self) -> None:
        self.points: tuple[Node, ...] = ()
        self.ends: tuple[Node, ...] = ()
        self.values: dict[Node, Any] = {}
        self._ended: dict[Node, Any] = {}

    def result(self, graph: InternalGraph, inputs: list[Any]) -> Any:
        """Runs a graph to its end, or to the end points, whose values it then returns."""
        self._ended.clear()
        try:
            with graph.run_by(self._run):
                return graph._run(inputs)
        except _EndReached:
            return [self._ended[node] for node in self.ends]

    def _run(self, expr: Expr, env: dict[Node, Any]) -> None:
        expr.run(env)
        for node in expr.outputs:
            if node in self.points:
                self.values[node] = env[node]
            if node in self.ends:
                self._ended[node] = env[node]
                if len(self._ended) == len(set(self.ends)):
                    raise _EndReached


class TracedModule(Module):
    """Runs graphs in its forward, one for each signature of calls; `trace_module` makes it.

    Parameters
    ----------
    is_top : bool
        Whether it is the outermost one, which no other traced module calls.
    argdef_graph_map : dict of TreeDef to InternalGraph
        The graph for each arrangement of the arguments.
    argdef_outdef_map : dict of TreeDef to TreeDef
        The arrangement of the results for each arrangement of the arguments.
    is_qat : bool
        Whether it is for quantization-aware training.

    Examples
    --------
    >>> import megengine as mge, megengine.module as M, megengine.traced_module as tm
    >>> net = M.Sequential(M.Linear(2, 3), M.ReLU())
    >>> traced = tm.trace_module(net, mge.tensor([[1.0, 2.0]]))
    >>> print(traced.graph)  # doctest: +NORMALIZE_WHITESPACE
    Sequential.Graph (self, inp) {
        %2: _0 = getattr(self, "0") -> (Linear)
        %3: _0_out = _0(inp, )
        %4: _1 = getattr(self, "1") -> (ReLU)
        %5: _1_out = _1(_0_out, )
        return _1_out
    }
    """

    argdef_graph_map: dict[TreeDef, InternalGraph] = None  # type: ignore[assignment]  # set for each object
    argspec: inspect.Signature | None

    def __init__(
        self,
        is_top: bool,
        argdef_graph_map: dict[TreeDef, InternalGraph],
        argdef_outdef_map: dict[TreeDef, TreeDef],
        is_qat: bool = False,
    ) -> None:
        super().__init__()
        self._is_top = is_top
        self.argdef_graph_map = argdef_graph_map
        for argdef, outdef in argdef_outdef_map.items():
            graph = argdef_graph_map[argdef]
            graph._result = outdef.unflatten(graph.outputs)
        self.is_qat = is_qat
        self.argspec = None
        self._class_name = "TracedModule"
        self._watch: _Watch | None = None

    # -- calling ---------------------------------------------------------------------------------

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the graph of this signature.

        Parameters
        ----------
        *args : object
            Tensors and constants, arranged as when it was traced.
        **kwargs : object
            Arguments by name, tensors and constants.

        Returns
        -------
        object
            Result of the traced program, with tensors of this run; with end points, the list of
            their values.

        Raises
        ------
        AssertionError
            If it was not traced for arguments with this arrangement.
        TypeError
            If the program does not take these arguments.
        """
        graph, leaves = self._graph_for(args, kwargs)
        inputs = [self, *leaves]
        return graph._run(inputs) if self._watch is None else self._watch.result(graph, inputs)

    def _graph_for(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[InternalGraph, list[Any]]:
        leaves, argdef = tree_flatten(self._canonical(args, kwargs))
        graph = self.argdef_graph_map.get(argdef)
        if graph is None:
            raise AssertionError(
                f"{self._class_name} was not traced for arguments like {argdef}\n"
                f"  it was for: {', '.join(map(repr, self.argdef_graph_map)) or 'none'}\n"
                "  fix: call it as it was traced, or trace it with such arguments"
            )
        return graph, leaves

    def _canonical(
        self, args: Sequence[Any], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Returns the arguments by position if possible, so that calls by position and by name have
        one signature.
        """
        if self.argspec is None:
            return tuple(args), kwargs
        try:
            bound = self.argspec.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{self._class_name}: {error}\n  it takes {self.argspec}") from None
        return bound.args, bound.kwargs

    def _by_name(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[tuple[str, Any]]:
        """Returns (name of the parameter, argument), by position first."""
        names: list[str] = []
        for parameter in self.argspec.parameters.values() if self.argspec is not None else ():
            if parameter.kind is parameter.VAR_POSITIONAL:
                names += [f"{parameter.name}_{i}" for i in range(len(args) - len(names))]
            names.append(parameter.name)
        names += ["args"] * (len(args) - len(names))
        return [*zip(names, args, strict=False), *kwargs.items()]

    # -- graphs ----------------------------------------------------------------------------------

    def _runs(self, graph: Graph) -> bool:
        return graph.view in self.argdef_graph_map.values()

    def _new_graph(self, name: str, qualname: str) -> InternalGraph:
        """A graph for a call of this module, without anything in it."""
        return InternalGraph(name, qualname, self)

    @property
    def graph(self) -> InternalGraph:
        """The only graph. AssertionError when there is none, or several signatures were traced."""
        if len(self.argdef_graph_map) != 1:
            raise AssertionError(
                f"{self._class_name} has {len(self.argdef_graph_map)} graphs\n"
                "  fix: choose one of argdef_graph_map"
            )
        return next(iter(self.argdef_graph_map.values()))

    def _input_names(self) -> list[str]:
        """Returns the names of the inputs of the only graph."""
        return [node.name for node in self.graph.inputs[1:]]

    @property
    def argdef_outdef_map(self) -> dict[TreeDef, TreeDef]:
        """Mapping of the arrangement of the arguments to that of the results."""
        return {k: tree_flatten(unpack(g._result))[1] for k, g in self.argdef_graph_map.items()}

    def _adopt_graphs(self) -> None:
        """Makes this the top module: its graphs are the outermost ones, which count ids."""
        for graph in self.argdef_graph_map.values():
            graph._renumber()

    def _arrangement(self, graph: InternalGraph) -> TreeDef:
        return next(argdef for argdef, other in self.argdef_graph_map.items() if other is graph)

    def _set_arguments(self, graph: InternalGraph, args: tuple[Any, ...], kwargs: dict[str, Any], added: str = "") -> None:
        """Makes ``graph`` the one for arguments arranged like these; parameters keep their names.
        added: the name of a new last one.
        """
        del self.argdef_graph_map[self._arrangement(graph)]
        self.argdef_graph_map[tree_flatten((tuple(args), dict(kwargs)))[1]] = graph
        names = [name for name, _ in self._by_name(args, kwargs)]
        names[-1:] = [added or names[-1]] if names else []
        kinds = inspect.Parameter
        taken = [
            kinds(name, kinds.POSITIONAL_OR_KEYWORD if i < len(args) else kinds.KEYWORD_ONLY)
            for i, name in enumerate(names)
        ]
        self.argspec = inspect.Signature(taken) if len(set(names)) == len(names) else None

    def _add_parameter(self, graph: InternalGraph, name: str) -> None:
        """Makes the last input of ``graph`` a further argument."""
        *inputs, new = graph.inputs[1:]
        args, kwargs = self._arrangement(graph).unflatten(inputs)
        if kwargs:
            kwargs = {**kwargs, name: new}
        else:
            args = (*args, new)
        self._set_arguments(graph, args, kwargs, name)

    # -- looking into a run ----------------------------------------------------------------------

    def set_watch_points(self, nodes: Node | Sequence[Node]) -> None:
        """Keeps the values of ``nodes`` in ``watch_node_value`` at each call.

        Parameters
        ----------
        nodes : Node or sequence of Node
            Nodes of any graph inside; they replace the nodes that were watched before.

        Raises
        ------
        AssertionError
            For a node of another module.

        Examples
        --------
        >>> import megengine as mge, megengine.module as M, megengine.traced_module as tm
        >>> x = mge.tensor([[1.0, 2.0]])
        >>> traced = tm.trace_module(M.Sequential(M.Linear(2, 3), M.ReLU()), x)
        >>> linear = traced.graph.get_method_by_type("__call__").as_list()[0].outputs[0]
        >>> traced.set_watch_points(linear)
        >>> y = traced(x)
        >>> traced.watch_node_value[linear].shape
        (1, 3)
        """
        self._watched(points=nodes)

    def clear_watch_points(self) -> None:
        """Ends what `set_watch_points` began."""
        self._watched(points=())

    def set_end_points(self, nodes: Node | Sequence[Node]) -> None:
        """Ends calls when ``nodes`` are computed; they return the list of their values.

        Parameters
        ----------
        nodes : Node or sequence of Node
            Nodes of any graph inside; they replace the former end points.

        Raises
        ------
        AssertionError
            For a node of another module.
        """
        self._watched(ends=nodes)

    def clear_end_points(self) -> None:
        """Makes calls run to their ends again."""
        self._watched(ends=())

    @property
    def watch_points(self) -> tuple[Node, ...]:
        """The nodes that are watched."""
        return self._watch.points if self._watch is not None else ()

    @property
    def end_points(self) -> tuple[Node, ...]:
        """The nodes at which calls end."""
        return self._watch.ends if self._watch is not None else ()

    @property
    def watch_node_value(self) -> dict[Node, Any]:
        """Mapping of each watched node to its value in the last call."""
        return self._watch.values if self._watch is not None else {}

    def _watched(self, points: Any = None, ends: Any = None) -> None:
        watch = self._watch or _Watch()
        for key, nodes in (("points", points), ("ends", ends)):
            if nodes is not None:
                nodes = (nodes,) if isinstance(nodes, Node) else tuple(nodes)
                self._check_inside(nodes)
                setattr(watch, key, nodes)
        if points is not None:
            watch.values.clear()
        self._watch = watch if watch.points or watch.ends else None

    def _inner_graphs(self) -> list[InternalGraph]:
        return [inner for g in self.argdef_graph_map.values() for inner in g.each_graph()]

    def _check_inside(self, nodes: tuple[Node, ...]) -> None:
        graphs = self._inner_graphs()
        for node in nodes:
            if not isinstance(node, Node) or node.top_graph not in graphs:
                raise AssertionError(f"{node!r} is not a node of {self._class_name}")

    # -- copies ----------------------------------------------------------------------------------

    def flatten(self) -> TracedModule:
        """Returns a module with the same parameters whose only graph calls no other graph.

        Nodes keep their qualnames; results of the called graphs take the names that they had
        outside.
        """
        new = TracedModule(True, {}, {}, self.is_qat)
        new.__dict__.update({k: v for k, v in vars(self).items() if k not in _OWN})
        new._list_holders()
        new.argspec, new._class_name = self.argspec, self._class_name
        for argdef, graph in self.argdef_graph_map.items():
            new.argdef_graph_map[argdef] = flattened(graph, new)
        new._adopt_graphs()
        return new

    def _as_child(self) -> TracedModule:
        """A copy with graphs of its own, to be called by another traced module; tensors are shared."""
        memo: dict[int, Any] = {id(tensor): tensor for tensor in self.tensors()}
        memo.update({id(m): m for m in self.modules() if not isinstance(m, TracedModule)})
        child = copy.deepcopy(self, memo)
        child._is_top = False
        return child

    def _copied(self, is_top: bool = True) -> TracedModule:
        """Returns a copy with ids of its own."""
        copied = self._as_child()
        copied._is_top = is_top
        copied._adopt_graphs()
        return copied

    def _take_over(self, module: Module, build: Callable[[Module], Module]) -> None:
        """Takes over tensors, children and mode of ``module``; ``build`` makes the children."""
        own = self.__dict__
        for key in ("name", "training", "quantize_disabled", "_short_name"):
            own[key] = vars(module)[key]
        for key, value in vars(module).items():
            if key not in INTERNAL:
                _check_not_mixed(type(module).__name__, key, value)
                if _holds(value, (Module, Tensor)):
                    own[key] = map_leaves(value, lambda leaf: build(leaf) if isinstance(leaf, Module) else leaf)
        self._list_holders()
        self.argspec = signature_of(module.forward)
        self._class_name = type(module).__name__
        self.is_qat = isinstance(module, QATModule)
        for key in QUANTIZERS if self.is_qat else ():
            own.setdefault(key, getattr(module, key))  # None where there is nothing to quantize

    def __copy__(self) -> TracedModule:
        """A copy with graphs of its own; tensors and built-in modules are shared."""
        return self._copied(self._is_top)

    def __deepcopy__(self, memo: dict[int, Any]) -> TracedModule:
        copied = memo[id(self)] = type(self).__new__(type(self))
        copied.__setstate__(copy.deepcopy(self.__getstate__(), memo))
        return copied

    def save(self, f: str | os.PathLike[str] | IO[bytes]) -> None:
        """Writes graphs, modules and tensors to a file, for `traced_module.load`.

        The file is data without code, in the safetensors format (docs/files.md). A path gets its
        new content at once: an error leaves the old file.

        Parameters
        ----------
        f : str, path or binary file
            Where to write; a file must be open for writing.

        Raises
        ------
        ModelFileError
            If the module holds what is not data, such as hooks; the error is a ValueError.
        """
        modules.save(self if self._is_top else self._copied(), f)

    def __getstate__(self) -> dict[str, Any]:
        state = {**vars(self), "_watch": None, "argspec": None}
        if self.argspec is not None:
            state["argspec"] = parameters_of(self.argspec)
        # A pickled dict is filled before its keys are complete, which their hashes need.
        state["argdef_graph_map"] = list(self.argdef_graph_map.items())
        return {"version": __version__, "module": state}

    def __setstate__(self, state: dict[str, Any]) -> None:
        version, state = state["version"], dict(state["module"])
        state["argdef_graph_map"] = dict(state["argdef_graph_map"])
        if state["argspec"] is not None:
            state["argspec"] = inspect.Signature([parameter_from(*saved) for saved in state["argspec"]])
        super().__setstate__(state)
        if self._is_top:
            self._upgrade(version)

    def _upgrade(self, version: str) -> None:
        """Completes a module that was read from a file of release ``version``."""
        for graph in self._inner_graphs():
            upgrade(graph, version)
        self._adopt_graphs()

    def _module_info_string(self) -> str:
        return self._class_name


_OWN = frozenset({"_is_top", "argdef_graph_map", "argspec", "_class_name", "_watch", "is_qat"})


def _holds(value: Any, kinds: tuple[type, ...]) -> bool:
    return any(isinstance(leaf, kinds) for leaf in leaves(value))


def _check_not_mixed(owner: str, key: str, value: Any) -> None:
    """Raises ValueError for a container of modules and other things."""
    if not _holds(value, (Module,)):
        return
    for item in getattr(opened(value), "parts", ()):
        if not _holds(item, (Module,)):
            raise ValueError(
                f"{owner}.{key} holds modules and also a {type(item).__name__}\n"
                "  fix: keep modules and other things in containers of their own"
            )
        _check_not_mixed(owner, key, item)


# -- functions -----------------------------------------------------------------------------------


def register_as_builtin(mod_cls: type[Module]) -> type[Module]:
    """Makes calls of modules of exactly ``mod_cls`` one expr; serves as a decorator.

    Parameters
    ----------
    mod_cls : type
        A class of modules; its subclasses are traced into.

    Returns
    -------
    type
        The class that was given.

    Raises
    ------
    AssertionError
        If ``mod_cls`` is no class of modules.

    Examples
    --------
    >>> import megengine as mge, megengine.module as M, megengine.traced_module as tm
    >>> @tm.register_as_builtin
    ... class Double(M.Module):
    ...     def forward(self, x):
    ...         return x + x
    >>> traced = tm.trace_module(M.Sequential(Double()), mge.tensor(1.0))
    >>> print(traced.graph)  # doctest: +NORMALIZE_WHITESPACE
    Sequential.Graph (self, inp) {
        %2: _0 = getattr(self, "0") -> (Double)
        %3: _0_out = _0(inp, )
        return _0_out
    }
    """
    if not isinstance(mod_cls, type) or not issubclass(mod_cls, Module):
        raise AssertionError(f"register_as_builtin takes a class of modules, got {mod_cls!r}")
    if mod_cls not in USER_REGISTERED_MODULE:
        USER_REGISTERED_MODULE.append(mod_cls)
        admitted.register(mod_cls)
    return mod_cls


def wrap(func: Callable[..., Any]) -> Callable[..., Any]:
    """Makes calls of ``func`` one expr; serves as a decorator.

    Parameters
    ----------
    func : callable
        A Python function at the top level of a module.

    Returns
    -------
    callable
        The function that was given.

    Raises
    ------
    AssertionError
        For a function that is not at the top of its module, or not written in Python.

    Examples
    --------
    >>> import megengine as mge, megengine.module as M, megengine.traced_module as tm
    >>> @tm.wrap
    ... def twice(x):
    ...     return x + x
    >>> class Twice(M.Module):
    ...     def forward(self, x):
    ...         return twice(x)
    >>> traced = tm.trace_module(Twice(), mge.tensor(1.0))
    >>> print(traced.graph)  # doctest: +ELLIPSIS +NORMALIZE_WHITESPACE
    Twice.Graph (self, x) {
        %2: twice_out = ...twice(x, )
        return twice_out
    }
    """
    if not callable(func) or not hasattr(func, "__code__"):
        raise AssertionError(f"wrap takes a function written in Python, got {func!r}")
    if "<" in func.__qualname__ or "." in func.__qualname__:
        raise AssertionError(
            f"wrap: {func.__qualname__} is not at the top of its module, where files could find it\n"
            "  fix: move it there"
        )
    if func not in USER_REGISTERED_FUNCTION:
        see_calls_of(cast(types.FunctionType, func))
        admitted.register(func)
    return func


def trace_module(mod: Module, *args: Any, **kwargs: Any) -> TracedModule:
    """Runs a module on example arguments and returns a module that does the same by a graph.

    Parameters and built-in modules are shared with ``mod``; the graph holds for other shapes too.
    The graph is run on the same arguments and compared with ``mod``, unless
    `disable_default_checker` was called. Afterwards random numbers and statistics of batch
    normalization are as if ``mod`` had run once.

    Parameters
    ----------
    mod : Module
        Module that is run once on the example arguments.
    *args : object
        Example arguments, tensors and constants. Constants become part of the signature.
    **kwargs : object
        Example arguments by name.

    Returns
    -------
    TracedModule
        Module that takes arguments with the same arrangement.

    Raises
    ------
    AssertionError
        If ``mod`` is no module, and for modules as arguments.
    RuntimeError
        If the graph computes something else than ``mod``, for example because forward depends on
        more than arguments, parameters and buffers.

    See Also
    --------
    fx.symbolic_trace : Needs no arguments, and gives graphs of other nodes.

    Examples
    --------
    >>> import megengine as mge, megengine.module as M, megengine.traced_module as tm
    >>> traced = tm.trace_module(M.Sequential(M.Linear(2, 3)), mge.tensor([[1.0, 2.0]]))
    >>> len(traced.graph.get_module_by_type(M.Linear).as_list())
    1
    """
    if not isinstance(mod, Module):
        raise AssertionError(f"trace_module takes a Module, got {type(mod).__name__}; megengine.fx.symbolic_trace takes functions")
    for arg in (*args, *kwargs.values()):
        if isinstance(arg, Module):
            raise AssertionError("trace_module: arguments are tensors and constants, not modules")
    if isinstance(mod, TracedModule):
        mod._graph_for(args, kwargs)
        return mod._copied()
    return traced_and_checked(TracedModule, mod, args, kwargs)
