"""The graph of one call signature of a traced module: questions, edits, running."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from numpy.typing import DTypeLike

from .._files.graphs import check_when_read
from .._graph.core import Pictured
from .._graph.names import Namespace
from .._graph.rows import Row
from .._graph.tree import map_leaves, values_in
from ..fx import _watch
from ..fx.graph import Graph
from ..module import Module
from .expr import Expr, GetAttr, Input, Output
from .filters import ExprFilter, NodeFilter
from .inserting import Inserter
from .node import ModuleNode, Node, TensorNode
from .packing import pack, show, unpack
from .pytree import tree_flatten
from .rows import graph_rows

if TYPE_CHECKING:
    from ..tensor import Tensor
    from .expr import CallFunction, CallMethod
    from .traced_module import TracedModule

__all__ = ["InternalGraph"]

_M = TypeVar("_M", bound=Module)


RunExpr = Callable[[Expr, dict[Node, Any]], None]


class NodeRef(int):
    """A node in a saved graph: its place in the list of nodes."""


class InternalGraph(Pictured):
    """Exprs in the order in which they run; inputs[0] is the module itself.

    name: goes before the names of nodes when these are looked up. qualname: path of the module whose forward this is.
    fx_graph: the graph that this shows, a `megengine.fx.Graph` whose nodes are the exprs, for
    passes over such nodes.
    """

    name: str = ""
    qualname: str = ""

    def __init__(self, name: str, qualname: str, module: TracedModule | None = None) -> None:
        self.name = name
        self.qualname = qualname
        self.fx_graph = Graph(module)
        self.fx_graph._names = Namespace(reserved=frozenset())
        self.fx_graph.view = self
        self._top: InternalGraph | None = None
        self._next_ids = [0, 0]  # the next ids of exprs and of nodes, counted on the top graph
        self._run_expr: RunExpr | None = None  # inside `run_by`

    def __iter__(self) -> Iterator[Any]:
        return (expr for expr in self.fx_graph if not isinstance(expr, Output))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    # -- what it is ------------------------------------------------------------------------------

    @property
    def _names(self) -> Namespace:
        return self.fx_graph._names

    @property
    def _module(self) -> TracedModule:
        """The module whose forward this is; None before it is in one."""
        return self.fx_graph.owning_module

    @property
    def _result(self) -> Any:
        """The tree of results; None before it is set."""
        last = self.fx_graph.last
        return last.args[0] if isinstance(last, Output) else None

    @_result.setter
    def _result(self, result: Any) -> None:
        if isinstance(self.fx_graph.last, Output):
            self.fx_graph.last.args = (result,)
        else:
            self.fx_graph.insert(Output(result))

    @property
    def inputs(self) -> list[Node]:
        """The module itself, then the tensors of the call in order."""
        return [expr.outputs[0] for expr in self.fx_graph if isinstance(expr, Input)]

    @property
    def outputs(self) -> list[Node]:
        """The nodes that the graph gives, each once."""
        return list(dict.fromkeys(values_in(self._result)))

    @property
    def _exprs(self) -> list[Expr]:
        """The exprs without inputs, which converters of models read."""
        return [expr for expr in self if not isinstance(expr, Input)]

    @property
    def top_graph(self) -> InternalGraph:
        """The outermost graph, in which this one is called; itself when it is that."""
        return self._top or self

    def exprs(self, recursive: bool = True) -> ExprFilter:
        """Exprs in the order of execution, inputs first; those of called graphs after the call."""
        return ExprFilter(lambda: self._each_call(recursive, set()))

    def nodes(self, recursive: bool = True) -> NodeFilter:
        """Inputs and all results."""
        return NodeFilter(lambda: (node for expr in self._each_call(recursive, set()) for node in expr.outputs))

    def _each_call(self, recursive: bool, seen: set[InternalGraph]) -> Iterator[Expr]:
        seen.add(self)
        for expr in self:
            yield expr
            inner = expr.called if recursive else None
            if inner is not None and inner.view not in seen:
                yield from inner.view._each_call(True, seen)

    def each_graph(self) -> Iterator[InternalGraph]:
        """This graph and those that it calls, each once."""
        return (graph.view for graph in self.fx_graph.each_graph())

    # -- finding ---------------------------------------------------------------------------------

    def get_function_by_type(
        self, func: Callable[..., Any] | None = None, recursive: bool = True
    ) -> ExprFilter[CallFunction]:
        """Calls of ``func``; of any function when None."""
        return self.exprs(recursive).call_function(func)

    def get_method_by_type(self, method: str | None = None, recursive: bool = True) -> ExprFilter[CallMethod]:
        """Calls of the method ``method`` of a tensor, such as "__add__"; of modules for "__call__"."""
        return self.exprs(recursive).call_method(method)

    def get_expr_by_id(self, expr_id: int | Sequence[int] | None = None, recursive: bool = True) -> ExprFilter:
        """Exprs by id."""
        return self.exprs(recursive).expr_id(expr_id)

    def get_module_by_type(self, module_cls: type[_M], recursive: bool = True) -> NodeFilter[ModuleNode[_M]]:
        """Nodes of modules of class ``module_cls``."""
        if not isinstance(module_cls, type) or not issubclass(module_cls, Module):
            raise AssertionError(f"get_module_by_type: {module_cls!r} is not a class of modules")
        return self.nodes(recursive).type(module_cls)

    def get_node_by_id(self, node_id: int | Sequence[int] | None = None, recursive: bool = True) -> NodeFilter:
        """Nodes by id."""
        return self.nodes(recursive).node_id(node_id)

    def get_node_by_name(
        self, name: str | None = None, ignorecase: bool = True, recursive: bool = True
    ) -> NodeFilter:
        """Nodes whose graph name + "_" + name matches ``name``, in which * and ? stand for anything."""
        return self.nodes(recursive).name(name, ignorecase)

    def get_dep_exprs(self, nodes: Node | Sequence[Node]) -> list[Expr]:
        """The exprs of this graph that ``nodes`` need, inputs among them, in order."""
        needed: set[Expr] = set()
        waiting = [node.expr for node in ([nodes] if isinstance(nodes, Node) else nodes)]
        while waiting:
            expr = waiting.pop()
            if expr not in needed:
                needed.add(expr)
                waiting += [node.expr for node in expr.inputs]
        return [expr for expr in self if expr in needed]

    # -- edits -----------------------------------------------------------------------------------

    def insert_exprs(self, expr: Expr | None = None) -> AbstractContextManager[None]:
        """Inside, functions, operators and modules applied to nodes insert exprs.

        expr: they go after it; by default right after what they read.
        """
        if expr is not None and (not isinstance(expr, Expr) or expr.top_graph is not self):
            raise AssertionError(f"insert_exprs: {expr!r} is not an expr of {self.name}")
        return _watch.watching(Inserter(self, expr))

    def replace_node(self, repl_dict: Mapping[Node, Tensor]) -> None:
        """Makes outputs, and exprs after the new node, read the values of ``repl_dict`` in place of
        its keys.

        Exprs before the new node still read the old one, so that no loop arises.
        """
        places = self.fx_graph.positions()
        for old, new in ((self._own(old), self._own(new)) for old, new in repl_dict.items()):
            if isinstance(new, ModuleNode) != isinstance(old, ModuleNode):
                raise AssertionError(f"replace_node: {old!r} and {new!r} are not both tensors, or both modules")
            made = places[new.expr]
            old.replace_all_uses(new, only=lambda user: places[user] > made)

    def _own(self, node: object) -> Node:
        if not isinstance(node, Node) or node.top_graph is not self:
            raise AssertionError(f"replace_node: {node!r} is not a node of {self.name}\n  fix: call replace_node of node.top_graph")
        return node

    def compile(self) -> None:
        """Remove what no output needs, and merge repeated reads of one attribute."""
        first: dict[tuple[Node, str], Node] = {}
        for expr in self:
            if isinstance(expr, GetAttr):
                node = expr.outputs[0]
                kept = first.setdefault((expr.args[0], expr.attr_name), node)
                if kept is not node:
                    self.replace_node({node: kept})
        self.fx_graph.erase_dead(lambda expr: expr._disable_remove)

    def erase(self, call: Expr) -> None:
        """Take an expr out. GraphError, naming the users, while another one or the result reads it."""
        self.fx_graph.erase(call)

    def add_input_node(
        self, shape: Sequence[int], dtype: DTypeLike = "float32", name: str = "args"
    ) -> TensorNode:
        """Adds a tensor to the module's arguments, after the others. Only the top graph allows it.
        """
        self._must_be_top("add_input_node")
        node = Input.make(TensorNode, name, f"{self.qualname}.[{name}]")
        node.shape, node.dtype = shape, dtype
        self._add(node.expr, after=self.inputs[-1].expr)
        self._module._add_parameter(self, node.name)
        return node

    def reset_inputs(self, *args: Any, **kwargs: Any) -> list[Node]:
        """Call the module with arguments arranged like these from now on; returns the new input nodes.

        It takes as many tensors as before, in the order of the inputs that they replace. Only the
        top graph allows it.
        """
        self._must_be_top("reset_inputs")
        leaves, _ = tree_flatten((args, kwargs))
        old: list[Any] = self.inputs[1:]
        if len(leaves) != len(old):
            raise AssertionError(
                f"reset_inputs: {len(leaves)} tensors for the {len(old)} inputs {old}\n"
                "  fix: give one tensor for each; add_input_node makes further ones"
            )
        for node, value in zip(old, leaves, strict=True):
            node._describe(value)
        self._module._set_arguments(self, args, kwargs)
        return old

    def reset_outputs(self, outputs: object) -> None:
        """Makes ``outputs``, a node or a tree of nodes, the result. Only the top graph allows it.
        """
        self._must_be_top("reset_outputs")
        for node in values_in(pack(outputs)):
            if node.top_graph is not self:
                raise AssertionError(f"reset_outputs: {node!r} is not a node of {self.name}")
        self._result = pack(outputs)

    def add_output_node(self, node: TensorNode) -> None:
        """Makes (the present result, ``node``) the result. Only the top graph allows it."""
        self._must_be_top("add_output_node")
        if not isinstance(node, TensorNode):
            raise AssertionError(f"add_output_node: takes a TensorNode, got {node!r}")
        self.reset_outputs((unpack(self._result), node))

    def _must_be_top(self, what: str) -> None:
        if self._module is None or not self._module._is_top or self.top_graph is not self:
            raise AssertionError(f"{what}: {self.name} is called inside of another graph\n  fix: change the top graph")

    def _add(self, expr: Expr, after: Expr | None = None) -> None:
        """Put ``expr`` in, at the end by default, with unique names and new ids."""
        following = self.fx_graph.following(after) if after is not None else self.fx_graph.last
        self.fx_graph.insert(expr, following if after is not None or isinstance(following, Output) else None)
        ids = self.top_graph._next_ids
        expr._id, ids[0] = ids[0], ids[0] + 1
        for node in expr.outputs:
            node._name = self._names.take(node._name)
            node._id, ids[1] = ids[1], ids[1] + 1

    def _renumber(self) -> None:
        """Count ids from 0 in the order of execution; called graphs learn which one is outermost."""
        graphs: set[InternalGraph] = set()
        calls = list(self._each_call(True, graphs))
        for graph in graphs:
            graph._top = None if graph is self else self
        for number, expr in enumerate(calls):
            expr._id = number
        nodes = [node for expr in calls for node in expr.outputs]
        for number, node in enumerate(nodes):
            node._id = number
        self._next_ids = [len(calls), len(nodes)]

    def lint(self, for_inference: bool = False) -> list[str]:
        """Raises GraphError, naming the expr, unless this graph and those that it calls are in
        order.

        An expr reads only what is made before it, and is listed there as a user; names are unique; attributes and modules
        exist; a module is called only as it was traced. for_inference: nothing called may be in training mode. Returns
        remarks on modules and tensors that are shared, so that an edit of one place reaches another.
        """
        return self.fx_graph.lint(for_inference)

    # -- running ---------------------------------------------------------------------------------

    def interpret(self, *inputs: Any) -> list[Any]:
        """Values of ``outputs`` for values of all ``inputs``, the module first."""
        return list(tree_flatten(self._run(inputs))[0])

    def eval(self, *inputs: Any) -> list[Any]:
        """Values of ``outputs`` for values of ``inputs[1:]``."""
        return self.interpret(self._module, *inputs)

    @contextmanager
    def run_by(self, run_expr: RunExpr) -> Iterator[None]:
        """Inside a with-block ``run_expr`` runs the exprs of this graph and of those that it calls:
        it computes from the values so far, and adds the results.
        """
        before = {graph: graph._run_expr for graph in self.each_graph()}
        try:
            for graph in before:
                graph._run_expr = run_expr
            yield
        finally:
            for graph, former in before.items():
                graph._run_expr = former

    def _run(self, inputs: Sequence[Any]) -> Any:
        """Runs the graph and returns its result."""
        nodes = self.inputs
        if len(inputs) != len(nodes):
            raise ValueError(f"{self.name} takes {len(nodes)} inputs, {nodes}, got {len(inputs)}")
        env = dict(zip(nodes, inputs, strict=True))
        for expr in self.fx_graph.running(env):
            if isinstance(expr, Output):
                return unpack(expr.args[0], env.__getitem__)
            try:
                (self._run_expr or type(expr).run)(expr, env)
            except Exception as error:
                error.add_note(f"while running {expr.describe()}")
                raise
        return None

    # -- text and pictures -----------------------------------------------------------------------

    def _rows(self, inputs: tuple[Any, ...], runs: int) -> list[Row]:
        return graph_rows(self, inputs, runs)

    def __repr__(self) -> str:
        return format(self)

    def __format__(self, format_spec: str = "") -> str:
        """Prints ids of nodes for "i", and the graph's name before theirs for "p"; "ip" does both.
        """
        inputs = ", ".join(format(node, format_spec) for node in self.inputs)
        lines = [format(expr, format_spec) for expr in self._exprs]
        body = "\n\t".join([*lines, f"return {show(unpack(self._result), format_spec)}"])
        return f"{self.qualname}.Graph ({inputs}) {{\n\t{body}\n}}"

    # -- copies ----------------------------------------------------------------------------------

    def __getstate__(self) -> dict[str, Any]:
        """Returns flat lists, because nodes and exprs refer to each other too deeply for pickle."""
        nodes = [node for expr in self for node in expr.outputs]
        refs = {node: NodeRef(place) for place, node in enumerate(nodes)}

        def referred(tree: Any) -> Any:
            return map_leaves(tree, lambda leaf: refs[leaf] if isinstance(leaf, Node) else leaf)

        return {
            "name": self.name,
            "qualname": self.qualname,
            "module": self._module,
            "nodes": [(type(node), node.__getstate__()) for node in nodes],
            "exprs": [
                (type(e), e.__getstate__(), referred(e._args), referred(e._kwargs), referred(e._result))
                for e in self
            ],
            "result": referred(self._result),
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        InternalGraph.__init__(self, state["name"], state["qualname"], state["module"])
        nodes = []
        for cls, node_state in state["nodes"]:
            if cls not in (ModuleNode, TensorNode):
                raise AssertionError("cls in (ModuleNode, TensorNode) does not hold")
            node = cls(None)
            node.__setstate__(node_state)
            nodes.append(node)

        def resolved(tree: Any) -> Any:
            return map_leaves(tree, lambda leaf: nodes[leaf] if isinstance(leaf, NodeRef) else leaf)

        for cls, saved, args, kwargs, result in state["exprs"]:
            if not issubclass(cls, Expr):
                raise AssertionError("issubclass(cls, Expr) does not hold")
            saved = {key: saved[key] for key in cls._own}
            expr = cls._restored(saved, resolved(args), resolved(kwargs))
            expr._give(resolved(result))
            self.fx_graph.insert(expr)
            for node in expr.outputs:
                self._names.take(node._name)
        self._result = resolved(state["result"])
        check_when_read(self.fx_graph)

    def __copy__(self) -> InternalGraph:
        raise TypeError(f"{self.name}: a graph belongs to its module\n  fix: copy the TracedModule")

    def __deepcopy__(self, memo: dict[int, Any]) -> InternalGraph:
        """Copies the graph as a part of its module."""
        copied = memo[id(self)] = object.__new__(type(self))
        copied.__setstate__(copy.deepcopy(self.__getstate__(), memo))
        return copied
