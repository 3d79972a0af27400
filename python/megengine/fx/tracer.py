"""Tracer: runs a program once on proxies and records what it does as a graph."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Iterator
from typing import Any

from .. import module as M
from .._graph.tree import map_leaves
from ..core._origin import users_line
from ..tensor import Tensor
from . import _intercept, node
from .graph import Graph
from .graph_module import GraphModule
from .node import Argument, Node, Target
from .proxy import Proxy, TraceError, unknown

__all__ = ["Tracer", "symbolic_trace"]

_LAYERS = ("megengine.module", "megengine.fx.torchlike", "megengine.utils.mkldnn")
_CONSTANTS = (str, bytes, int, float, complex, bool, type(None), type(Ellipsis), range)


def check_concrete_arg(value: object, expected: object, name: str) -> None:
    """Raises ValueError unless an argument has the value for which the program was traced."""
    if value is not expected and value != expected:
        raise ValueError(
            f"argument {name!r} is {value!r}, but the program was traced for {expected!r}"
        )


node._IMPURE.add(check_concrete_arg)


class Tracer:
    """Records programs. Subclasses decide what is a leaf, or change what is recorded.

    Examples
    --------
    >>> from megengine import fx
    >>> import megengine.module as M
    >>> graph = fx.Tracer().trace(M.Sequential(M.Linear(3, 4), M.ReLU()))
    >>> [node.target for node in graph.nodes]
    ['inp', '0', '1', 'output']
    """

    root: M.Module
    graph: Graph
    _inside: str  # path of the module whose forward runs

    # -- what to record --------------------------------------------------------------------------

    def is_leaf_module(self, m: M.Module, module_qualified_name: str) -> bool:
        """Tells whether one node calls a module, instead of the nodes of its forward.

        Layers of this package are leaves, except Sequential.

        Parameters
        ----------
        m : Module
            Module that is called.
        module_qualified_name : str
            Its dotted path from the root.

        Returns
        -------
        bool
            True for a leaf.
        """
        return type(m).__module__.startswith(_LAYERS) and not isinstance(m, M.Sequential)

    def call_module(
        self,
        m: M.Module,
        forward: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """Records a call of a module, or traces into it. The tracer calls this for each such call.

        Parameters
        ----------
        m : Module
            Module that is called.
        forward : callable
            Function that runs the module.
        args : tuple
            Positional arguments of the call.
        kwargs : dict of str
            Arguments of the call by name.

        Returns
        -------
        object
            The result of the call, usually a proxy.
        """
        path = self.path_of_module(m)
        if self.is_leaf_module(m, path):
            return self.create_proxy("call_module", path, args, kwargs)
        caller, self._inside = self._inside, path
        try:
            return forward(*args, **kwargs)
        finally:
            self._inside = caller

    def getattr(self, attr: str, attr_val: Tensor) -> Any:
        """Returns what forward gets when it reads a tensor of a module.

        Parameters
        ----------
        attr : str
            Name of the attribute.
        attr_val : Tensor
            Tensor that the module holds.

        Returns
        -------
        Proxy or Tensor
            A proxy for a tensor of the root; any other tensor itself.
        """
        path = self._tensors.get(id(attr_val))
        if path is None:
            return attr_val
        if path not in self._tensor_proxies:
            self._tensor_proxies[path] = self.create_proxy("get_attr", path, (), {})
        return self._tensor_proxies[path]

    def is_write_into(self, value: Proxy, tensor: Tensor) -> bool:
        """Tells whether a value is the result of writing into a tensor, as ``self.x += 1``.

        Parameters
        ----------
        value : Proxy
            Value that the program assigns.
        tensor : Tensor
            Tensor that the module holds.

        Returns
        -------
        bool
            True if it is such a result.
        """
        node: Node = value.node
        path = self._tensors.get(id(tensor))
        while node.op == "call_function" and node.is_impure() and isinstance(node.args[0], Node):
            node = node.args[0]
        return node.op == "get_attr" and node is not value.node and node.target == path

    def path_of_module(self, mod: M.Module) -> str:
        """Returns the dotted path of a module from the root.

        Parameters
        ----------
        mod : Module
            Module that is looked for.

        Returns
        -------
        str
            The path.

        Raises
        ------
        NameError
            If the root does not hold it.
        """
        path = self._modules.get(id(mod))
        if path is None:
            raise NameError(
                f"{type(mod).__name__} is called, but is not a submodule of {type(self.root).__name__}\n"
                "  fix: keep it in an attribute of a module\n"
                f"  at:  {users_line()}"
            )
        return path

    # -- recording -------------------------------------------------------------------------------

    def create_node(
        self,
        kind: str,
        target: Target,
        args: tuple[Argument, ...],
        kwargs: dict[str, Argument],
        name: str | None = None,
        type_expr: object = None,
    ) -> Node:
        """Makes a node in the graph that is recorded.

        Parameters
        ----------
        kind : str
            Opcode: "placeholder", "get_attr", "call_function", "call_method", "call_module" or
            "output".
        target : str or callable
            A callable for call_function; else the input's name, the dotted path of an attribute or
            module, the method's name, or "output".
        args : tuple
            Positional arguments: trees of tuples, lists, dicts and slices with nodes and constants.
        kwargs : dict of str
            Arguments by name, such trees of values.
        name : str or None
            Name of the value, which is made unique; None takes it from the target.
        type_expr : object
            Annotation of the value, kept in ``node.type``; None for none.

        Returns
        -------
        Node
            The new node.
        """
        made = self.graph.create_node(kind, target, args, kwargs, name, type_expr)
        made.meta[node.MODULE] = self._inside
        return made

    def proxy(self, node: Node) -> Proxy:
        """Makes the proxy of a node.

        Parameters
        ----------
        node : Node
            Node of the graph that is recorded.

        Returns
        -------
        Proxy
            The proxy that stands for its value.
        """
        return Proxy(node, self)

    def create_proxy(
        self,
        kind: str,
        target: Target,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        name: str | None = None,
        type_expr: object = None,
    ) -> Proxy:
        """Records a node.

        Parameters
        ----------
        kind : str
            Opcode: "placeholder", "get_attr", "call_function", "call_method", "call_module" or
            "output".
        target : str or callable
            A callable for call_function; else the input's name, the dotted path of an attribute or
            module, the method's name, or "output".
        args : tuple
            Positional arguments: trees of tuples, lists, dicts and slices with proxies, tensors and
            constants.
        kwargs : dict of str
            Arguments by name, such trees of values.
        name : str or None
            Name of the value, which is made unique; None takes it from the target.
        type_expr : object
            Annotation of the value, kept in ``node.type``; None for none.

        Returns
        -------
        Proxy
            The proxy of the new node.
        """
        args, kwargs = self.create_arg((args, kwargs))
        return self.proxy(self.create_node(kind, target, args, kwargs, name, type_expr))

    def create_arg(self, a: object) -> Argument:
        """Returns an argument as nodes keep it: with nodes in place of proxies and tensors.

        Parameters
        ----------
        a : object
            An argument, or a container of arguments.

        Returns
        -------
        Node, constant or container
            The argument, in a container of the same form.

        Raises
        ------
        TraceError
            For modules that the root does not hold, and for proxies of another trace.
        """
        return map_leaves(a, self._leaf)

    def _leaf(self, value: Any) -> Argument:
        if isinstance(value, Proxy):
            if value.tracer is not self:
                raise TraceError(f"{value!r} belongs to another trace\n  at:  {users_line()}")
            return value.node
        if isinstance(value, M.Module):
            if path := self._modules.get(id(value)):
                return self.create_node("get_attr", path, (), {})
            raise TraceError(
                f"a {type(value).__name__} is passed as an argument, and is not a submodule of {type(self.root).__name__}\n"
                f"  fix: keep it in an attribute of a module\n  at:  {users_line()}"
            )
        return self._tensor_node(value) if isinstance(value, Tensor) else value

    def _tensor_node(self, value: Tensor) -> Node:
        path = self._tensors.get(id(value))
        if path is None:  # it was made while tracing, so it is a constant of the program
            number = len([key for key in self.root.__dict__ if key.startswith("_tensor_constant")])
            path = f"_tensor_constant{number}"
            setattr(self.root, path, value)
            self._tensors[id(value)] = path
        return self.getattr(path, value).node

    # -- questions that only a run could answer --------------------------------------------------

    def to_bool(self, obj: Proxy) -> bool:
        """Answers a condition on a proxy. A subclass may answer.

        Parameters
        ----------
        obj : Proxy
            Proxy whose truth is asked.

        Returns
        -------
        bool
            What a subclass answers.

        Raises
        ------
        TraceError
            Always, in this class.
        """
        raise unknown(
            obj,
            "the truth",
            "choose with functional.where, pass what the branch depends on in concrete_args, or put the "
            "branch into a leaf module (Tracer.is_leaf_module) or a function given to fx.wrap",
        )

    def iter(self, obj: Proxy) -> Iterator[Any]:
        """Answers a loop over a proxy. A subclass may give the items.

        Parameters
        ----------
        obj : Proxy
            Proxy that the loop goes over.

        Returns
        -------
        iterator of Proxy
            What a subclass answers.

        Raises
        ------
        TraceError
            Always, in this class.
        """
        raise unknown(
            obj,
            "a loop over the items",
            "index it (x[0], x[1]), or put the loop into a leaf module",
        )

    def keys(self, obj: Proxy) -> Any:
        """Answers ``**obj`` of a proxy. A subclass may answer.

        Parameters
        ----------
        obj : Proxy
            Proxy that stands for the mapping.

        Returns
        -------
        iterable of str
            What a subclass answers.

        Raises
        ------
        TraceError
            Always, in this class.
        """
        raise unknown(obj, "the keys", "name the arguments")

    # -- running ---------------------------------------------------------------------------------

    def trace(
        self, root: M.Module | Callable[..., Any], concrete_args: dict[str, Any] | None = None
    ) -> Graph:
        """Runs a program once, on proxies, and returns its graph.

        A forward with ``*args`` sees a proxy of the tuple: it can read ``args[0]``, but not the
        number of arguments.

        Parameters
        ----------
        root : Module or callable
            Module or function that is run once, on proxies.
        concrete_args : dict of str or None
            Name of an argument to the value with which the program is traced; the graph takes the
            argument still, but refuses other values.

        Returns
        -------
        Graph
            The graph of the program.

        Raises
        ------
        TraceError
            If the program depends on a value; the message names a node and a line.
        TypeError
            If ``root`` is neither a module nor a function.
        ValueError
            For a name in concrete_args that the program does not take.
        """
        function = self._start(root)
        self.graph = Graph()
        self._checked: list[tuple[Node, Any, str]] = []
        function, args, kwargs = self._inputs(function, dict(concrete_args or {}))
        for check in self._checked:  # after the last input
            self.create_node("call_function", check_concrete_arg, check, {})
        with _intercept.tracing(self):
            result = function(*args, **kwargs)
        self.create_node("output", "output", (self.create_arg(result),), {})
        return self.graph

    def _start(self, root: M.Module | Callable[..., Any]) -> Callable[..., Any]:
        self._tensor_proxies: dict[str, Proxy] = {}
        self._inside = ""
        if isinstance(root, M.Module):
            self.root = root
            self._modules = {id(module): path for path, module in root.named_modules()}
            self._tensors = {id(tensor): path for path, tensor in root.named_tensors()}
            return root.forward
        if not callable(root):
            raise TypeError(f"trace takes a module or a function, got {root!r}")
        self.root, self._modules, self._tensors = M.Module(), {}, {}
        return root

    def _inputs(
        self, function: Callable[..., Any], concrete: dict[str, Any]
    ) -> tuple[Callable[..., Any], list[Any], dict[str, Any]]:
        """Returns the function to call and its arguments."""
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        packed: list[Proxy] = []
        for name, parameter in inspect.signature(function).parameters.items():
            if parameter.kind is parameter.VAR_POSITIONAL:
                packed.append(self.proxy(self.create_node("placeholder", f"*{name}", (), {})))
            elif parameter.kind is parameter.KEYWORD_ONLY:
                kwargs[name] = self._input(name, parameter.default, concrete)
            elif parameter.kind is not parameter.VAR_KEYWORD:
                args.append(self._input(name, parameter.default, concrete))
        if concrete:
            raise ValueError(f"concrete_args names {sorted(concrete)}, which forward does not take")
        if packed:
            return _taking_a_tuple(function), [*args, *kwargs.values(), *packed], {}
        return function, args, kwargs

    def _input(self, name: str, default: Any, concrete: dict[str, Any]) -> Any:
        if name in concrete:
            value = concrete.pop(name)
            node = self.create_node("placeholder", name, (value,), {})
            if isinstance(value, _CONSTANTS):
                self._checked.append((node, value, name))
            return value
        given = () if default is inspect.Parameter.empty else (self.create_arg(default),)
        return self.proxy(self.create_node("placeholder", name, given, {}))


def _taking_a_tuple(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns ``function`` with its ``*args`` as one last parameter, and all others given by
    position, keyword-only ones last.

    TypeError unless it is a plain Python function.
    """
    plain = inspect.unwrap(function) is function and getattr(function, "__func__", function)
    if not isinstance(plain, types.FunctionType):
        raise TypeError(
            f"forward takes *args and is not a plain function: {function!r}\n"
            "  fix: trace a function that calls it with as many arguments as you want"
        )
    code = plain.__code__
    code = code.replace(
        co_argcount=code.co_argcount + code.co_kwonlyargcount + 1,
        co_posonlyargcount=0,
        co_kwonlyargcount=0,
        co_flags=code.co_flags & ~inspect.CO_VARARGS,
    )
    packed = types.FunctionType(code, plain.__globals__, plain.__name__, None, plain.__closure__)
    bound: Any = function
    return packed if plain is function else types.MethodType(packed, bound.__self__)


def symbolic_trace(
    root: M.Module | Callable[..., Any], concrete_args: dict[str, Any] | None = None
) -> GraphModule:
    """Traces a module or function with `Tracer`; returns a GraphModule that does the same.

    Parameters
    ----------
    root : Module or callable
        Module or function that is run once, on proxies.
    concrete_args : dict of str or None
        Name of an argument to the value with which the program is traced; the graph still takes the
        argument, but refuses other values.

    Returns
    -------
    GraphModule
        It shares modules and tensors with ``root``.

    Raises
    ------
    TraceError
        If the program depends on a value; the message names a node and a line.
    TypeError
        If ``root`` is neither a module nor a function.
    ValueError
        For a name in concrete_args that the program does not take.

    See Also
    --------
    Tracer : Decides what becomes one node.
    traced_module.trace_module : Runs the module on example arguments instead.

    Examples
    --------
    >>> from megengine import fx
    >>> fx.symbolic_trace(lambda x: 2 * x + 1)(3)
    7
    >>> fx.symbolic_trace(lambda x, twice: x + x if twice else x, {"twice": True})(3, True)
    6
    """
    tracer = Tracer()
    graph = tracer.trace(root, concrete_args)
    name = (
        type(root).__name__ if isinstance(root, M.Module) else getattr(root, "__name__", "function")
    )
    return GraphModule(tracer.root, graph, name)
