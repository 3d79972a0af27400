"""What is seen of a running program: calls of modules, of functions and of tensors' methods.

While somebody records (`recording`), ``Module.__call__``, the methods of Tensor and the functions of
megengine.functional ask the recorder of their thread. A function is changed by its ``__code__``, so that it
is seen under whatever name a program holds it. Nothing of this is there while nobody records.
"""

from __future__ import annotations

import contextlib
import importlib
import threading
import types
from collections.abc import Callable, Iterator
from typing import Any

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
_FUNCTION_MODULES = (
    "functional", "functional.elemwise", "functional.math", "functional.nn", "functional.tensor",
    "functional.loss", "functional.vision", "functional.metric", "functional.external",
    "functional.inplace", "functional.distributed", "functional.quantized",
)  # fmt: skip
_RANDOM_METHODS = (
    "uniform", "normal", "gamma", "beta", "poisson", "exponential", "multinomial", "permutation",
)  # fmt: skip

USER_REGISTERED_FUNCTION: list[Callable] = []

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


def _stub(*args, **kwargs):
    dispatch = "dispatch"
    return dispatch("function", args, kwargs)


class _Function:
    """A function whose calls are seen while it is ``patched``."""

    def __init__(self, function: Callable) -> None:
        self.function = function
        self.code = function.__code__
        self.original = types.FunctionType(
            self.code, function.__globals__, function.__name__, function.__defaults__,
            function.__closure__,
        )  # fmt: skip
        self.original.__kwdefaults__ = function.__kwdefaults__
        constants = {"dispatch": self.call, "function": None}
        self.stub = _stub.__code__.replace(
            co_consts=tuple(
                constants.get(c, c) if isinstance(c, str) else c for c in _stub.__code__.co_consts
            ),
            co_freevars=self.code.co_freevars,
            co_name=self.code.co_name,
        )

    def call(self, _: None, args: tuple, kwargs: dict) -> Any:
        recorder = active_module_tracer()
        if recorder is None:
            return self.original(*args, **kwargs)
        return recorder.call_function(self.function, self.original, args, kwargs)


def original_of(function: Callable) -> Callable:
    """``function`` as it is when nobody records."""
    found = _functions.get(function)
    return found.original if found is not None else function


_functions: dict[Callable, _Function] = {}


def _collect_functions() -> None:
    """Find the public functions; the list is made once, user's functions join it."""
    if not _functions:
        for name in _FUNCTION_MODULES:
            try:
                module = importlib.import_module(f"megengine.{name}")
            except ModuleNotFoundError:
                continue
            for key, found in vars(module).items():
                if isinstance(found, types.FunctionType) and not key.startswith("_"):
                    if found.__module__.startswith("megengine.functional"):
                        _functions.setdefault(found, _Function(found))
        _functions[builtin.apply] = _Function(builtin.apply)
        for key in _RANDOM_METHODS:
            _functions[getattr(RNG, key)] = _Function(getattr(RNG, key))
    for function in USER_REGISTERED_FUNCTION:
        if function not in _functions:
            _functions[function] = _Function(function)


# -- methods -------------------------------------------------------------------------------------


def _seen_method(name: str, original: Callable) -> Callable:
    def method(self, *args, **kwargs):
        recorder = active_module_tracer()
        if recorder is None:
            return original(self, *args, **kwargs)
        return recorder.call_method(name, (self, *args), kwargs, original)

    method.__name__ = name
    return method


def _seen_iteration(self):
    if active_module_tracer() is None:
        return _TENSOR_ITER(self)
    return iter([self[i] for i in range(len(self))])


def _seen_init(self, data, *args, **kwargs):
    recorder = active_module_tracer()
    if recorder is not None:
        recorder.made_from(self, data, args, kwargs)


def _seen_call(self, *args, **kwargs):
    recorder = active_module_tracer()
    if recorder is None:
        return _MODULE_CALL(self, *args, **kwargs)
    return recorder.call_module(self, args, kwargs)


def _seen_setattr(self, name, value):
    recorder = active_module_tracer()
    if recorder is not None:
        recorder.check_rebinding(self, name, value)
    _MODULE_SETATTR(self, name, value)


def _seen_shape(self):
    recorder = active_module_tracer()
    shape = _SHAPE.fget(self)
    return shape if recorder is None else recorder.shape_of(self, shape)


def _seen_name(self, name):
    recorder = active_module_tracer()
    _NAME.fset(self, name)
    if recorder is not None:
        recorder.name_node(self, name)


_TENSOR_ITER = Tensor.__iter__
_MODULE_CALL = Module.__call__
_MODULE_SETATTR = Module.__setattr__
_SHAPE = Tensor.shape
_NAME = Tensor.name


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


class _Patches:
    """Puts the seeing versions in place for as long as at least one recorder is at work."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._depth = 0
        self._before: list[tuple[type, str, Any]] = []

    def __enter__(self) -> None:
        with self._lock:
            self._depth += 1
            if self._depth == 1:
                self._place()

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._depth -= 1
            if self._depth == 0:
                self._restore()

    def _place(self) -> None:
        _collect_functions()
        for found in _functions.values():
            found.function.__code__ = found.stub
        for cls, name, seen in _attributes():
            self._before.append((cls, name, cls.__dict__.get(name)))
            setattr(cls, name, seen)

    def _restore(self) -> None:
        for found in _functions.values():
            found.function.__code__ = found.code
        for cls, name, own in self._before:
            if own is None:
                delattr(cls, name)
            else:
                setattr(cls, name, own)
        self._before.clear()


_patches = _Patches()


@contextlib.contextmanager
def recording(recorder: Any) -> Iterator[None]:
    """``recorder`` is told what this thread calls."""
    with _patches, active(recorder):
        yield
