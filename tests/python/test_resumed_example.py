"""A training that is killed goes on from its file with the losses of one that was not."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).resolve().parents[2] / "examples/finetune_1b.py"
STEPS = 4


def command(folder, full):
    words = ["--millions", "20", "--length", "32", "--steps", str(STEPS), "--file", str(folder / "state.safetensors")]
    return [sys.executable, str(EXAMPLE), *words, *(["--full"] if full else [])]


def losses(text):
    return dict(re.findall(r"^step (\d+): loss ([\d.]+)$", text, re.MULTILINE))


@pytest.mark.parametrize("full", [False, True])
def test_a_killed_run_goes_on_with_the_same_losses(tmp_path, full):
    (tmp_path / "whole").mkdir()
    whole = losses(subprocess.run(command(tmp_path / "whole", full), check=True, capture_output=True, text=True).stdout)
    assert len(whole) == STEPS
    found = {}
    for kill_after in ("1", "3", None):
        with subprocess.Popen(command(tmp_path, full), stdout=subprocess.PIPE, text=True) as running:
            said = ""
            for line in running.stdout:
                said += line
                if kill_after and line.startswith(f"step {kill_after}:"):
                    os.kill(running.pid, signal.SIGKILL)
                    break
            said += running.stdout.read()
        found |= losses(said)
    assert found == whole
