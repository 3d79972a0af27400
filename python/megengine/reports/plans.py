"""``python -m megengine plan script.py``: what the traced functions of a script take of memory, without running them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from .. import functional as F
from .._files.disk import write_text
from ..core._sizes import to_bytes
from ..core._tree import flatten, unflatten
from ..jit.card_plan import CardPlan, architecture_of, costs_text
from ..jit.plan_text import plan_text
from ..jit.report import MemoryPlan
from ..jit.tracing import trace
from ..tensor import Tensor
from .scripts import Enough, run_script, status_of

_Types = Sequence[tuple[Any, Any]]  # shapes and dtypes
_Call = tuple[trace[..., Any], tuple[tuple[Any, str], ...]]


class CallPlanner:
    """Stands in for traced calls: each is planned once for its types, and gives zeros of the right shapes.

    A function that reads values is run when it is planned.

    report: called with each plan. The script ends after several calls in a row without a new plan.
    """

    def __init__(self, report: Callable[[str, MemoryPlan], None], limit: int | None, repeats: int, card: str = ""):
        self._report = report
        self._options: dict[str, Any] = {"with_curve": True, "card": card, **({"memory_limit": limit} if limit else {})}
        self._repeats = self._left = repeats
        # function and types -> shape of the result, its tensors
        self._results: dict[_Call, tuple[Any, _Types]] = {}

    def __call__(self, function: trace[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        leaves = function.flatten_inputs(*args, **kwargs)
        key = function, tuple((tuple(leaf.shape), str(leaf.dtype)) for leaf in leaves)
        if key in self._results:
            self._left -= 1
            if self._left < 0:
                raise Enough
        else:
            self._left = self._repeats
            plan, result, note = self._plan(function, args, kwargs)
            found: list[Tensor] = []
            tree = flatten(result, found)
            self._results[key] = tree, [(tuple(tensor.shape), tensor.dtype) for tensor in found]
            types = ", ".join(f"{dtype}{list(shape)}" for shape, dtype in key[1])
            self._report(f"{function._name_and_line()}: {types}{note}", plan)
        tree, leaf_types = self._results[key]
        return unflatten(tree, (F.zeros(shape, dtype=dtype) for shape, dtype in leaf_types))

    def _plan(self, function: trace[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[MemoryPlan, Any, str]:
        """Returns the plan of a call, its result, and remarks on it."""
        try:
            return *function._plan_call(args, kwargs, **self._options), ""
        except ValueError:
            # The body read a value, which symbolic=True and limits forbid; otherwise the call must run once.
            if function._symbolic or "memory_limit" in self._options or self._options["card"]:
                raise
            result = function.trace_normal(*args, **kwargs)
            return function.memory_plan(), result, " (run once: it reads values)"


class _Report:
    """Prints plans, and writes a page for each: plan.html, plan-2.html, ..."""

    def __init__(self, page: str | None):
        self._page = Path(page) if page else None
        self.count = 0

    def __call__(self, name: str, plan: MemoryPlan) -> None:
        self.count += 1
        print(plan_text(plan, name), flush=True)
        if isinstance(plan, CardPlan):
            print(costs_text(plan), flush=True)
        if self._page is None:
            return
        page = self._page if self.count == 1 else self._page.with_stem(f"{self._page.stem}-{self.count}")
        write_text(page, plan.html(name))
        print(f"  page: {page}")


def run(script: str, arguments: list[str], limit: str | None, page: str | None, repeats: int, card: str = "") -> int:
    """Runs the script; where it calls a traced function the call is planned instead, and printed.

    Returns 0 when there was such a call, 1 when there was none, and when no plan fits the limit. Raises OSError when
    there is no such script, ValueError for a limit that is not a size, and for a card that is not described.
    """
    if card:
        architecture_of(card)
    report = _Report(page)
    trace._planned_by = CallPlanner(report, to_bytes(limit, "--limit") if limit else None, repeats, card)
    try:
        end = run_script(script, arguments)
    finally:
        trace._planned_by = None
    if isinstance(end, MemoryError):
        print(end, file=sys.stderr)
        return 1
    if isinstance(end, Exception) and report.count:
        print(f"the script ended here, on results that are all zeros: {type(end).__name__}: {end}", file=sys.stderr)
    elif isinstance(end, (Exception, KeyboardInterrupt)):
        return status_of(end)
    elif not report.count:
        print("the script has called no traced function", file=sys.stderr)
        return 1
    return 0
