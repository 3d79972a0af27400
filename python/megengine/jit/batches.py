"""The batch that fits into a memory limit where the one of a call does not."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from ..core.random_state import default_random_state, noise_state
from ..tensor import Tensor

_NEEDS = re.compile(r"memory_limit: a call needs at least (\d+) bytes .* the limit is (\d+) bytes")
_TRIES = 3


def _needed(error: BaseException) -> tuple[int, int] | None:
    """(bytes that a call needs, bytes of its limit) as a refusal says them."""
    found = _NEEDS.match(str(error))
    return (int(found[1]), int(found[2])) if found else None


def propose(error: MemoryError, args: Sequence[Any], plan: Callable[[tuple[Any, ...]], object]) -> None:
    """Adds to a refusal by the memory limit the batch that was found to fit, if one was.

    ``plan`` raises a MemoryError for arguments that do not fit; it runs the body on placeholders. Only for arguments that are Tensors of one first
    extent, the batch. Random generators stay where they are.
    """
    drawn = [(state, state.current_seed, state.counter) for state in (default_random_state(), noise_state())]
    try:
        _propose(error, args, plan)
    finally:
        for state, seed, counter in drawn:
            state.restore(seed, counter)


def _propose(error: MemoryError, args: Sequence[Any], plan: Callable[[tuple[Any, ...]], object]) -> None:
    extents = {arg._tuple_shape[:1] for arg in args if isinstance(arg, Tensor)}
    sizes = _needed(error)
    if sizes is None or len(extents) != 1 or not all(isinstance(arg, Tensor) for arg in args) or not (extent := extents.pop()):
        return
    (needs, limit), batch = sizes, extent[0]
    smaller, by_batch = batch, needs / batch  # bytes; at most: parameters do not grow with it
    for _ in range(_TRIES):
        smaller = min(smaller - 1, int(smaller - (needs - limit) / by_batch))
        if smaller < 1:
            return
        try:
            plan(tuple(arg[:smaller] for arg in args))
        except MemoryError as refusal:
            if (sizes := _needed(refusal)) is None or sizes[0] >= needs:
                return
            by_batch = min(by_batch, (needs - sizes[0]) / max(1, batch - smaller))
            batch, needs = smaller, sizes[0]
        except Exception:  # whatever the body makes of another batch is not what the call is told of
            return
        else:
            error.args = (re.sub(r"take a smaller (batch|model, or fewer results)", f"take a batch of {smaller}, which fits", str(error)),)
            return
