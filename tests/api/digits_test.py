"""examples/cpp/train_digits.cpp has Python's losses to the bit: python digits_test.py PROGRAM [EPOCHS].

Exits with 77 where the package is not installed.
"""

import importlib.util
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

PROGRAM, EPOCHS = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "3"
EXAMPLE = Path(__file__).resolve().parents[2] / "examples/cpp/dump_digits.py"

if any(importlib.util.find_spec(name) is None for name in ("megengine", "sklearn")):
    sys.exit(77)

with tempfile.TemporaryDirectory() as folder:
    subprocess.run([sys.executable, EXAMPLE, folder, "--epochs", EPOCHS, "--train"], check=True)
    done = subprocess.run([PROGRAM, folder], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    ours, pythons = (np.fromfile(Path(folder) / name, np.float32) for name in ("losses", "losses_of_python"))
    assert len(ours) == 22 * int(EPOCHS) and ours[-1] < ours[0], ours
    assert ours.tobytes() == pythons.tobytes(), f"differs from step {np.argmax(ours != pythons)} on"
    print(done.stdout, f"{len(ours)} steps: the same bits", sep="")
    failed = subprocess.run([PROGRAM, folder + "/none"], capture_output=True, text=True)
    assert failed.returncode == 1 and "cannot read the model" in failed.stderr, failed.stderr
