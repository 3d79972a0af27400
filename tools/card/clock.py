"""Times of traced functions on gpu0, by the card's clock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from results import size

import megengine as mge
from megengine.jit import trace

ROUNDS, SECONDS = size((3, 0.02), (1, 0))  # rounds, the best of which counts, and how long each lasts
RNG = np.random.default_rng(0)


def tensor(*shape: int, dtype: str = "float32") -> mge.Tensor:
    """Random numbers: a card computes faster with zeros. One block of them, again and again, is quick to make."""
    block = RNG.standard_normal(min(int(np.prod(shape)), 1 << 20)).astype("float32")
    values = np.resize(block, shape)
    if dtype == "int8":
        return mge.tensor((values * 30).astype("int8"), device="gpu0")
    return mge.tensor(values, device="gpu0").astype(dtype)


def separate(function: Callable[..., Any], **options: Any) -> Any:
    """Traced without fusion: each op is a kernel, and the program one CUDA graph."""
    return trace(function, symbolic=True, without_host=True, opt_level=2, **options)


def fused(function: Callable[..., Any]) -> Any:
    return trace(function, symbolic=True, without_host=True, opt_level=3)


def seconds_of(function: Callable[..., Any], arguments: Sequence[Any] = ()) -> float:
    """The seconds of one call, when it runs again and again."""
    stream = mge.device.Stream("gpu0")

    def once(calls: int) -> float:
        begin = stream.record_event()
        for _ in range(calls):
            function(*arguments)
        end = stream.record_event()
        end.synchronize()
        return begin.elapsed_time(end) / 1e3 / calls

    for _ in range(4):  # records, compiles, becomes a graph
        once(1)
    calls = max(1, min(2000, round(SECONDS / once(2))))
    return min(once(calls) for _ in range(ROUNDS))
