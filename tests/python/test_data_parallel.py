"""examples/train_digits.py in several processes: the losses of one, the same bits in each run, and after a restart."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import megengine as mge

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
STEPS = 22  # of an epoch

# The example, whose rank 1 is killed in the middle of the second epoch.
KILLED = """
import os, signal, sys
import numpy as np
import train_digits
import megengine.distributed as dist

share, batches = train_digits.share, 0

def killed_share(batch):
    global batches
    batches += isinstance(batch, np.ndarray)  # else a tensor of the step
    if batches == 33 and dist.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return share(batch)

train_digits.share = killed_share
train_digits.main()
"""


def train(folder, processes, name, script="train_digits.py"):
    """The checkpoint of two epochs, and what the run wrote to its errors."""
    path = folder / name
    options = ["--epochs", "2", "--distributed", str(processes), "--checkpoint", path, "--report", folder / "report.html"]
    environment = {**os.environ, "PYTHONPATH": f"{EXAMPLES}:{os.environ.get('PYTHONPATH', '')}"}
    code = EXAMPLES / script if script.endswith(".py") else folder / "killed.py"
    if code.parent == folder:
        code.write_text(script)
    done = subprocess.run([sys.executable, code, *options], env=environment, capture_output=True, text=True, timeout=1500)
    return mge.load(path), done.stderr


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("digits")


@pytest.fixture(scope="module")
def unbroken(folder):
    saved, _ = train(folder, 2, "unbroken.pkl")
    assert saved["epochs"] == 2 and len(saved["losses"]) == 2 * STEPS
    return saved["losses"]


@pytest.fixture(scope="module")
def killed(folder):
    saved, errors = train(folder, 2, "killed.pkl", KILLED)
    assert "process 1 of the launcher failed:\nit was killed by signal 9" in errors
    assert saved["epochs"] == 1 and len(saved["losses"]) == STEPS  # the checkpoint of the first one is whole
    return folder / "killed.pkl"


def test_two_processes_have_the_losses_of_one(folder, unbroken):
    """Later, what rounding differs grows as between any two orders of addition."""
    saved, _ = train(folder, 1, "alone.pkl")
    np.testing.assert_allclose(unbroken[:STEPS], saved["losses"][:STEPS], rtol=1e-6)


def test_a_killed_run_that_restarts_has_the_bits_of_an_unbroken_one(folder, unbroken, killed):
    shutil.copy(killed, folder / "restarted.pkl")
    saved, _ = train(folder, 2, "restarted.pkl")
    assert saved["losses"] == unbroken


def test_another_number_of_processes_goes_on_from_a_checkpoint(folder, unbroken, killed):
    shutil.copy(killed, folder / "by_four.pkl")
    saved, _ = train(folder, 4, "by_four.pkl")
    assert saved["losses"][:STEPS] == unbroken[:STEPS]
    np.testing.assert_allclose(saved["losses"], unbroken, rtol=1e-6)
