"""Node: one step of a graph, and the value that it makes."""

from __future__ import annotations

import functools
import inspect
import operator
import sys
import types
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, cast

from .. import module as M
from .. import random
from .._files.container import Damaged
from .._files.graphs import at_path
from .._graph.core import Call, GraphError
from .._graph.redirect import original_of
from .._graph.rows import KINDS, Row, type_text
from .._graph.tree import Value, map_leaves, map_values, tree_text
from ..core._origin import users_line
from ..module._reach import get_expand_structure
from ..tensor import Tensor

if TYPE_CHECKING:
    from .graph import Graph

__all__ = ["Argument", "Node", "OPCODES", "Target", "attribute_at", "map_aggregate", "map_arg"]

Target = Any  # a callable for call_function, else a str
Argument = Any  # a Node, a constant, or a tuple, list, dict or slice of arguments

OPCODES = ("placeholder", "get_attr", "call_function", "call_method", "call_module", "output")

MODULE = "module"  # key of Node.meta: the path of the module whose forward the node is a part of

_WRITERS = frozenset(
    [operator.setitem, operator.delitem]
    + [getattr(operator, f"i{name}") for name in (
        "add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor",
        "lshift", "rshift", "concat",
    ) if hasattr(operator, f"i{name}")]
)  # fmt: skip
# Python functions of this package whose calls have effects.
_IMPURE: set[Callable[..., Any]] = set()
_WRITING_METHODS = frozenset({"__setitem__", "set_value", "reset_zero", "_reset", "_assign"})


_MISSING = object()


def attribute_at(root: object, path: str, default: object = _MISSING) -> Any:
    """Returns the object at a dotted ``path`` of attributes and of items of lists and dicts.
    AttributeError if there is none.
    """
    try:
        return get_expand_structure(root, path) if path else root
    except KeyError as error:
        if default is not _MISSING:
            return default
        raise AttributeError(
            f"{type(root).__name__} has nothing at {path!r}: {error.args[0]}"
        ) from None


def map_arg(tree: Argument, fn: Callable[[Node], Any]) -> Argument:
    """Returns a tree with ``fn(node)`` in place of each node.

    Parameters
    ----------
    tree : Node, constant or container
        Tuples, lists, dicts and slices with nodes and constants.
    fn : callable
        Called with each node.

    Returns
    -------
    object
        A tree of the same form.

    Raises
    ------
    TypeError
        When ``fn`` is not callable.

    Examples
    --------
    >>> from megengine import fx
    >>> graph = fx.Graph()
    >>> map_arg([graph.placeholder("x"), {"axis": 1}], lambda node: node.name)
    ['x', {'axis': 1}]
    """
    if not callable(fn):
        raise TypeError(f"map_arg(tree, fn): fn must be callable, got {fn!r}")
    return map_values(tree, fn)


def _acts(fn: Callable[..., Any]) -> bool:
    """Whether a call matters beyond its value: it writes into a tensor, or moves a stream of random numbers on."""
    if isinstance(fn, types.BuiltinFunctionType):
        return fn in _WRITERS
    if isinstance(fn, types.MethodType):
        return isinstance(fn.__self__, random.RNG)
    return isinstance(fn, types.FunctionType) and fn in _IMPURE


def map_aggregate(tree: Argument, fn: Callable[[Any], Any]) -> Argument:
    """``tree`` with ``fn(leaf)`` in place of each leaf, node or not."""
    return map_leaves(tree, fn)


@functools.lru_cache(maxsize=4096)
def signature_of(callee: object) -> inspect.Signature | None:
    """Returns the parameters in the definition of a function or method; None if they are not known.
    """
    if isinstance(callee, types.WrapperDescriptorType):
        # An operator in C says "($self, value, mod=None, /)". inspect.signature compiles that, and printing a file's graph runs no compiler.
        names = [part.strip(" $") for part in (getattr(callee, "__text_signature__", None) or "").strip("()").split(",") if part.strip() != "/"]
        kinds = inspect.Parameter
        return inspect.Signature([
            kinds(name.removesuffix("=None"), kinds.POSITIONAL_ONLY, default=None if "=" in name else kinds.empty) for name in names
        ])  # fmt: skip
    try:
        return inspect.signature(original_of(cast(Callable[..., Any], callee)))
    except (TypeError, ValueError):
        return None


def is_public_random(target: object) -> bool:
    """Whether ``target`` is a function of `megengine.random`."""
    return isinstance(target, types.MethodType) and getattr(random, target.__name__, None) == target


def name_of_function(target: Callable[..., Any]) -> str:
    """The name under which users know a function: ``operator.add``, ``megengine.functional.relu``."""
    name = (
        getattr(target, "__qualname__", None) or getattr(target, "__name__", None) or repr(target)
    )
    module = getattr(target, "__module__", None) or ""
    if is_public_random(target):
        return f"megengine.random.{target.__name__}"
    if module in ("_operator", "operator"):
        return f"operator.{target.__name__}"
    if module == "builtins":
        return name
    if module.startswith("megengine.functional"):
        functional = sys.modules["megengine.functional"]
        if getattr(functional, name, None) is target:
            return f"megengine.functional.{name}"
    return f"{module}.{name}" if module else name


class Node(Call, Value):
    """One step of a graph, and the value that it makes.

    `Graph.create_node` and its like make nodes.
    ``users`` is a dict whose keys are the nodes that read this one; ``meta``, a dict for passes,
    travels with copies.

    Parameters
    ----------
    graph : Graph or None
        Graph that contains the node; None for none.
    name : str
        Name of the value's variable in generated code, unique in the graph.
    op : str
        "placeholder", "get_attr", "call_function", "call_method", "call_module" or "output".
    target : str or callable
        A callable for call_function; else the input's name, the dotted path of an attribute or
        module, the method's name, or "output".
    args : tuple
        Positional arguments; trees of tuples, lists, dicts and slices with nodes and constants.
    kwargs : dict of str or None
        Arguments by name, as args; None for none.
    type_expr : object
        The annotation of the value, kept as ``type``.

    Raises
    ------
    ValueError
        For an unknown opcode, and for a target of the wrong kind.

    Examples
    --------
    >>> import megengine.functional as F
    >>> from megengine import fx
    >>> gm = fx.symbolic_trace(lambda x: F.relu(x) * 2)
    >>> relu = next(node for node in gm.graph.nodes if node.target is F.relu)
    >>> relu.op, relu.name, relu.args, list(relu.users)
    ('call_function', 'relu', (x,), [mul])
    """

    _ops: Collection[str] = OPCODES  # that a node of this class may have

    def __init__(
        self,
        graph: Graph | None,
        name: str,
        op: str,
        target: Target,
        args: tuple[Argument, ...] = (),
        kwargs: dict[str, Argument] | None = None,
        type_expr: Any = None,
    ) -> None:
        self.name = name
        self.op = op
        self.target: Target = target
        self.type = type_expr
        self.meta: dict[str, Any] = {}
        self._maker: Any = graph
        if graph is not None:  # otherwise its maker checks it
            self.source = users_line()
            self._check_target()
        super().__init__(args, kwargs)

    def _check_target(self) -> None:
        if self.op == "call_function":
            if not callable(self.target):
                raise ValueError(
                    f"node {self.name!r}: the target of call_function must be callable, got {self.target!r}"
                )
        elif not isinstance(self.target, str):
            raise ValueError(f"node {self.name!r}: the target of {self.op} must be a str, got {self.target!r}")

    @property
    def op(self) -> str:
        """The opcode. ValueError when set to an unknown one."""
        return self._op

    @op.setter
    def op(self, op: str) -> None:
        if op not in self._ops:
            raise ValueError(
                f"node {self.name!r}: unknown opcode {op!r}\n  fix: use one of {', '.join(OPCODES)}\n"
                f"  at:  {users_line()}"
            )
        self._op = op

    def set_arguments(self, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        """Replaces all arguments.

        Parameters
        ----------
        args : sequence
            Positional arguments, as of `Node`.
        kwargs : dict of str
            Arguments by name, as of `Node`.

        Raises
        ------
        GraphError
            For a node of another graph among them.
        """
        super().set_arguments(args, kwargs)
        self._check_inputs()

    def _check_inputs(self) -> None:
        for node in self._inputs:
            if getattr(node, "_maker", None) is not self._maker:
                for other in self._inputs:
                    other.readers.pop(self, None)
                self._args, self._kwargs, self._inputs = (), {}, {}
                raise GraphError(
                    f"node {self.describe()} cannot read {node!r}: that is a node of another graph\n"
                    "  fix: copy it with graph.node_copy first"
                )

    # -- what it stands for ----------------------------------------------------------------------

    def reached(self) -> Any:
        """The module that is called or the attribute that is read. AttributeError when it is gone."""
        owner = self._maker.owning_module
        return None if owner is None else attribute_at(owner, self.target)

    def _module_called(self) -> Any:
        """The module that is called; None when it is gone, or the graph has no module."""
        return attribute_at(self._maker.owning_module, self.target, default=None)

    def _parameters(self) -> inspect.Signature | None:
        """Returns the parameters that take `args` and `kwargs`; None if they are not known."""
        if self.op == "call_function":
            return signature_of(self.target)
        if self.op == "call_method":
            return signature_of(getattr(Tensor, self.target, None))
        found = signature_of(getattr(type(self._module_called()), "forward", None)) if self.op == "call_module" else None
        return found and found.replace(parameters=[*found.parameters.values()][1:])  # without self

    def arguments_by_name(self) -> dict[str, Any] | None:
        """Returns the arguments by the names of the callee's parameters, with the defaults of
        missing ones.

        Returns
        -------
        dict of str or None
            The arguments; None if the parameters are not known, or take other arguments.
        """
        signature = self._parameters()
        if signature is None:
            return None
        try:
            bound = signature.bind(*self.args, **self.kwargs)
        except TypeError:
            return None
        bound.apply_defaults()
        return dict(bound.arguments)

    _fields = "meta"

    def _written(self, writer: Any) -> dict[str, Any]:
        meta = {}
        for key, value in self.meta.items():
            try:
                meta[key] = writer(value)
            except (Damaged, ValueError):
                pass  # a pass's own notes: only data goes into files
        return {"meta": meta} if meta and all(isinstance(key, str) for key in meta) else {}

    def _take(self, item: dict[str, Any], reader: Any) -> None:
        self.meta = reader.by_name(item.get("meta", {}))

    def check_saved(self, what: str) -> None:
        if self.op in ("get_attr", "call_module"):
            at_path(self._maker.owning_module, self.target, what)

    # -- neighbours ------------------------------------------------------------------------------

    @property
    def all_input_nodes(self) -> list[Node]:
        """The nodes in args and kwargs, each once, in order."""
        return self.inputs

    @property
    def next(self) -> Node | None:
        """The node after this one; None after the last."""
        return self._maker.following(self)

    @property
    def prev(self) -> Node | None:
        """The node before this one; None before the first."""
        return self._maker.preceding(self)

    def prepend(self, other: Node) -> None:
        """Moves another node to the place before this one.

        Parameters
        ----------
        other : Node
            Node of the same graph.
        """
        self._maker.move(other, before=self)

    def append(self, other: Node) -> None:
        """Moves another node to the place after this one.

        Parameters
        ----------
        other : Node
            Node of the same graph.
        """
        if other is not self:
            self._maker.move(other, before=self.next)

    # -- edits -----------------------------------------------------------------------------------

    def replace_all_uses_with(
        self,
        replace_with: Node,
        delete_user_cb: Callable[[Node], bool] = lambda user: True,
        *,
        propagate_meta: bool = False,
    ) -> list[Node]:
        """Makes the users of this node read another one instead.

        Parameters
        ----------
        replace_with : Node
            Node that the users read from now on.
        delete_user_cb : callable
            Called with each user; where it returns False, that user stays as it is.
        propagate_meta : bool
            Whether ``replace_with``, whose meta must be empty, takes the meta of this node.

        Returns
        -------
        list of Node
            The changed users.

        Raises
        ------
        AssertionError
            With propagate_meta, if ``replace_with`` has meta of its own.
        """
        if propagate_meta:
            if replace_with.meta.keys() - {MODULE}:
                raise AssertionError(
                    f"{replace_with.describe()} has meta of its own, which would be lost"
                )
            replace_with.meta = dict(self.meta)
        return self.replace_all_uses(replace_with, delete_user_cb)

    def replace_input_with(self, old_input: Node, new_input: Argument) -> None:
        """Reads another value wherever args and kwargs hold a node.

        Parameters
        ----------
        old_input : Node
            Node that is read now.
        new_input : Node, constant or container
            Value that is read from now on.
        """
        self.replace_input(old_input, new_input)

    def update_arg(self, idx: int, arg: Argument) -> None:
        """Replaces a positional argument.

        Parameters
        ----------
        idx : int
            Index of the argument, counted from 0.
        arg : Node, constant or container
            New argument: a node, a constant or a tree of them.

        Raises
        ------
        IndexError
            If there is no argument at the index.
        """
        args = list(self.args)
        try:
            args[idx] = arg
        except IndexError:
            raise IndexError(
                f"node {self.describe()} has {len(args)} positional arguments, none at {idx}"
            ) from None
        self.args = tuple(args)

    def insert_arg(self, idx: int, arg: Argument) -> None:
        """Inserts a positional argument.

        Parameters
        ----------
        idx : int
            Index of the argument that comes after it.
        arg : Node, constant or container
            New argument: a node, a constant or a tree of them.
        """
        self.args = (*self.args[:idx], arg, *self.args[idx:])

    def update_kwarg(self, key: str, arg: Argument) -> None:
        """Sets an argument that is passed by name.

        Parameters
        ----------
        key : str
            Name of the argument.
        arg : Node, constant or container
            New argument: a node, a constant or a tree of them.
        """
        self.kwargs = {**self.kwargs, key: arg}

    def is_impure(self) -> bool:
        """Whether the node matters although no node reads it: inputs, outputs, writes into tensors,
        random numbers."""
        if self.op in ("placeholder", "output"):
            return True
        if self.op == "call_function":
            return _acts(self.target)
        if self.op == "call_method":
            return self.target in _WRITING_METHODS
        return self.op == "call_module" and self._module_writes()

    def _module_writes(self) -> bool:
        """Whether the called module is in training mode and has buffers, which it may update."""
        module = self._module_called()
        return bool(getattr(module, "training", False)) and any(True for _ in module.buffers())

    # -- text ------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        return self.name

    def format_node(self) -> str:
        """Returns the line that ``str(graph)`` shows for this node."""
        if self.op == "output":
            return f"return {self.args[0]}"
        head = f"%{self.name} : [#users={len(self.users)}] = {self.op}"
        if self.op == "placeholder":
            default = f"(default={self.args[0]})" if self.args else ""
            return f"{head}[target={self.target}]{default}"
        if self.op == "get_attr":
            return f"{head}[target={self.target}]"
        target = name_of_function(self.target) if callable(self.target) else self.target
        args, kwargs = tree_text(self.args, _marked), tree_text(self.kwargs, _marked)
        return f"{head}[target={target}](args = {args}, kwargs = {kwargs})"

    def row(self) -> Row:
        args, of_method = _listed(self.args, self.kwargs), _listed(self.args[1:], self.kwargs)
        callee = name_of_function(self.target) if self.op == "call_function" else self.target
        call = {
            "call_function": f"{str(callee).rpartition('.')[2]}({args})",
            "call_method": f"{_listed(self.args[:1])}.{callee}({of_method})",
            "call_module": f"{callee}({args})",
            "get_attr": f"self.{callee}",
            "output": f"return {args}",
            "placeholder": f"default {args}" if self.args else "",
        }[self.op]
        module = self._module_called() if self.op == "call_module" else None
        about = f"{type(module).__name__}({module._module_info_string()})" if isinstance(module, M.Module) else ""
        return Row(KINDS[self.op], self.name, callee, call, about, source=self.source)

    def noted_types(self) -> str:
        """Returns the types that `ShapeProp` noted."""
        noted: list[str] = []
        _note_types(self.meta.get("tensor_meta"), noted)
        return ", ".join(noted)

    __reduce__ = Value.__copy__


def _marked(leaf: Any) -> str:
    """Returns the text of a leaf, with ``%`` before nodes."""
    if isinstance(leaf, Node):
        return f"%{leaf.name}"
    return name_of_function(leaf) if callable(leaf) and hasattr(leaf, "__name__") else str(leaf)


def _named(leaf: Any) -> str:
    """Returns the text of a leaf in a program."""
    if isinstance(leaf, Node):
        return leaf.name
    return name_of_function(leaf) if callable(leaf) and hasattr(leaf, "__name__") else repr(leaf)


def _listed(args: tuple[Any, ...], kwargs: dict[str, Argument] | None = None) -> str:
    """Returns the text of arguments in a program."""
    keywords = (f"{key}={tree_text(value, _named, repr)}" for key, value in (kwargs or {}).items())
    return ", ".join([*(tree_text(arg, _named, repr) for arg in args), *keywords])


def _note_types(tree: Any, noted: list[str]) -> None:
    """Add the types in a tree of `TensorMetadata`."""
    if hasattr(tree, "dtype"):
        noted.append(type_text(tree.dtype, tree.shape))
    elif isinstance(tree, (tuple, list, dict)):
        for item in tree.values() if isinstance(tree, dict) else tree:
            _note_types(item, noted)
