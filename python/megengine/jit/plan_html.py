"""Draws a memory plan over the steps of a program, as one HTML page without any server or script."""

from __future__ import annotations

import html
from collections.abc import Sequence

from .report import GeneratedKernel, MemoryPlan, PlannedBuffer

_WIDTH, _HEIGHT, _LIVE_HEIGHT = 1200, 420, 120  # pixels
_COLOURS = {"fused": "#4c78a8", "workspace": "#bab0ac", "view": "#72b7b2", "other": "#f58518"}

_PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>{title}</title>
<style>
body {{ font: 14px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 1240px; color: #222; }}
table {{ border-collapse: collapse; margin: 1em 0; }} td, th {{ padding: 2px 12px; text-align: right; }}
th {{ border-bottom: 1px solid #999; }} td:first-child, th:first-child {{ text-align: left; }}
svg {{ background: #fafafa; border: 1px solid #ddd; }} rect:hover {{ stroke: #000; stroke-width: 2; }}
pre {{ overflow-x: auto; background: #f4f4f4; padding: 8px; }}
</style>
<h1>{title}</h1>
{body}
</html>
"""


def bytes_text(count: int) -> str:
    """``1536`` -> ``"1.5 KiB"``."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    raise AssertionError("unreachable")


def _colour(buffer: PlannedBuffer) -> str:
    if buffer.values and buffer.values[0].startswith("workspace"):
        return _COLOURS["workspace"]
    if any(" fused " in value for value in buffer.values):
        return _COLOURS["fused"]
    return _COLOURS["view"] if len(buffer.values) > 1 else _COLOURS["other"]


def _arena_picture(plan: MemoryPlan) -> str:
    steps = max(1, len(plan.steps))
    scale_x, scale_y = _WIDTH / steps, _HEIGHT / max(1, plan.arena_bytes)
    shapes = []
    for buffer in plan.buffers:
        if buffer.place != "arena" or not buffer.bytes:
            continue
        height = buffer.bytes * scale_y
        top = _HEIGHT - buffer.offset * scale_y - height
        hover = html.escape(f"{bytes_text(buffer.bytes)} at {buffer.offset}\n" + "\n".join(buffer.values))
        shapes.append(
            f'<rect x="{buffer.first_step * scale_x:.2f}" y="{top:.2f}" '
            f'width="{max(0.5, (buffer.last_step - buffer.first_step) * scale_x):.2f}" '
            f'height="{max(0.5, height):.2f}" fill="{_colour(buffer)}" fill-opacity="0.75" '
            f'stroke="#fff" stroke-width="0.5"><title>{hover}</title></rect>'
        )
    return f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" width="100%" role="img">{"".join(shapes)}</svg>'


def _live_bytes(plan: MemoryPlan) -> list[int]:
    change = [0] * (len(plan.steps) + 1)
    for buffer in plan.buffers:
        if buffer.place == "arena":
            change[buffer.first_step] += buffer.bytes
            change[min(buffer.last_step, len(plan.steps))] -= buffer.bytes
    live, total = [], 0
    for delta in change[:-1]:
        total += delta
        live.append(total)
    return live


def _live_picture(plan: MemoryPlan) -> str:
    live = _live_bytes(plan)
    highest = max(live, default=0) or 1
    scale = _WIDTH / max(1, len(live))
    bars = "".join(
        f'<rect x="{step * scale:.2f}" y="{_LIVE_HEIGHT * (1 - size / highest):.2f}" width="{max(scale, 0.5):.2f}" '
        f'height="{_LIVE_HEIGHT * size / highest:.2f}" fill="#54a24b">'
        f"<title>{html.escape(plan.steps[step])}: {bytes_text(size)} live</title></rect>"
        for step, size in enumerate(live)
    )
    return f'<svg viewBox="0 0 {_WIDTH} {_LIVE_HEIGHT}" width="100%" role="img">{bars}</svg>'


def plan_page(
    plan: MemoryPlan, kernels: Sequence[GeneratedKernel] = (), title: str = "Memory plan", notes: str = ""
) -> str:
    """One page: figures, live bytes at each step, the arena over the steps, and the kernels.

    Hovering over a buffer shows its size, its values and the user's lines.
    """
    figures = (
        ("one buffer for each recorded value", plan.unplanned_bytes),
        ("planned: inputs, state, outputs and the arena", plan.planned_bytes),
        ("lower bound of that", plan.peak_live_bytes),
        ("the arena", plan.arena_bytes),
        ("largest workspace in it", plan.workspace_bytes),
    )
    rows = "".join(f"<tr><td>{name}</td><td>{bytes_text(size)}</td><td>{size:,}</td></tr>" for name, size in figures)
    kernel_rows = "".join(
        f"<tr><td>{html.escape(', '.join(kernel.ops))}</td><td>{len(kernel.ops)}</td><td>{kernel.backend}</td>"
        f"<td>{kernel.compile_ms:.1f}</td><td>{'yes' if kernel.cached else 'no'}</td></tr>"
        for kernel in kernels
    )
    body = (
        (f"<p>{html.escape(notes)}</p>" if notes else "")
        + f"<table><tr><th>memory</th><th></th><th>bytes</th></tr>{rows}</table>"
        + f"<h2>Live bytes at each of {len(plan.steps)} steps</h2>{_live_picture(plan)}"
        + f"<h2>The arena: steps from left to right, offsets upwards</h2>{_arena_picture(plan)}"
        + "<p>blue: made by fused kernels; teal: several values share the place; orange: one value; grey: workspace</p>"
    )
    if kernel_rows:
        body += (
            "<h2>Generated kernels</h2><table><tr><th>ops</th><th>count</th><th>backend</th>"
            f"<th>compile ms</th><th>cached</th></tr>{kernel_rows}</table>"
        )
    return _PAGE.format(title=html.escape(title), body=body)
