"""``with graph.insert_exprs()``: computations with nodes become exprs of the graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from .._graph.tree import values_in
from ..core._origin import users_line
from ..module import Module
from ..tensor import Tensor
from . import module_tracer
from .expr import CallMethod, Constant, Expr, GetAttr, Input, is_call_module
from .node import ModuleNode, Node, TensorNode
from .packing import unpack
from .tracing import Arguments, Recorder, Tracer, suspended
from .utils import assign_attr, get_subattr

if TYPE_CHECKING:
    from .internal_graph import InternalGraph


class Inserter(Recorder):
    """Lets functions, operators and modules compute with example values of the nodes.

    after: the expr after which exprs are inserted; None puts each right after its inputs.
    """

    inserts = True

    def __init__(self, graph: InternalGraph, after: Expr | None) -> None:
        self.graph = graph
        self._after = after
        self._inserted: set[Expr] = set()

    # -- nodes -----------------------------------------------------------------------------------

    def node_of(self, leaf: object) -> Node:
        if isinstance(leaf, Node):
            if leaf.top_graph is not self.graph:
                raise AssertionError(
                    f"{leaf!r} is a node of {leaf.top_graph and leaf.top_graph.name}, not of {self.graph.name}"
                    "\n  fix: insert into node.top_graph"
                )
            return leaf
        node = Constant.make(leaf, qualname=f"{self.graph.qualname}.[const]")
        self._place(node.expr)
        return node

    def _place(self, expr: Expr) -> None:
        """Puts an expr right after what it reads, and after what this context has put there before.
        """
        graph = self.graph
        places = graph.fx_graph.positions()
        anchor: Expr = graph.inputs[-1].expr if self._after is None else self._after
        for node in expr.inputs:
            if places[node.expr] > places[anchor]:
                if self._after is not None and node.expr not in self._inserted:
                    raise AssertionError(
                        f"{node!r} is made after {self._after.describe()}\n"
                        "  fix: give insert_exprs a later expr, or none"
                    )
                anchor = node.expr
        following = graph.fx_graph.following(anchor)
        while following is not None and (
            following in self._inserted or isinstance(following, Input)
        ):
            anchor, following = following, graph.fx_graph.following(following)
        graph._add(expr, after=anchor)
        self._inserted.add(expr)

    def _example(self, tree: Any) -> Any:
        return unpack(tree, lambda node: node.owner if isinstance(node, ModuleNode) else node._example())

    def sees(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        return next(values_in((args, kwargs)), None) is not None

    def record(self, expr: Expr, arguments: Arguments, run: Callable[[], Any], written: Tensor | None = None) -> Any:
        try:
            with suspended():
                result = expr.compute(*self._example(arguments))
        except Exception as error:
            error.add_note(self._told(expr, arguments))
            expr.set_arguments((), {})  # it stands in no graph: no node has it as a user
            raise
        if result is NotImplemented:
            raise TypeError(f"{expr.name}: unsupported operands {list(arguments[0])}")
        self.finish(expr, arguments, result)
        self._place(expr)
        return expr.return_val

    def _told(self, expr: Expr, arguments: Arguments) -> str:
        """Returns a note for an error on example values: what was to be inserted, with its inputs.
        """
        nodes = ", ".join(
            f"{node.name}: {node.dtype}{list(node._example().shape)}"
            for node in dict.fromkeys(values_in(arguments))
            if isinstance(node, TensorNode)
        )
        callee = expr.args[0].name if is_call_module(expr) else expr.name
        return f"while inserting {callee} into {self.graph.name}, with {nodes}\n  at:  {users_line()}"

    # -- what is called --------------------------------------------------------------------------

    def get_attr(self, node: ModuleNode, name: str) -> Any:
        value = get_subattr(node.owner, name)
        if not isinstance(value, (Module, Tensor)):
            return value
        self.node_of(node)
        read = GetAttr.of(node, name, value)
        self._place(read.expr)
        return read

    def call_module(self, module: Module | ModuleNode, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not self.sees(args, kwargs):
            with suspended():
                return module(*args, **kwargs)
        node = module if isinstance(module, ModuleNode) else self._child(module)
        arguments = self.arguments((node, *args), kwargs)
        self._make_traced(node, arguments)
        return self.record(CallMethod(node), arguments, lambda: None)

    def _child(self, module: Module) -> ModuleNode:
        """The node of a module that the traced module holds."""
        for path, held in self.graph._module.named_modules():
            if held is module and path:
                return self.get_attr(cast(ModuleNode, self.graph.inputs[0]), path)
        raise AssertionError(
            f"{type(module).__name__} is called in insert_exprs but {self.graph.name} does not hold it\n"
            "  fix: assign it to the module first, graph.inputs[0].owner.name = module"
        )

    def _make_traced(self, node: ModuleNode, arguments: Arguments) -> None:
        """Traces a module that is not built in, and puts the traced copy in its place."""
        module, made = node.owner, type(self.graph._module)
        if module_tracer.is_builtin(module) or isinstance(module, made) or not isinstance(node.expr, GetAttr):
            return
        (_, *args), kwargs = self._example(arguments)
        with suspended():
            traced, _ = Tracer(made).trace(module, f"{self.graph.name}_{node.name}", tuple(args), kwargs)
            assign_attr(traced, node.expr.args[0].owner, node.expr.attr_name)
        top = self.graph.top_graph
        for graph in top.each_graph():
            graph._top = None if graph is top else top
