"""The pictures of a memory plan as SVG: live bytes over the steps, buffers at their offsets, the curve of plans."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from .._core import size_text
from ..reports.page import escaped
from .plan_text import seconds_text

if TYPE_CHECKING:
    from .report import MemoryPlan, PlannedBuffer

WIDTH = 1200  # pixels; one step takes WIDTH / steps in every picture, so that they stand below each other
_ARENA_HEIGHT, _LIVE_HEIGHT, _TIME_HEIGHT = 460, 170, 90
_CURVE_WIDTH, _CURVE_HEIGHT, _MARGIN = 560, 260, 70
_VALUES_SHOWN = 12  # that a buffer lists

# Colours that colour-blind readers tell apart, in the order in which bands are stacked.
COLOURS = {
    "parameter": "#4c78a8",
    "state": "#2f4b6e",
    "input": "#9ecae9",
    "activation": "#f2a93b",
    "gradient": "#54a24b",
    "recomputed": "#b279a2",
    "workspace": "#8c8c8c",
    "constant": "#d8c9a3",
}


def _chart(name: str, height: int, shapes: str, top: str, bottom: str, steps: int) -> str:
    """Makes a picture as wide as the page, with axes; its words keep their size when it is narrow.
    """
    # Styles stand here, because a notebook's cell has no style sheet of ours.
    ends = "display:flex;justify-content:space-between"
    return (
        '<div class="chart" style="display:grid;grid-template-columns:5.5em minmax(0,1fr);column-gap:6px;font-size:12px">'
        f'<div style="{ends};flex-direction:column;text-align:right"><span>{top}</span><span>{bottom}</span></div>'
        f'<svg id="{name}" viewBox="0 0 {WIDTH} {height}" width="100%" height="{height}" preserveAspectRatio="none" role="img">{shapes}</svg>'
        f'<div style="grid-column:2;{ends}"><span>step 0</span><span>step {max(0, steps - 1)}</span></div></div>'
    )


def _hover(buffer: PlannedBuffer) -> str:
    where = f"at offset {buffer.offset:,}" if buffer.place == "arena" else f"storage of its own ({buffer.place})"
    steps = f"steps {buffer.first_step} to {buffer.last_step - 1}" if buffer.place == "arena" else "the whole call"
    lines = [f"{buffer.use}: {size_text(buffer.bytes)} {where}, {steps}", *buffer.values[:_VALUES_SHOWN]]
    if len(buffer.values) > _VALUES_SHOWN:
        lines.append(f"and {len(buffer.values) - _VALUES_SHOWN} more values")
    return escaped("\n".join(lines))


def _placed(plan: MemoryPlan) -> Iterator[tuple[PlannedBuffer, int, int, int]]:
    """Returns each buffer with its offset and steps; buffers outside the arena lie above it, for
    the whole call.
    """
    top = plan.arena_bytes
    for buffer in plan.buffers:
        if not buffer.bytes or buffer.use == "constant":
            continue
        if buffer.place == "arena":
            yield buffer, buffer.offset, buffer.first_step, buffer.last_step
        else:
            yield buffer, top, 0, len(plan.steps)
            top += buffer.bytes


def arena_picture(plan: MemoryPlan) -> str:
    """Steps from left to right, offsets upwards; the dashed line is the end of the arena."""
    placed = list(_placed(plan))
    highest = max((offset + buffer.bytes for buffer, offset, _, _ in placed), default=0) or 1
    x_scale, y_scale = WIDTH / max(1, len(plan.steps)), _ARENA_HEIGHT / highest
    shapes = []
    for i, (buffer, offset, first, last) in enumerate(placed):
        height = buffer.bytes * y_scale
        shapes.append(
            f'<rect class="buffer" id="b{i}" x="{first * x_scale:.2f}" y="{_ARENA_HEIGHT - offset * y_scale - height:.2f}" '
            f'width="{max(0.5, (last - first) * x_scale):.2f}" height="{max(0.3, height):.2f}" '
            f'fill="{COLOURS[buffer.use]}"><title>{_hover(buffer)}</title></rect>'
        )
    end = _ARENA_HEIGHT - plan.arena_bytes * y_scale
    shapes.append(f'<line x1="0" x2="{WIDTH}" y1="{end:.2f}" y2="{end:.2f}" stroke="currentColor" stroke-dasharray="6 4"/>')
    return _chart("arena", _ARENA_HEIGHT, "".join(shapes), size_text(highest), "0 B", len(plan.steps))


def _band(low: list[float], high: list[float], scale: float) -> str:
    """Returns the outline of a band that has one height for each step."""
    there = [f"{x * scale:.2f},{y:.2f}" for i, y in enumerate(high) for x in (i, i + 1)]
    back = [f"{x * scale:.2f},{low[i]:.2f}" for i in reversed(range(len(low))) for x in (i + 1, i)]
    return " ".join(there + back)


def live_picture(plan: MemoryPlan) -> str:
    """Bytes alive at each step, stacked by what they are used for; storage of its own counts for the whole call."""
    steps = len(plan.steps)
    bands = {use: plan.live_bytes(use) for use in COLOURS if use != "constant"}
    for use, live in bands.items():
        outside = plan.bytes_of(use)
        bands[use] = [size + outside for size in live]
    highest = max((sum(column) for column in zip(*bands.values(), strict=True)), default=0) or 1
    low, shapes = [0] * steps, []
    for use, live in bands.items():
        high = [a + b for a, b in zip(low, live, strict=True)]
        if any(live):
            lower, upper = ([_LIVE_HEIGHT * (1 - y / highest) for y in edge] for edge in (low, high))
            outline = _band(lower, upper, WIDTH / max(1, steps))
            shapes.append(f'<polygon class="band" points="{outline}" fill="{COLOURS[use]}"><title>{use}</title></polygon>')
        low = high
    return _chart("live", _LIVE_HEIGHT, "".join(shapes), size_text(highest), "0 B", steps)


def time_picture(plan: MemoryPlan) -> str:
    """Measured seconds of each step, of a plan that has them."""
    if plan.measured is None:
        raise AssertionError("plan.measured is not None does not hold")
    seconds = plan.measured.step_seconds
    scale, highest = WIDTH / max(1, len(seconds)), max(seconds, default=0.0) or 1.0
    bars = (
        f'<rect class="time" x="{i * scale:.2f}" y="{_TIME_HEIGHT * (1 - s / highest):.2f}" width="{max(0.5, scale):.2f}" '
        f'height="{_TIME_HEIGHT * s / highest:.2f}" fill="#72b7b2"><title>{escaped(plan.steps[i])}: {seconds_text(s)}</title></rect>'
        for i, s in enumerate(seconds)
        if s
    )
    return _chart("times", _TIME_HEIGHT, "".join(bars), seconds_text(highest), "0 s", len(seconds))


def curve_picture(plan: MemoryPlan) -> str:
    """Estimated seconds of a step (upwards) against bytes of a call; the ring is this plan."""
    points = plan.curve
    most, slowest = max(p.bytes for p in points), max(p.seconds for p in points)
    least, fastest = min(p.bytes for p in points), min(p.seconds for p in points)

    def x(size: int) -> float:
        return _MARGIN + (_CURVE_WIDTH - 2 * _MARGIN) * (size - least) / ((most - least) or 1)

    def y(seconds: float) -> float:
        return _CURVE_HEIGHT - 40 - (_CURVE_HEIGHT - 70) * (seconds - fastest) / ((slowest - fastest) or 1)

    path = " ".join(f"{x(p.bytes):.1f},{y(p.seconds):.1f}" for p in points)
    shapes = [f'<polyline points="{path}" fill="none" stroke="#4c78a8"/>']
    for p in points:
        words = f"{size_text(p.bytes)}, {seconds_text(p.seconds)}{' (this plan)' if p.is_chosen else ''}"
        radius, fill = (7, "none") if p.is_chosen else (3, "#4c78a8")
        shapes.append(
            f'<circle class="plan" cx="{x(p.bytes):.1f}" cy="{y(p.seconds):.1f}" r="{radius}" fill="{fill}" '
            f'stroke="currentColor" pointer-events="all"><title>{words}</title></circle>'
        )
    for size, anchor in {least: "start", most: "end"}.items():
        shapes.append(f'<text x="{x(size):.0f}" y="{_CURVE_HEIGHT - 10}" text-anchor="{anchor}">{size_text(size)}</text>')
    for seconds in {fastest, slowest}:
        shapes.append(f'<text x="4" y="{y(seconds) + 4:.0f}">{seconds_text(seconds)}</text>')
    shapes.append('<text x="4" y="14">estimated time of a step</text>')
    shapes.append(f'<text x="{_CURVE_WIDTH / 2:.0f}" y="{_CURVE_HEIGHT - 10}" text-anchor="middle">bytes of a call</text>')
    return f'<svg id="curve" viewBox="0 0 {_CURVE_WIDTH} {_CURVE_HEIGHT}" width="{_CURVE_WIDTH}" role="img">{"".join(shapes)}</svg>'
