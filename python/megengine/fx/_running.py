"""Running a graph node by node, with a method to override for each kind of node."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from .. import module as M
from .._graph import Measured, type_text
from ..utils.module_utils import kept_tensors, tensors_in
from .graph import Graph
from .node import Argument, Node, Target, attribute_at, map_arg

__all__ = ["Interpreter"]

_NONE_GIVEN = object()


class Interpreter:
    """Runs the graph of ``module`` node by node.

    Override `run_node`, or the method of an opcode, to watch or change it. n: the node that runs.
    target, args, kwargs: what it has, with values in place of nodes.

    garbage_collect_values: forget values after their last use.
    graph: another graph to run on the module's attributes.
    submodules: dotted path -> module.

    Raises TypeError for a module without a graph.

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
        """Runs the graph on these inputs; returns the result.

        initial_env: node -> value; these nodes are not run. enable_io_processing: taken for
        compatibility. What a node raises is raised, with a note that names the node and its line.
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
        """Runs one node on the values of its inputs; returns its value."""
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        return getattr(self, n.op)(n.target, args, kwargs)

    def placeholder(self, target: Target, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Returns the next input, or its default when there is none. TypeError when there is no
        default.
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
        """Returns the attribute of the module at the path ``target``."""
        return self.fetch_attr(target)

    def call_function(self, target: Target, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Returns ``target(*args, **kwargs)``."""
        return target(*args, **kwargs)

    def call_method(self, target: Target, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Calls the method ``target`` of ``args[0]`` with the other arguments."""
        return getattr(args[0], target)(*args[1:], **kwargs)

    def call_module(self, target: Target, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Calls the module at the path ``target``."""
        return self.fetch_attr(target)(*args, **kwargs)

    def output(self, target: Target, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Returns the result, ``args[0]``."""
        return args[0]

    def fetch_attr(self, target: str) -> Any:
        """Returns the attribute of the module at a path. AttributeError when there is none."""
        return attribute_at(self.module, target)

    def fetch_args_kwargs_from_env(self, n: Node) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Returns the arguments of a node with values in place of nodes."""
        return self.map_nodes_to_values((n.args, n.kwargs), n)

    def map_nodes_to_values(self, args: Argument, n: Node) -> Argument:
        """Returns a tree with values in place of nodes. RuntimeError for a node without a value
        yet.
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
        types = ", ".join(type_text(x.dtype, x._tuple_shape) for x in tensors_in(value))
        self.measured.add(((), n), types, seconds)
        return value


def measured(module: M.Module, inputs: tuple[Any, ...], runs: int) -> Measured:
    """Types and times of the nodes of a GraphModule, run on ``inputs``; its tensors are afterwards as before."""
    stopwatch = _Stopwatch(module)
    with kept_tensors([*module.tensors(), *tensors_in(inputs)]):
        for _ in range(runs):
            stopwatch.run(*inputs)
    return stopwatch.measured
