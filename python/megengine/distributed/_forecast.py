"""Simulates the time of a data-parallel step in a world of any size from its time in one process.

In: seconds of the parts of a step, its gradients with the moments at which backward has them; how many processes, and the network. Out:
seconds of the step. The formulas and their source are in docs/distributed.md, "On paper".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from .. import _core

_SMALL, _SLICE = 32 << 10, 2 << 20  # bytes, the same as in backends/processes


@dataclass(frozen=True)
class Gradient:
    """ready: seconds from the beginning of the step."""

    bytes: int
    ready: float


@dataclass(frozen=True)
class Step:
    """The measurements of one process. forward, backward, update: seconds. gradients: in any order.
    """

    forward: float
    backward: float
    update: float
    gradients: tuple[Gradient, ...]

    @property
    def compute(self) -> float:
        return self.forward + self.backward + self.update


@dataclass(frozen=True)
class Network:
    """bandwidth: bytes a second that a process sends, and receives at the same time. latency: seconds of a message, beside its bytes.

    is_ring: whether exchanges go round a ring, as NCCL's do for large tensors; else they run as in
    backends/processes.
    """

    processes: int
    bandwidth: float
    latency: float
    is_ring: bool

    def all_reduce_seconds(self, size: int) -> float:
        """Seconds in which ``size`` bytes of each process become their sum in all."""
        others = self.processes - 1
        if others == 0 or size == 0:
            return 0.0
        if not self.is_ring and size <= _SMALL:  # all is sent to all
            return self.latency + others * size / self.bandwidth
        messages = 2 * others if self.is_ring else math.ceil(size / _SLICE) + 1
        return messages * self.latency + 2 * others / self.processes * size / self.bandwidth


@dataclass(frozen=True)
class Forecast:
    """Seconds. bucketed: a step that reduces buckets beside backward. exchange: all of its
    exchanges. hidden: the part of these that costs nothing.
    """

    compute: float
    bucketed: float
    exchange: float
    buckets: tuple[int, ...]  # bytes

    @property
    def hidden(self) -> float:
        return max(0.0, 1 - (self.bucketed - self.compute) / self.exchange) if self.exchange else 1.0


def buckets_of(gradients: Sequence[Gradient], first: int, others: int) -> list[Gradient]:
    """Groups gradients that travel together, in the order in which they are ready
    (runtime/eager/gradient_sums.h).

    first, others: bytes of the first bucket, and of each other one.
    """
    ordered = sorted(gradients, key=lambda gradient: gradient.ready)
    return [
        Gradient(sum(ordered[i].bytes for i in bucket), max(ordered[i].ready for i in bucket))
        for bucket in _core.gradient_buckets([gradient.bytes for gradient in ordered], first, others)
    ]


def forecast(step: Step, network: Network, bucket_sizes: tuple[int, int]) -> Forecast:
    """Simulates buckets of these sizes that travel beside backward, one after the other, each once
    its last gradient is ready.
    """
    buckets = buckets_of(step.gradients, *bucket_sizes)
    end = 0.0
    for bucket in buckets:
        end = max(end, bucket.ready) + network.all_reduce_seconds(bucket.bytes)
    return Forecast(
        compute=step.compute,
        bucketed=max(step.forward + step.backward, end) + step.update,
        exchange=sum(network.all_reduce_seconds(bucket.bytes) for bucket in buckets),
        buckets=tuple(bucket.bytes for bucket in buckets),
    )


def largest_pair(sizes: Sequence[int]) -> int:
    """The largest sum of two neighbours: one bucket is filled while the other one travels."""
    return max((a + b for a, b in pairwise(sizes)), default=sum(sizes))
