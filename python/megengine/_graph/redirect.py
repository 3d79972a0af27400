"""Sends calls of Python functions to a handler for a while, whoever calls them and by whatever name.

While a redirection is entered, the functions' code is exchanged for code that calls the handler. So
``from megengine.functional import relu``, default arguments and closures are caught as well, and
functions cost nothing extra while none is entered. The exchange is seen by all threads: the handler
decides by thread whether a call concerns it, and calls ``original`` otherwise.
"""

from __future__ import annotations

import threading
import types
from collections.abc import Callable, Iterable
from typing import Any

Handler = Callable[[Callable[..., Any], Callable[..., Any], tuple, dict[str, Any]], Any]


def _template(*args: Any, **kwargs: Any) -> Any:
    dispatch = "a constant that each redirected function has exchanged for its own"
    return dispatch(*args, **kwargs)  # type: ignore[operator]


def _redirected_code(fn: types.FunctionType, handler: Handler) -> types.CodeType:
    original = types.FunctionType(
        fn.__code__, fn.__globals__, fn.__name__, fn.__defaults__, fn.__closure__
    )
    original.__kwdefaults__ = fn.__kwdefaults__

    def dispatch(*args: Any, **kwargs: Any) -> Any:
        return handler(fn, original, args, kwargs)

    code = _template.__code__
    marker = code.co_consts.index(
        "a constant that each redirected function has exchanged for its own"
    )
    constants = (*code.co_consts[:marker], dispatch, *code.co_consts[marker + 1 :])
    return code.replace(
        co_consts=constants,
        co_freevars=fn.__code__.co_freevars,  # a function takes only code with as many of them
        co_name=fn.__name__,
        co_filename=__file__,
    )


class Redirection:
    """``with redirection:`` sends calls to ``handler(fn, original, args, kwargs)``; may be nested.

    fn: the function that was called. original: does what it does outside.
    """

    def __init__(self, functions: Iterable[types.FunctionType], handler: Handler) -> None:
        self._handler = handler
        self._codes: dict[types.FunctionType, tuple[types.CodeType, types.CodeType]] = {}
        self._depth = 0
        self._lock = threading.RLock()
        for fn in functions:
            self.add(fn)

    def __contains__(self, fn: object) -> bool:
        return isinstance(fn, types.FunctionType) and fn in self._codes

    def add(self, fn: types.FunctionType) -> None:
        """Redirect one more function."""
        with self._lock:
            if fn not in self._codes:
                self._codes[fn] = (fn.__code__, _redirected_code(fn, self._handler))
                fn.__code__ = self._codes[fn][self._depth > 0]

    def __enter__(self) -> Redirection:
        with self._lock:
            self._depth += 1
            if self._depth == 1:
                for fn, (_, redirected) in self._codes.items():
                    fn.__code__ = redirected
        return self

    def __exit__(self, *exc: object) -> None:
        with self._lock:
            self._depth -= 1
            if self._depth == 0:
                for fn, (original, _) in self._codes.items():
                    fn.__code__ = original
