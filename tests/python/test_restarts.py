"""Three kills of a random rank while a world trains under ``run --restarts``; `make test-cluster` has a hundred."""

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[1] / "network/restart_ranks.py"


def test_training_ends_with_the_losses_of_an_undisturbed_run():
    command = [sys.executable, SCRIPT, "--kills", "3", "--each", "3", "--steps", "120", "--engine", "local"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0 and done.stdout.startswith("local: 3 kills, 3 restarts, the same losses"), done.stdout + done.stderr
