"""What is seen of a running program: calls of modules, of functions and of tensors' methods.

While somebody records (`recording`), ``Module.__call__``, the methods of Tensor and the functions of
megengine.functional ask the recorder of their thread. Nothing of this is there while nobody records.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from typing import Any, cast

from .._graph.redirect import Interception
from ..core import op_objects
from ..functional._recorded import recorded_functions
from ..module import Module, Sequential
from ..module.qat import QATModule
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
USER_REGISTERED_MODULE: list[type[Module]] = []
_BUILTIN_PACKAGES = ("megengine.module.", "megengine.quantization.")


def is_builtin(module: Module) -> bool:
    """Whether calls of ``module`` are one expr: exactly a class of megengine, or a registered one."""
    kind = type(module)
    if kind in USER_REGISTERED_MODULE:
        return True
    return kind.__module__.startswith(_BUILTIN_PACKAGES) and kind not in (Sequential, Module)


def writes_in_place(method: str) -> bool:
    """Whether the Tensor method ``method`` changes its tensor."""
    return method in _WRITES


def get_tensor_wrapable_method() -> list[str]:
    """Names of the methods of Tensor whose calls are recorded."""
    return BUILTIN_TENSOR_WRAP_METHOD + BUILTIN_ARRAY_METHOD


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


def _functions() -> Iterator[types.FunctionType]:
    yield from recorded_functions()
    for name in _RANDOM_METHODS:
        yield getattr(RNG, name)
    yield cast(types.FunctionType, op_objects.apply)
    yield cast(types.FunctionType, QATModule._apply_fakequant_with_observer)


def see_calls_of(function: types.FunctionType) -> None:
    """Record calls of ``function`` as one expr, whatever it does."""
    USER_REGISTERED_FUNCTION.append(function)
    _interception.add(function)


# -- methods -------------------------------------------------------------------------------------


def _method(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    return _interception.told(
        original, lambda recorder, self, *args, **kwargs: recorder.call_method(name, (self, *args), kwargs, original)
    )


def _setattr(recorder: Any, self: Module, name: str, value: Any) -> None:
    recorder.check_rebinding(self, name, value)
    _MODULE_SETATTR(self, name, value)


def _set_name(recorder: Any, self: Tensor, name: str) -> None:
    _NAME.fset(self, name)
    recorder.name_node(self, name)


_TENSOR_ITER = Tensor.__iter__
_MODULE_CALL = Module.__call__
_MODULE_SETATTR = Module.__setattr__
_SHAPE: Any = Tensor.shape  # properties, which type checkers do not tell from their getters
_NAME: Any = Tensor.name


def _attributes() -> list[tuple[type, str, Any]]:
    """(class, attribute, what stands there while somebody records)."""
    told = _interception.told
    shape = told(_SHAPE.fget, lambda recorder, self: recorder.shape_of(self, _SHAPE.fget(self)))
    return [
        *((Tensor, name, _method(name, getattr(Tensor, name))) for name in sorted(TENSOR_METHODS) if hasattr(Tensor, name)),
        (Tensor, "__iter__", told(_TENSOR_ITER, lambda recorder, self: iter([self[i] for i in range(len(self))]))),
        (Tensor, "__init__", told(
            lambda self, *args, **kwargs: None,
            lambda recorder, self, data, *args, **kwargs: recorder.made_from(self, data, args, kwargs),
        )),
        (Tensor, "shape", property(shape)),
        (Tensor, "name", property(_NAME.fget, told(_NAME.fset, _set_name))),
        (Tensor, "T", property(lambda self: self.transpose())),
        (Module, "__call__", told(_MODULE_CALL, lambda recorder, self, *args, **kwargs: recorder.call_module(self, args, kwargs))),
        (Module, "__setattr__", told(_MODULE_SETATTR, _setattr)),
    ]  # fmt: skip


_interception = Interception(
    _functions(),
    lambda recorder, fn, original, args, kwargs: recorder.call_function(fn, original, args, kwargs),
    _attributes,
)
active_module_tracer = _interception.current
set_active_module_tracer = _interception.set_current
active = _interception.active
recording = _interception.tracing
