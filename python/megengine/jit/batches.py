"""Finds a batch that fits into a memory limit if that of a call does not."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ..core import OutOfMemoryError
from ..core.random_state import default_random_state, noise_state
from ..tensor import Tensor

_TRIES = 3


@contextlib.contextmanager
def kept_generators() -> Iterator[None]:
    """Restores random generators at the end: plans draw as calls do."""
    drawn = [(state, state.current_seed, state.counter) for state in (default_random_state(), noise_state())]
    try:
        yield
    finally:
        for state, seed, counter in drawn:
            state.restore(seed, counter)


def propose(error: MemoryError, args: Sequence[Any], plan: Callable[[tuple[Any, ...]], object]) -> None:
    """Adds to a refusal by the memory limit the largest batch that fits, if there is one.

    ``plan`` raises a MemoryError for arguments that do not fit; it runs the body on placeholders. Only for arguments that are Tensors of one first
    extent, the batch, and for errors that advise a smaller one. Random generators stay where they are.
    """
    if isinstance(error, OutOfMemoryError) and error.needed is not None and "take a smaller" in str(error):
        with kept_generators():
            _propose(error, args, plan)


def _propose(error: OutOfMemoryError, args: Sequence[Any], plan: Callable[[tuple[Any, ...]], object]) -> None:
    extents = {arg._tuple_shape[:1] for arg in args if isinstance(arg, Tensor)}
    if len(extents) != 1 or not all(isinstance(arg, Tensor) for arg in args) or not (extent := extents.pop()):
        return
    needs, limit, batch = error.needed or 0, error.limit or 0, extent[0]
    # an upper bound of the bytes, as parameters do not grow with the batch
    smaller, by_batch = batch, needs / batch
    for _ in range(_TRIES):
        smaller = min(smaller - 1, int(smaller - (needs - limit) / by_batch))
        if smaller < 1:
            return
        try:
            plan(tuple(arg[:smaller] for arg in args))
        except OutOfMemoryError as refusal:
            if refusal.needed is None or refusal.needed >= needs:
                return
            by_batch = min(by_batch, (needs - refusal.needed) / max(1, batch - smaller))
            batch, needs = smaller, refusal.needed
        except Exception:  # what the body does with another batch is not the call's concern
            return
        else:
            error.args = (re.sub(r"take a smaller (batch|model, or fewer results)", f"take a batch of {smaller}, which fits", str(error)),)
            return
