"""Where calls and reads become known to the tracer of this thread: functions of tensors, functions given to
`wrap`, calls of modules, reads of their tensors, and operators with a Tensor on the left."""

from __future__ import annotations

import builtins
import functools
import sys
import threading
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from .. import random
from .._files import admitted
from .._graph import users_line
from .._graph.redirect import Interception
from .._graph.tree import leaves
from ..functional._recorded import recorded_functions
from ..module import Module
from ..tensor import Tensor
from .proxy import ARITHMETIC, COMPARISONS, Proxy, TraceError

_wrapped_names = admitted.registered_globals  # (globals, name) given to wrap


def _handle(tracer: Any, fn: Callable[..., Any], original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if fn in _random_methods:  # recorded in any case: each run draws numbers of its own
        drawn = getattr(args[0], fn.__name__)
        return tracer.create_proxy("call_function", drawn, args[1:], kwargs)
    if any(isinstance(leaf, Proxy) for leaf in leaves((args, kwargs))):
        return tracer.create_proxy("call_function", fn, args, kwargs)
    return original(*args, **kwargs)


_random_methods = {vars(random.RNG)[name] for name in random.__all__ if name in vars(random.RNG)}
_random_methods.discard(vars(random.RNG)["seed"])


def wrap(fn_or_name: str | Callable[..., Any]) -> Any:
    """Record calls of a function as one node, instead of tracing into it. Call it at the top level of a module.

    fn_or_name: a Python function (`wrap` serves as a decorator), or the name of a global of the calling module, such as
        "len". Returns what it was given. RuntimeError inside a function, ValueError for another thing.

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
        _interception.add(fn_or_name)
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


# -- modules and tensors -----------------------------------------------------------------------------

_module_call = Module.__call__
_module_setattr = Module.__setattr__


def _call(tracer: Any, self: Module, *args: Any, **kwargs: Any) -> Any:
    return tracer.call_module(self, functools.partial(_module_call, self), args, kwargs)


def _getattribute(self: Module, name: str) -> Any:
    value = object.__getattribute__(self, name)
    if isinstance(value, Tensor):
        tracer = _interception.current()
        if tracer is not None:
            return tracer.getattr(name, value)
    return value


def _setattr(self: Module, name: str, value: Any) -> None:
    if isinstance(value, Proxy):
        former = vars(self).get(name)
        if isinstance(former, Tensor) and value.tracer.is_write_into(value, former):
            return  # the end of ``self.x += 1``: it is the same tensor
        raise TraceError(
            f"forward assigns {value.node.describe()} to {type(self).__name__}.{name}, which a graph cannot do\n"
            f"  fix: write into a tensor: self.{name}[...] = value\n"
            f"  at:  {users_line()}"
        )
    _module_setattr(self, name, value)


def _deferring(operation: Callable[..., Any]) -> Callable[..., Any]:
    def operator(self: Tensor, other: Any) -> Any:
        return NotImplemented if isinstance(other, Proxy) else operation(self, other)

    return operator


_OPERATORS = [f"__{name}__" for name in (*ARITHMETIC, *COMPARISONS)]


def _attributes() -> Iterator[tuple[type, str, Any]]:
    yield Module, "__call__", _interception.told(_module_call, _call)
    yield Module, "__getattribute__", _getattribute
    yield Module, "__setattr__", _setattr
    for name in _OPERATORS:
        yield Tensor, name, _deferring(getattr(Tensor, name))


_interception = Interception([*recorded_functions(), *_random_methods], _handle, _attributes)


def _named_dispatch(fn: Callable[..., Any]) -> Callable[..., Any]:
    def dispatch(*args: Any, **kwargs: Any) -> Any:
        tracer = _interception.current()
        return fn(*args, **kwargs) if tracer is None else _handle(tracer, fn, fn, args, kwargs)

    return dispatch


_names_lock = threading.Lock()
_names_tracing = 0  # how many tracers are at work, in all threads
_names_saved: dict[tuple[int, str], tuple[dict[str, Any], Any]] = {}  # (id of the globals, name) -> (globals, what stood there)
_NOTHING = object()


@contextmanager
def _names_dispatched() -> Iterator[None]:
    """Globals given to `wrap` by name: exchanged in their modules, until the last tracer has ended."""
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
    """Let ``tracer`` know of calls and reads in this thread."""
    with _names_dispatched(), _interception.tracing(tracer):
        yield
