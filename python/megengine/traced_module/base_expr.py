"""Expr: the base of all steps of a traced graph. `expr` has the kinds."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .._files.container import Damaged
from .._files.values import expect
from .._graph.core import GraphError
from .._graph.rows import KINDS, Row, type_text
from .._graph.tree import Value, map_leaves, map_values, values_in
from ..core._origin import users_line
from ..fx.node import Node as FxNode
from ..module import Module
from ..tensor import Tensor
from .node import ModuleNode, Node, TensorNode
from .packing import bind, pack, show, unpack
from .pytree import ArgsIndex, TreeDef, tree_flatten

if TYPE_CHECKING:
    from .traced_module import InternalGraph


# Parameters that the original's functions lack; they are arguments only if a program gives them.
_ADDED_PARAMETERS = {
    "max_pool2d": frozenset({"ceil_mode"}),
    "avg_pool2d": frozenset({"ceil_mode"}),
    "cross_entropy": frozenset({"ignore_index", "weight"}),
    "zeros": frozenset({"more"}),
    "ones": frozenset({"more"}),
}


class Expr(FxNode):
    """One step: a node of a graph whose values are `Node`s of their own.

    inputs: nodes that are read, outputs: nodes that are made. args and kwargs hold nodes in the places of
    tensors and modules, and constants.
    """

    _ops = KINDS
    _kind: str  # the op of this class
    # attributes that a copy takes over
    _own: tuple[str, ...] = ("name", "source", "_id", "_disable_remove")

    def __init_subclass__(cls, kind: str, target: str = "") -> None:
        """kind: the op. target: the attribute under which programs find the target of an expr."""
        cls._kind = kind
        if target:
            setattr(cls, target, property(lambda self: self.target, lambda self, value: setattr(self, "target", value)))
            cls._own = (*Expr._own, target)

    def __init__(
        self, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None, name: str = "", target: Any = ""
    ) -> None:
        self._result: Any = None
        self._outputs: list[Node] = []
        self._id: int | None = None
        self._disable_remove = False
        super().__init__(None, name, self._kind, target, tuple(args), kwargs)

    if TYPE_CHECKING:

        @property
        def inputs(self) -> list[Node]: ...

    def _check_inputs(self) -> None:
        """Replaces a step among the arguments by its result. `_check_made_before` checks where
        values come from, as a step may stand in no graph yet.
        """
        if any(isinstance(value, Expr) for value in self._inputs):
            self.set_arguments(*map_leaves((self._args, self._kwargs), _value_of))

    def replace_input(self, old: Value | Expr, new: object) -> None:
        """Reads ``new`` wherever args and kwargs hold ``old``; a step stands for its result."""
        super().replace_input(_value_of(old), new)

    @property
    def all_input_nodes(self) -> list[Any]:
        """The exprs whose values this one reads, each once, in order."""
        return list(dict.fromkeys(node.expr for node in self.inputs))

    def reached(self) -> Any:
        return None

    _fields = "makes result keep"

    def _written(self, writer: Any) -> dict[str, Any]:
        if not self._outputs:
            return {}
        made = {"makes": [node._written(writer) for node in self._outputs], "result": writer(self._result)}
        return {**made, "keep": True} if self._disable_remove else made

    def _take(self, item: dict[str, Any], reader: Any) -> None:
        self._disable_remove = expect(item.get("keep", False), bool)
        made = [Node._read(node, reader) for node in expect(item.get("makes", []), list)]
        reader.nodes += made
        self._give(reader(item.get("result")))
        if self.outputs != made:
            raise Damaged(f"{self.name} does not make the values that it lists")

    def check_saved(self, what: str) -> None:
        """Raises Damaged for an expr that may not be in a file; each kind has its own checks."""

    def is_impure(self) -> bool:
        """Whether it must stay although nothing reads it."""
        return self._disable_remove or super().is_impure()

    # -- what goes in ----------------------------------------------------------------------------

    @classmethod
    def make(cls, *args: Any, **kwargs: Any) -> Any:
        """Makes an expr and returns its node; for calls, which have no arguments yet, the expr
        itself.
        """
        made = cls(*args, **kwargs)
        return made.outputs[0] if made.outputs else made

    def add_inputs(self, vals: Node | Sequence[Node]) -> None:
        """Read further nodes, by position after the other arguments.

        ValueError for a node that is made after this expr, or in another graph.
        """
        nodes = (vals,) if isinstance(vals, Node) else tuple(vals)
        self._check_made_before(nodes)
        self.args = (*self.args, *nodes)

    def set_args_kwargs(self, *args: Any, **kwargs: Any) -> None:
        """Replace all arguments; for a method or a module, the first is the object.

        ValueError for a node that is made after this expr, or in another graph; TypeError for
        arguments that the callee does not take.
        """
        self._check_made_before(values_in((args, kwargs)))
        self.set_arguments(*self._arranged(args, kwargs))

    def _arranged(self, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Returns the arguments of a function or method, by position if possible, with the defaults
        of missing ones.
        """
        bound = self._bound(args, kwargs)
        return (tuple(args), kwargs) if bound is None else (bound.args, bound.kwargs)

    def _bound(self, args: Sequence[Any], kwargs: dict[str, Any]) -> inspect.BoundArguments | None:
        """Returns the argument of each parameter, with defaults; None if the parameters are not
        known.
        """
        signature = self._parameters()
        if signature is None:
            return None
        bound = signature.bind(*args, **kwargs)
        left_out = _ADDED_PARAMETERS.get(getattr(self.target, "__name__", ""), frozenset()) - set(bound.arguments)
        bound.apply_defaults()
        for name in left_out:
            bound.arguments.pop(name, None)
        return bound

    def replace_inputs(self, repl_dict: Mapping[Node, Tensor]) -> None:
        """Read the values of ``repl_dict`` in the places of its keys.

        ValueError when a new node is made after this expr, or in another graph.
        """
        for old, new in repl_dict.items():
            if not isinstance(old, Node) or not isinstance(new, Node):
                raise AssertionError(f"replace_inputs: takes nodes, got {old!r}: {new!r}")
        self._check_made_before(node for node in repl_dict.values() if isinstance(node, Node))
        for old, new in repl_dict.items():
            self.replace_input(old, new)

    def _check_made_before(self, nodes: Iterable[Node]) -> None:
        """Raises ValueError unless this expr can read all ``nodes`` where it stands, if it stands
        in a graph.
        """
        graph = self.top_graph
        nodes = [node for node in nodes if node not in self._inputs] if graph is not None else []
        places = graph.fx_graph.positions() if graph is not None and nodes else {}
        for new in nodes:
            if new.top_graph is not graph:
                raise ValueError(
                    f"{new.name!r} is not in the graph of {self.describe()}, which shall read it\n"
                    f"  at:  {users_line()}"
                )
            if places[new.expr] >= places[self]:
                raise ValueError(
                    f"{new.name!r} is made after {self.describe()} reads it\n"
                    "  fix: insert it earlier, with graph.insert_exprs(expr)\n"
                    f"  at:  {users_line()}"
                )

    @property
    def named_args(self) -> dict[str, Any]:
        """Arguments by the names of the callee's parameters; ``arg_0``, ... where these are not known."""
        bound = self._bound(self.args, self.kwargs)
        if bound is None:
            return {**{repr(ArgsIndex(i)): a for i, a in enumerate(self.args)}, **self.kwargs}
        rest = [name for name, parameter in bound.signature.parameters.items() if parameter.kind is parameter.VAR_KEYWORD]
        named = dict(bound.arguments)
        for name in rest:
            named.update(named.pop(name, {}))
        return named

    def set_arg(self, name: str, val: object) -> None:
        """Replace the argument of the callee's parameter ``name``. AssertionError for an unknown name."""
        self._check_made_before(values_in(val))
        signature = self._parameters()
        if signature is None:
            if name not in self.named_args:
                raise AssertionError(f"{self.describe()} has no argument {name!r}")
            if name in self.kwargs:
                return self.update_kwarg(name, val)
            return self.update_arg(int(name.removeprefix("arg_")), val)
        bound = signature.bind(*self.args, **self.kwargs)
        if name not in signature.parameters:
            raise AssertionError(f"{self.describe()} has no argument {name!r}\n  fix: one of {', '.join(signature.parameters)}")
        bound.arguments[name] = val
        self.set_arguments(bound.args, bound.kwargs)

    def unflatten_args(self, inputs: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Returns args and kwargs with values of ``self.inputs`` in the nodes' places."""
        env = dict(zip(self.inputs, inputs, strict=True))
        return unpack((self._args, self._kwargs), env.__getitem__)

    @property
    def const_val(self) -> list[tuple[ArgsIndex, Any]]:
        """The arguments without nodes in them, with their places."""
        names = [*[""] * len(self.args), *self.kwargs]
        given = enumerate((*self.args, *self.kwargs.values()))
        return [(ArgsIndex(i, names[i]), value) for i, value in given if next(values_in(value), None) is None]

    @property
    def arg_def(self) -> TreeDef:
        """The arrangement of args and kwargs."""
        return tree_flatten((tuple(self.args), dict(self.kwargs)))[1]

    # -- what comes out --------------------------------------------------------------------------

    @property
    def outputs(self) -> list[Node]:
        return self._outputs

    @property
    def return_val(self) -> Any:
        """The result of the call: a node, or a tree of nodes and constants."""
        return unpack(self._result)

    @return_val.setter
    def return_val(self, result: object) -> None:
        self._give(pack(result))

    def add_outputs(self, outputs: object) -> None:
        """Make a node for each tensor of a result; `return_val` has them in the tensors' places.

        GraphError for an expr in a graph, where others may read what it makes.
        """
        if self._holder is not None:
            raise GraphError(f"add_outputs: {self.describe()} is in a graph\n  fix: insert another call with graph.insert_exprs()")

        def node_for(leaf: Any) -> Any:
            if not isinstance(leaf, Tensor):
                return leaf
            node = TensorNode(self)
            node._describe(leaf)
            return node

        self._give(map_leaves(pack(outputs), node_for))

    def _names_of_outputs(self, qualname: str) -> tuple[str, str]:
        """Returns name and qualname of its results if the module at ``qualname`` calls it."""
        name = self.name.lower() if isinstance(self.target, type) else self.name
        return f"{name}_out", f"{qualname}.[func_{self.name}]"

    def _give(self, result: Any) -> None:
        """Sets the result, a tree in which registered containers are already taken apart."""
        self._result = result
        self._outputs = list(dict.fromkeys(values_in(self._result)))
        for node in self._outputs:
            node.expr = self

    @property
    def out_def(self) -> TreeDef:
        """The arrangement of the results."""
        return tree_flatten(self.return_val)[1]

    def _clone(self, args: Any, kwargs: Any, copy_node: Callable[[Node], Node]) -> Expr:
        """The same step with other arguments and new nodes."""
        copied = self._restored(self.__getstate__(), args, kwargs)
        copied._give(map_values(self._result, copy_node))
        return copied

    def __getstate__(self) -> dict[str, Any]:
        """Returns the state of a copy without arguments and results."""
        return {key: getattr(self, key) for key in self._own}

    def __setstate__(self, state: dict[str, Any]) -> None:
        for key, value in state.items():
            setattr(self, key, value)

    @classmethod
    def _restored(cls, state: dict[str, Any], args: Any, kwargs: Any) -> Expr:
        expr = object.__new__(cls)
        Expr.__init__(expr, args, kwargs)
        expr.__setstate__(state)
        return expr

    # -- in the graph ----------------------------------------------------------------------------

    @property
    def users(self) -> list[Expr]:
        """The steps that read this one's results, in order of first use; the graph's result is the
        last step's argument.
        """
        return list(dict.fromkeys(user for node in self._outputs for user in node.readers))

    def replace_all_uses(self, new: Any, only: Callable[[Any], bool] = lambda user: True) -> list[Any]:
        """Makes users for which ``only`` holds read the values of ``new``, a step with as many
        results.
        """
        pairs = list(zip(self._outputs, new.outputs, strict=True))
        return list(dict.fromkeys(user for old, other in pairs for user in old.replace_all_uses(other, only)))

    @property
    def top_graph(self) -> InternalGraph:
        """The graph this expr is in; None before it is in one."""
        holder: Any = self._holder
        return holder.view if holder is not None else None  # type: ignore[return-value]  # programs see those in graphs

    def enable_remove(self) -> None:
        """Let ``compile`` take this expr out when nothing needs it."""
        self._disable_remove = False

    def disable_remove(self) -> None:
        """Keep this expr through ``compile``."""
        self._disable_remove = True

    def noted_types(self) -> str:
        """Returns the types of the results while tracing."""
        known = (node for node in self.outputs if isinstance(node, TensorNode) and node.shape is not None)
        return ", ".join(type_text(node.dtype, node.shape or ()) for node in known)

    def check(self) -> None:
        for node in self.outputs:
            if node.expr is not self:
                raise GraphError(f"{self.describe()} lists {node!r}, which another expr makes")

    def describe(self) -> str:
        line = f" ({self.source})" if self.source else ""
        return f"%{self._id} {self._text()}{line}"

    # -- running ---------------------------------------------------------------------------------

    def compute(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Returns the result of the callee for arguments without nodes."""
        raise TypeError(f"{type(self).__name__} computes nothing")

    def run(self, env: dict[Node, Any]) -> None:
        """Compute from the values in ``env`` and add the results to it."""
        try:
            args, kwargs = unpack((self._args, self._kwargs), env.__getitem__)
        except KeyError as missing:
            raise GraphError(
                f"{self.describe()} reads {missing.args[0].name!r}, which has no value\n  fix: graph.lint()"
            ) from None
        bind(self._result, self.compute(args, kwargs), env, self)

    def interpret(self, *inputs: Any) -> list[Any]:
        """Values of ``outputs`` for values of ``inputs``."""
        env = dict(zip(self.inputs, inputs, strict=True))
        self.run(env)
        return [env[node] for node in self._outputs]

    # -- text ------------------------------------------------------------------------------------

    def _called(self, spec: str) -> str:
        return f"{self.target}({self._arguments(spec)})"

    def _text(self, spec: str = "") -> str:
        result = show(self.return_val, spec)
        return f"{result} = {self._called(spec)}"

    def _arguments(self, spec: str, first: int = 0) -> str:
        args, kwargs = self._shown()
        keywords = ", ".join(f"{key}={show(value, spec)}" for key, value in kwargs.items())
        return f"{''.join(show(arg, spec) + ', ' for arg in args[first:])}{keywords}"

    def _shown(self) -> tuple[Sequence[Any], dict[str, Any]]:
        """Returns the arguments that text shows: without keywords and last positions that hold the
        parameter's default.
        """
        signature = self._parameters()
        if signature is None:
            return self.args, self.kwargs
        default = {name: parameter.default for name, parameter in signature.parameters.items()}
        names, count = list(default), len(self.args)
        while 0 < count <= len(names) and _equal(self.args[count - 1], default[names[count - 1]]):
            count -= 1
        kwargs = {key: value for key, value in self.kwargs.items() if not _equal(value, default.get(key))}
        return self.args[:count], kwargs

    def row(self) -> Row:
        call = self._called("")
        call = f"{call.removesuffix(', )')})" if call.endswith(", )") else call
        kind, callee, about = KINDS[self.op], type(self).__name__, ""
        if self.op == "call_module":
            about = _module_text(self.args[0])
            callee = about.partition("(")[0]
        elif self.op == "call_function":
            callee = f"{self.target.__module__}.{self.target.__qualname__}"
        elif self.op == "apply":
            callee = type(self.target).__name__
        elif self.op in ("get_attr", "call_method"):
            callee = self.target
        elif self.op == "placeholder":
            kind, call = ("input" if isinstance(self.outputs[0], TensorNode) else "attribute"), ""
        return Row(kind, ", ".join(node.name for node in self.outputs), callee, call, about, source=self.source)

    def __repr__(self) -> str:
        return f"%{self._id}:\t{self._text()}"

    format_node = __repr__

    def __format__(self, format_spec: str) -> str:
        return f"%{self._id}:\t{self._text(format_spec)}"


def _value_of(leaf: Any) -> Any:
    return leaf._result if isinstance(leaf, Expr) else leaf


def _equal(argument: Any, default: Any) -> bool:
    return type(argument) is type(default) and bool(argument == default)


def _module_text(node: ModuleNode) -> str:
    """Class and settings of a module."""
    try:
        module: Any = node.owner
    except (AttributeError, LookupError):
        return "missing"
    if not isinstance(module, Module):
        return type(module).__name__
    if hasattr(module, "argdef_graph_map"):
        return module._class_name  # type: ignore[attr-defined]  # a TracedModule
    return f"{type(module).__name__}({module._module_info_string()})"
