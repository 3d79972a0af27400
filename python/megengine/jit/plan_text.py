"""A memory plan as text: a table of its bytes, the largest values of its fullest step, and the curve of plans. Kernels as text."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

from .._core import size_text

if TYPE_CHECKING:
    from .report import CurvePoint, GeneratedKernel, MemoryPlan

_CURVE_ROWS, _BAR = 12, 40
_LARGEST = 6
_OPS_WIDTH = 60


def seconds_text(seconds: float) -> str:
    """``0.0123`` -> ``"12.3 ms"``."""
    if seconds >= 1:
        return f"{seconds:.2f} s"
    return f"{seconds * 1e3:.1f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.1f} us"


def figures(plan: MemoryPlan) -> list[tuple[str, int]]:
    """Returns the figures that are shown of every plan: words and bytes."""
    return [
        ("unplanned: one buffer for each recorded value", plan.unplanned_bytes),
        ("planned: inputs, parameters, results and arena", plan.planned_bytes),
        ("peak live: the lower bound of that", plan.peak_live_bytes),
        ("arena, shared over the steps", plan.arena_bytes),
        ("workspace: the largest in the arena", plan.workspace_bytes),
        *(
            [
                (f"{'in a file' if plan.transfer_seconds else 'on the host'}, beside that", plan.host_bytes),
                ("written there in a call", plan.written_bytes),
                ("read back in a call", plan.transferred_bytes - plan.written_bytes),
            ]
            if plan.host_bytes
            else []
        ),
    ]


def hidden_part(plan: MemoryPlan) -> list[tuple[str, str]]:
    """Returns the share of the transfers to a file that runs beside steps, in words; "" without
    such transfers.
    """
    if not plan.transfer_seconds:
        return []
    hidden = max(0.0, 1 - plan.waiting_seconds / plan.transfer_seconds)
    return [("of these transfers beside steps, by estimates", f"{hidden:.0%} of {seconds_text(plan.transfer_seconds)}")]


def kind_rows(plan: MemoryPlan) -> list[tuple[str, int]]:
    """Returns the bytes of each kind of value at the fullest step of a call's arena, without kinds
    that take none.
    """
    return [(kind, size) for kind, size in plan.by_kind().items() if size]


def thinned(curve: tuple[CurvePoint, ...], rows: int = _CURVE_ROWS) -> list[CurvePoint]:
    """Returns at most ``rows`` points, evenly over the curve, and the chosen one; both ends stay.
    """
    if len(curve) <= rows:
        return list(curve)
    kept = {round(i * (len(curve) - 1) / (rows - 1)) for i in range(rows)}
    return [point for i, point in enumerate(curve) if i in kept or point.is_chosen]


def curve_text(plan: MemoryPlan) -> str:
    """Returns a line for each plan: its bytes as a bar, and its cost relative to the cheapest."""
    lines = ["  bytes of a call against the estimated time of a step; *: this plan"]
    most, cheapest = max(point.bytes for point in plan.curve) or 1, plan.curve[0].seconds or 1.0
    points = thinned(plan.curve)
    for point, beside in zip(points, [*points[1:], *points[-2:-1]], strict=True):
        bar = "#" * max(1, round(_BAR * point.bytes / most))
        mark = "*" if point.is_chosen else " "
        cost = f"{seconds_text(point.seconds):>10} {point.seconds / cheapest:>6.2f} x"
        lines.append(f"{mark} {size_text(point.bytes, beside.bytes):>10} {cost}  {bar}")
    return "\n".join(lines)


def outside_rows(plan: MemoryPlan) -> list[tuple[str, str, str]]:
    """Returns what is beside the plan, why, and the bytes of its tensors where they are known."""
    return [(each.what, each.why, size_text(each.bytes) if each.bytes else "not known") for each in plan.outside]


def plan_text(plan: MemoryPlan, name: str) -> str:
    """Returns the whole text of a plan, under the function's name."""
    lines = [name]
    lines += [f"  {words:<50} {size_text(size):>10} {size:>16,}" for words, size in figures(plan)]
    lines += [f"  {words:<50} {text:>10}" for words, text in hidden_part(plan)]
    lines.append(f"  {'recomputed, as a part of all flops':<50} {plan.recompute_flops_ratio:>10.1%}")
    if kinds := kind_rows(plan):
        lines.append("  by kind, which together are what is planned:")
        lines += [f"    {kind:<48} {size_text(size):>10} {size:>16,}" for kind, size in kinds]
    peak = plan.fullest_step()
    largest = plan.live_buffers(peak)[:_LARGEST]
    if largest:
        lines.append(f"  alive at the fullest step, {plan.steps[peak]}:")
        lines += [f"    {size_text(b.bytes):>10}  {b.use:<11} {b.values[0]}" for b in largest]
    if plan.outside:
        lines.append("  beside this plan:")
        lines += [f"    {size:>10}  {what} ({why})" for what, why, size in outside_rows(plan)]
    if len(plan.curve) > 1:
        lines.append(curve_text(plan))
    return "\n".join(lines)


def kernels_text(kernels: Sequence[GeneratedKernel]) -> str:
    """A line for each kernel."""
    if not kernels:
        return "no generated kernels"
    lines = [f"{'compiler':<9} {'compile ms':>10}  {'cached':<6} {'moves':>10}  ops  # line"]
    for kernel in kernels:
        ops = textwrap.shorten(", ".join(kernel.ops), _OPS_WIDTH, placeholder=f" ... ({len(kernel.ops)} ops)")
        cached = "yes" if kernel.cached else "no"
        lines.append(f"{kernel.backend:<9} {kernel.compile_ms:>10.1f}  {cached:<6} {size_text(kernel.bytes):>10}  {ops}  # {kernel.where}")
    return "\n".join(lines)
