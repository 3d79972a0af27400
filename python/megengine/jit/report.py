"""What a traced function tells about itself: memory plan, what was measured, and generated kernels."""

from __future__ import annotations

import functools
import itertools
import json
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class PlannedBuffer:
    """One stretch of memory and the values that share it; ``offset`` counts from the arena's start."""

    place: str  # "arena", "input", "output" or "constant"
    offset: int  # bytes
    bytes: int
    first_step: int
    last_step: int  # half-open
    use: str  # of the first value: "input", "parameter", "constant", "activation", "gradient", "recomputed", "workspace"
    values: tuple[str, ...]


@dataclass(frozen=True)
class CurvePoint:
    """One plan that the search found: bytes of a call before kernels join steps, and its estimated seconds."""

    bytes: int
    seconds: float
    is_chosen: bool


@dataclass(frozen=True)
class MeasuredRun:
    """What runs of a program took: seconds are of one run (transfers beside it included), the allocator's peak is of the whole process."""

    runs: int
    seconds: float
    step_seconds: tuple[float, ...] = field(repr=False)  # by step of the plan
    allocator_peak_bytes: int


@dataclass(frozen=True)
class MemoryPlan:
    """Bytes of one call.

    unplanned_bytes: one buffer for each recorded value; planned_bytes: what the program uses,
    inputs and state included; peak_live_bytes: the lower bound; arena_bytes: the part that is
    shared over time; host_bytes: what waits in the host's memory while the device has its own (`offload`), beside planned_bytes;
    transferred_bytes: to the host and back in one call; recompute_flops_ratio: work done again to save memory; curve: the plans among which
    the search chose, from the cheapest to the smallest (empty where nothing asked for a search); measured:
    what runs took, with ``profiling=True``.
    """

    unplanned_bytes: int
    planned_bytes: int
    peak_live_bytes: int
    arena_bytes: int
    workspace_bytes: int
    host_bytes: int
    transferred_bytes: int
    recompute_flops_ratio: float
    buffers: tuple[PlannedBuffer, ...] = field(repr=False)
    steps: tuple[str, ...] = field(repr=False)
    curve: tuple[CurvePoint, ...] = field(repr=False, default=())
    measured: MeasuredRun | None = field(repr=False, default=None)

    def bytes_of(self, *uses: str) -> int:
        """Of all buffers outside of the arena with such a use."""
        return sum(b.bytes for b in self.buffers if b.place != "arena" and b.use in uses)

    def live_buffers(self, step: int) -> list[PlannedBuffer]:
        """What the arena holds while ``step`` runs, the largest first."""
        alive = [b for b in self.buffers if b.place == "arena" and b.first_step <= step < b.last_step]
        return sorted(alive, key=lambda b: -b.bytes)

    def live_bytes(self, *uses: str) -> list[int]:
        """By step: bytes alive in the arena, all of them or those of some uses."""
        change = [0] * (len(self.steps) + 1)
        for buffer in self.buffers:
            if buffer.place == "arena" and (not uses or buffer.use in uses):
                change[min(buffer.first_step, len(self.steps))] += buffer.bytes
                change[min(buffer.last_step, len(self.steps))] -= buffer.bytes
        return list(itertools.accumulate(change[:-1]))

    def fullest_step(self) -> int:
        live = self.live_bytes()
        return max(range(len(live)), key=live.__getitem__, default=0)

    def html(self, title: str = "Memory plan") -> str:
        """One self-contained HTML page: live bytes over the steps, buffers at their offsets, plan beside measured run.

        >>> from megengine import jit, tensor
        >>> @jit.trace
        ... def double(x):
        ...     return x * 2
        >>> double.plan(tensor([1.0, 2.0])).html().startswith("<!doctype html>")
        True
        """
        from .plan_html import plan_page

        return plan_page(self, title=title)


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
    _texts: tuple[Any, ...] = field(repr=False)

    @functools.cached_property
    def source(self) -> str:
        """The last readable stage before machine code; compiles it again."""
        return self._texts[0]()

    @functools.cached_property
    def assembly(self) -> str:
        """Machine code as text; empty where the compiler cannot show it."""
        return self._texts[1]()

    @classmethod
    def from_row(cls, row: dict[str, Any]) -> GeneratedKernel:
        texts = (row.pop("source"), row.pop("assembly"))
        return cls(**row, _texts=texts)


def merge_curves(segments: list[dict[str, Any]]) -> tuple[CurvePoint, ...]:
    """The curve of the segment with the largest arena; what the others take counts at each point."""
    if not segments:
        return ()
    largest = max(segments, key=lambda plan: plan["arena_bytes"])
    elsewhere = sum(plan["planned_bytes"] for plan in segments if plan is not largest)
    return tuple(CurvePoint(size + elsewhere, seconds, chosen) for size, seconds, chosen in largest["curve"])


def measured_run(segments: list[dict[str, Any]], profiles: list[dict[str, Any]], allocator_peak_bytes: int) -> MeasuredRun | None:
    """Profiles beside the plans of the same segments; None before the first run."""
    if len(segments) != len(profiles) or not all(profile["runs"] for profile in profiles):
        return None
    whole = sum(profile["seconds"] / profile["runs"] for profile in profiles)
    seconds: list[float] = []
    for plan, profile in zip(segments, profiles, strict=True):
        base = len(seconds)
        seconds += [0.0] * len(plan["steps"])
        for step in profile["steps"]:
            seconds[base + step["step"]] += step["seconds"] / profile["runs"]
    return MeasuredRun(max(p["runs"] for p in profiles), whole, tuple(seconds), allocator_peak_bytes)


def merge_plans(segments: list[dict[str, Any]], measured: MeasuredRun | None = None) -> MemoryPlan:
    """Segments run one after the other: sums add up, and each arena counts, since all are kept."""
    total = {
        key: sum(plan[key] for plan in segments)
        for key in ("unplanned_bytes", "planned_bytes", "peak_live_bytes", "arena_bytes", "host_bytes", "transferred_bytes")
    }
    buffers: list[PlannedBuffer] = []
    steps: list[str] = []
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
        curve=merge_curves(segments),
        measured=measured,
    )


def merge_profiles(segments: list[dict[str, Any]]) -> dict[str, Any]:
    """One table for a whole call, whose segments run one after the other."""
    steps, begin = [], 0.0
    for segment in segments:
        steps += [{**step, "last_begin": begin + step["last_begin"]} for step in segment["steps"]]
        begin += segment["last_seconds"]
    return {
        "runs": max(segment["runs"] for segment in segments),
        "seconds": sum(segment["seconds"] for segment in segments),
        "bytes": sum(step["bytes"] for step in steps),
        "steps": steps,
    }


def timeline_of(profile: dict[str, Any], function: str) -> str:
    """The last run of a merged profile in Google's Trace Event Format."""
    names = {0: function, 1: f"{function}: transfers"}
    events: list[dict[str, Any]] = [
        {"ph": "M", "pid": 0, "tid": row, "name": "thread_name", "args": {"name": name}}
        for row, name in names.items()
    ]
    for step in profile["steps"]:
        events.append(
            {
                "ph": "X",
                "pid": 0,
                "tid": int(step["is_transfer"]),
                "name": " ".join(step["ops"]),
                "ts": 1e6 * step["last_begin"],
                "dur": 1e6 * step["last_seconds"],
                "args": {key: step[key] for key in ("where", "backend", "bytes")},
            }
        )
    return json.dumps({"traceEvents": events})
