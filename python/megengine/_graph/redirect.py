"""Sends calls of Python functions to a handler for a while, from every caller and under every name.

While a redirection is entered, the functions' code is exchanged for code that calls the handler. So
``from megengine.functional import relu``, default arguments and closures are caught as well, and
functions cost nothing extra while none is entered. The exchange is seen by all threads: the handler
decides by thread whether a call concerns it, and calls ``original`` otherwise.
"""

from __future__ import annotations

import functools
import threading
import types
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

Handler = Callable[[Callable[..., Any], Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]


def _template(*args: Any, **kwargs: Any) -> Any:
    dispatch: Any = "a constant that each redirected function has exchanged for its own"
    return dispatch(*args, **kwargs)


class _Function:
    """A function's own code, and its handlers: while there are any, calls go to the last one."""

    def __init__(self, fn: types.FunctionType) -> None:
        self.fn = fn
        self.own_code = fn.__code__
        self.original = types.FunctionType(
            fn.__code__, fn.__globals__, fn.__name__, fn.__defaults__, fn.__closure__
        )
        self.original.__kwdefaults__ = fn.__kwdefaults__
        self.original.__annotations__ = fn.__annotations__
        self._is_wrapper = hasattr(fn, "__wrapped__")
        if self._is_wrapper:
            self.original.__wrapped__ = fn.__wrapped__  # type: ignore[attr-defined]  # for inspect.signature
        self._handlers: tuple[Handler, ...] = ()
        code = _template.__code__
        marker = code.co_consts.index(
            "a constant that each redirected function has exchanged for its own"
        )
        self._redirected_code = code.replace(
            co_consts=(*code.co_consts[:marker], self._dispatch, *code.co_consts[marker + 1 :]),
            # a function takes only code with the same number of free variables
            co_freevars=fn.__code__.co_freevars,
            co_name=fn.__name__,
            co_filename=__file__,
        )

    def _dispatch(self, *args: Any, **kwargs: Any) -> Any:
        return self._call(self._handlers, args, kwargs)

    def _call(
        self, handlers: tuple[Handler, ...], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        if not handlers:
            return self.original(*args, **kwargs)
        *others, handler = handlers
        if not others:
            return handler(self.fn, self.original, args, kwargs)
        return handler(self.fn, lambda *a, **k: self._call(tuple(others), a, k), args, kwargs)

    def push(self, handler: Handler) -> None:
        self._handlers += (handler,)
        self.fn.__code__ = self._redirected_code
        if not self._is_wrapper:
            self.fn.__wrapped__ = self.original  # type: ignore[attr-defined]  # for inspect.signature

    def drop(self, handler: Handler) -> None:
        self._handlers = tuple(other for other in self._handlers if other is not handler)
        if not self._handlers:
            self.fn.__code__ = self.own_code
            if not self._is_wrapper:
                self.fn.__dict__.pop("__wrapped__", None)


_lock = threading.RLock()
_functions: dict[types.FunctionType, _Function] = {}  # all functions of any redirection


def original_of(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Returns ``fn`` as it is outside of redirections, with its own signature."""
    found = _functions.get(fn) if isinstance(fn, types.FunctionType) else None
    return fn if found is None else found.original


class Redirection:
    """``with redirection:`` sends calls to ``handler(fn, original, args, kwargs)``; may be nested.

    fn: the function that was called. original: does what it does outside of this redirection.
    """

    def __init__(self, functions: Iterable[types.FunctionType], handler: Handler) -> None:
        self._handler = handler
        self._mine: dict[types.FunctionType, _Function] = {}
        self._depth = 0
        for fn in functions:
            self.add(fn)

    def __contains__(self, fn: object) -> bool:
        return isinstance(fn, types.FunctionType) and fn in self._mine

    def add(self, fn: types.FunctionType) -> None:
        """Redirect one more function."""
        with _lock:
            if fn not in self._mine:
                if fn not in _functions:
                    _functions[fn] = _Function(fn)
                self._mine[fn] = _functions[fn]
                if self._depth:
                    self._mine[fn].push(self._handler)

    def __enter__(self) -> Redirection:
        with _lock:
            self._depth += 1
            if self._depth == 1:
                for function in self._mine.values():
                    function.push(self._handler)
        return self

    def __exit__(self, *exc: object) -> None:
        with _lock:
            self._depth -= 1
            if self._depth == 0:
                for function in self._mine.values():
                    function.drop(self._handler)


_MISSING = object()


class _Attribute:
    """An attribute of a class, and the stack of its replacements."""

    def __init__(self, cls: type, name: str) -> None:
        self._cls, self._name = cls, name
        self._own = cls.__dict__.get(name, _MISSING)
        self._stack: list[tuple[Exchange, Any]] = []

    def push(self, exchange: Exchange, value: Any) -> None:
        self._stack.append((exchange, value))
        setattr(self._cls, self._name, value)

    def drop(self, exchange: Exchange) -> None:
        self._stack = [(other, value) for other, value in self._stack if other is not exchange]
        if self._stack:
            setattr(self._cls, self._name, self._stack[-1][1])
            return
        del _attributes[self._cls, self._name]
        if self._own is _MISSING:
            delattr(self._cls, self._name)
        else:
            setattr(self._cls, self._name, self._own)


_attributes: dict[tuple[type, str], _Attribute] = {}  # attributes that are exchanged now


class Exchange:
    """``with exchange:`` puts other attributes into classes; may be nested, and end in any order.

    attributes: gives (class, name, value); called when the block is entered, so that a value can
    call the one before it.
    """

    def __init__(self, attributes: Callable[[], Iterable[tuple[type, str, Any]]]) -> None:
        self._values = attributes
        self._exchanged: list[_Attribute] = []
        self._depth = 0

    def __enter__(self) -> Exchange:
        with _lock:
            self._depth += 1
            if self._depth == 1:
                for cls, name, value in list(self._values()):
                    attribute = _attributes.setdefault((cls, name), _Attribute(cls, name))
                    attribute.push(self, value)
                    self._exchanged.append(attribute)
        return self

    def __exit__(self, *exc: object) -> None:
        with _lock:
            self._depth -= 1
            if self._depth == 0:
                for attribute in self._exchanged:
                    attribute.drop(self)
                self._exchanged.clear()


class Interception:
    """Functions and attributes that ask the tracer at work in their thread; other threads are not
    affected.

    functions: their calls go to ``handler(tracer, fn, original, args, kwargs)``. attributes: as of `Exchange`.
    """

    def __init__(
        self,
        functions: Iterable[types.FunctionType],
        handler: Callable[..., Any],
        attributes: Callable[[], Iterable[tuple[type, str, Any]]],
    ) -> None:
        self._tracer: ContextVar[Any] = ContextVar("tracer", default=None)
        self._handler = handler
        self._redirection = Redirection(functions, self._seen)
        self._exchange = Exchange(attributes)

    def _seen(self, fn: Any, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        tracer = self.current()
        return original(*args, **kwargs) if tracer is None else self._handler(tracer, fn, original, args, kwargs)

    def current(self) -> Any:
        """The tracer at work in this thread, or None."""
        return self._tracer.get()

    def set_current(self, tracer: Any) -> None:
        """Makes ``tracer`` the tracer of this thread; None ends tracing."""
        self._tracer.set(tracer)

    def add(self, fn: types.FunctionType) -> None:
        """Redirect one more function."""
        self._redirection.add(fn)

    def told(self, original: Callable[..., Any], tell: Callable[..., Any]) -> Callable[..., Any]:
        """Returns a method that calls ``original`` or, while a tracer is at work, ``tell(tracer,
        self, ...)``.
        """

        @functools.wraps(original)
        def method(self_: Any, /, *args: Any, **kwargs: Any) -> Any:
            tracer = self.current()
            return original(self_, *args, **kwargs) if tracer is None else tell(tracer, self_, *args, **kwargs)

        return method

    @contextmanager
    def active(self, tracer: Any) -> Iterator[None]:
        """Makes ``tracer`` the tracer of this thread inside a with-block; None ends tracing there.
        """
        outside = self._tracer.set(tracer)
        try:
            yield
        finally:
            self._tracer.reset(outside)

    @contextmanager
    def tracing(self, tracer: Any) -> Iterator[None]:
        """Tells ``tracer`` about calls and reads in this thread, inside a with-block."""
        with self._redirection, self._exchange, self.active(tracer):
            yield
