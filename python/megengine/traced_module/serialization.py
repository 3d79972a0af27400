"""Loading what older releases saved: functions that rewrite exprs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..core._registry import enters
from ..module import Module
from ..version import __version__
from .expr import Apply, CallFunction, CallMethod, Expr
from .function_names import FunctionName

if TYPE_CHECKING:
    from .internal_graph import InternalGraph

Loader = Callable[[Expr], None]

OPDEF_LOADER: dict[str, Loader] = {}
FUNCTIONAL_LOADER: dict[tuple[str, str], Loader] = {}
TENSORMETHOD_LOADER: dict[str, Loader] = {}
MODULE_LOADER: dict[str, Loader] = {}


def register_opdef_loader(*opdefs: type) -> Callable[[Loader], Loader]:
    """Decorator of a loader of applications of the operators ``opdefs``."""

    return enters(OPDEF_LOADER, [opdef.__name__ for opdef in opdefs])


def register_functional_loader(*funcs: Any) -> Callable[[Loader], Loader]:
    """Decorator of a loader of calls of ``funcs``: functions, or pairs (module, name) of lost ones."""

    return enters(FUNCTIONAL_LOADER, [func if isinstance(func, tuple) else FunctionName.of(func) for func in funcs])


def register_tensor_method_loader(*methods: str) -> Callable[[Loader], Loader]:
    """Decorator of a loader of calls of the tensor methods ``methods``."""

    return enters(TENSORMETHOD_LOADER, methods)


def _class_name(cls: type[Module]) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def register_module_loader(*module_types: type[Module]) -> Callable[[Loader], Loader]:
    """Decorator of a loader of calls of modules of exactly these types."""

    return enters(MODULE_LOADER, [_class_name(cls) for cls in module_types])


def _leave(expr: Expr) -> None:
    """Leaves an expr without a loader unchanged."""


def load_functional(expr: CallFunction) -> None:
    """Run the loader of the function that ``expr`` calls, if there is one."""
    FUNCTIONAL_LOADER.get(FunctionName.of(expr.func), _leave)(expr)


def load_call_module_expr(expr: CallMethod) -> None:
    """Run the loader of the module that ``expr`` calls, if there is one."""
    MODULE_LOADER.get(_class_name(expr.args[0].module_type), _leave)(expr)


def load_call_tensor_method_expr(expr: CallMethod) -> None:
    """Run the loader of the method that ``expr`` calls, if there is one."""
    TENSORMETHOD_LOADER.get(expr.method, _leave)(expr)


def load_apply_expr(expr: Apply) -> None:
    """Run the loader of the operator that ``expr`` applies, if there is one."""
    OPDEF_LOADER.get(type(expr.opdef).__name__, _leave)(expr)


_LOADS: dict[str, Callable[[Any], None]] = {
    "apply": load_apply_expr, "call_function": load_functional, "call_method": load_call_tensor_method_expr,
    "call_module": load_call_module_expr,
}  # fmt: skip


def upgrade(graph: InternalGraph, version: str) -> None:
    """Let loaders rewrite the exprs of a graph that release ``version`` saved; ``expr.version`` tells them."""
    if version == __version__:
        return
    for expr in graph:
        expr.version = version
        _LOADS.get(expr.op, _leave)(expr)
