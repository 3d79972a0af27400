"""Graph: nodes in order, with insertion points, copies, checks, text and code."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from typing import Any

from .. import random
from .._files.graphs import check_when_read
from .._files.values import ValueReader
from .._graph import core
from .._graph.core import Call, GraphError, copy_calls
from .._graph.names import Namespace
from .._graph.rows import Measured, Row, table
from .._graph.tree import map_leaves
from . import _codegen
from ._codegen import PythonCode
from .linting import check, lint
from .node import Argument, Node, Target, attribute_at, is_public_random, map_arg, name_of_function
from .rows import graph_rows

__all__ = ["Graph", "PythonCode", "attribute_at"]

_MISSING = object()


def _snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


class NodeList:
    """The nodes of a graph in order; can be iterated while the graph is edited, also backwards."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph

    def __len__(self) -> int:
        return len(self._graph)

    def __iter__(self) -> Iterator[Node]:
        return iter(self._graph)

    def __reversed__(self) -> Iterator[Node]:
        return reversed(self._graph)

    def __repr__(self) -> str:
        return repr(list(self))


class Graph(core.Graph):
    """Holds a program as nodes in the order in which they run: inputs first, the output last.

    Nodes of a traced module (`traced_module.expr`) may make several values.

    Parameters
    ----------
    owning_module : GraphModule or None
        Module that the graph belongs to. Names in call_module and get_attr nodes are paths from it.

    Examples
    --------
    >>> from megengine import fx
    >>> graph = fx.Graph()
    >>> x = graph.placeholder("x")
    >>> y = graph.call_method("sum", (x,), {"axis": 0})
    >>> _ = graph.output(y)
    >>> print(graph)
    graph():
        %x : [#users=1] = placeholder[target=x]
        %sum_1 : [#users=1] = call_method[target=sum](args = (%x,), kwargs = {axis: 0})
        return sum_1
    """

    def __init__(self, owning_module: Any = None) -> None:
        super().__init__()
        self.owning_module = owning_module
        self._names = Namespace()
        self._insert_before: Node | None = None  # None: at the end
        self.view: Any = None  # the InternalGraph of this graph, if it is one of a traced module

    @property
    def nodes(self) -> NodeList:
        """The nodes in order."""
        return NodeList(self)

    # -- making nodes ----------------------------------------------------------------------------

    def create_node(
        self,
        op: str,
        target: Target,
        args: tuple[Argument, ...] | None = None,
        kwargs: dict[str, Argument] | None = None,
        name: str | None = None,
        type_expr: object = None,
    ) -> Node:
        """Makes a node at the insertion point.

        The insertion point is the end of the graph, except in `inserting_before` and
        `inserting_after`.

        Parameters
        ----------
        op : str
            Opcode: "placeholder", "get_attr", "call_function", "call_method", "call_module" or
            "output".
        target : str or callable
            A callable for call_function; else the input's name, the dotted path of an attribute or
            module, the method's name, or "output".
        args : tuple or None
            Positional arguments: trees of tuples, lists, dicts and slices with nodes and constants;
            None for none.
        kwargs : dict of str or None
            Arguments by name, such trees; None for none.
        name : str or None
            Name of the value, which is made unique; None takes it from the target.
        type_expr : object
            An annotation, kept in ``node.type``.

        Returns
        -------
        Node
            The new node.

        Raises
        ------
        ValueError
            For an unknown opcode or a target of the wrong kind.
        GraphError
            For arguments that are nodes of another graph, and for the graph of a traced module.
        """
        wanted = name or self._name_for(op, target)
        self._must_hold_nodes_alone("create_node")
        node = Node(self, wanted, op, target, args or (), kwargs or {}, type_expr)
        node.name = self._names.take(wanted)
        self.insert(node, before=self._insert_before)
        return node

    def _must_hold_nodes_alone(self, what: str) -> None:
        if self.view is not None:
            raise GraphError(f"{what}: the graph is that of a traced module\n  fix: use insert_exprs and the text of its InternalGraph")

    @staticmethod
    def _name_for(op: str, target: Target) -> str:
        if op == "placeholder":
            return str(target).lstrip("*")
        name = target if isinstance(target, str) else getattr(target, "__name__", "call")
        return _snake_case(name.strip("_") or name) if op != "get_attr" else name

    def placeholder(self, name: str, type_expr: object = None, default_value: object = _MISSING) -> Node:
        """Makes an input at the insertion point.

        Parameters
        ----------
        name : str
            Name of the parameter; ``*name`` and ``**name`` take the remaining arguments.
        type_expr : object
            The annotation of the input.
        default_value : object
            Default of the input, which makes it optional.

        Returns
        -------
        Node
            The new node.
        """
        args = () if default_value is _MISSING else (default_value,)
        return self.create_node("placeholder", name, args, type_expr=type_expr)

    def get_attr(self, qualified_name: str, type_expr: object = None) -> Node:
        """Makes a node that reads an attribute of the module, such as a parameter.

        Parameters
        ----------
        qualified_name : str
            Dotted path of the attribute.
        type_expr : object
            Annotation of the value, kept in ``node.type``; None for none.

        Returns
        -------
        Node
            The new node.
        """
        return self.create_node("get_attr", qualified_name, type_expr=type_expr)

    def call_function(
        self,
        the_function: Callable[..., Any],
        args: tuple[Argument, ...] | None = None,
        kwargs: dict[str, Argument] | None = None,
        type_expr: object = None,
    ) -> Node:
        """Makes a node that calls a function.

        Parameters
        ----------
        the_function : callable
            Function that the node calls.
        args : tuple or None
            Positional arguments: trees of tuples, lists, dicts and slices with nodes and constants;
            None for none.
        kwargs : dict of str or None
            Arguments by name, such trees; None for none.
        type_expr : object
            Annotation of the value, kept in ``node.type``; None for none.

        Returns
        -------
        Node
            The new node.

        Examples
        --------
        >>> import megengine.functional as F
        >>> from megengine import fx
        >>> gm = fx.symbolic_trace(lambda x: F.relu(x))
        >>> relu = gm.graph.output_node.prev
        >>> with gm.graph.inserting_after(relu):
        ...     doubled = gm.graph.call_function(F.add, (relu, relu))
        >>> gm.graph.output_node.args = (doubled,)
        >>> _ = gm.recompile()
        >>> gm(F.ones(1)).item()
        2.0
        """
        return self.create_node("call_function", the_function, args, kwargs, type_expr=type_expr)

    def call_method(
        self,
        method_name: str,
        args: tuple[Argument, ...] | None = None,
        kwargs: dict[str, Argument] | None = None,
        type_expr: object = None,
    ) -> Node:
        """Makes a node that calls a method of ``args[0]``.

        Parameters
        ----------
        method_name : str
            Name of the method that is called.
        args : tuple or None
            The object, then the positional arguments.
        kwargs : dict of str or None
            Arguments by name; None for none.
        type_expr : object
            Annotation of the value, kept in ``node.type``; None for none.

        Returns
        -------
        Node
            The new node.
        """
        return self.create_node("call_method", method_name, args, kwargs, type_expr=type_expr)

    def call_module(
        self,
        module_name: str,
        args: tuple[Argument, ...] | None = None,
        kwargs: dict[str, Argument] | None = None,
        type_expr: object = None,
    ) -> Node:
        """Makes a node that calls a module.

        Parameters
        ----------
        module_name : str
            Dotted path of the module.
        args : tuple or None
            Positional arguments: trees of tuples, lists, dicts and slices with nodes and constants;
            None for none.
        kwargs : dict of str or None
            Arguments by name, such trees; None for none.
        type_expr : object
            Annotation of the value, kept in ``node.type``; None for none.

        Returns
        -------
        Node
            The new node.
        """
        return self.create_node("call_module", module_name, args, kwargs, type_expr=type_expr)

    def output(self, result: Argument, type_expr: object = None) -> Node:
        """Makes the node that returns the result.

        Parameters
        ----------
        result : Node, constant or container
            The result; tuples, lists and dicts may hold nodes and constants.
        type_expr : object
            Annotation of the value, kept in ``node.type``; None for none.

        Returns
        -------
        Node
            The new node.
        """
        return self.create_node("output", "output", (result,), type_expr=type_expr)

    @property
    def output_node(self) -> Node:
        """The node that returns the result. GraphError if there is none."""
        for node in reversed(self):
            if node.op == "output":
                return node
        raise GraphError("the graph has no output\n  fix: graph.output(value)")

    # -- where nodes go --------------------------------------------------------------------------

    def inserting_before(self, n: Node | None = None) -> contextlib.AbstractContextManager[None]:
        """Sets, at once or for a with-block, where new nodes go: before a node.

        Parameters
        ----------
        n : Node or None
            The node; None stands for the beginning of the graph.

        Returns
        -------
        context manager
            Leaving it restores the former place.
        """
        return _InsertPoint(self, self._place(n) if n is not None else self.first)

    def inserting_after(self, n: Node | None = None) -> contextlib.AbstractContextManager[None]:
        """Sets, at once or for a with-block, where new nodes go: after a node.

        Parameters
        ----------
        n : Node or None
            The node; None stands for the end of the graph.

        Returns
        -------
        context manager
            Leaving it restores the former place.
        """
        return _InsertPoint(self, self.following(self._place(n)) if n is not None else None)

    def _place(self, node: Node) -> Node:
        if node.graph is not self:
            raise GraphError(f"cannot insert beside {node.describe()}: it is not in this graph")
        return node

    # -- edits -----------------------------------------------------------------------------------

    def insert(self, call: Any, before: Call | None = None) -> None:
        """Puts a node that stands in no graph into this one.

        Parameters
        ----------
        call : Node
            Node that stands in no graph yet.
        before : Node or None
            The node that follows it; None is for the end.

        Raises
        ------
        GraphError
            If ``call`` stands in a graph, or ``before`` in another one.
        """
        super().insert(call, before)
        call._maker = self

    def erase_node(self, to_erase: Node) -> None:
        """Takes a node out.

        Parameters
        ----------
        to_erase : Node
            A node that no other node reads.

        Raises
        ------
        GraphError
            If another node reads it; the message names the readers.
        """
        self.erase(to_erase)

    def erase(self, call: Call) -> None:
        """Takes a node out, as `erase_node`.

        Parameters
        ----------
        call : Node
            Node that no other node reads.
        """
        following = self.following(call) if call._holder is self else None
        super().erase(call)
        for value in call.outputs:
            self._names.drop(value.name)
        if self._insert_before is call:
            self._insert_before = following

    def node_copy(
        self, node: Node, arg_transform: Callable[[Node], Argument] = lambda node: node
    ) -> Node:
        """Copies a node, of this or another graph, to the insertion point.

        Parameters
        ----------
        node : Node
            Node of this or another graph.
        arg_transform : callable
            Called with each node that ``node`` reads; returns the node of this graph to read
            instead.

        Returns
        -------
        Node
            The copy.
        """
        args, kwargs = map_arg((node.args, node.kwargs), arg_transform)
        return self._clone(node, args, kwargs)

    def _clone(self, node: Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Node:
        if isinstance(node._holder, Graph):
            node._holder._must_hold_nodes_alone("a copy of a node")
        copied = self.create_node(node.op, node.target, args, kwargs, node.name, node.type)
        copied.meta = dict(node.meta)
        copied.source = node.source
        return copied

    def graph_copy(
        self, g: Graph, val_map: dict[Node, Argument], return_output_node: bool = False
    ) -> Argument | None:
        """Copies the nodes of another graph to the insertion point, all but its output.

        Parameters
        ----------
        g : Graph
            Graph whose nodes are copied.
        val_map : dict of Node to Node
            Mapping of a node of ``g`` to its value here. Nodes in it are not copied; the copies are
            added to it.
        return_output_node : bool
            Whether to return the output node of ``g`` too.

        Returns
        -------
        Node, container or None
            The result of ``g`` in terms of this graph; with return_output_node, a pair of that and
            the output node of ``g``.
        """
        output = next((node for node in reversed(g) if node.op == "output"), None)
        copy_calls(
            (node for node in g if node not in val_map and node is not output), val_map, self._clone
        )
        result = map_arg(output.args[0], val_map.__getitem__) if output is not None else None
        return (result, output) if return_output_node else result

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Graph:
        copied = Graph()
        env: dict[Node, Node] = {}
        copied._names._next = dict(self._names._next)
        copy_calls(self, env, copied._clone)
        if memo is not None:
            memo[id(self)] = copied
            memo.update((id(old), new) for old, new in env.items())
        return copied

    def eliminate_dead_code(self, is_impure_node: Callable[[Node], bool] = Node.is_impure) -> bool:
        """Erases nodes that no node reads and that change nothing.

        Parameters
        ----------
        is_impure_node : callable
            Function that is called with a node that no node reads; True keeps the node.

        Returns
        -------
        bool
            Whether a node was erased.

        Raises
        ------
        GraphError
            For a graph out of order (`lint`).
        """
        check(self)
        return self.erase_dead(is_impure_node) > 0

    def erase_dead(self, is_needed: Callable[[Any], bool]) -> int:
        """Erases, from the end, nodes that no node reads, except inputs and the output.

        Parameters
        ----------
        is_needed : callable
            Function that is called with a node that no node reads; True keeps the node.

        Returns
        -------
        int
            Number of erased nodes.
        """
        return super().erase_dead(lambda call: call.op in ("placeholder", "output") or is_needed(call))

    # -- checks ----------------------------------------------------------------------------------

    @property
    def owner(self) -> Any:
        """The same as ``owning_module``."""
        return self.owning_module

    def check_ends(self) -> None:
        """Raises GraphError unless inputs come first, the output last, and the owning module runs
        this graph.
        """
        body_began = False
        for node in self:
            if node.op == "placeholder" and body_began:
                raise GraphError(f"the input {node.describe()} stands after other nodes")
            body_began |= node.op not in ("placeholder", "get_attr")
            if node.op == "output" and node is not self.last:
                raise GraphError(f"node {self.following(node).describe()} stands after the output")
        if not getattr(self.owning_module, "_runs", lambda graph: True)(self):
            raise GraphError(
                f"{type(self.owning_module).__name__} runs another graph than this one\n"
                "  fix: check the graph that it runs, or let it run this one"
            )

    def lint(self, for_inference: bool = False) -> list[str]:
        """Checks that the graph is well formed.

        In such a graph, inputs stand before other nodes, and one output, if any, is the last. Every
        node reads only earlier ones, which list it as a user. Names are unique. Targets have the
        right kind and, with an owning_module, exist in it, and that module runs this graph.

        Parameters
        ----------
        for_inference : bool
            Whether to check also that no called module is in training mode.

        Returns
        -------
        list of str
            Remarks that name modules and tensors with two names, modules that several nodes call,
            and tensors read from modules that are called: an edit reaches all of these.

        Raises
        ------
        GraphError
            For a graph that is not well formed; the message names the node and its line.
        """
        return lint(self, for_inference)

    # -- text ------------------------------------------------------------------------------------

    def __str__(self) -> str:
        return "graph():" + "".join(f"\n    {node.format_node()}" for node in self)

    def _rows(self, inputs: tuple[Any, ...], runs: int) -> list[Row]:
        if self.view is not None:
            return self.view._rows(inputs, runs)
        if inputs and not hasattr(self.owner, "_measured"):
            raise GraphError("a graph runs in its module\n  fix: fx.GraphModule(root, graph)")
        return graph_rows(self, self.owner._measured(inputs, runs) if inputs else Measured())

    def tabular(self) -> str:
        """Returns what `print_tabular` prints."""
        return table(
            ("opcode", "name", "target", "args", "kwargs"),
            ((node.op, node.name, _shown(node.target), node.args, node.kwargs) for node in self),
        )

    def python_code(self, root_module: str = "self") -> PythonCode:
        """Returns the source of a function ``forward`` that does what the graph does.

        Parameters
        ----------
        root_module : str
            Name of the function's first parameter, the module.

        Returns
        -------
        PythonCode
            The source, and the names that it reads.

        Raises
        ------
        GraphError
            For a graph out of order, and that of a traced module.
        """
        self._must_hold_nodes_alone("python_code")
        return _codegen.python_code(self, root_module)

    # -- files -----------------------------------------------------------------------------------

    def __getstate__(self) -> dict[str, list[tuple[Any, ...]]]:
        """The nodes as plain records: a file holds the graph itself, and reading it runs no forward."""
        self._must_hold_nodes_alone("pickle")
        self.check()
        places = self.positions()
        return {"nodes": [
            (node.op, _saved(node.target), node.name, node.type, node.meta, node.source,
             *map_arg((node.args, node.kwargs), lambda value: _Place(places[value])))
            for node in self
        ]}  # fmt: skip

    def __setstate__(self, state: dict[str, list[tuple[Any, ...]]]) -> None:
        Graph.__init__(self)
        nodes: list[Node] = []
        for op, target, name, type_expr, meta, source, args, kwargs in state["nodes"]:
            args, kwargs = map_leaves(
                (args, kwargs), lambda leaf: nodes[leaf.index] if isinstance(leaf, _Place) else leaf
            )
            if isinstance(target, _RandomFunction):
                target = getattr(random, target.name)
            node = self.create_node(op, target, args, kwargs, name, type_expr)
            node.meta, node.source = meta, source
            nodes.append(node)
        check_when_read(self)

    def _read(self, op: str, name: str, target: Target, item: dict[str, Any], reader: ValueReader) -> Node:
        """Make the node of a record in a file."""
        args, kwargs, source = reader.call(item)
        node = self.create_node(op, target, args, kwargs, name)
        node.name = name  # the name of the record, even one that the graph would not choose
        node.source = source
        node._take(item, reader)
        reader.nodes.append(node)
        return node


class _Place:
    """A node in a file: its place in the order."""

    def __init__(self, index: int) -> None:
        self.index = index


class _RandomFunction:
    """A function of `megengine.random` in a file; it is bound to the state of the process."""

    def __init__(self, name: str) -> None:
        self.name = name


def _saved(target: Target) -> Any:
    return _RandomFunction(target.__name__) if is_public_random(target) else target


class _InsertPoint(contextlib.AbstractContextManager[Any]):
    """Sets the insertion point when it is made, and restores the former one when the with-block
    ends.
    """

    def __init__(self, graph: Graph, before: Node | None) -> None:
        self._graph, self._saved = graph, graph._insert_before
        graph._insert_before = before

    def __exit__(self, *exc: object) -> None:
        self._graph._insert_before = self._saved


def _shown(target: Target) -> str:
    """Returns the text of a target in a table: functions of C as Python prints them, others by
    name.
    """
    if isinstance(target, str):
        return target
    return name_of_function(target) if hasattr(target, "__code__") else str(target)
