"""Draws a memory plan as one HTML page that needs no server and loads nothing."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import TYPE_CHECKING

from .._core import size_text
from ..reports.page import escaped, page, rows_table, search_field
from .plan_pictures import COLOURS, arena_picture, curve_picture, live_picture, time_picture
from .plan_text import figures, hidden_part, kind_rows, outside_rows, seconds_text

if TYPE_CHECKING:
    from .report import GeneratedKernel, MemoryPlan

__all__ = ["plan_page", "size_text"]


def _bytes_table(plan: MemoryPlan) -> str:
    rows = [(words, size_text(size), f"{size:,}") for words, size in figures(plan)]
    rows += [(words, text, "") for words, text in hidden_part(plan)]
    rows.append(("recomputed, as a part of all flops", f"{plan.recompute_flops_ratio:.1%}", ""))
    kinds = [(kind, size_text(size), f"{size:,}") for kind, size in kind_rows(plan)]
    return rows_table(rows, ("memory", "", "bytes")) + rows_table(kinds, ("by kind, at the fullest step", "", "bytes"))


def _beside_measured(plan: MemoryPlan) -> str:
    """Plan and measured run side by side."""
    run = plan.measured
    if run is None:
        return "<p>Not measured: trace with <code>profiling=True</code> and call the function.</p>"
    chosen = next((point for point in plan.curve if point.is_chosen), None)
    estimate = seconds_text(chosen.seconds) if chosen else ""
    rows = [
        ("bytes of a call; the allocator's peak, whole process", size_text(plan.planned_bytes), size_text(run.allocator_peak_bytes)),
        (f"time of a run, mean of {run.runs} runs", estimate, seconds_text(run.seconds)),
    ]
    return rows_table(rows, ("", "planned", "measured"))


def _key() -> str:
    uses = (f'<span style="background:{colour}">{use}</span>' for use, colour in COLOURS.items() if use != "constant")
    return f'<p class="key">{" ".join(uses)}</p>'


def _kernel_table(kernels: Sequence[GeneratedKernel]) -> str:
    rows = [
        (", ".join(k.ops), str(len(k.ops)), k.backend, f"{k.compile_ms:.1f}", "yes" if k.cached else "no") for k in kernels
    ]
    return rows_table(rows, ("ops", "count", "backend", "compile ms", "cached"))


def plan_cell(plan: MemoryPlan) -> str:
    """The figures and the live bytes, as a part of a page that is not ours."""
    return f"{_bytes_table(plan)}{_key()}{live_picture(plan)}"


def kernels_cell(kernels: Sequence[GeneratedKernel]) -> str:
    """A table of kernels, likewise."""
    return _kernel_table(kernels) if kernels else "<p>no generated kernels</p>"


def _outside_table(plan: MemoryPlan) -> str:
    """Returns a folded table of tensors with storage of their own: a network has many parameters.
    """
    held = sorted((b for b in plan.buffers if b.place != "arena" and b.bytes), key=lambda b: -b.bytes)
    rows = [(b.values[0], b.use, size_text(b.bytes)) for b in held]
    total = size_text(sum(b.bytes for b in held))
    table = rows_table(rows, ("value", "use", "size"))
    return f"<details><summary>Inputs, parameters and results: {len(held)} blocks, {total}</summary>{table}</details>"


def _beside_plan(plan: MemoryPlan) -> str:
    """Returns the part of the program that another framework runs."""
    if not plan.outside:
        return ""
    table = rows_table(outside_rows(plan), ("left to PyTorch", "why", "tensors"))
    return f"<h2>Beside this plan: {len(plan.outside)} parts of the program</h2>{table}"


def _curve(plan: MemoryPlan) -> str:
    picture = curve_picture(plan) if plan.curve else "<p>Not searched: <code>plan_with_curve(*args).html()</code> draws it.</p>"
    return f"<div><h2>Bytes of a call against estimated time</h2>{picture}</div>"


def _facts(plan: MemoryPlan) -> str:
    """Returns the lines under the title: limit and date."""
    limit = "no limit" if plan.limit is None else f"limit {size_text(plan.limit, plan.planned_bytes)}"
    return f"<p>{limit} · {len(plan.steps)} steps · {datetime.date.today().isoformat()}</p>"


def plan_page(plan: MemoryPlan, kernels: Sequence[GeneratedKernel] = (), title: str | None = None, notes: str = "") -> str:
    """One page: figures, plan beside measured run, live bytes at each step, buffers at their offsets, and the kernels.

    Hovering over a buffer shows its size, its values and the user's lines. title: None for the function's name.
    """
    parts = [f"<p>{escaped(notes)}</p>" if notes else "", _facts(plan)]
    parts.append(f'<div class="side"><div>{_bytes_table(plan)}{_beside_measured(plan)}</div>')
    parts.append(f"{_curve(plan)}</div>{_key()}<h2>Live bytes at each of {len(plan.steps)} steps</h2>{live_picture(plan)}")
    if plan.measured:
        parts.append(f"<h2>Measured time of the same steps</h2>{time_picture(plan)}")
    parts.append("<h2>Buffers: steps from left to right, offsets upwards</h2>")
    parts.append(f"<p>{search_field('op, parameter, dtype, shape or file:line')}</p>{arena_picture(plan)}")
    parts.append("<p>Below the dashed line: the arena. Above it: what has storage of its own.</p>" + _outside_table(plan))
    parts.append(_beside_plan(plan))
    if kernels:
        parts.append("<h2>Generated kernels</h2>" + _kernel_table(kernels))
    return page(
        title if title is not None else f"Memory plan of {plan.function}" if plan.function else "Memory plan",
        "\n".join(parts),
        kind="plan",
        data={"steps": plan.steps, "live": [size_text(size) for size in plan.live_bytes()]},
        hint="Point at a buffer or a step: what it holds, and the line of the program, stand here.",
    )
