"""megjit-run, on arrays that NumPy writes: python run_test.py PROGRAM MODELS."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

PROGRAM, MODELS = sys.argv[1:]
X = np.float32([[1, 2, 3], [4, 5, 6]])
SCORE = X @ np.arange(12, dtype="float32").reshape(3, 4) + np.arange(-43, -39, dtype="float32")


def run(*words: str) -> tuple[int, str]:
    done = subprocess.run([PROGRAM, *words], capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def expect(code: int, part: str, *words: str) -> str:
    found, text = run(*words)
    assert (found, part in text) == (code, True), f"{words}: exits with {found}\n{text}"
    return text


with tempfile.TemporaryDirectory() as folder:
    files = Path(folder)
    np.save(files / "x.npy", X)
    np.save(files / "columns.npy", np.asfortranarray(X))
    np.save(files / "double.npy", X.astype("complex128"))
    np.savez(files / "right.npz", score=SCORE, positive=np.maximum(SCORE, 0))
    np.savez(files / "wrong.npz", score=SCORE + 1)
    np.savez(files / "nan.npz", score=SCORE * np.float32("nan"))
    np.savez(files / "other.npz", other=SCORE)
    np.savez_compressed(files / "small.npz", score=SCORE)
    (files / "cut.npy").write_bytes((files / "x.npy").read_bytes()[:-1])
    (files / "cut.npz").write_bytes((files / "right.npz").read_bytes()[:-40])
    model, given = f"{MODELS}/classify.dump", ("--input", f"x={files}/x.npy")

    text = expect(0, "score: largest difference 0, agrees\n", model, *given, "--check", f"{files}/right.npz")
    assert "positive: largest difference 0, agrees" in text
    expect(1, "score: largest difference 1, differs", model, *given, "--check", f"{files}/wrong.npz")
    expect(1, "differs", model, *given, "--check", f"{files}/nan.npz")
    expect(0, "5 runs: median ", model, *given, "--repeat", "5")
    assert json.loads(expect(0, "[", model, *given, "--profile", "--repeat", "2").splitlines()[1])[0]["runs"] == 3

    expect(0, "2 runs: median ", f"{MODELS}/count.dump", "--function", "scaled", "--trust", "--repeat", "2")
    expect(2, "no function train", f"{MODELS}/count.dump", "--function", "train")

    expect(2, "no output other", model, *given, "--check", f"{files}/other.npz")
    expect(2, "it is compressed", model, *given, "--check", f"{files}/small.npz")
    expect(2, "cannot read the arrays in", model, *given, "--check", f"{files}/cut.npz")
    expect(2, "it is truncated", model, "--input", f"x={files}/cut.npy")
    expect(2, "its columns lie", model, "--input", f"x={files}/columns.npy")
    expect(2, "its dtype is <c16", model, "--input", f"x={files}/double.npy")
    expect(2, "fix: give the path", model, "--input", f"x={files}/none.npy")
    expect(2, "input x is missing", model)
    expect(2, "what is --fast?", model, "--fast")
    expect(2, "--repeat needs a number, not many", model, "--repeat", "many")
    expect(2, "usage: megjit-run MODEL", *given)
