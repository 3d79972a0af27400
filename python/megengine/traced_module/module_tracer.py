"""The calls of a running program that traced modules record, and the modules that are one expr;
`fx._watch` reports them.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

from ..fx import _watch
from ..module import Module, Sequential

BUILTIN_ARRAY_METHOD = [*_watch.OPERATORS, *_watch.ARRAY_METHODS]
BUILTIN_TENSOR_WRAP_METHOD = _watch.OTHER_METHODS
TENSOR_METHODS = {*BUILTIN_ARRAY_METHOD, *BUILTIN_TENSOR_WRAP_METHOD}

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
    return method in _watch.WRITING_METHODS


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


FUNCTIONS: set[Callable[..., Any]] = {
    *_watch.RECORDED, *(fn for fn in _watch.RANDOM_METHODS if fn.__name__ != "shuffle"), _watch.APPLY, _watch.FAKE_QUANTIZE,
}  # fmt: skip


def see_calls_of(function: types.FunctionType) -> None:
    """Makes calls of ``function`` one expr."""
    USER_REGISTERED_FUNCTION.append(function)
    FUNCTIONS.add(function)
    _watch.see_calls_of(function)


active_module_tracer = _watch.current
set_active_module_tracer = _watch.set_current
