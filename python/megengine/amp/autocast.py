"""The switch of mixed precision."""

import functools
from collections.abc import Callable
from typing import Any, Self, TypeVar, cast

from ..core.tensor.amp import State, check_dtype, state

_Function = TypeVar("_Function", bound=Callable[..., Any])


class autocast:
    """Mixed precision inside a ``with`` block or a decorated function; all settings are restored
    after it, and other threads keep theirs.

    enabled False turns it off inside. low_prec_dtype is for matrix products and convolutions,
    high_prec_dtype for transcendental functions and normalization.
    """

    def __init__(
        self,
        enabled: bool = True,
        low_prec_dtype: str = "float16",
        high_prec_dtype: str = "float32",
    ) -> None:
        self.enabled = enabled
        self.low_prec_dtype = check_dtype(low_prec_dtype)
        self.high_prec_dtype = check_dtype(high_prec_dtype)

    def __enter__(self) -> Self:
        outer = state.get()
        if self.enabled:
            state.set(State(True, self.low_prec_dtype, self.high_prec_dtype, outer))
        else:
            state.set(State(False, outer.low, outer.high, outer))
        return self

    def __exit__(self, *args: object) -> None:
        inner = state.get()
        state.set(inner.outer or inner)

    def __call__(self, func: _Function) -> _Function:
        @functools.wraps(func)
        def run(*args: Any, **kwargs: Any) -> Any:
            with self:
                return func(*args, **kwargs)

        return cast(_Function, run)
