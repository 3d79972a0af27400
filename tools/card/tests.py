"""The tests that a GPU must pass, until the first that fails: pytest -m gpu -x. Those that have passed do not run again another day."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from results import CUT_OFF, LEFT_OUT, ROOT, Part, run, size

TESTS = ROOT / "tests" / "python"
# Emulated, the first file of the list shows that the part works.
WHICH = size(["."], ["test_gpu_contractions.py"])
PROCESSES = min(14, len(os.sched_getaffinity(0)))


class Plugin:
    """In pytest and its workers: leaves out what has passed, and writes what passes."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.passed = set(file.read_text().splitlines()) if file.exists() else set()

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        items[:] = [item for item in items if item.nodeid not in self.passed]

    def pytest_runtest_logreport(self, report: Any) -> None:
        is_over = report.when == "call" or report.skipped
        if is_over and not report.failed and "PYTEST_XDIST_WORKER" not in os.environ:
            with self.file.open("a") as file:
                file.write(f"{report.nodeid}\n")


def pytest_configure(config: Any) -> None:
    config.pluginmanager.register(Plugin(Path(os.environ["GPU_CHECK_PASSED"])))


def main(part: Part) -> str:
    if not importlib.util.find_spec("pytest"):
        return f"{LEFT_OUT}: there is no pytest"
    file = part.folder / "passed.txt"
    if not part.told.get("passed"):
        file.unlink(missing_ok=True)
    many = ["-n", str(PROCESSES)] if importlib.util.find_spec("xdist") else []
    options = ["-p", "tests", "-p", "no:cacheprovider", "-p", "no:benchmark", "-m", "gpu", "-x", "-q"]
    command = [sys.executable, "-m", "pytest", *options, *many, *WHICH]
    paths = ":".join(filter(None, [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]))
    environment = {**os.environ, "PYTHONPATH": paths, "GPU_CHECK_PASSED": str(file)}
    process = subprocess.Popen(command, cwd=TESTS, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        said, _ = process.communicate(timeout=max(1.0, part.left() - 5))
    except subprocess.TimeoutExpired:
        process.kill()
        said = ""
    passed = len(file.read_text().splitlines()) if file.exists() else 0
    part.note(passed=passed, said=said.splitlines()[-40:])
    if not said:
        return f"{CUT_OFF} after {passed} tests have passed"
    failed = [line for line in said.splitlines() if line.startswith(("FAILED", "ERROR"))]
    assert process.returncode in (0, 5), failed[0] if failed else said.splitlines()[-1]
    assert passed, "no test was found"
    return f"{passed} tests have passed"


if __name__ == "__main__":
    sys.exit(run("tests", 60, main))
