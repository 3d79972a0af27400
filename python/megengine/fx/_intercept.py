"""Tells the tracer of this thread about functions of tensors, functions given to `wrap`, calls of
modules, reads
of their tensors, and operators with a Tensor on the left."""

from __future__ import annotations

import builtins
import functools
import sys
import threading
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from .._files import admitted
from .._graph.tree import leaves
from ..core._origin import users_line
from ..module import Module
from ..tensor import Tensor
from ._watch import (
    ARITHMETIC,
    COMPARISONS,
    MODULE_CALL,
    RANDOM_METHODS,
    RECORDED,
    Watcher,
    current,
    see_calls_of,
    watching,
)
from .proxy import Proxy, TraceError

_Function = TypeVar("_Function", bound=Callable[..., Any])
_wrapped_names = admitted.registered_globals  # (globals, name) given to wrap
_OPERATORS = frozenset(f"__{name}__" for name in (*ARITHMETIC, *COMPARISONS))


class _Watching(Watcher):
    """Tells a `Tracer` about calls that proxies take part in."""

    functions: set[Callable[..., Any]] = {*RECORDED, *RANDOM_METHODS}
    # functions whose calls are recorded even without proxies
    makers: set[Callable[..., Any]] = set()

    def __init__(self, tracer: Any) -> None:
        self._tracer = tracer

    def call_function(self, fn: Callable[..., Any], original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if fn in RANDOM_METHODS:  # recorded in any case: each run draws numbers of its own
            drawn = getattr(args[0], fn.__name__)
            return self._tracer.create_proxy("call_function", drawn, args[1:], kwargs)
        if fn in self.makers or any(isinstance(leaf, Proxy) for leaf in leaves((args, kwargs))):
            return self._tracer.create_proxy("call_function", fn, args, kwargs)
        return original(*args, **kwargs)

    def call_method(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], original: Callable[..., Any]) -> Any:
        if name in _OPERATORS and isinstance(args[1], Proxy):
            return NotImplemented
        return original(*args, **kwargs)

    def call_module(self, module: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self._tracer.call_module(module, functools.partial(MODULE_CALL, module), args, kwargs)

    def read(self, module: Module, name: str, tensor: Tensor) -> Any:
        return self._tracer.getattr(name, tensor)

    def write(self, module: Module, name: str, value: Any) -> None:
        if not isinstance(value, Proxy):
            return super().write(module, name, value)
        former = vars(module).get(name)
        if isinstance(former, Tensor) and value.tracer.is_write_into(value, former):
            return None  # ``self.x += 1`` ends with assigning the same tensor
        raise TraceError(
            f"forward assigns {value.node.describe()} to {type(module).__name__}.{name}, which a graph cannot do\n"
            f"  fix: write into a tensor: self.{name}[...] = value\n"
            f"  at:  {users_line()}"
        )


def wrap(fn_or_name: str | Callable[..., Any]) -> Any:
    """Records calls of a function as one node, instead of tracing into it.

    Call it at the top level of a module; for a function it serves as a decorator.

    Parameters
    ----------
    fn_or_name : callable or str
        A Python function, or the name of a global of the calling module, such as "len".

    Returns
    -------
    callable or str
        The function or name that was given.

    Raises
    ------
    RuntimeError
        Inside a function.
    ValueError
        For an object that is neither.

    Examples
    --------
    >>> from megengine import fx
    >>> @fx.wrap
    ... def twice(x):
    ...     return x + x
    >>> print(fx.symbolic_trace(lambda x: twice(x)).graph)
    graph():
        %x : [#users=1] = placeholder[target=x]
        %twice : [#users=1] = call_function[target=megengine.fx._intercept.twice](args = (%x,), kwargs = {})
        return twice
    """
    if isinstance(fn_or_name, types.FunctionType):
        see_calls_of(fn_or_name)
        _Watching.functions.add(fn_or_name)
        admitted.register(fn_or_name)
        return fn_or_name
    caller = sys._getframe(1)
    name = fn_or_name if isinstance(fn_or_name, str) else getattr(fn_or_name, "__name__", None)
    if not isinstance(name, str) or not (isinstance(fn_or_name, str) or callable(fn_or_name)):
        raise ValueError(f"wrap takes a function or the name of one, got {fn_or_name!r}")
    if caller.f_code.co_name != "<module>":
        raise RuntimeError(f"wrap({name!r}) must be called at the top level of a module")
    _wrapped_names.append((caller.f_globals, name))
    return fn_or_name


def wrap_maker(fn: _Function) -> _Function:
    """Wraps a function whose result each run of a graph makes anew, even from numbers; see `wrap`.
    """
    _Watching.makers.add(fn)
    wrapped: _Function = wrap(fn)
    return wrapped


def _named_dispatch(fn: Callable[..., Any]) -> Callable[..., Any]:
    def dispatch(*args: Any, **kwargs: Any) -> Any:
        watcher = current()
        return watcher.call_function(fn, fn, args, kwargs) if isinstance(watcher, _Watching) else fn(*args, **kwargs)

    return dispatch


_names_lock = threading.Lock()
_names_tracing = 0  # number of tracers at work in all threads
_names_saved: dict[tuple[int, str], tuple[dict[str, Any], Any]] = {}  # (id of the globals, name) -> (globals, what stood there)
_NOTHING = object()


@contextmanager
def _names_dispatched() -> Iterator[None]:
    """Exchanges globals that were given to `wrap` by name in their modules, until the last tracer
    has ended.
    """
    global _names_tracing
    with _names_lock:
        _names_tracing += 1
        for namespace, name in _wrapped_names:
            fn = namespace.get(name, getattr(builtins, name, None))
            if callable(fn) and (id(namespace), name) not in _names_saved:
                _names_saved[id(namespace), name] = (namespace, namespace.get(name, _NOTHING))
                namespace[name] = _named_dispatch(fn)
    try:
        yield
    finally:
        with _names_lock:
            _names_tracing -= 1
            while not _names_tracing and _names_saved:
                (_, name), (namespace, former) = _names_saved.popitem()
                if former is _NOTHING:
                    del namespace[name]
                else:
                    namespace[name] = former


@contextmanager
def tracing(tracer: Any) -> Iterator[None]:
    """Tells ``tracer`` about calls and reads in this thread, inside a with-block."""
    with _names_dispatched(), watching(_Watching(tracer)):
        yield
