"""``partial_trace`` and ``xla_trace``: other spellings of :class:`trace`."""

from __future__ import annotations

import functools
from collections.abc import Callable

from .tracing import trace


def partial_trace(
    func: Callable | None = None,
    *,
    backend: str = "default",
    without_host: bool = True,
    trace_gmcallback: bool = True,
    **trace_options,
):
    """Traces a forward function that is differentiated outside of it.

    Inside an open GradManager the function runs eagerly, so that backward finds its history;
    elsewhere it is a :class:`trace` with these options. ``backend`` must be "default" or "xla".
    """
    if backend not in ("default", "xla"):
        raise ValueError(f"partial_trace: backend must be 'default' or 'xla', got {backend!r}")
    if func is None:
        return functools.partial(
            partial_trace,
            backend=backend,
            without_host=without_host,
            trace_gmcallback=trace_gmcallback,
            **trace_options,
        )
    return trace(func, without_host=without_host, **trace_options)


class xla_trace(trace):
    """:class:`trace` with the defaults of the XLA spelling; our own compiler does the work."""

    third_party_backend = True

    def __init__(self, function, *, without_host=True, symbolic_shape=False, **kwargs):
        kwargs.setdefault("symbolic", True)
        kwargs.setdefault("opt_level", 3)
        super().__init__(
            function, without_host=without_host, symbolic_shape=symbolic_shape, **kwargs
        )
