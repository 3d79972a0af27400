"""Reports about a traced function: memory plans, measurements, and generated kernels."""

from __future__ import annotations

import functools
import itertools
import json
from dataclasses import dataclass, field
from typing import Any

from . import plan_html, plan_text


@dataclass(frozen=True)
class PlannedBuffer:
    """Describes a block of memory in a plan, and the values that share it.

    Parameters
    ----------
    place : str
        "arena" (shared over time), "input", "output" or "constant".
    offset : int
        Bytes from the start of its place.
    bytes : int
        Size of the block in bytes.
    first_step, last_step : int
        First and last step of its lifetime; the block is free again when ``last_step`` runs.
    use : str
        What its first value is: "input", "parameter", "state" (what a call replaces and has no
        gradient for, such as an optimizer's), "constant", "activation", "gradient", "recomputed" or
        "workspace".
    values : tuple of str
        Names of the values that share it.

    Examples
    --------
    >>> import megengine.functional as F
    >>> from megengine import jit
    >>> plan = jit.trace(lambda x: F.exp(x) + 1).plan(F.ones((256, 256)))
    >>> [(buffer.place, buffer.use, buffer.bytes) for buffer in plan.buffers]
    [('input', 'input', 262144), ('constant', 'constant', 4), ('output', 'activation', 262144)]
    """

    place: str  # "arena", "input", "output" or "constant"
    offset: int  # bytes
    bytes: int
    first_step: int
    last_step: int  # half-open
    # "input", "parameter", "state", "constant", "activation", "gradient", "recomputed" or "workspace": what its first value is
    use: str
    values: tuple[str, ...]


@dataclass(frozen=True)
class CurvePoint:
    """Holds the memory and time of a call, by one plan that the search found.

    Parameters
    ----------
    bytes : int
        Bytes of a call: planned for the plan in use, estimated for others.
    seconds : float
        Estimated duration of a call.
    is_chosen : bool
        Whether this is the plan in use.

    Examples
    --------
    >>> import megengine.functional as F
    >>> from megengine import Parameter, autodiff, jit
    >>> x = Parameter(F.ones((256, 256)))
    >>> gm = autodiff.GradManager().attach(x)
    >>> def step():
    ...     with gm:
    ...         gm.backward(F.sin(F.cos(F.exp(F.sin(F.cos(F.exp(x)))))).sum())
    >>> curve = jit.trace(step).plan_with_curve().curve
    >>> curve[0].bytes > curve[-1].bytes, curve[0].seconds < curve[-1].seconds
    (True, True)
    """

    bytes: int
    seconds: float
    is_chosen: bool


@dataclass(frozen=True)
class MeasuredRun:
    """Holds the measured time and memory of runs of a traced function.

    Parameters
    ----------
    runs : int
        Number of measured runs.
    seconds : float
        Mean seconds of a run, including overlapping transfers.
    step_seconds : tuple of float
        Mean seconds of each step of the plan.
    allocator_peak_bytes : int
        Peak bytes of the allocator, for the whole process.

    Examples
    --------
    >>> from megengine import jit, tensor
    >>> double = jit.trace(lambda x: x * 2, profiling=True)
    >>> for _ in range(3):
    ...     y = double(tensor([1.0]))
    >>> double.memory_plan().measured.runs  # the first call records
    2
    """

    runs: int
    seconds: float
    step_seconds: tuple[float, ...] = field(repr=False)  # one for each step of the plan
    allocator_peak_bytes: int


@dataclass(frozen=True)
class OutsideProgram:
    """Describes memory of a program outside of its plan, because another framework runs that part.

    Parameters
    ----------
    what : str
        An operation with the user's line, or a description of what is held.
    why : str
        Reason why it is not planned.
    bytes : int
        Bytes of the tensors that it reads and returns; 0 if that is not known.

    Examples
    --------
    >>> from megengine.jit.report import OutsideProgram
    >>> OutsideProgram("aten.nonzero.default, net.py:3 in forward", "its shape follows from data", 0)
    OutsideProgram(what='aten.nonzero.default, net.py:3 in forward', why='its shape follows from data', bytes=0)
    """

    what: str
    why: str
    bytes: int


@dataclass(frozen=True)
class StepCost:
    """Estimates what one step of a plan asks of a GPU.

    Parameters
    ----------
    ops : tuple of str
        The operations that it computes.
    where : str
        File and line of the user's program.
    by : str
        What computes it: a generated kernel, a kernel written by hand, or a library.
    launches : int
        Number of kernels, calls of libraries and copies by the driver.
    blocks : int
        Number of blocks of all kernels except a library's.
    bytes : float
        Bytes read from the card's memory and written to it.
    flops : float
        Floating-point operations of products; other arithmetic counts as instructions.
    instructions, instructions_of_element : float
        Scalar instructions of generated code, in all and for each element.
    seconds : float or None
        Modelled seconds; None if the work depends on values.
    source : str
        Where the time of its arithmetic comes from: "card" if the card's file lists this product
        (codegen/cards), else "model", which counts operations at the card's speed.
    ir : str
        The generated kernel as text, or empty.

    Examples
    --------
    >>> import megengine.functional as F
    >>> from megengine import jit
    >>> view = jit.trace(lambda x: F.exp(x) * 2, opt_level=3).on("sm_90")
    >>> plan = view.plan(F.ones((1024, 1024)))
    >>> [(cost.ops, cost.by, cost.launches) for cost in view.kernels()]
    [(('exp', 'mul'), 'a generated kernel', 1)]
    """

    ops: tuple[str, ...]
    where: str
    by: str
    launches: int
    blocks: int
    bytes: float
    flops: float
    instructions: float
    instructions_of_element: float
    seconds: float | None
    source: str
    ir: str = field(repr=False)


# Use of a buffer -> the row that counts it. "results" have storage of their own.
_KINDS = {
    "input": "inputs",
    "parameter": "parameters",
    "state": "states",
    "constant": "constants",
    "result": "results",
    "activation": "activations",
    "recomputed": "recomputed",
    "gradient": "gradients",
    "workspace": "workspaces",
}


@dataclass(frozen=True, repr=False)
class MemoryPlan:
    """Describes the memory of one call of a traced function, as `jit.trace.plan` and
    ``memory_plan`` return it.

    Parameters
    ----------
    unplanned_bytes : int
        Bytes with one buffer for each recorded value.
    planned_bytes : int
        Bytes that the program uses, including inputs and state.
    peak_live_bytes : int
        Most bytes alive at a time, the lower bound of every plan.
    arena_bytes : int
        Bytes of the arena, the part that is reused over time.
    workspace_bytes : int
        Bytes of the largest scratch memory of an operation.
    host_bytes : int
        Bytes of values that wait in host memory (`offload`) or in a file (``trace(spill=)``), in
        addition to planned_bytes.
    transferred_bytes : int
        Bytes moved there and back in one call.
    recompute_flops_ratio : float
        Share of the flops that are recomputation.
    buffers : tuple of PlannedBuffer
        A `PlannedBuffer` for each block of memory.
    steps : tuple of str
        The names of the steps, in order.
    curve : tuple of CurvePoint
        The plans that the search chose from, from the fastest to the smallest (empty unless
        something asked for a search).
    measured : MeasuredRun or None
        Time and memory that runs took, with ``profiling=True``; else None.
    function : str
        Name and line of the traced function, for the page's title.
    limit : int or None
        Memory limit in bytes that the plan keeps, or None.
    written_bytes : int
        Part of transferred_bytes that goes to the host's memory or the file.
    transfer_seconds : float
        Seconds that the transfers to a file and back take, by the measured speed of its folder.
    waiting_seconds : float
        Part of transfer_seconds in which no step runs.
    outside : tuple of OutsideProgram
        Memory that the same program takes elsewhere, such as in operations that are left to
        PyTorch.
    held_bytes : int
        Part of planned_bytes that the call holds for other parts of it, where it runs in several.
    parts : tuple of MemoryPlan
        A plan for each part of a call that runs in several; empty for others.

    Examples
    --------
    >>> import megengine.functional as F
    >>> from megengine import jit
    >>> plan = jit.trace(lambda x: F.exp(F.sin(F.cos(x)))).plan(F.ones((256, 256)))
    >>> plan.unplanned_bytes // 2**18, plan.planned_bytes // 2**18  # tensors of 256 KiB
    (4, 2)
    """

    unplanned_bytes: int
    planned_bytes: int
    peak_live_bytes: int
    arena_bytes: int
    workspace_bytes: int
    host_bytes: int
    transferred_bytes: int
    recompute_flops_ratio: float
    buffers: tuple[PlannedBuffer, ...]
    steps: tuple[str, ...]
    curve: tuple[CurvePoint, ...] = ()
    measured: MeasuredRun | None = None
    function: str = ""
    limit: int | None = None
    written_bytes: int = 0
    transfer_seconds: float = 0.0
    waiting_seconds: float = 0.0
    outside: tuple[OutsideProgram, ...] = ()
    held_bytes: int = 0
    parts: tuple[MemoryPlan, ...] = ()

    def bytes_of(self, *uses: str) -> int:
        """Returns the bytes of all buffers outside of the arena with one of these uses.

        Parameters
        ----------
        *uses : str
            Uses to count, such as "input", "parameter" and "constant", see `PlannedBuffer`.

        Returns
        -------
        int
            Their sum.
        """
        return sum(b.bytes for b in self.buffers if b.place != "arena" and b.use in uses)

    def by_kind(self) -> dict[str, int]:
        """Returns the bytes of a call by their purpose; their sum is planned_bytes.

        The arena counts as it is at its fullest step; "gaps" are its bytes that hold nothing then.
        Results that lie in the place of inputs, parameters or states count as these. Of a call in
        several parts it is the one that takes most; "held" is what the call holds for the others.

        Returns
        -------
        dict of str
            Bytes of "inputs", "parameters", "states", "constants", "results", "activations",
            "recomputed", "gradients", "workspaces", "gaps" and "held".

        Examples
        --------
        >>> import megengine.functional as F
        >>> from megengine import jit
        >>> plan = jit.trace(lambda x: F.exp(F.sin(x)).sum()).plan(F.ones((256, 256)))
        >>> {kind: size for kind, size in plan.by_kind().items() if size}
        {'inputs': 262144, 'results': 4, 'activations': 262144}
        """
        if self.parts:
            return max(self.parts, key=lambda part: part.planned_bytes).by_kind()
        kinds = dict.fromkeys((*_KINDS.values(), "gaps", "held"), 0)
        kinds["held"] = self.held_bytes
        for buffer in self.buffers:
            if buffer.place in ("input", "constant", "output"):
                kinds["results" if buffer.place == "output" else _KINDS[buffer.use]] += buffer.bytes
        # Constants that the program reads in packed form are no buffers.
        kinds["constants"] += self.planned_bytes - self.arena_bytes - sum(kinds.values())
        alive = self.live_buffers(self.fullest_step())
        for buffer in alive:
            kinds[_KINDS[buffer.use]] += buffer.bytes
        kinds["gaps"] = self.arena_bytes - sum(buffer.bytes for buffer in alive)
        return kinds

    def live_buffers(self, step: int) -> list[PlannedBuffer]:
        """Returns the buffers that the arena holds while ``step`` runs, the largest first.

        Parameters
        ----------
        step : int
            Number of the step, counted from 0.

        Returns
        -------
        list of PlannedBuffer
            The buffers.
        """
        alive = [b for b in self.buffers if b.place == "arena" and b.first_step <= step < b.last_step]
        return sorted(alive, key=lambda b: -b.bytes)

    def live_bytes(self, *uses: str) -> list[int]:
        """Returns the bytes alive in the arena at each step, all of them or those of some uses.

        Parameters
        ----------
        *uses : str
            Uses to count, such as "input" and "parameter", see `PlannedBuffer`; none means all.

        Returns
        -------
        list of int
            One number for each step.
        """
        change = [0] * (len(self.steps) + 1)
        for buffer in self.buffers:
            if buffer.place == "arena" and (not uses or buffer.use in uses):
                change[min(buffer.first_step, len(self.steps))] += buffer.bytes
                change[min(buffer.last_step, len(self.steps))] -= buffer.bytes
        return list(itertools.accumulate(change[:-1]))

    def fullest_step(self) -> int:
        """Returns the number of the step at which the arena holds most; 0 without steps."""
        live = self.live_bytes()
        return max(range(len(live)), key=live.__getitem__, default=0)

    def html(self, title: str | None = None) -> str:
        """Returns the plan as one self-contained HTML page.

        It shows live bytes over the steps, buffers at their offsets with a search, the curve of
        plans, and the plan beside the measured run.

        Parameters
        ----------
        title : str or None
            Heading of the page; None takes the function's name and line. Limit and date stand below
            it.

        Returns
        -------
        str
            HTML.

        Examples
        --------
        >>> from megengine import jit, tensor
        >>> @jit.trace
        ... def double(x):
        ...     return x * 2
        >>> double.plan(tensor([1.0, 2.0])).html().startswith("<!doctype html>")
        True
        """
        return plan_html.plan_page(self, title=title)

    def __repr__(self) -> str:
        return plan_text.plan_text(self, "memory of a call")

    def _repr_html_(self) -> str:
        """Returns the HTML that notebooks show."""
        return plan_html.plan_cell(self)


@dataclass(frozen=True, repr=False)
class GeneratedKernel:
    """Describes a compiled kernel: the operations it computes, its code, and the cost of compiling
    it.

    Parameters
    ----------
    backend : str
        Name of the kernel compiler.
    ops : list of str
        Names of the operations that it computes.
    choice : str
        Why no library computes it, for a product.
    where : str
        File and line of the user's program.
    bytes : int
        Bytes that one run reads and writes.
    ir : str
        The kernel as text, before the compiler.
    compile_ms : float
        Milliseconds that compiling took.
    cached : bool
        Whether it came from memory or disk.

    Examples
    --------
    >>> import megengine as mge, megengine.functional as F
    >>> f = mge.jit.trace(lambda x: F.exp(x) * 2 + 1, opt_level=3)
    >>> y = f(mge.Tensor([0.0, 1.0]))
    >>> [(kernel.ops, kernel.bytes) for kernel in f.kernels()]
    [(['exp', 'mul', 'add'], 16)]
    """

    backend: str
    ops: list[str]
    choice: str
    where: str
    bytes: int
    ir: str
    compile_ms: float
    cached: bool
    _texts: tuple[Any, ...]

    def __repr__(self) -> str:
        how = "cached" if self.cached else f"compiled in {self.compile_ms:.1f} ms"
        return f"<kernel of {', '.join(self.ops)} by {self.backend}, {how}, from {self.where}>"

    @functools.cached_property
    def source(self) -> str:
        """The last readable stage before machine code; compiles it again."""
        return self._texts[0]()

    @functools.cached_property
    def assembly(self) -> str:
        """The machine code as text; empty if the compiler cannot show it."""
        return self._texts[1]()

    @classmethod
    def from_row(cls, row: dict[str, Any]) -> GeneratedKernel:
        """Makes the description of a kernel from a row of the native runtime, and takes its texts
        out of the row.

        Parameters
        ----------
        row : dict of str
            Row that the native runtime gives for a kernel.

        Returns
        -------
        GeneratedKernel
            The kernel that it describes.
        """
        texts = (row.pop("source"), row.pop("assembly"))
        return cls(**row, _texts=texts)


class Kernels(list[GeneratedKernel]):
    """Lists kernels, and is shown as a table, also in notebooks.

    Parameters
    ----------
    iterable : object
        The kernels, in their order.

    Examples
    --------
    >>> from megengine.jit.report import Kernels
    >>> Kernels()
    no generated kernels
    """

    def __repr__(self) -> str:
        return plan_text.kernels_text(self)

    def _repr_html_(self) -> str:
        return plan_html.kernels_cell(self)


def merge_curves(segments: list[dict[str, Any]]) -> tuple[CurvePoint, ...]:
    """Returns the curve of the segment that takes most memory, as `CurvePoint` objects.

    Parameters
    ----------
    segments : list of dict of str
        Rows of the native runtime, one for each compiled part of a call.

    Returns
    -------
    tuple of CurvePoint
        The points, the fastest first.

    Examples
    --------
    >>> from megengine.jit.report import merge_curves
    >>> curve = [(100, 2.0, True), (60, 3.0, False)]  # bytes, seconds, whether it is chosen
    >>> large, small = {"planned_bytes": 100, "curve": curve}, {"planned_bytes": 10, "curve": []}
    >>> [point.bytes for point in merge_curves([large, small])]
    [100, 60]
    """
    if not segments:
        return ()
    largest = max(segments, key=lambda plan: plan["planned_bytes"])
    return tuple(CurvePoint(size, seconds, chosen) for size, seconds, chosen in largest["curve"])


def measured_run(segments: list[dict[str, Any]], profiles: list[dict[str, Any]], allocator_peak_bytes: int) -> MeasuredRun | None:
    """Returns the time and memory that runs took, from the profiles of the segments; None before
    the first run.

    Parameters
    ----------
    segments, profiles : list of dict of str
        Rows of the native runtime.
    allocator_peak_bytes : int
        Peak bytes of the allocator, which go into the result.

    Returns
    -------
    MeasuredRun or None
        Means of the runs, None before the first one.

    Examples
    --------
    >>> from megengine.jit.report import measured_run
    >>> steps = [{"step": 0, "seconds": 1.0}, {"step": 1, "seconds": 3.0}]
    >>> plan, profile = {"steps": ("exp", "add")}, {"runs": 2, "seconds": 4.0, "steps": steps}
    >>> measured_run([plan], [profile], 64).step_seconds  # of one run
    (0.5, 1.5)
    """
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
    """Returns the plan of a whole call, whose segments run one after the other.

    Parameters
    ----------
    segments : list of dict of str
        Rows of the native runtime, one for each compiled part of a call.
    measured : MeasuredRun or None
        Measured runs, which go into the result.

    Returns
    -------
    MemoryPlan
        The plan of the call. Its numbers are sums over the segments; those of memory that a segment
        has only while it runs are the largest one.

    Examples
    --------
    >>> from megengine.jit.report import merge_plans
    >>> merge_plans([]).planned_bytes
    0
    """
    total = {key: sum(plan[key] for plan in segments) for key in ("unplanned_bytes", "host_bytes", "transferred_bytes", "written_bytes", "transfer_seconds", "waiting_seconds")}
    most: dict[str, Any] = {
        key: max((plan[key] for plan in segments), default=0)
        for key in ("planned_bytes", "peak_live_bytes", "arena_bytes", "workspace_bytes", "held_bytes", "recompute_flops_ratio")
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
        **most,
        buffers=tuple(buffers),
        steps=tuple(steps),
        curve=merge_curves(segments),
        measured=measured,
        parts=tuple(merge_plans([plan]) for plan in segments) if len(segments) > 1 else (),
    )


def merge_profiles(segments: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns one table for a whole call, whose segments run one after the other.

    Parameters
    ----------
    segments : list of dict of str
        Rows of the native runtime. Steps of later segments begin when the earlier ones have ended.

    Returns
    -------
    dict of str
        The table, as `trace.get_profile` returns it.

    Examples
    --------
    >>> from megengine.jit.report import merge_profiles
    >>> steps = [{"last_begin": 0.5, "bytes": 8}]
    >>> row = {"runs": 1, "seconds": 2.0, "last_seconds": 2.0, "steps": steps}
    >>> merged = merge_profiles([row, row])
    >>> merged["seconds"], merged["bytes"], [step["last_begin"] for step in merged["steps"]]
    (4.0, 16, [0.5, 2.5])
    """
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
    """Returns the last run of a merged profile in Google's Trace Event Format, as JSON.

    Parameters
    ----------
    profile : dict of str
        Table that `merge_profiles` returned.
    function : str
        The name that the timeline shows.

    Returns
    -------
    str
        JSON; times are in microseconds.

    Examples
    --------
    >>> import json
    >>> from megengine.jit.report import timeline_of
    >>> step = dict(ops=["exp"], where="", backend="", bytes=8, is_transfer=False, last_begin=0.5)
    >>> text = timeline_of({"steps": [{**step, "last_seconds": 0.25}]}, "train")
    >>> event = json.loads(text)["traceEvents"][2]
    >>> event["name"], event["ts"], event["dur"]
    ('exp', 500000.0, 250000.0)
    """
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
