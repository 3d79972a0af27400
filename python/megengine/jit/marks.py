"""Marks by which a traced function guides its plan; outside of traced functions they do nothing."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from .. import _core
from ..module._reach import tensors_in
from ..tensor import Tensor

_P = ParamSpec("_P")
_R = TypeVar("_R")


def keep(x: Tensor) -> Tensor:
    """Marks a tensor that no memory plan may recompute.

    Outside of a traced function it does nothing.

    Parameters
    ----------
    x : Tensor
        Any shape and dtype.

    Returns
    -------
    Tensor
        ``x`` itself.

    Raises
    ------
    TypeError
        If ``x`` is not a Tensor.
    ValueError
        Inside a traced function, for a tensor that the function does not compute: inputs and
        parameters are kept in any case.

    Examples
    --------
    >>> import megengine.functional as F
    >>> from megengine import jit, tensor
    >>> jit.keep(F.exp(tensor(0.0))).item()
    1.0
    """
    if not isinstance(x, Tensor):
        raise TypeError(f"keep: {x!r} ({type(x).__name__}) is not a Tensor")
    _core.mark_kept(x)
    return x


def offload(x: Tensor) -> Tensor:
    """Marks a tensor to be kept in host memory until backward needs it.

    This applies to devices with their own memory: the transfers are steps of the plan, whose
    ``host_bytes`` and ``transferred_bytes`` count them. A CPU computes in host memory, so the mark
    has no effect there. It also has none if backward does not read ``x``, or if ``x`` is a result.

    Parameters
    ----------
    x : Tensor
        Any shape and dtype.

    Returns
    -------
    Tensor
        ``x`` itself.

    Raises
    ------
    TypeError, ValueError
        If ``x`` is not a Tensor, and inside a traced function for a tensor that the function does
        not compute.

    Examples
    --------
    >>> import megengine.functional as F
    >>> from megengine import jit, tensor
    >>> jit.offload(F.exp(tensor(0.0))).item()
    1.0
    """
    if not isinstance(x, Tensor):
        raise TypeError(f"offload: {x!r} ({type(x).__name__}) is not a Tensor")
    _core.mark_offloaded(x)
    return x


def recompute(fn: Callable[_P, _R]) -> Callable[_P, _R]:
    """Wraps a function or module so that its intermediate values are recomputed instead of kept.

    Whatever reads them later, such as backward, computes them again. Arguments and results are kept
    as usual. This is also known as gradient checkpointing.

    Parameters
    ----------
    fn : callable
        Function or module that computes the values. Inside a traced function it must not read
        values of tensors.

    Returns
    -------
    callable
        The wrapped function; outside of a traced function it behaves like ``fn``.

    Raises
    ------
    TypeError
        If ``fn`` cannot be called.
    ValueError
        For an ``fn`` that reads values of tensors in a traced function.

    See Also
    --------
    keep : Forbids to recompute a tensor.
    offload : Keeps a tensor in host memory.

    Examples
    --------
    >>> import megengine.functional as F
    >>> from megengine import Parameter, autodiff, jit
    >>> x = Parameter(F.ones((256, 256)))
    >>> gm = autodiff.GradManager().attach(x)
    >>> def step(block):
    ...     with gm:
    ...         gm.backward(block(block(x)).sum())
    >>> def block(x):
    ...     return F.sin(F.cos(F.exp(x)))
    >>> kept, again = jit.trace(step).plan(block), jit.trace(step).plan(jit.recompute(block))
    >>> again.peak_live_bytes < kept.peak_live_bytes, again.recompute_flops_ratio > 0
    (True, True)
    """
    if not callable(fn):
        raise TypeError(f"recompute: {fn!r} ({type(fn).__name__}) cannot be called")

    @functools.wraps(fn, updated=())
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        if not _core.is_tracing():
            return fn(*args, **kwargs)
        results: list[Tensor] = []
        _core.begin_recompute()
        try:
            result = fn(*args, **kwargs)
            results = tensors_in(result)
        finally:
            _core.end_recompute(results)
        return result

    return call
