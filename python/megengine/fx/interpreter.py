"""Running a graph node by node, for its values or for a new graph."""

from __future__ import annotations

from typing import Any

from .. import module as M
from . import _intercept
from ._running import Interpreter
from .graph import Graph
from .graph_module import GraphModule
from .node import MODULE, Node, Target
from .proxy import Proxy
from .tracer import Tracer

__all__ = ["Interpreter", "Transformer"]


class _TransformerTracer(Tracer):
    """Records what a Transformer's methods do; modules are leaves."""

    def __init__(self, graph: Graph, root: M.Module) -> None:
        self._start(root)
        self.graph = graph

    def is_leaf_module(self, m: M.Module, module_qualified_name: str) -> bool:
        return True


class Transformer(Interpreter):
    """Makes a new graph by interpreting another one: its methods take and return proxies.

    An overridden method may leave a node out (return one of its arguments), or record others.

    Parameters
    ----------
    module : GraphModule
        Module whose graph is transformed; the module is not changed.

    Examples
    --------
    >>> import megengine.functional as F
    >>> from megengine import fx
    >>> class WithoutRelu(fx.Transformer):
    ...     def call_function(self, target, args, kwargs):
    ...         return args[0] if target is F.relu else super().call_function(target, args, kwargs)
    >>> print(WithoutRelu(fx.symbolic_trace(lambda x: F.relu(x) * 2)).transform().code)
    def forward(self, x):
        mul = x * 2;  x = None
        return mul
    <BLANKLINE>
    """

    def __init__(self, module: M.Module) -> None:
        super().__init__(module, garbage_collect_values=False)
        self.new_graph = Graph()
        self.tracer = _TransformerTracer(self.new_graph, module)

    def placeholder(self, target: Target, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Proxy:
        """Makes an input of the new graph.

        Parameters
        ----------
        target : str
            Name of the input.
        args : tuple
            The default, if there is one.
        kwargs : dict of str
            Has no entries for this opcode.

        Returns
        -------
        Proxy
            The proxy of the new node.
        """
        return self.tracer.create_proxy("placeholder", target, args, {})

    def get_attr(self, target: Target, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Proxy:
        """Reads the attribute in the new graph.

        Parameters
        ----------
        target : str
            Dotted path of the attribute.
        args : tuple
            Has no items for this opcode.
        kwargs : dict of str
            Has no entries for this opcode.

        Returns
        -------
        Proxy
            The proxy of the new node.
        """
        return self.tracer.create_proxy("get_attr", target, args, kwargs)

    def call_function(self, target: Target, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Calls the function in the new graph.

        Parameters
        ----------
        target : callable
            Function that is called.
        args : tuple
            Positional arguments, with proxies in place of nodes.
        kwargs : dict of str
            Arguments by name, with proxies in place of nodes.

        Returns
        -------
        Proxy
            The proxy of the new node; an override may return another value.
        """
        return self.tracer.create_proxy("call_function", target, args, kwargs)

    def call_method(self, target: Target, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Calls the method in the new graph.

        Parameters
        ----------
        target : str
            Name of the method.
        args : tuple
            The proxy of the object, then the positional arguments.
        kwargs : dict of str
            Arguments by name, with proxies in place of nodes.

        Returns
        -------
        Proxy
            The proxy of the new node; an override may return another value.
        """
        return self.tracer.create_proxy("call_method", target, args, kwargs)

    def call_module(self, target: Target, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Calls the module in the new graph.

        Parameters
        ----------
        target : str
            Dotted path of the module.
        args : tuple
            Positional arguments, with proxies in place of nodes.
        kwargs : dict of str
            Arguments by name, with proxies in place of nodes.

        Returns
        -------
        Proxy
            The proxy of the new node; an override may return another value.
        """
        return self.tracer.create_proxy("call_module", target, args, kwargs)

    def run_node(self, n: Node) -> Any:
        """Runs a node; the new nodes keep the module and the line of ``n``.

        Parameters
        ----------
        n : Node
            A node of the former graph.

        Returns
        -------
        object
            A proxy, or another value that the method of its opcode returned.
        """
        last = self.new_graph.last
        result = super().run_node(n)
        node = self.new_graph.first if last is None else last.next
        while node is not None:
            node.meta[MODULE] = n.meta.get(MODULE, "")
            if (node.op, node.target) == (n.op, n.target):
                node.source = n.source
            node = node.next
        return result

    def transform(self) -> GraphModule:
        """Returns a module with the new graph."""
        with _intercept.tracing(self.tracer):
            result = self.run()
        self.new_graph.output(self.tracer.create_arg(result))
        class_name = getattr(self.module, "_class_name", type(self.module).__name__)
        return GraphModule(self.module, self.new_graph, class_name)
