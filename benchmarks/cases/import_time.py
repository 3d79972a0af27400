"""How long does the import take in a new process, and is it silent?"""

import subprocess
import sys

from case import Case, Subject, Target

PROGRAM = (
    "import time; t = time.perf_counter(); import {name}; t = time.perf_counter() - t; print(t)"
)


def importing(name):
    def run(calls):
        total = 0.0
        for _ in range(calls):
            done = subprocess.run(
                [sys.executable, "-c", PROGRAM.format(name=name)],
                capture_output=True,
                text=True,
                stdin=subprocess.DEVNULL,
            )
            lines = done.stdout.splitlines()
            if done.returncode or len(lines) != 1 or done.stderr:
                raise RuntimeError(f"import {name} printed {done.stdout + done.stderr!r}")
            total += float(lines[0])
        return total

    return lambda: Subject(run, dict)


CASES = [
    Case(
        name="import_time",
        builders={
            "megjit": importing("megengine"),
            "torch": importing("torch"),
            "jax": importing("jax"),
        },
        targets=(Target("import, nothing printed", at_most=0.4),),
        reference=None,
        rounds=(7, 3),
    )
]
