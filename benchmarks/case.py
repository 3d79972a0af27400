"""The vocabulary of a benchmark: a case asks one question of several implementations.

A file in cases/ makes one list ``CASES``. Its first line is the question. Frameworks are imported
inside the builders only: each implementation runs in a process of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True)
class Subject:
    """What a builder returns.

    run: performs that many calls, then waits until the last one is finished. May return the seconds that
    count, when they are not those it took, or what a case measures in place of time.
    result: arrays to compare with the reference, computed before anything is timed (for a case with
    ``fresh`` processes: after the only call). Training steps start from the given weights.
    """

    run: Callable[[int], float | None]
    result: Callable[[], Mapping[str, np.ndarray]]


@dataclass(frozen=True)
class Target:
    """A row of the table: ``measured`` of ``of`` shall be at most ``at_most``.

    against: the best of these implementations is the other side of the ratio; when empty, ``at_most`` is in
    seconds, or what the case measures. other_case: take ``against`` from that case of the same run.
    A row without ``at_most`` informs only.
    """

    label: str
    of: str = "megjit"
    against: tuple[str, ...] = ()
    at_most: float | None = None
    other_case: str | None = None


@dataclass(frozen=True)
class Case:
    """builders: implementation -> function that sets up and returns a Subject.

    checked: builders of what is compared, when that is not what is timed.
    reference: implementation whose results are right by definition; None skips the comparison.
    rtol, atol: tolerances of the comparison. An element is wrong when |a - b| > atol + rtol * |b|.
    moved: tolerance of results named "moved ...", how far training took a weight: wrong when
    ||a - b|| > moved * ||b||. A net that does not train is off by 1, whatever the size of its steps.
    fresh: every round is the first call in a new process; otherwise rounds repeat in one process.
    cache: "cold" gives every process an empty kernel cache, "warm" one that a first process filled.
    rounds: how many, and how many with --quick (0: left out). seconds: length of a round.
    beside_others: others are meant to use the cores, so that no round counts as disturbed.
    device: where it computes, "cpu" or "gpu"; a run is of one of them.
    unit: "s", or "B" for a case whose ``run(1)`` returns bytes, "part" for one that returns a part of a whole.
    work: amounts done by a call ("bytes", "flops"), printed per second beside the limits.
    """

    name: str
    builders: Mapping[str, Callable[[], Subject]]
    targets: tuple[Target, ...] = ()
    checked: Mapping[str, Callable[[], Subject]] = field(default_factory=dict)
    reference: str | None = "torch"
    rtol: float = 1e-4
    atol: float = 1e-5
    moved: float = 0.1
    fresh: bool = False
    cache: str = "warm"
    rounds: tuple[int, int] = (11, 5)
    seconds: float = 0.05
    beside_others: bool = False
    device: str = "cpu"
    unit: str = "s"
    work: Mapping[str, float] = field(default_factory=dict)


def load_cases(only: list[str], device: str) -> list[tuple[str, str, Case]]:
    """(module name, question, case) of every case of the device whose name or file begins with one of ``only``."""
    import importlib
    from pathlib import Path

    found = []
    for path in sorted((Path(__file__).parent / "cases").glob("*.py")):
        if path.stem.startswith("_"):
            continue
        module = importlib.import_module(f"cases.{path.stem}")
        question = (module.__doc__ or "").strip().splitlines()[0]
        for case in module.CASES:
            names = (case.name, path.stem)
            if case.device == device and (
                not only or any(name.startswith(prefix) for prefix in only for name in names)
            ):
                found.append((module.__name__, question, case))
    return found
