"""What is seen of a running program: calls of modules, of functions and of tensors' methods.

While somebody records (`recording`), ``Module.__call__``, the methods of Tensor and the functions of
megengine.functional ask the recorder of their thread. Nothing of this is there while nobody records.
"""

from __future__ import annotations

import contextlib
import threading
import types
from collections.abc import Callable, Iterator
from typing import Any, cast

from .. import functional
from .._graph.redirect import Exchange, Redirection
from ..core.ops import builtin
from ..module import Module
from ..random import RNG
from ..tensor import Tensor

_BINARY = (
    "add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "lshift", "rshift", "and",
    "or", "xor",
)  # fmt: skip
OPERATORS = [
    *(f"__{side}{name}__" for name in _BINARY for side in ("", "r", "i")),
    *(f"__{name}__" for name in ("lt", "le", "eq", "ne", "gt", "ge", "neg", "pos", "abs", "invert")),
    "__round__", "__floor__", "__ceil__", "__trunc__", "__getitem__", "__setitem__",
]  # fmt: skip
BUILTIN_ARRAY_METHOD = [
    *OPERATORS, "astype", "reshape", "transpose", "flatten", "sum", "prod", "min", "max", "mean", "var",
]  # fmt: skip
BUILTIN_TENSOR_WRAP_METHOD = ["to", "detach", "set_value", "reset_zero", "_reset"]
TENSOR_METHODS = {*BUILTIN_ARRAY_METHOD, *BUILTIN_TENSOR_WRAP_METHOD}
_WRITES = {"__setitem__", "set_value", "reset_zero", "_reset", *(f"__i{n}__" for n in _BINARY)}
_RANDOM_METHODS = (
    "uniform", "normal", "gamma", "beta", "poisson", "exponential", "multinomial", "permutation",
)  # fmt: skip

USER_REGISTERED_FUNCTION: list[Callable[..., Any]] = []

_thread = threading.local()


def writes_in_place(method: str) -> bool:
    """Whether the Tensor method ``method`` changes its tensor."""
    return method in _WRITES


def get_tensor_wrapable_method() -> list[str]:
    """Names of the methods of Tensor whose calls are recorded."""
    return BUILTIN_TENSOR_WRAP_METHOD + BUILTIN_ARRAY_METHOD


def active_module_tracer() -> Any:
    """The recorder of this thread that calls are told to, or None."""
    return getattr(_thread, "recorder", None)


def set_active_module_tracer(tracer: Any) -> None:
    """Make ``tracer`` the recorder of this thread; None for nobody."""
    _thread.recorder = tracer


@contextlib.contextmanager
def active(recorder: Any) -> Iterator[None]:
    """``recorder`` is told of calls inside; with None, nobody is."""
    before = active_module_tracer()
    _thread.recorder = recorder
    try:
        yield
    finally:
        _thread.recorder = before


def inserting(what: str) -> Any:
    """The recorder that inserts into a graph. AttributeError outside of ``insert_exprs``."""
    recorder = active_module_tracer()
    if recorder is None or not recorder.inserts:
        raise AttributeError(
            f"{what}: nodes compute only while exprs are inserted\n"
            "  fix: write it under `with graph.insert_exprs():`"
        )
    return recorder


# -- functions -----------------------------------------------------------------------------------


def _seen_function(
    fn: Callable[..., Any],
    original: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    recorder = active_module_tracer()
    if recorder is None:
        return original(*args, **kwargs)
    return recorder.call_function(fn, original, args, kwargs)


def _functions() -> Iterator[types.FunctionType]:
    for module in (functional, *functional._modules):
        for name, found in vars(module).items():
            if isinstance(found, types.FunctionType) and not name.startswith("_"):
                if found.__module__.startswith("megengine.functional"):
                    yield found
    for name in _RANDOM_METHODS:
        yield getattr(RNG, name)
    yield cast(types.FunctionType, builtin.apply)


_redirection = Redirection(_functions(), _seen_function)


def see_calls_of(function: types.FunctionType) -> None:
    """Record calls of ``function`` as one expr, whatever it does."""
    USER_REGISTERED_FUNCTION.append(function)
    _redirection.add(function)


# -- methods -------------------------------------------------------------------------------------


def _seen_method(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        recorder = active_module_tracer()
        if recorder is None:
            return original(self, *args, **kwargs)
        return recorder.call_method(name, (self, *args), kwargs, original)

    method.__name__ = name
    return method


def _seen_iteration(self: Tensor) -> Iterator[Tensor]:
    if active_module_tracer() is None:
        return _TENSOR_ITER(self)
    return iter([self[i] for i in range(len(self))])


def _seen_init(self: Tensor, data: Any, *args: Any, **kwargs: Any) -> None:
    recorder = active_module_tracer()
    if recorder is not None:
        recorder.made_from(self, data, args, kwargs)


def _seen_call(self: Module, *args: Any, **kwargs: Any) -> Any:
    recorder = active_module_tracer()
    if recorder is None:
        return _MODULE_CALL(self, *args, **kwargs)
    return recorder.call_module(self, args, kwargs)


def _seen_setattr(self: Module, name: str, value: Any) -> None:
    recorder = active_module_tracer()
    if recorder is not None:
        recorder.check_rebinding(self, name, value)
    _MODULE_SETATTR(self, name, value)


def _seen_shape(self: Tensor) -> Any:
    recorder = active_module_tracer()
    shape = _SHAPE.fget(self)
    return shape if recorder is None else recorder.shape_of(self, shape)


def _seen_name(self: Tensor, name: str) -> None:
    recorder = active_module_tracer()
    _NAME.fset(self, name)
    if recorder is not None:
        recorder.name_node(self, name)


_TENSOR_ITER = Tensor.__iter__
_MODULE_CALL = Module.__call__
_MODULE_SETATTR = Module.__setattr__
_SHAPE: Any = Tensor.shape  # properties, which type checkers do not tell from their getters
_NAME: Any = Tensor.name


def _attributes() -> list[tuple[type, str, Any]]:
    """(class, attribute, what stands there while somebody records)."""
    found = [
        (Tensor, name, _seen_method(name, getattr(Tensor, name)))
        for name in sorted(TENSOR_METHODS)
        if hasattr(Tensor, name)
    ]
    return [
        *found,
        (Tensor, "__iter__", _seen_iteration),
        (Tensor, "__init__", _seen_init),
        (Tensor, "shape", property(_seen_shape)),
        (Tensor, "name", property(_NAME.fget, _seen_name)),
        (Tensor, "T", property(lambda self: self.transpose())),
        (Module, "__call__", _seen_call),
        (Module, "__setattr__", _seen_setattr),
    ]


_exchange = Exchange(_attributes)


@contextlib.contextmanager
def recording(recorder: Any) -> Iterator[None]:
    """``recorder`` is told what this thread calls."""
    with _redirection, _exchange, active(recorder):
        yield
