"""What a traced function tells about itself: memory plan and generated kernels."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field


@dataclass(frozen=True)
class PlannedBuffer:
    """One stretch of memory and the values that share it; ``offset`` counts from the arena's start."""

    place: str  # "arena", "input", "output" or "constant"
    offset: int  # bytes
    bytes: int
    first_step: int
    last_step: int  # half-open
    values: tuple[str, ...]


@dataclass(frozen=True)
class MemoryPlan:
    """Bytes of one call.

    unplanned_bytes: one buffer for each recorded value; planned_bytes: what the program uses,
    inputs and state included; peak_live_bytes: the lower bound; arena_bytes: the part that is
    shared over time; recompute_flops_ratio: work done again to save memory.
    """

    unplanned_bytes: int
    planned_bytes: int
    peak_live_bytes: int
    arena_bytes: int
    workspace_bytes: int
    recompute_flops_ratio: float
    buffers: tuple[PlannedBuffer, ...] = field(repr=False)
    steps: tuple[str, ...] = field(repr=False)


@dataclass(frozen=True)
class GeneratedKernel:
    """One compiled kernel: the operations it stands for, its code, and what compiling cost.

    where: the user's line; bytes: read and written by one run; cached: it came from memory or disk.
    """

    backend: str
    ops: list[str]
    where: str
    bytes: int
    ir: str = field(repr=False)
    compile_ms: float
    cached: bool
    _texts: tuple = field(repr=False)

    @functools.cached_property
    def source(self) -> str:
        """The last readable stage before machine code; compiles it again."""
        return self._texts[0]()

    @functools.cached_property
    def assembly(self) -> str:
        """Machine code as text; empty where the compiler cannot show it."""
        return self._texts[1]()

    @classmethod
    def from_row(cls, row: dict) -> GeneratedKernel:
        texts = (row.pop("source"), row.pop("assembly"))
        return cls(**row, _texts=texts)


def merge_plans(segments: list[dict]) -> MemoryPlan:
    """Segments run one after the other: sums add up, and each arena counts, since all are kept."""
    total = {
        key: sum(plan[key] for plan in segments)
        for key in ("unplanned_bytes", "planned_bytes", "peak_live_bytes", "arena_bytes")
    }
    buffers, steps = [], []
    for plan in segments:
        base = len(steps)
        steps.extend(plan["steps"])
        for row in plan["buffers"]:
            values = {**row, "values": tuple(row["values"])}
            values["first_step"] += base
            values["last_step"] += base
            buffers.append(PlannedBuffer(**values))
    return MemoryPlan(
        **total,
        workspace_bytes=max((plan["workspace_bytes"] for plan in segments), default=0),
        recompute_flops_ratio=max(
            (plan["recompute_flops_ratio"] for plan in segments), default=0.0
        ),
        buffers=tuple(buffers),
        steps=tuple(steps),
    )


def merge_profiles(segments: list[dict]) -> dict:
    """One table for a whole call, whose segments run one after the other."""
    steps = [step for segment in segments for step in segment["steps"]]
    return {
        "runs": max(segment["runs"] for segment in segments),
        "seconds": sum(step["seconds"] for step in steps),
        "bytes": sum(step["bytes"] for step in steps),
        "steps": steps,
    }
