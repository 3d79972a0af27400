"""What each kernel of the training steps takes: kernels.json, by device events.

Of each step of a program, in its order: ops, line, compiler of its kernel, bytes, launches, and seconds of one run. A
profiled program is no CUDA graph: the whole takes longer than its steps, by what lies between.
"""

from __future__ import annotations

import sys
from typing import Any

import steps
from results import CUT_OFF, ROOT, Part, run, size
from turns import Process, measure_alone

RUNS = size(5, 1)
RESERVE = 8  # last seconds of the part, in which no step begins to be measured


def table(profile: dict[str, Any]) -> dict[str, Any]:
    runs = profile["runs"]
    kernels = [
        {
            "ops": " ".join(step["ops"]),
            "where": step["where"].removeprefix(f"{ROOT}/"),
            **{name: step[name] for name in ("backend", "bytes", "launches")},
            "seconds": step["seconds"] / runs,
        }
        for step in profile["steps"]
    ]
    return {
        "runs": runs,
        "seconds": profile["seconds"] / runs,
        "seconds_of_kernels": sum(row["seconds"] for row in kernels),
        "bytes": profile["bytes"],
        "launches": sum(row["launches"] for row in kernels),
        "kernels": kernels,
    }


def prepare(process: Process) -> None:
    process.ask("build", is_profiled=True)
    process.ask("time", calls=3)


def main(part: Part) -> str:
    done = part.told.setdefault("steps", {})
    groups = {step: [steps.worker(step, "megjit")] for step in steps.STEPS if step not in done}

    def measure(step: str, group: list[Process]) -> None:
        process = group[0]
        if process.fault:
            raise RuntimeError(process.fault)
        process.ask("time", calls=RUNS)
        rows = table(process.ask("profile")["profile"])
        part.row("kernels.json", step, rows)
        done[step] = f"{1e3 * rows['seconds_of_kernels']:.3g} ms in {rows['launches']} launches"
        part.note()

    late, faults = measure_alone(groups, prepare, measure, lambda: part.left() - RESERVE)
    assert not faults, "; ".join(f"{step}: {fault}" for step, fault in faults.items())
    told = "; ".join(f"{step} {words}" for step, words in done.items())
    return f"{CUT_OFF} before {', '.join(late)}; {told}" if late else told


if __name__ == "__main__":
    sys.exit(run("kernels", 90, main))
