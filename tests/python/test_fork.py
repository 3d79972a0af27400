"""A process may fork at any moment, and its child computes and leaves as it likes."""

import os
import pathlib
import subprocess
import sys

import emulated
import pytest

SCRIPT = pathlib.Path(__file__).with_name("fork_moments.py")


@pytest.mark.parametrize("leave", ["return", "sys.exit", "_exit"])
@pytest.mark.parametrize("moment", ["traced", "without_host", "eager", "compile", "dtr", "data_loader", "gpu"])
def test_a_child_of_a_fork_at_any_moment_ends_well(moment, leave):
    environment = dict(os.environ, MEGJIT_COMPILE="sync", PYTHONWARNINGS="ignore")
    if moment == "gpu":
        environment |= emulated.gpus()
    # the limit finds hangs alone
    done = subprocess.run([sys.executable, SCRIPT, moment, leave], env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
