"""Draws a memory plan as one HTML page that needs no server and loads nothing."""

from __future__ import annotations

from collections.abc import Sequence

from .._page import escaped, page, rows_table
from .plan_pictures import COLOURS, arena_picture, curve_picture, live_picture, time_picture
from .plan_text import bytes_text, figures, seconds_text
from .report import GeneratedKernel, MemoryPlan

__all__ = ["bytes_text", "plan_page"]

# The pictures are complete without the script. It writes what the mouse is over into a box that stays in sight, and
# opens the page on a buffer that its address names: plan.html#b12.
_SCRIPT = """
let marked = null;
function tell(shape) {
  if (marked) marked.classList.remove("marked");
  marked = shape;
  shape.classList.add("marked");
  details.textContent = shape.querySelector("title").textContent;
}
function tellStep(event) {
  const box = event.currentTarget.getBoundingClientRect();
  const step = Math.floor((event.clientX - box.left) / box.width * data.steps.length);
  if (data.steps[step] === undefined) return;
  details.textContent = `step ${step} of ${data.steps.length}: ${data.live[step]} alive in the arena\\n${data.steps[step]}`;
}
const buffers = document.querySelectorAll("rect.buffer, rect.time, circle.plan");
for (const shape of buffers) shape.addEventListener("mouseenter", () => tell(shape));
document.getElementById("live").addEventListener("mousemove", tellStep);
const named = location.hash && document.getElementById(location.hash.slice(1));
if (named && named.classList.contains("buffer")) tell(named);
document.body.dataset.buffers = document.querySelectorAll("rect.buffer").length;
document.body.dataset.steps = data.steps.length;
"""

_STYLE = """
svg { background: #fafafa; border: 1px solid #ddd; } svg text { font-size: 12px; }
.buffer { fill-opacity: 0.8; stroke: #fff; stroke-width: 0.2; } .buffer:hover, .marked { stroke: #000; stroke-width: 2; }
.side { display: flex; flex-wrap: wrap; gap: 3em; } .key span { padding: 2px 8px; margin-right: 6px; color: #fff; }
"""


def _bytes_table(plan: MemoryPlan) -> str:
    rows = [(words, bytes_text(size), f"{size:,}") for words, size in figures(plan)]
    rows.append(("recomputed, as a part of all flops", f"{plan.recompute_flops_ratio:.1%}", ""))
    return rows_table(rows, ("memory", "", "bytes"))


def _beside_measured(plan: MemoryPlan) -> str:
    """Plan and measured run side by side."""
    run = plan.measured
    if run is None:
        return "<p>Not measured: trace with <code>profiling=True</code> and call the function.</p>"
    chosen = next((point for point in plan.curve if point.is_chosen), None)
    estimate = seconds_text(chosen.seconds) if chosen else ""
    rows = [
        ("bytes of a call; the allocator's peak, whole process", bytes_text(plan.planned_bytes), bytes_text(run.allocator_peak_bytes)),
        (f"time of a run, mean of {run.runs} runs", estimate, seconds_text(run.seconds)),
    ]
    return rows_table(rows, ("", "planned", "measured"))


def _key() -> str:
    return '<p class="key">' + "".join(f'<span style="background:{c}">{use}</span>' for use, c in COLOURS.items() if use != "constant") + "</p>"


def _kernel_table(kernels: Sequence[GeneratedKernel]) -> str:
    rows = [
        (", ".join(k.ops), str(len(k.ops)), k.backend, f"{k.compile_ms:.1f}", "yes" if k.cached else "no") for k in kernels
    ]
    return "<h2>Generated kernels</h2>" + rows_table(rows, ("ops", "count", "backend", "compile ms", "cached"))


def plan_page(
    plan: MemoryPlan, kernels: Sequence[GeneratedKernel] = (), title: str = "Memory plan", notes: str = ""
) -> str:
    """One page: figures, plan beside measured run, live bytes at each step, buffers at their offsets, and the kernels.

    Hovering over a buffer shows its size, its values and the user's lines.
    """
    parts = [f"<p>{escaped(notes)}</p>" if notes else ""]
    parts.append(f'<div class="side"><div>{_bytes_table(plan)}{_beside_measured(plan)}</div>')
    if len(plan.curve) > 1:
        parts.append(f"<div><h2>Bytes of a call against estimated time</h2>{curve_picture(plan)}</div>")
    parts.append(f"</div>{_key()}<h2>Live bytes at each of {len(plan.steps)} steps</h2>{live_picture(plan)}")
    if plan.measured:
        parts.append(f"<h2>Measured time of the same steps</h2>{time_picture(plan)}")
    parts.append(f"<h2>Buffers: steps from left to right, offsets upwards</h2>{arena_picture(plan)}")
    parts.append("<p>Below the dashed line: the arena. Above it: what has storage of its own.</p>")
    if kernels:
        parts.append(_kernel_table(kernels))
    return page(
        title,
        "\n".join(parts),
        data={"steps": plan.steps, "live": [bytes_text(size) for size in plan.live_bytes()]},
        script=_SCRIPT,
        style=_STYLE,
        hint="Point at a buffer or a step: what it holds, and the line of the program, stand here.",
    )
