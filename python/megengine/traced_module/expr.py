"""The steps of a traced graph: what is called on which nodes, and the nodes that come out."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .._graph import Call, GraphError, map_values, users_line, values_in
from .._graph.redirect import original_of
from ..core.ops import builtin
from ..module import Module
from ..tensor import Tensor
from . import module_tracer
from .function_names import FunctionName
from .node import ModuleNode, Node, TensorNode
from .packing import bind, pack, show, unpack
from .pytree import ArgsIndex, TreeDef, tree_flatten
from .utils import get_subattr

if TYPE_CHECKING:
    from .traced_module import InternalGraph

__all__ = [
    "Apply", "CallFunction", "CallMethod", "Constant", "Expr", "GetAttr", "Input", "is_apply_def",
    "is_call_function", "is_call_module", "is_call_tensor_method", "is_constant", "is_getattr", "is_input",
]  # fmt: skip


class Expr(Call):
    """One step.

    inputs: nodes that are read, outputs: nodes that are made. args and kwargs hold nodes in the places of
    tensors and modules, and constants.
    """

    _own: tuple[str, ...] = ("name", "source", "_id", "_disable_remove")  # what a copy takes over

    def __init__(self, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None) -> None:
        self._result: Any = None
        self._outputs: list[Node] = []
        self._id: int | None = None
        self._disable_remove = False
        super().__init__(args, kwargs)

    # -- what goes in ----------------------------------------------------------------------------

    def set_args_kwargs(self, *args: Any, **kwargs: Any) -> None:
        """Replace all arguments; for a method or a module, the first is the object.

        ValueError for a node that is made after this expr, or in another graph.
        """
        self._check_made_before(values_in((args, kwargs)))
        self.set_arguments(args, kwargs)

    def replace_inputs(self, repl_dict: dict[Node, Node]) -> None:
        """Read the values of ``repl_dict`` in the places of its keys.

        ValueError when a new node is made after this expr, or in another graph.
        """
        for old, new in repl_dict.items():
            assert isinstance(old, Node) and isinstance(new, Node), (
                f"replace_inputs: takes nodes, got {old!r}: {new!r}"
            )
        self._check_made_before(repl_dict.values())
        for old, new in repl_dict.items():
            self.replace_input(old, new)

    def _check_made_before(self, nodes: Iterable[Node]) -> None:
        """ValueError unless this expr can read all ``nodes`` where it stands, if it stands in a graph."""
        graph = self.top_graph
        nodes = [node for node in nodes if node not in self._inputs] if graph is not None else []
        places = graph.positions() if nodes else {}
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

    def _parameters(self) -> inspect.Signature | None:
        return None

    @property
    def named_args(self) -> dict[str, Any]:
        """Arguments by the names of the callee's parameters; ``arg_0``, ... where these are not known."""
        signature = self._parameters()
        if signature is None:
            return {**{repr(ArgsIndex(i)): a for i, a in enumerate(self.args)}, **self.kwargs}
        bound = signature.bind(*self.args, **self.kwargs)
        bound.apply_defaults()
        named: dict[str, Any] = {}
        for name, value in bound.arguments.items():
            kind = signature.parameters[name].kind
            if kind is inspect.Parameter.VAR_KEYWORD:
                named.update(value)
            else:
                named[name] = value
        return named

    def set_arg(self, name: str, val: Any) -> None:
        """Replace the argument of the callee's parameter ``name``. AssertionError for an unknown name."""
        self._check_made_before(values_in(val))
        signature = self._parameters()
        if signature is None:
            assert name in self.named_args, f"{self.describe()} has no argument {name!r}"
            if name in self.kwargs:
                self.kwargs = {**self.kwargs, name: val}
            else:
                index = int(name.removeprefix("arg_"))
                self.args = (*self.args[:index], val, *self.args[index + 1 :])
            return
        bound = signature.bind(*self.args, **self.kwargs)
        assert name in signature.parameters, (
            f"{self.describe()} has no argument {name!r}\n  fix: one of {', '.join(signature.parameters)}"
        )
        bound.arguments[name] = val
        self.set_arguments(bound.args, bound.kwargs)

    def unflatten_args(self, inputs: Sequence[Any]) -> tuple[tuple, dict[str, Any]]:
        """args and kwargs with values of ``self.inputs`` in the nodes' places."""
        env = dict(zip(self.inputs, inputs, strict=True))
        args, kwargs = map_values((self._args, self._kwargs), env.__getitem__)
        return unpack(args), unpack(kwargs)

    @property
    def const_val(self) -> list[tuple[ArgsIndex, Any]]:
        """The arguments without nodes in them, with their places."""
        found = [(ArgsIndex(i), a) for i, a in enumerate(self.args) if next(values_in(a), None) is None]
        return found + [
            (ArgsIndex(len(self.args) + i, k), v)
            for i, (k, v) in enumerate(self.kwargs.items())
            if next(values_in(v), None) is None
        ]

    @property
    def arg_def(self) -> TreeDef:
        """How args and kwargs are arranged."""
        return tree_flatten((tuple(self.args), dict(self.kwargs)))[1]

    # -- what comes out --------------------------------------------------------------------------

    @property
    def outputs(self) -> list[Node]:
        return self._outputs

    @property
    def return_val(self) -> Any:
        """What the call gives: a node, or a tree of nodes and constants."""
        return unpack(self._result)

    @return_val.setter
    def return_val(self, result: Any) -> None:
        self._give(pack(result))

    def _give(self, result: Any) -> None:
        """Make ``result``, a tree in which registered containers are taken apart already."""
        self._result = result
        self._outputs = list(dict.fromkeys(values_in(self._result)))
        for node in self._outputs:
            node.expr = self

    @property
    def out_def(self) -> TreeDef:
        """How the results are arranged."""
        return tree_flatten(self.return_val)[1]

    def _clone(self, args: Any, kwargs: Any, copy_node: Callable[[Node], Node]) -> Expr:
        """The same step with other arguments and new nodes."""
        copied = self._restored(self._saved(), args, kwargs)
        copied._give(map_values(self._result, copy_node))
        return copied

    def _saved(self) -> dict[str, Any]:
        return {key: getattr(self, key) for key in self._own}

    @classmethod
    def _restored(cls, saved: dict[str, Any], args: Any, kwargs: Any) -> Expr:
        expr = object.__new__(cls)
        Expr.__init__(expr, args, kwargs)
        for key, value in saved.items():
            setattr(expr, key, value)
        return expr

    # -- in the graph ----------------------------------------------------------------------------

    @property
    def top_graph(self) -> InternalGraph | None:
        """The graph this expr is in."""
        return self._holder

    def enable_remove(self) -> None:
        """Let ``compile`` take this expr out when nothing needs it."""
        self._disable_remove = False

    def disable_remove(self) -> None:
        """Keep this expr through ``compile``."""
        self._disable_remove = True

    def describe(self) -> str:
        line = f" ({self.source})" if self.source else ""
        return f"%{self._id} {self._text()}{line}"

    # -- running ---------------------------------------------------------------------------------

    def compute(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """What the callee gives for arguments without nodes."""
        raise TypeError(f"{type(self).__name__} computes nothing")

    def run(self, env: dict[Node, Any]) -> None:
        """Compute from the values in ``env`` and add the results to it."""
        try:
            args, kwargs = map_values((self._args, self._kwargs), env.__getitem__)
        except KeyError as missing:
            raise GraphError(
                f"{self.describe()} reads {missing.args[0].name!r}, which has no value\n  fix: graph.lint()"
            ) from None
        bind(self._result, self.compute(unpack(args), unpack(kwargs)), env, self)

    def interpret(self, *inputs: Any) -> list[Any]:
        """Values of ``outputs`` for values of ``inputs``."""
        env = dict(zip(self.inputs, inputs, strict=True))
        self.run(env)
        return [env[node] for node in self._outputs]

    # -- text ------------------------------------------------------------------------------------

    def _called(self, spec: str) -> str:
        return f"{type(self).__name__}({self._arguments(self.args, spec)})"

    def _text(self, spec: str = "") -> str:
        result = show(self.return_val, spec)
        return f"{result} = {self._called(spec)}"

    def _arguments(self, args: Sequence[Any], spec: str) -> str:
        keywords = ", ".join(f"{key}={show(value, spec)}" for key, value in self.kwargs.items())
        return f"{''.join(show(arg, spec) + ', ' for arg in args)}{keywords}"

    def __repr__(self) -> str:
        return f"%{self._id}:\t{self._text()}"

    def __format__(self, format_spec: str) -> str:
        return f"%{self._id}:\t{self._text(format_spec)}"

    def __copy__(self) -> Expr:
        raise TypeError(f"{self.describe()} is part of its graph\n  fix: copy the TracedModule")

    def __deepcopy__(self, memo: dict) -> Expr:
        return memo[id(self)] if id(self) in memo else self.__copy__()


class Input(Expr):
    """An input of the graph: the module itself, or a tensor of the call."""

    def __init__(self, type: type[Node], name: str = "args", qualname: str = "") -> None:  # noqa: A002
        super().__init__()
        self.name = name
        self.return_val = type(self, name, qualname)

    @classmethod
    def make(cls, *args: Any, **kwargs: Any) -> Node:
        """The node of a new input."""
        return cls(*args, **kwargs).outputs[0]

    def _module_made(self) -> Module:
        return self.top_graph._module

    def _called(self, spec: str) -> str:
        return "Input()"


class GetAttr(Expr):
    """A tensor or module read from a module by its dotted path."""

    _own = (*Expr._own, "attr_name")

    def __init__(
        self,
        module: ModuleNode,
        type: type[Node],
        attr_name: str,
        name: str = "",  # noqa: A002
    ) -> None:
        super().__init__((module,))
        self.attr_name = attr_name
        self.name = attr_name
        self.return_val = type(self, name or attr_name, f"{module.qualname}.{attr_name}")

    @classmethod
    def make(cls, *args: Any, **kwargs: Any) -> Node:
        """The node that is read."""
        return cls(*args, **kwargs).outputs[0]

    def compute(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        return get_subattr(args[0], self.attr_name)

    def _module_made(self) -> Module:
        return get_subattr(self.args[0].owner, self.attr_name)

    def _called(self, spec: str) -> str:
        try:
            value = get_subattr(self.args[0].owner, self.attr_name)
        except (AttributeError, KeyError, IndexError):
            kind = "missing"
        else:
            kind = type(value).__name__ if isinstance(value, Module) else "Tensor"
        return f'getattr({show(self.args[0], spec)}, "{self.attr_name}") -> ({kind})'


class CallMethod(Expr):
    """A module called, or a method or operator of a tensor; the object is the first argument.

    method: ``__call__`` for modules; ``shape`` gives the shape as a Tensor.
    """

    _own = (*Expr._own, "method")

    def __init__(self, node: Node, method: str = "__call__") -> None:
        super().__init__((node,))
        self.method = method
        self.name = method

    @classmethod
    def make(cls, *args: Any, **kwargs: Any) -> CallMethod:
        """A call that has its object and no other arguments yet."""
        return cls(*args, **kwargs)

    @property
    def graph(self) -> InternalGraph | None:
        """The graph that runs inside when the module is a traced one."""
        node = self.args[0]
        graphs = getattr(node.owner, "argdef_graph_map", None) if self._is_module_call else None
        return graphs.get(self._signature()) if graphs is not None else None

    @property
    def _is_module_call(self) -> bool:
        return isinstance(self.args[0], ModuleNode)

    def _signature(self) -> TreeDef:
        """Under which the traced module keeps the graph of this call."""
        args, kwargs = unpack(self.args[1:]), unpack(dict(self.kwargs))
        return tree_flatten(self.args[0].owner._canonical(args, kwargs))[1]

    def _parameters(self) -> inspect.Signature | None:
        if self._is_module_call:
            owner = self.args[0].owner
            spec = getattr(owner, "argspec", None)
            return spec if spec is not None else inspect.signature(type(owner).forward)
        method = getattr(Tensor, self.method, None)
        try:
            return inspect.signature(method) if callable(method) else None
        except ValueError:  # an operator of the extension
            return None

    def compute(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        return run_method(self.method, args, kwargs)

    def _called(self, spec: str) -> str:
        head = show(self.args[0], spec)
        if self.method == "shape":
            return f"{head}.shape"
        head += "" if self.method == "__call__" else f".{self.method}"
        return f"{head}({self._arguments(self.args[1:], spec)})"


def run_method(method: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """A method of ``args[0]``; for one that writes in place, the tensor written to."""
    target = args[0]
    if method == "shape":
        return shape_tensor(target)
    if method == "__call__":
        return target(*args[1:], **kwargs)
    if not isinstance(target, Tensor):
        target = Tensor(target)
    result = getattr(target, method)(*args[1:], **kwargs)
    return target if module_tracer.writes_in_place(method) else result


def shape_tensor(x: Tensor) -> Tensor:
    """The shape of ``x`` as an int32 tensor."""
    shape = x.shape
    return shape if isinstance(shape, Tensor) else Tensor(np.array(shape, np.int32))


class CallFunction(Expr):
    """A function called."""

    _own = (*Expr._own, "_func")

    def __init__(self, func: Callable) -> None:
        super().__init__()
        self.func = func
        self.name = func.__name__

    @property
    def func(self) -> Callable:
        """What is called; one that a file names and this program lacks is an `UnknownFunction`."""
        return self._func

    @func.setter
    def func(self, func: Callable) -> None:
        if not callable(func):
            raise TypeError(f"a CallFunction calls a function, got {func!r}")
        self._func = func

    def _saved(self) -> dict[str, Any]:
        return {**super()._saved(), "_func": FunctionName.of(self._func)}

    @classmethod
    def _restored(cls, saved: dict[str, Any], args: Any, kwargs: Any) -> Expr:
        func = saved["_func"]
        if isinstance(func, FunctionName):
            func = func.find()
        return super()._restored({**saved, "_func": func}, args, kwargs)

    @classmethod
    def make(cls, *args: Any, **kwargs: Any) -> CallFunction:
        """A call without arguments yet."""
        return cls(*args, **kwargs)

    def _parameters(self) -> inspect.Signature | None:
        try:
            return inspect.signature(original_of(self.func))
        except ValueError:
            return None

    def compute(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        return self.func(*args, **kwargs)

    def _called(self, spec: str) -> str:
        module = (getattr(self.func, "__module__", None) or "").rpartition(".")[2]
        return f"{module}.{self.func.__name__}({self._arguments(self.args, spec)})"


class Apply(Expr):
    """A raw operator applied: ``apply(opdef, *inputs)``, whose results are a list."""

    opdef: builtin.OpDef | None = None
    _own = (*Expr._own, "opdef")

    def __init__(self, opdef: builtin.OpDef) -> None:
        super().__init__()
        self.opdef = opdef
        self.name = type(opdef).__name__.lower()

    @classmethod
    def make(cls, *args: Any, **kwargs: Any) -> Apply:
        """An application without inputs yet."""
        return cls(*args, **kwargs)

    def compute(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        return builtin.apply(self.opdef, *args)

    def _called(self, spec: str) -> str:
        return f"{self.opdef}({self._arguments(self.args, spec)})"


class Constant(Expr):
    """A tensor or module that the program holds outside of the traced module."""

    value: Any = None
    _own = (*Expr._own, "value")

    def __init__(self, c: Any, name: str = "", qualname: str = "") -> None:
        super().__init__()
        self.value = c
        kind = ModuleNode if isinstance(c, Module) else TensorNode
        self.name = name or f"const_{type(c).__name__.lower()}"
        self.return_val = kind(self, self.name, qualname)
        if kind is TensorNode:
            self.outputs[0]._describe(c)

    @classmethod
    def make(cls, *args: Any, **kwargs: Any) -> Node:
        """The node of the constant."""
        return cls(*args, **kwargs).outputs[0]

    def compute(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        return self.value

    def _module_made(self) -> Module:
        return self.value

    def _called(self, spec: str) -> str:
        return f"Constant({type(self.value)})"


# -- questions -----------------------------------------------------------------------------------


def is_call_module(expr: Expr, module_cls: type[Module] | None = None) -> bool:
    """Whether ``expr`` calls a module, of class ``module_cls`` if given."""
    if not (isinstance(expr, CallMethod) and expr._is_module_call):
        return False
    return module_cls is None or isinstance(expr.args[0].owner, module_cls)


def is_call_tensor_method(expr: Expr, method: str | Sequence[str] | None = None) -> bool:
    """Whether ``expr`` calls a method or operator of a tensor, one of ``method`` if given."""
    if not isinstance(expr, CallMethod) or expr._is_module_call:
        return False
    return method is None or expr.method in ((method,) if isinstance(method, str) else method)


def is_call_function(expr: Expr, func: Callable | Sequence[Callable] | None = None) -> bool:
    """Whether ``expr`` calls a function, one of ``func`` if given."""
    if not isinstance(expr, CallFunction):
        return False
    return func is None or expr.func in ((func,) if callable(func) else func)


def is_constant(expr: Expr) -> bool:
    """Whether ``expr`` is a Constant."""
    return isinstance(expr, Constant)


def is_getattr(expr: Expr) -> bool:
    """Whether ``expr`` reads an attribute."""
    return isinstance(expr, GetAttr)


def is_apply_def(expr: Expr, opdef: Any = None) -> bool:
    """Whether ``expr`` applies an operator, one of the class or classes ``opdef`` if given."""
    return isinstance(expr, Apply) and (opdef is None or isinstance(expr.opdef, opdef))


def is_input(expr: Expr) -> bool:
    """Whether ``expr`` is an input of its graph."""
    return isinstance(expr, Input)
