"""Watches a running program: calls of functions, modules and tensors' methods, and attributes of
modules.

While a `Watcher` is at work (`watching`), classes and functions ask the watcher of their thread. Nothing of this is there while
nobody watches. What is called is patched here and nowhere else, for `fx` and for `traced_module`.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Collection, Iterator
from typing import Any, cast

from .. import functional
from .._graph.redirect import Interception
from ..core import op_objects
from ..module import Module
from ..module.qat import QATModule
from ..random import RNG
from ..tensor import Tensor

ARITHMETIC = (
    "add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "lshift", "rshift", "and",
    "or", "xor",
)  # fmt: skip
COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")
OPERATORS = [
    *(f"__{side}{name}__" for name in ARITHMETIC for side in ("", "r", "i")),
    *(f"__{name}__" for name in (*COMPARISONS, "neg", "pos", "abs", "invert")),
    "__round__", "__floor__", "__ceil__", "__trunc__", "__getitem__", "__setitem__",
]  # fmt: skip
ARRAY_METHODS = ["astype", "reshape", "transpose", "flatten", "sum", "prod", "min", "max", "mean", "var"]
OTHER_METHODS = ["to", "detach", "set_value", "reset_zero", "_reset"]
WRITING_METHODS = {"__setitem__", "set_value", "reset_zero", "_reset", *(f"__i{name}__" for name in ARITHMETIC)}
RANDOM_METHODS = frozenset(
    vars(RNG)[name]
    for name in ("uniform", "normal", "gamma", "beta", "poisson", "exponential", "multinomial", "permutation", "shuffle")
)
RECORDED = frozenset(  # the public functions of `megengine.functional` and of its modules
    found
    for module in (functional, functional.debug_param, functional.fft, functional.linalg, functional.loss, functional.metric, functional.nn, functional.vision)
    for name, found in vars(module).items()
    if isinstance(found, types.FunctionType) and not name.startswith("_") and found.__module__.startswith(functional.__name__)
)
APPLY = cast(types.FunctionType, op_objects.apply)
FAKE_QUANTIZE = cast(types.FunctionType, QATModule._apply_fakequant_with_observer)

MODULE_CALL = Module.__call__
_MODULE_SETATTR = Module.__setattr__
_TENSOR_ITER = Tensor.__iter__
_SHAPE: Any = Tensor.shape  # properties, which type checkers do not tell from their getters
_NAME: Any = Tensor.name


class Watcher:
    """Learns what its thread does; its methods do what the program does by itself unless a subclass
    overrides them.

    functions: the functions whose calls it watches.
    """

    functions: Collection[Callable[..., Any]] = frozenset()

    def call_function(self, fn: Callable[..., Any], original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Handles a call of one of ``functions``; ``original`` is the function without the watcher.
        """
        return original(*args, **kwargs)

    def call_method(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], original: Callable[..., Any]) -> Any:
        """Handles a method or operator of a tensor, ``args[0]``."""
        return original(*args, **kwargs)

    def call_module(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Handles a call of a module."""
        return MODULE_CALL(module, *args, **kwargs)

    def items(self, tensor: Tensor) -> Iterator[Any]:
        """Handles a loop over a tensor."""
        return _TENSOR_ITER(tensor)

    def shape_of(self, tensor: Tensor, shape: Any) -> Any:
        """Handles a read of ``tensor.shape``, which is ``shape``."""
        return shape

    def value_of(self, tensor: Tensor) -> None:
        """Learns that the program reads the value of a tensor."""

    def made_from(self, result: Tensor, data: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Learns of ``result = Tensor(data, ...)``."""

    def named(self, tensor: Tensor, name: str) -> None:
        """Learns that a tensor has got a name."""

    def read(self, module: Module, name: str, tensor: Tensor) -> Any:
        """Handles a read of ``module.name``, which is ``tensor``."""
        return tensor

    def write(self, module: Module, name: str, value: Any) -> None:
        """Handles ``module.name = value``."""
        _MODULE_SETATTR(module, name, value)


def _called(watcher: Watcher, fn: Any, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if fn not in watcher.functions:
        return original(*args, **kwargs)
    return watcher.call_function(fn, original, args, kwargs)


@functools.cache
def _method(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    return _interception.told(
        original, lambda watcher, self, *args, **kwargs: watcher.call_method(name, (self, *args), kwargs, original)
    )


def _getattribute(self: Module, name: str) -> Any:
    value = object.__getattribute__(self, name)
    if isinstance(value, Tensor):
        watcher = current()
        if watcher is not None:
            return watcher.read(self, name, value)
    return value


@functools.cache
def _reading(original: Callable[..., Any]) -> Callable[..., Any]:
    def read(watcher: Watcher, self: Tensor, *args: Any) -> Any:
        watcher.value_of(self)
        return original(self, *args)

    return _interception.told(original, read)


def _set_name(watcher: Watcher, self: Tensor, name: str) -> None:
    _NAME.fset(self, name)
    watcher.named(self, name)


def _attributes() -> Iterator[tuple[type, str, Any]]:
    """Iterates over (class, attribute, the value that replaces it while a watcher is at work)."""
    for name in sorted({*OPERATORS, *ARRAY_METHODS, *OTHER_METHODS}):
        if hasattr(Tensor, name):
            yield Tensor, name, _method(name, getattr(Tensor, name))
    yield from _others()


@functools.cache  # kept, as those of `_method`: making them takes longer than installing them
def _others() -> list[tuple[type, str, Any]]:
    return list(_each_other())


def _each_other() -> Iterator[tuple[type, str, Any]]:
    told = _interception.told
    yield Tensor, "__iter__", told(_TENSOR_ITER, lambda watcher, self: watcher.items(self))
    yield Tensor, "__init__", told(
        lambda self, *args, **kwargs: None,
        lambda watcher, self, data, *args, **kwargs: watcher.made_from(self, data, args, kwargs),
    )
    yield Tensor, "shape", property(told(_SHAPE.fget, lambda watcher, self: watcher.shape_of(self, _SHAPE.fget(self))))
    for name in ("item", "numpy", "tolist"):
        yield Tensor, name, _reading(getattr(Tensor, name))
    yield Tensor, "name", property(_NAME.fget, told(_NAME.fset, _set_name))
    yield Tensor, "T", property(lambda self: self.transpose())
    yield Module, "__call__", told(MODULE_CALL, lambda watcher, self, *args, **kwargs: watcher.call_module(self, args, kwargs))
    yield Module, "__getattribute__", _getattribute
    yield Module, "__setattr__", told(_MODULE_SETATTR, lambda watcher, self, name, value: watcher.write(self, name, value))


_interception = Interception([*RECORDED, *RANDOM_METHODS, APPLY, FAKE_QUANTIZE], _called, _attributes)
current = _interception.current
set_current = _interception.set_current
active = _interception.active
watching = _interception.tracing
see_calls_of = _interception.add
