"""The steps of a traced graph: calls on nodes, and the nodes of their results."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import functional as F
from .._files.container import Damaged
from .._files.graphs import at_path
from .._graph.core import Graph, GraphError
from .._graph.rows import Row
from ..core import op_objects
from ..module import Module
from ..tensor import Tensor
from . import module_tracer
from .base_expr import Expr
from .function_names import FunctionName
from .node import ModuleNode, Node, TensorNode
from .packing import show, unpack
from .pytree import TreeDef, tree_flatten
from .utils import get_subattr

if TYPE_CHECKING:
    from .traced_module import InternalGraph

__all__ = [
    "Apply", "CallFunction", "CallMethod", "Constant", "Expr", "GetAttr", "Input", "is_apply_def",
    "is_call_function", "is_call_module", "is_call_tensor_method", "is_constant", "is_getattr", "is_input",
]  # fmt: skip


def rstrip(s: str, __chars: str) -> str:
    """``s`` without the suffix ``__chars``, as often as it stands there.

    >>> rstrip("conv_out_out", "_out")
    'conv'
    """
    while __chars and s.endswith(__chars):
        s = s[: -len(__chars)]
    return s


def get_suffix_name(prefix: str, name: str) -> str | None:
    """Returns the rest of a dotted name after ``prefix``: "" for the same name, None for a name
    elsewhere.

    >>> get_suffix_name("net.block", "net.block.conv.weight")
    'conv.weight'
    """
    if name == prefix:
        return ""
    return name.removeprefix(f"{prefix}.") if name.startswith(f"{prefix}.") else None


class Input(Expr, kind="placeholder"):
    """An input of the graph: the module itself, or a tensor of the call."""

    def __init__(self, type: type[Node], name: str = "args", qualname: str = "") -> None:  # noqa: A002
        super().__init__(name=name)
        self.return_val = type(self, name, qualname)

    def _module_made(self) -> Module:
        return self.top_graph._module

    def run(self, env: dict[Node, Any]) -> None:
        """Does nothing, as the caller of the graph gives the value."""

    def check_saved(self, what: str) -> None:
        if len(self.outputs) != 1 or self.args or self.kwargs:
            raise Damaged(f"{what} is not an input")

    def _called(self, spec: str) -> str:
        return "Input()"


class GetAttr(Expr, kind="get_attr", target="attr_name"):
    """A tensor or module read from a module by its dotted path."""

    attr_name: Any

    def __init__(
        self,
        module: ModuleNode,
        type: type[Node],
        attr_name: str,
        name: str = "",  # noqa: A002
    ) -> None:
        super().__init__((module,), name=attr_name, target=attr_name)
        self.return_val = type(self, name or attr_name, f"{module.qualname}.{attr_name}")

    @classmethod
    def of(cls, module: ModuleNode, attr_name: str, value: Tensor | Module) -> Any:
        """The node of an expr that reads ``value``."""
        return _described(cls.make(module, _kind_of(value), attr_name), value)

    def compute(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        return get_subattr(args[0], self.attr_name)

    def reached(self) -> Any:
        return get_subattr(self.args[0].owner, self.attr_name)

    _module_made = reached

    def check_saved(self, what: str) -> None:
        if len(self.args) != 1 or not isinstance(self.args[0], ModuleNode):
            raise Damaged(f"{what} reads from no module")
        _check_read(self, at_path(self.args[0].owner, self.attr_name, what), what)

    def check(self) -> None:
        super().check()
        found, kind = self.reached(), Module if isinstance(self.outputs[0], ModuleNode) else Tensor
        if not isinstance(found, kind):
            raise GraphError(f"{self.describe()}: the attribute is of type {type(found).__name__}, not a {kind.__name__}")

    def _called(self, spec: str) -> str:
        try:
            value = self.reached()
        except (AttributeError, LookupError):
            kind = "missing"
        else:
            kind = type(value).__name__ if isinstance(value, Module) else "Tensor"
        return f'getattr({show(self.args[0], spec)}, "{self.attr_name}") -> ({kind})'


class CallMethod(Expr, kind="call_method", target="method"):
    """A module called, or a method or operator of a tensor; the object is the first argument.

    method: ``__call__`` for modules; ``shape`` gives the shape as a Tensor.
    """

    method: Any

    def __init__(self, node: Node, method: str = "__call__") -> None:
        super().__init__((node,), name=method, target=method)

    def set_arguments(self, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        super().set_arguments(args, kwargs)
        self.op = "call_module" if isinstance(next(iter(self._args), None), ModuleNode) else "call_method"

    @property
    def graph(self) -> InternalGraph | None:  # type: ignore[override]  # as programs know it
        """The graph that a traced module runs for this call; None for others."""
        graphs = getattr(self.reached(), "argdef_graph_map", None) if self._is_module_call else None
        return graphs.get(self._signature()) if graphs is not None else None

    @property
    def called(self) -> Graph | None:
        return self.graph.fx_graph if self.graph is not None else None

    def reached(self) -> Any:
        return self.args[0].owner

    def check_saved(self, what: str) -> None:
        if not isinstance(next(iter(self._args), None), Node):
            raise Damaged(f"{what} calls a method of nothing")
        if self._is_module_call and self.method != "__call__":
            raise Damaged(f"{what} calls {self.method!r} of a module")

    def check(self) -> None:
        super().check()
        if not self._is_module_call:
            if not hasattr(Tensor, self.method):
                raise GraphError(f"{self.describe()}: a Tensor has no method {self.method!r}")
        elif hasattr(self.reached(), "argdef_graph_map") and self.called is None:
            raise GraphError(f"{self.describe()}: the module was not traced for such arguments")

    def handed(self) -> list[Any]:
        leaves, _ = tree_flatten(self._canonical_arguments())
        return leaves

    @property
    def _is_module_call(self) -> bool:
        return self.op == "call_module"

    def _arranged(self, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return (tuple(args), kwargs) if self._is_module_call else super()._arranged(args, kwargs)

    def _shown(self) -> tuple[Sequence[Any], dict[str, Any]]:
        return (self.args, self.kwargs) if self._is_module_call else super()._shown()

    def _names_of_outputs(self, qualname: str) -> tuple[str, str]:
        if self._is_module_call:
            return f"{self.args[0].name}_out", f"{self.args[0].qualname}.[out]"
        word = self.method.strip("_")
        return f"{word}_out", f"{qualname}.[method_{word}]"

    def _canonical_arguments(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments as the traced module takes them."""
        owner: Any = self.args[0].owner
        return owner._canonical(unpack(self.args[1:]), unpack(dict(self.kwargs)))

    def _signature(self) -> TreeDef:
        """Returns the key of this call's graph in the traced module."""
        return tree_flatten(self._canonical_arguments())[1]

    def _module_called(self) -> Any:
        return self.reached()

    def _parameters(self) -> inspect.Signature | None:
        if not self._is_module_call:
            return super()._parameters()
        found: inspect.Signature | None = getattr(self.reached(), "argspec", None) or super()._parameters()
        itself = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
        return found and found.replace(parameters=[itself, *found.parameters.values()])

    def compute(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        return run_method(self.method, args, kwargs)

    def _called(self, spec: str) -> str:
        head = show(self.args[0], spec)
        if self.method == "shape":
            return f"{head}.shape"
        head += "" if self.method == "__call__" else f".{self.method}"
        return f"{head}({self._arguments(spec, 1)})"


def _kind_of(value: Tensor | Module) -> type[Node]:
    return ModuleNode if isinstance(value, Module) else TensorNode


def _described(node: Node, value: Any) -> Node:
    """Returns ``node``, which notes the type of ``value`` if that is a tensor."""
    if isinstance(node, TensorNode):
        node._describe(value)
    return node


def _check_read(expr: Expr, value: Any, what: str) -> None:
    """Raises Damaged unless the only value of ``expr`` is a node for ``value``."""
    made = {TensorNode: Tensor, ModuleNode: Module}
    if len(expr.outputs) != 1 or not isinstance(value, made[type(expr.outputs[0])]):
        raise Damaged(f"{what} reads a {type(value).__name__}")


def run_method(method: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Calls a method of ``args[0]`` and returns its result, or the tensor written to if it writes
    in place.
    """
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


class CallFunction(Expr, kind="call_function", target="_func"):
    """A function called."""

    _func: Any

    def __init__(self, func: Callable[..., Any]) -> None:
        super().__init__(name=func.__name__, target=func)

    @property
    def func(self) -> Callable[..., Any]:
        """The function; an `UnknownFunction` if a file names one that this program lacks."""
        return self._func

    @func.setter
    def func(self, func: Callable[..., Any]) -> None:
        if not callable(func):
            raise TypeError(f"a CallFunction calls a function, got {func!r}")
        self._func = func

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_func": FunctionName.of(self._func)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        func = state.get("_func")
        super().__setstate__({**state, "_func": func.find()} if isinstance(func, FunctionName) else state)

    def compute(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        return self.func(*args, **kwargs)

    def _called(self, spec: str) -> str:
        return f"{_home_of(self.func)}.{self.func.__name__}({self._arguments(spec)})"


_HOMES = (F.elemwise, F.math, F.tensor, F.vision, F.nn)


def _home_of(func: Callable[..., Any]) -> str:
    """Returns the name of the module from which programs import a function, which may be another
    than the one that defines it.
    """
    module = (getattr(func, "__module__", None) or "").rpartition(".")[2]
    if not module.startswith("_"):
        return module
    homes = (home.__name__.rpartition(".")[2] for home in _HOMES if vars(home).get(func.__name__) is func)
    return next(homes, module)


class Apply(Expr, kind="apply", target="opdef"):
    """A raw operator applied: ``apply(opdef, *inputs)``, whose results are a list."""

    opdef: Any

    def __init__(self, opdef: op_objects.OpDef) -> None:
        super().__init__(name=type(opdef).__name__.lower(), target=opdef)

    def compute(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        return op_objects.apply(self.opdef, *args)

    def check_saved(self, what: str) -> None:
        if not isinstance(self.opdef, op_objects.OpDef):
            raise Damaged(f"{what} applies no operator")


class Constant(Expr, kind="constant", target="value"):
    """A tensor or module that the program holds outside of the traced module."""

    value: Any

    def __init__(self, c: Any, name: str = "", qualname: str = "") -> None:
        super().__init__(name=name or f"const_{type(c).__name__.lower()}", target=c)
        self.return_val = _described(_kind_of(c)(self, self.name, qualname), c)

    def compute(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        return self.value

    def _module_made(self) -> Module:
        return self.value

    def check_saved(self, what: str) -> None:
        _check_read(self, self.value, what)

    def _called(self, spec: str) -> str:
        return f"Constant({type(self.value)})"


class Output(Expr, kind="output"):
    """The result of the graph; only the graph itself sees this step."""

    def __init__(self, result: Any) -> None:
        super().__init__((result,), name="output", target="output")

    def row(self) -> Row:
        return Row("output", "return", call=self._text())

    def check_saved(self, what: str) -> None:
        if len(self.args) != 1 or self.kwargs:
            raise Damaged(f"{what} is not one tree")

    def describe(self) -> str:
        return f"the result of {self.top_graph.name}" if self.top_graph is not None else "a result"

    def _text(self, spec: str = "") -> str:
        return f"return {show(unpack(self.args[0]), spec)}"


# Op in files -> class.
_KINDS: tuple[type[Expr], ...] = (Input, GetAttr, CallMethod, CallFunction, Apply, Constant, Output)
EXPRS: dict[str, type[Expr]] = {"call_module": CallMethod, **{cls._kind: cls for cls in _KINDS}}


# -- questions -----------------------------------------------------------------------------------


def is_among(thing: object, wanted: object) -> bool:
    """Whether ``thing`` is ``wanted`` or one of them; None stands for all."""
    return wanted is None or thing in (wanted if isinstance(wanted, (list, tuple, set, frozenset)) else (wanted,))


def is_call_module(expr: Expr, module_cls: type[Module] | None = None) -> bool:
    """Whether ``expr`` calls a module, of class ``module_cls`` if given."""
    is_one = isinstance(expr, CallMethod) and expr._is_module_call
    return is_one and (module_cls is None or isinstance(expr.args[0].owner, module_cls))


def is_call_tensor_method(expr: Expr, method: str | Sequence[str] | None = None) -> bool:
    """Whether ``expr`` calls a method or operator of a tensor, one of ``method`` if given."""
    return isinstance(expr, CallMethod) and not expr._is_module_call and is_among(expr.method, method)


def is_call_function(expr: Expr, func: Callable[..., Any] | Sequence[Callable[..., Any]] | None = None) -> bool:
    """Whether ``expr`` calls a function, one of ``func`` if given."""
    return isinstance(expr, CallFunction) and is_among(expr.func, func)


def is_constant(expr: Expr) -> bool:
    """Whether ``expr`` is a Constant."""
    return isinstance(expr, Constant)


def is_getattr(expr: Expr) -> bool:
    """Whether ``expr`` reads an attribute."""
    return isinstance(expr, GetAttr)


def is_apply_def(expr: Expr, opdef: type[op_objects.OpDef] | tuple[type[op_objects.OpDef], ...] | None = None) -> bool:
    """Whether ``expr`` applies an operator, one of the class or classes ``opdef`` if given."""
    return isinstance(expr, Apply) and (opdef is None or isinstance(expr.opdef, opdef))


def is_input(expr: Expr) -> bool:
    """Whether ``expr`` is an input of its graph."""
    return isinstance(expr, Input)
