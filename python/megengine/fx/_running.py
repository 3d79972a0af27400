"""Running a graph node by node, with a method to override for each kind of node."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from .. import module as M
from .._graph.rows import Measured
from ..module._reach import kept_tensors, tensors_in
from .graph import Graph
from .node import Argument, Node, Target, attribute_at, map_arg

__all__ = ["Interpreter"]

_NONE_GIVEN = object()


class Interpreter:
    """Runs the graph of a module node by node.

    Override `run_node`, or the method of an opcode, to watch or change it. ``submodules`` maps
    dotted paths to modules.

    Parameters
    ----------
    module : Module
        A `GraphModule`, or another module with a graph.
    garbage_collect_values : bool
        Whether to forget values after their last use.
    graph : Graph or None
        Another graph to run on the module's attributes.

    Raises
    ------
    TypeError
        For a module without a graph.

    Examples
    --------
    >>> import megengine.functional as F, megengine as mge
    >>> from megengine import fx
    >>> class Swap(fx.Interpreter):
    ...     def call_function(self, target, args, kwargs):
    ...         return super().call_function(F.neg if target is F.relu else target, args, kwargs)
    >>> Swap(fx.symbolic_trace(lambda x: F.relu(x))).run(mge.tensor([1.0])).numpy()
    array([-1.], dtype=float32)
    """

    def __init__(
        self, module: M.Module, garbage_collect_values: bool = True, graph: Graph | None = None
    ) -> None:
        self.module = module
        self.graph: Any = graph if graph is not None else getattr(module, "graph", None)
        if not isinstance(self.graph, Graph):
            raise TypeError(
                f"Interpreter runs a GraphModule, got {type(module).__name__}\n"
                "  fix: fx.symbolic_trace(module)"
            )
        self.submodules = dict(module.named_modules())
        self.garbage_collect_values = garbage_collect_values
        self.env: dict[Node, Any] = {}
        self.args_iter: Iterator[Any] = iter(())

    def run(
        self,
        *args: Any,
        initial_env: dict[Node, Any] | None = None,
        enable_io_processing: bool = True,
    ) -> Any:
        """Runs the graph.

        What a node raises is raised with a note that names the node and its line.

        Parameters
        ----------
        *args : object
            Inputs of the graph, in order.
        initial_env : dict of Node or None
            Node to value; these nodes are not run.
        enable_io_processing : bool
            Has no effect; taken for compatibility.

        Returns
        -------
        object
            The result of the graph; None for one without an output.
        """
        self.env = dict(initial_env or {})
        self.args_iter = iter(args)
        for node in self.graph.running(self.env, forgets=self.garbage_collect_values):
            if node not in self.env:
                try:
                    self.env[node] = self.run_node(node)
                except Exception as error:
                    error.add_note(f"while running {node.describe()}: {node.format_node()}")
                    raise
            if node.op == "output":
                return self.env[node]
        return None

    def run_node(self, n: Node) -> Any:
        """Runs one node on the values of its inputs.

        Parameters
        ----------
        n : Node
            Node of the graph that is run.

        Returns
        -------
        object
            Its value.
        """
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        return getattr(self, n.op)(n.target, args, kwargs)

    def placeholder(self, target: Target, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Returns the next input, or its default when there is none.

        Parameters
        ----------
        target : str
            Name of the input; ``*name`` takes all that are left.
        args : tuple
            The default, if there is one.
        kwargs : dict of str
            Has no entries for this opcode.

        Returns
        -------
        object
            Its value.

        Raises
        ------
        TypeError
            If there is neither a value nor a default.
        """
        if target.startswith("**"):
            return {}
        if target.startswith("*"):
            return tuple(self.args_iter)
        value = next(self.args_iter, _NONE_GIVEN)
        if value is not _NONE_GIVEN:
            return value
        if args:
            return args[0]
        raise TypeError(f"no value was given for the input {target!r}")

    def get_attr(self, target: Target, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Reads an attribute of the module.

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
        object
            The attribute.
        """
        return self.fetch_attr(target)

    def call_function(self, target: Target, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Calls a function.

        Parameters
        ----------
        target : callable
            Function that is called.
        args : tuple
            Positional arguments, with values in place of nodes.
        kwargs : dict of str
            Arguments by name, with values in place of nodes.

        Returns
        -------
        object
            The result of the call.
        """
        return target(*args, **kwargs)

    def call_method(self, target: Target, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Calls a method of ``args[0]``.

        Parameters
        ----------
        target : str
            Name of the method.
        args : tuple
            The object, then the positional arguments.
        kwargs : dict of str
            Arguments by name, with values in place of nodes.

        Returns
        -------
        object
            The result of the call.
        """
        return getattr(args[0], target)(*args[1:], **kwargs)

    def call_module(self, target: Target, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Calls a module.

        Parameters
        ----------
        target : str
            Dotted path of the module.
        args : tuple
            Positional arguments, with values in place of nodes.
        kwargs : dict of str
            Arguments by name, with values in place of nodes.

        Returns
        -------
        object
            The result of the call.
        """
        return self.fetch_attr(target)(*args, **kwargs)

    def output(self, target: Target, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Returns the result, ``args[0]``.

        Parameters
        ----------
        target : str
            Always the word "output".
        args : tuple
            Tuple of one item, the result.
        kwargs : dict of str
            Has no entries for this opcode.

        Returns
        -------
        object
            The result.
        """
        return args[0]

    def fetch_attr(self, target: str) -> Any:
        """Reads an attribute of the module.

        Parameters
        ----------
        target : str
            Dotted path of the attribute.

        Returns
        -------
        object
            The attribute.

        Raises
        ------
        AttributeError
            When there is nothing at the path.
        """
        return attribute_at(self.module, target)

    def fetch_args_kwargs_from_env(self, n: Node) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Gives the arguments of a node with values in place of nodes.

        Parameters
        ----------
        n : Node
            Node whose arguments are wanted.

        Returns
        -------
        tuple of tuple and dict
            Positional arguments, and those by name.
        """
        return self.map_nodes_to_values((n.args, n.kwargs), n)

    def map_nodes_to_values(self, args: Argument, n: Node) -> Argument:
        """Gives a tree with values in place of nodes.

        Parameters
        ----------
        args : Node, constant or container
            Tree of tuples, lists, dicts and slices with nodes and constants.
        n : Node
            Node that reads the tree; the message of an error names it.

        Returns
        -------
        object
            A tree of the same form.

        Raises
        ------
        RuntimeError
            For a node without a value yet.
        """

        def value_of(node: Node) -> Any:
            if node not in self.env:
                raise RuntimeError(
                    f"{n.describe()} reads {node.describe()}, which has no value\n  fix: graph.lint()"
                )
            return self.env[node]

        return map_arg(args, value_of)


class _Stopwatch(Interpreter):
    """Notes how long each node took, and the types of its value."""

    def __init__(self, module: M.Module) -> None:
        super().__init__(module)
        self.measured = Measured()

    def run_node(self, n: Node) -> Any:
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        start = time.perf_counter()
        value = getattr(self, n.op)(n.target, args, kwargs)
        seconds = time.perf_counter() - start
        self.measured.add(((), n), tensors_in(value), seconds)
        return value


def measured(module: M.Module, inputs: tuple[Any, ...], runs: int) -> Measured:
    """Returns types and times of the nodes of a GraphModule, run on ``inputs``; its tensors are
    restored.
    """
    stopwatch = _Stopwatch(module)
    with kept_tensors([*module.tensors(), *tensors_in(inputs)]):
        for _ in range(runs):
            stopwatch.run(*inputs)
    return stopwatch.measured
