"""tools/replay.py: what a test compiles is noted, and what differs between two such notes is counted."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[2] / "tools/replay.py"
TEST = """
import megengine as mge
from megengine.jit import trace

def test_one():
    f = trace(lambda x: mge.functional.exp(x) * {factor} + 1, symbolic=True, opt_level=3)
    f(mge.tensor([1.0, 2.0]))
"""


def written(folder, factor, lines=""):
    """What a test of its own makes."""
    test = folder / "test_traced.py"
    test.write_text(lines + TEST.format(factor=factor))
    result = folder / f"made-{factor}-{len(lines)}"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    run = subprocess.run([sys.executable, TOOL, "--write", result, test], capture_output=True, text=True, env=environment)
    assert run.returncode == 0, run.stdout + run.stderr
    return result


@pytest.fixture(scope="module")
def replay():
    spec = importlib.util.spec_from_file_location("process_replay", TOOL)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_what_a_test_compiles_is_compared(replay, tmp_path, capsys):
    before, moved, other = written(tmp_path, 2), written(tmp_path, 2, "# a line\n"), written(tmp_path, 3)
    assert {stage for _, stage in replay.texts(before)} == {"trace", "plan", "kernel"}
    assert replay.compare(before, moved) == 0
    capsys.readouterr()
    assert replay.compare(before, other) > 0
    told = capsys.readouterr().out
    assert "test_one" in told and "const 3" in told and told.splitlines()[-1].endswith("changes")
