"""``python -m megengine kernels script.py``: runs a script and tells what each kernel of its traced functions cost.
``python -m megengine tune script.py``: measures for each of its products whether the library or a
generated kernel is faster.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

from .. import _core
from ..jit.tracing import trace
from .scripts import run_script, status_of


@dataclass
class Row:
    """All runs of one kernel, or of one operation that has a kernel of its own."""

    ops: tuple[str, ...]
    backend: str
    where: str
    calls: int = 0
    seconds: float = 0.0
    bytes: int = 0  # read and written, all calls

    @property
    def bandwidth(self) -> float:
        return self.bytes / self.seconds if self.seconds else 0.0


def rows_of(functions: list[trace[..., Any]]) -> list[Row]:
    """Returns one row for each kernel and line of the program, the most expensive first."""
    rows: dict[tuple[Any, ...], Row] = {}
    for function in functions:
        for segment in function._function.profiles(of_all_versions=True):
            for step in segment["steps"]:
                key = tuple(step["ops"]), step["backend"], step["where"]
                row = rows.setdefault(key, Row(*key))
                row.calls += segment["runs"]
                row.seconds += step["seconds"]
                row.bytes += step["bytes"] * segment["runs"]
    return sorted((row for row in rows.values() if row.calls), key=lambda row: -row.seconds)


def table(rows: list[Row], bandwidth: float) -> str:
    """The rows as text; ``bandwidth``: bytes per second of a copy."""
    total = sum(row.seconds for row in rows) or 1.0
    lines = [f"{'time':>6} {'calls':>7} {'us/call':>10} {'GB/s':>7} {'of copy':>7}  {'compiler':<9} kernel"]
    for row in rows:
        ops = " ".join(row.ops)
        name = f"{ops[:57]}..." if len(ops) > 60 else ops
        count = f" ({len(row.ops)} ops)" if len(row.ops) > 1 else ""
        lines.append(
            f"{row.seconds / total:>6.1%} {row.calls:>7} {row.seconds / row.calls * 1e6:>10.1f} {row.bandwidth / 1e9:>7.3g} "
            f"{row.bandwidth / bandwidth:>7.0%}  {row.backend or '-':<9} {name}{count}  {row.where}".rstrip()
        )
    lines.append(f"a copy reads and writes {bandwidth / 1e9:.1f} GB/s; operands in cache may be faster; -: no generated code")
    return "\n".join(lines)


def run(script: str, arguments: list[str]) -> int:
    """Runs the script, then prints the table of its kernels. Returns its exit status, 1 after an error."""
    trace._measured = []
    # Every call must run the kernels with which it is reported.
    status = status_of(run_script(script, arguments, MEGJIT_COMPILE="sync"))
    functions, trace._measured = trace._measured, None
    rows = rows_of(functions)
    if not rows:
        print("no traced function has run its compiled program; the first call of each records", file=sys.stderr)
        return status or 1
    print(table(rows, _core.copy_bandwidth()))
    return status


def tune(script: str, arguments: list[str]) -> int:
    """Runs the script and measures its products, then prints what computes each from now on.
    Returns its exit status.
    """
    status = status_of(run_script(script, arguments, MEGJIT_TUNE="on"))
    found = _core.timings()
    if not found:
        print("no traced function at opt_level=3 has a product with element-wise operations behind it that a kernel could compute", file=sys.stderr)
        return status or 1
    ways = sorted({way for seconds in found.values() for way in seconds})
    print("".join(f"{way:>12}" for way in ways) + "  chosen")
    for problem, seconds in found.items():
        times = "".join(f"{seconds[way] * 1e3:>9.3g} ms" if way in seconds else f"{'':>12}" for way in ways)
        print(f"{times}  {min(seconds, key=lambda way: seconds[way]):<8}  {problem}")
    print(f"kept beside the kernels in {_core.cache_info()['folder'] or 'no folder: there is no cache on disk'}")
    return status
