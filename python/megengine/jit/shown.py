"""Reports on a traced function: plans, kernels, graphs, profiles, and the reasons of its
recordings.

In: the versions and options of a `trace`. Out: a report of `report`, or text. `plan` and `on` record a call that is not run.
"""

from __future__ import annotations

import dataclasses
import os
from typing import Any, ParamSpec, TypeVar

from .. import _core
from .._files.disk import written_whole
from ..device import get_max_allocated_memory
from ..reports.page import escaped
from .card_plan import CardPlan, CardView, architecture_of, merge_card_plans
from .parts import Part
from .report import (
    GeneratedKernel,
    Kernels,
    MemoryPlan,
    PlannedBuffer,
    measured_run,
    merge_plans,
    merge_profiles,
    timeline_of,
)

_P = ParamSpec("_P")
_Plan = TypeVar("_Plan", bound=MemoryPlan)


class Shown(Part[_P]):
    """The base of ``trace`` that reports plans, kernels and costs of the function."""

    def _facts(self) -> list[tuple[str, str]]:
        """Lists what a page cell and the repr show of the function, as (what, value)."""
        mode = "without_host" if self._without_host else "symbolic" if self._symbolic else "by value"
        facts = [("mode", f"{mode}, opt_level={self._opt_level}")]
        if not self.traced:
            return [*facts, ("versions", "not called yet")]
        if self._function.version is None:
            return [*facts, ("versions", f"{self.explain().partition(chr(10))[0]}, no call has run")]
        kernels = sum(graph.count("\n  | kernel ") for graph in self._function.graphs(optimized=True))
        return [
            *facts,
            ("versions", self.explain().partition("\n")[0]),
            ("planned", _core.size_text(merge_plans(self._function.plans()).planned_bytes)),
            ("generated kernels", str(kernels)),
        ]

    def __repr__(self) -> str:
        return f"<trace {self._name_and_line()}: " + "; ".join(f"{what}: {value}" for what, value in self._facts()) + ">"

    def _repr_html_(self) -> str:
        rows = "".join(f"<tr><th>{what}</th><td>{escaped(value)}</td></tr>" for what, value in self._facts())
        return f"<table><caption>trace {escaped(self._name_and_line())}</caption>{rows}</table>"

    def memory_plan(self) -> MemoryPlan:
        """Returns the plan of the version that ran last, with the measured times and memory of its
        runs under ``profiling=True``.

        Raises RuntimeError before the first call.
        """
        plans = self._function.plans()
        measured = measured_run(plans, self._function.profiles(), get_max_allocated_memory()) if self._profiling else None
        return self._titled(merge_plans(plans, measured), self._options.pipeline.memory.limit)

    def _titled(self, plan: _Plan, limit: int) -> _Plan:
        """Returns the plan with the lines that its page has above the pictures."""
        buffers = tuple(self._with_use(buffer) for buffer in plan.buffers) if self._uses else plan.buffers
        return dataclasses.replace(plan, function=self._name_and_line(), limit=limit or None, outside=self._beside_plan, buffers=buffers)

    def _with_use(self, buffer: PlannedBuffer) -> PlannedBuffer:
        """Returns the value with the use that the caller states, if it is an argument that the
        caller names.
        """
        name = buffer.values[0].split(" ")[1] if buffer.place == "input" else ""
        return dataclasses.replace(buffer, use=self._uses.get(name, buffer.use))

    def plan(self, *args: _P.args, **kwargs: _P.kwargs) -> MemoryPlan:
        """Returns the memory plan that a call with these arguments would have; nothing is computed.

        The body runs once, on placeholders: no memory is allocated for values that it would
        compute. Tensors that it rebinds keep their values.

        Parameters
        ----------
        *args : object
            Those of a call.
        **kwargs : object
            Those of a call.

        Returns
        -------
        MemoryPlan
            The plan of a call.

        Raises
        ------
        MemoryError
            As the call does, if no plan fits the limit.

        Examples
        --------
        >>> import megengine.functional as F
        >>> from megengine import jit
        >>> @jit.trace
        ... def double(x):
        ...     return x * 2
        >>> double.plan(F.ones((256, 256))).planned_bytes  # input, result (256 KiB each) and 2
        524292
        """
        return self._plan_call(args, kwargs)[0]

    def plan_with_curve(self, *args: _P.args, **kwargs: _P.kwargs) -> MemoryPlan:
        """Returns the same as `plan`, with the curve of bytes that recomputation could save.

        Parameters
        ----------
        *args : object
            Those of a call.
        **kwargs : object
            Those of a call.

        Returns
        -------
        MemoryPlan
            The plan of a call.
        """
        return self._plan_call(args, kwargs, with_curve=True)[0]

    def on(self, card: str) -> CardView[_P]:
        """Returns this function as it would run on a GPU that need not be there.

        Parameters
        ----------
        card : str
            An architecture: "sm_80" (A100), "sm_86" (A10), "sm_89" (L40S), "sm_90" (H100), "sm_100" (B200) or
            "sm_120" (RTX 5090).

        Returns
        -------
        CardView
            Its ``plan(*args)`` and ``kernels()`` are for that card.

        Raises
        ------
        ValueError
            For another name.

        Examples
        --------
        >>> import megengine.functional as F
        >>> from megengine import jit
        >>> @jit.trace
        ... def double(x):
        ...     return x * 2
        >>> double.on("sm_90").plan(F.ones((256, 256))).launches
        1
        """

        arch = architecture_of(card)

        def plan_on(args: tuple[Any, ...], kwargs: dict[str, Any]) -> CardPlan:
            planner, _ = self._planner(args, kwargs)
            return self._titled(merge_card_plans(planner.plans_on(arch), card), self._options.pipeline.memory.limit)

        return CardView(plan_on)

    def _plan_call(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], with_curve: bool = False, memory_limit: int | None = None, card: str = ""
    ) -> tuple[MemoryPlan, Any]:
        """Returns the plan of a call that is not run, and its results as placeholders without
        values.

        memory_limit: bytes, in place of the function's own. card: a described GPU, in place of the device of the arguments.
        """
        if self._share and memory_limit is None:
            self._settle_share(args, kwargs)
        planner, result = self._planner(args, kwargs, with_curve, memory_limit)
        plan = merge_card_plans(planner.plans_on(architecture_of(card)), card) if card else merge_plans(planner.plans())
        limit = self._options.pipeline.memory.limit if memory_limit is None else memory_limit
        return self._titled(plan, limit), result

    def _planner(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], with_curve: bool = False, memory_limit: int | None = None
    ) -> tuple[_core.TraceFunction, Any]:
        """Records a call without running it; returns it, and its results as placeholders."""
        options = self._options.copy()
        options.symbolic = options.only_plan = True
        options.pipeline.memory.only_looks = with_curve
        if memory_limit is not None:
            options.pipeline.memory.limit = memory_limit
        planner = _core.TraceFunction(options)
        return planner, self._run_body(planner, args, kwargs)

    def kernels(self) -> list[GeneratedKernel]:
        """Returns the generated kernels of the version that ran last, in the order in which they
        run.

        Waits for kernels that are being compiled; the next call uses them all. Empty if none were
        generated, as at ``opt_level`` 2 and below.
        """
        with self._compiling():
            return Kernels(GeneratedKernel.from_row(row) for row in self._function.kernels())

    def explain(self) -> str:
        """Returns as text, one line each, which versions were recorded and why.

        >>> from megengine import jit, tensor
        >>> double = jit.trace(lambda x: x * 2)
        >>> results = double(tensor([1.0])), double(tensor([1.0, 2.0]))
        >>> double.explain().splitlines()[0]
        '2 versions'
        """
        text = self._function.explain()
        if self._is_part:
            text += "  called inside of a traced function or an open GradManager, too: there it is a part of that, and its own options act nowhere\n"
        if self._guard_reason:
            what = "recorded again" if self._trials is None or self._known else "each call runs the body"
            text += f"  {what} because {self._guard_reason}\n"
        return text

    def graph_text(self, optimized: bool = True) -> str:
        """Returns the graph of the version that ran last as text; one part for each segment.

        Parameters
        ----------
        optimized : bool
            After the passes, or as recorded.

        Returns
        -------
        str
            A line for each operation.

        Notes
        -----
        The user's line follows each operation.

        Examples
        --------
        >>> from megengine import jit, tensor
        >>> double = jit.trace(lambda x: x * 2)
        >>> y = double(tensor([1.0]))
        >>> print(double.graph_text())  # doctest: +ELLIPSIS
        %0: f32[1] = input 0
        %1: f32[] = const 2
        %2: f32[1] = mul %0 %1  # ...
        return %2
        <BLANKLINE>
        """
        return "\n".join(self._function.graphs(optimized=optimized))

    def graph_html(self) -> str:
        """Returns the optimized graph as one HTML page: a row for each step, kernels in their own
        colours.
        """
        return "\n".join(self._function.graphs(optimized=True, html=True))

    def get_profile(self) -> dict[str, Any]:
        """Returns the cost of the steps of the version that ran last, summed over its profiled
        runs.

        Needs ``profiling=True`` and one call that ran the compiled program, else RuntimeError.
        "profiler" holds "runs", total "seconds" and "bytes", and "steps": a dict each with "ops"
        (names), "where" (the user's line), "backend" (compiler of its kernel; empty: an operation
        of the device), "seconds" (all runs), "bytes" (read and written in one), "launches" (of
        generated code in one; an operation of the device counts as one, a copy as none),
        "is_transfer" (it ran beside the others), and of the last run "last_begin" and
        "last_seconds".

        >>> from megengine import jit, tensor
        >>> double = jit.trace(lambda x: x * 2, profiling=True)
        >>> for _ in range(3):
        ...     y = double(tensor([1.0]))
        >>> profile = double.get_profile()["profiler"]
        >>> profile["runs"], [step["ops"] for step in profile["steps"]]
        (2, [['mul']])
        """
        return {"profiler": merge_profiles(self._profiles())}

    def save_timeline(self, path: str | os.PathLike[str]) -> None:
        """Writes a timeline of the last profiled run for Chrome's or Perfetto's viewer.

        Parameters
        ----------
        path : str or PathLike
            Of the file, in Google's Trace Event Format, with a row for each stream.

        Notes
        -----
        Times are taken from the device's clock. Has the same requirements as `get_profile`.
        """
        text = timeline_of(merge_profiles(self._profiles()), self._name_of_function())
        with written_whole(path) as file:
            file.write(text.encode())

    def _profiles(self) -> list[dict[str, Any]]:
        what = f"trace: there is no profile of {self._name_of_function()}"
        if not self._profiling:
            raise RuntimeError(f"{what}\n  fix: trace it with profiling=True")
        profiles = [profile for profile in self._function.profiles() if profile["runs"]]
        if not profiles:
            raise RuntimeError(
                f"{what}\n  why: no call has run the compiled program yet; the first one records\n  fix: call it once more"
            )
        return profiles
