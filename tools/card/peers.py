"""The training steps beside torch.compile's: peers.json. All compile at once, with all cores; each pair is timed alone.

Where there is no torch with CUDA, ours alone.
"""

from __future__ import annotations

import statistics
import sys

import steps
from results import CUT_OFF, LEFT_OUT, Part, has_torch, run, size
from turns import Process, measure_alone

ROUNDS, SECONDS = size(5, 1), size(0.3, 0)  # rounds of a pair, and how long each lasts
RESERVE = 8  # last seconds of the part, in which no pair begins to be timed


def prepare(process: Process) -> None:
    process.ask("build")
    process.ask("time", calls=3)


def calls_of(process: Process) -> int:
    return max(1, round(SECONDS / process.ask("time", calls=2)["seconds"] * 2))


def times_of(group: list[Process]) -> dict[str, list[float]]:
    """Seconds of a call by process and round, which take turns."""
    calls = {process.name: calls_of(process) for process in group}
    seconds: dict[str, list[float]] = {process.name: [] for process in group}
    for _ in range(ROUNDS):
        for process in group:
            count = calls[process.name]
            seconds[process.name].append(process.ask("time", calls=count)["seconds"] / count)
    return seconds


def main(part: Part) -> str:
    beside = has_torch()
    if part.told.get("beside") != beside:
        part.told.update(beside=beside, steps={})
    done = part.told["steps"]
    groups = {
        step: [steps.worker(step, name) for name in ("megjit", *([peer] if beside else []))]
        for step, peer in steps.STEPS.items()
        if step not in done
    }

    def measure(step: str, group: list[Process]) -> None:
        faults = [f"{process.name}: {process.fault}" for process in group if process.fault]
        found = times_of([process for process in group if not process.fault])
        row: dict[str, object] = {name: statistics.median(seconds) for name, seconds in found.items()}
        if len(found) == 2:
            ours, theirs = found.values()
            row["ratio"] = statistics.median(a / b for a, b in zip(ours, theirs, strict=True))
        part.row("peers.json", step, {**row, "rounds": found, "faults": faults})
        if faults:
            raise RuntimeError(", ".join(faults))
        done[step] = " ".join(f"{name} {value:.3g}" for name, value in row.items())
        part.note()

    late, faults = measure_alone(groups, prepare, measure, lambda: part.left() - RESERVE)
    assert not faults, "; ".join(f"{step}: {fault}" for step, fault in faults.items())
    told = "; ".join(f"{step}: {words}" for step, words in done.items())
    if late:
        return f"{CUT_OFF} before {', '.join(late)}; {told}"
    return told if beside else f"{LEFT_OUT}: torch.compile, for there is no torch with CUDA; {told}"


if __name__ == "__main__":
    sys.exit(run("peers", 120, main))
