"""A traced function as it would run on a GPU that need not be there: `trace.on`."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, Generic, ParamSpec

from .._core import size_text
from .plan_text import seconds_text
from .report import MemoryPlan, StepCost, merge_plans

_P = ParamSpec("_P")
_ROWS = 15  # rows of the table that a plan prints


def architecture_of(card: str) -> int:
    """Returns 90 for ``"sm_90"``.

    Parameters
    ----------
    card : str
        The name of an architecture.

    Returns
    -------
    int
        Its number.

    Raises
    ------
    ValueError
        For another name.

    Examples
    --------
    >>> from megengine.jit.card_plan import architecture_of
    >>> architecture_of("sm_90")
    90
    """
    if not re.fullmatch(r"sm_\d{2,3}", card):
        raise ValueError(f"there is no GPU {card!r}\n  fix: name an architecture, such as 'sm_90' for an H100")
    return int(card[3:])


@dataclass(frozen=True, repr=False)
class CardPlan(MemoryPlan):
    """The plan of a call on a described GPU: its memory, and the card's work in each step.

    Parameters
    ----------
    card : str
        The architecture, such as "sm_90".
    costs : tuple of StepCost
        One for each step of the plan, in order.

    Notes
    -----
    Times are modelled: each step takes the longest of its bytes, its instructions and its products at the speeds in
    ``codegen/cards``, plus its launches. `MemoryPlan` has the other fields.

    Examples
    --------
    >>> import megengine.functional as F
    >>> from megengine import jit
    >>> double = jit.trace(lambda x: F.exp(x) * 2, opt_level=3)
    >>> plan = double.on("sm_90").plan(F.ones((1024, 1024)))
    >>> plan.launches, plan.moved_bytes // 2**20  # one kernel, which reads and writes 4 MiB
    (1, 8)
    """

    card: str = ""
    costs: tuple[StepCost, ...] = ()

    @property
    def launches(self) -> int:
        """Kernels, calls of libraries and copies by the driver in one call."""
        return sum(cost.launches for cost in self.costs)

    @property
    def moved_bytes(self) -> int:
        """Read from the card's memory and written to it in one call."""
        return round(sum(cost.bytes for cost in self.costs))

    @property
    def flops(self) -> float:
        """Operations of products: two for each multiplication that is added."""
        return sum(cost.flops for cost in self.costs)

    @property
    def seconds(self) -> float:
        """The modelled time of a call, without the steps of ``unknown``."""
        return sum(cost.seconds or 0.0 for cost in self.costs)

    @property
    def unknown(self) -> tuple[StepCost, ...]:
        """The steps whose work follows from values, so that no time is known."""
        return tuple(cost for cost in self.costs if cost.seconds is None)

    def __repr__(self) -> str:
        return f"{super().__repr__()}\n{costs_text(self)}"


def costs_text(plan: CardPlan) -> str:
    """Returns what a card has to do as text: sums, and the steps that take longest.

    Parameters
    ----------
    plan : CardPlan
        The plan.

    Returns
    -------
    str
        Lines without a newline behind the last one.

    Examples
    --------
    >>> from megengine import jit, tensor
    >>> from megengine.jit.card_plan import costs_text
    >>> plan = jit.trace(lambda x: x * 2).on("sm_90").plan(tensor([1.0]))
    >>> costs_text(plan).splitlines()[0]
    '  on sm_90: 1 launches, 12 B moved, 0.0 Tflop of products; modelled 1.5 us'
    """
    lines = [
        f"  on {plan.card}: {plan.launches} launches, {size_text(plan.moved_bytes)} moved, {plan.flops / 1e12:.1f} Tflop of products; "
        f"modelled {seconds_text(plan.seconds)}"
    ]
    if plan.unknown:
        names = ", ".join(sorted({" ".join(cost.ops) for cost in plan.unknown}))
        lines.append(f"  without {len(plan.unknown)} steps whose time follows from values: {names}")
    groups: dict[tuple[str, str, str], list[StepCost]] = {}
    for cost in plan.costs:
        if cost.launches:
            groups.setdefault((",".join(cost.ops), cost.by, cost.where), []).append(cost)
    rows = sorted(groups.items(), key=lambda row: -sum(cost.seconds or 0.0 for cost in row[1]))
    if rows:
        lines.append(f"  {'modelled':>10} {'launches':>8} {'moved':>10}  ops, by whom, line")
    for (ops, by, where), costs in rows[:_ROWS]:
        took = seconds_text(sum(cost.seconds or 0.0 for cost in costs)) if any(cost.seconds is not None for cost in costs) else "not known"
        size = size_text(round(sum(cost.bytes for cost in costs)))
        name = ops if len(ops) <= 48 else f"{ops[:45]}..."
        lines.append(f"  {took:>10} {sum(cost.launches for cost in costs):>8} {size:>10}  {name}, {by}, {where}")
    if len(rows) > _ROWS:
        lines.append(f"  and {len(rows) - _ROWS} more")
    return "\n".join(lines)


def merge_card_plans(segments: list[dict[str, Any]], card: str) -> CardPlan:
    """Returns the plan of a whole call on a card, whose segments run one after the other.

    Parameters
    ----------
    segments : list of dict of str
        Rows of the native runtime, one for each compiled part of a call.
    card : str
        The architecture.

    Returns
    -------
    CardPlan
        As `merge_plans` does, with the costs of all steps.

    Examples
    --------
    >>> from megengine.jit.card_plan import merge_card_plans
    >>> merge_card_plans([], "sm_90").launches
    0
    """
    merged = merge_plans(segments)
    costs = tuple(StepCost(**row) for segment in segments for row in segment["costs"])
    return CardPlan(**{each.name: getattr(merged, each.name) for each in fields(merged)}, card=card, costs=costs)


class CardView(Generic[_P]):
    """A traced function on a GPU that is described; nothing is computed, and no CUDA needs to be installed.

    Parameters
    ----------
    plan_on : callable
        Plans a call, given its arguments as a tuple and a dict.

    Examples
    --------
    >>> from megengine import jit, tensor
    >>> double = jit.trace(lambda x: x * 2)
    >>> double.on("sm_90").plan(tensor([1.0])).card
    'sm_90'
    """

    def __init__(self, plan_on: Callable[[tuple[Any, ...], dict[str, Any]], CardPlan]):
        self._plan_on = plan_on
        self._last: CardPlan | None = None

    def plan(self, *args: _P.args, **kwargs: _P.kwargs) -> CardPlan:
        """Returns the plan of a call with these arguments on the card.

        Parameters
        ----------
        *args : object
            Those of a call; they may lie on the CPU.
        **kwargs : object
            Those of a call.

        Returns
        -------
        CardPlan
            Memory to the byte, and launches, bytes, operations and a modelled time of each step.

        Raises
        ------
        ValueError
            For a GPU that is not described.
        MemoryError
            If no plan fits the function's limit.
        """
        self._last = self._plan_on(args, kwargs)
        return self._last

    def kernels(self) -> list[StepCost]:
        """Returns the steps of the last plan that launch something, in the order in which they run.

        Returns
        -------
        list of StepCost
            Generated kernels, those written by hand, and calls of libraries.

        Raises
        ------
        RuntimeError
            If nothing was planned yet.
        """
        if self._last is None:
            raise RuntimeError("kernels: no call was planned for this card\n  fix: plan one first: view = fn.on('sm_90'); view.plan(*args)")
        return [cost for cost in self._last.costs if cost.launches]
