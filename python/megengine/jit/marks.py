"""What the user may say of a plan inside a traced function; outside of one, marks do nothing."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from .. import _core
from ..tensor import Tensor
from ..utils.module_utils import tensors_in


def keep(x: Tensor) -> Tensor:
    """``x`` itself; a plan never drops it to compute it again.

    Raises TypeError for what is no Tensor, and inside a traced function ValueError for a tensor that the function
    does not compute: inputs and parameters stay anyway.

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
    """``x`` itself; on a device with memory of its own it waits for backward in the host's memory.

    The transfers are steps of the plan, which tells ``host_bytes`` and ``transferred_bytes``. A CPU's memory is the host's:
    there the mark changes nothing. Neither does it where backward does not read ``x``, or ``x`` is a result.
    Raises TypeError and ValueError as `keep` does.

    >>> import megengine.functional as F
    >>> from megengine import jit, tensor
    >>> jit.offload(F.exp(tensor(0.0))).item()
    1.0
    """
    if not isinstance(x, Tensor):
        raise TypeError(f"offload: {x!r} ({type(x).__name__}) is not a Tensor")
    _core.mark_offloaded(x)
    return x


def recompute(fn: Callable[..., Any]) -> Callable[..., Any]:
    """``fn``, whose intermediate values are not kept: what reads them later, such as backward, computes them again.

    Its arguments and results are kept as ever. ``fn`` may be a function or a module. Inside a traced function it must not
    read values of tensors (ValueError). Raises TypeError when ``fn`` cannot be called.

    >>> import megengine.functional as F
    >>> from megengine import jit, tensor
    >>> jit.recompute(lambda x: F.exp(F.exp(x)) - 1)(tensor(0.0)).item() > 1.7
    True
    """
    if not callable(fn):
        raise TypeError(f"recompute: {fn!r} ({type(fn).__name__}) cannot be called")

    @functools.wraps(fn, updated=())
    def call(*args: Any, **kwargs: Any) -> Any:
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
