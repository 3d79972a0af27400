"""What the hardware's counters say of one step: GPT-2 small of two blocks, whose kernels are those of twelve, by ncu."""

from __future__ import annotations

import csv
import ctypes
import io
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from typing import Any

from results import CUT_OFF, LEFT_OUT, ROOT, Part, run

# One pass of counters, so that no kernel runs twice and no memory is saved.
METRICS = {
    "gpu__time_duration.sum": "nanoseconds",
    "dram__bytes_read.sum": "bytes_read",
    "dram__bytes_write.sum": "bytes_written",
    "smsp__inst_executed.sum": "instructions_of_warps",
    "launch__registers_per_thread": "registers",
    "launch__grid_size": "blocks",
    "launch__block_size": "threads",
}
KEPT = ("registers", "blocks", "threads")  # of the last launch; the others are sums
WARM = 4  # steps before the one that is measured


def step() -> None:
    """A process under ncu, whose counting begins with the profiler."""
    os.environ["BENCH_DEVICE"] = "gpu"
    sys.path.insert(0, str(ROOT / "benchmarks"))
    from cases import _transformer, on_gpu

    subject = _transformer.megjit(replace(on_gpu.GPT2, halves=True, blocks=2))
    subject.run(WARM)
    driver = ctypes.CDLL(os.environ.get("MEGJIT_CUDA_DRIVER", "libcuda.so.1"))
    driver.cuProfilerStart()
    subject.run(1)
    driver.cuProfilerStop()


def rows_of(text: str) -> list[dict[str, Any]]:
    """From ncu's table, which has a line for each launch and metric: a row for each kernel, the longest first."""
    lines = text.splitlines()
    begin = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), len(lines))
    rows: dict[str, dict[str, Any]] = {}
    launches: dict[str, set[str]] = {}
    for line in csv.DictReader(io.StringIO("\n".join(lines[begin:]))):
        name, metric = line["Kernel Name"], METRICS.get(line["Metric Name"])
        if not metric:
            continue
        value = float(line["Metric Value"].replace(",", ""))
        row = rows.setdefault(name, {"kernel": name, "launches": 0})
        row[metric] = value if metric in KEPT else row.get(metric, 0.0) + value
        launches.setdefault(name, set()).add(line["ID"])
        row["launches"] = len(launches[name])
    return sorted(rows.values(), key=lambda row: -row.get("nanoseconds", 0.0))


def main(part: Part) -> str:
    if not (ncu := shutil.which("ncu")):
        return f"{LEFT_OUT}: there is no ncu"
    command = [
        ncu, "--csv", "--print-units", "base", "--profile-from-start", "off", "--clock-control", "none", "--cache-control", "none",
        "--metrics", ",".join(METRICS), sys.executable, __file__, "--step",
    ]  # fmt: skip
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=max(1.0, part.left() - 2))
    except subprocess.TimeoutExpired:
        return f"{CUT_OFF}: ncu did not end in time"
    rows = rows_of(done.stdout)
    part.note(kernels=rows, said=(done.stdout if not rows else done.stderr).splitlines()[-20:])
    assert rows, f"ncu counted nothing, status {done.returncode}"
    total = sum(row.get("nanoseconds", 0.0) for row in rows)
    return f"{sum(row['launches'] for row in rows)} launches of {len(rows)} kernels, {total / 1e6:.3g} ms"


if __name__ == "__main__":
    if sys.argv[1:2] == ["--step"]:
        step()
    else:
        sys.exit(run("ncu", 40, main))
