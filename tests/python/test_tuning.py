"""MEGJIT_TUNE: who computes a product, as measured on this machine, and never another way within a process."""

import os
import re
import subprocess
import sys

import numpy as np
import pytest

import megengine as mge
from megengine import _core

SCRIPT = """
import numpy as np
import megengine as mge, megengine.functional as F
from megengine.jit import trace

for m, n, k, turned in [(8, 10, 256, False), (16, 384, 512, False), (100, 24, 1030, True)]:
    rng = np.random.default_rng(m)
    x, w = (rng.standard_normal(shape, "float32") for shape in [(m, k), (n, k) if turned else (k, n)])
    step = trace(lambda x, w: F.tanh(F.matmul(x, w, transpose_b=turned)) * 3, symbolic=True, opt_level=3)
    for _ in range(3):
        y = step(mge.tensor(x), mge.tensor(w)).numpy()
    np.testing.assert_allclose(y, np.tanh(x.astype("float64") @ (w.T if turned else w)) * 3, rtol=1e-3, atol=1e-3)
    print([line.strip() for line in step.explain().splitlines() if "product at" in line])
    print([kernel.choice for kernel in step.kernels()])
"""
MEASURED = re.compile(r"(generated|the library's) \(measured: library (\S+) ms(?:, panels (\S+) ms)?(?:, tiles (\S+) ms)?\)")


@pytest.fixture
def run(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    folder = tmp_path / "cache"
    folder.mkdir(mode=0o700)

    def run(*command, mode="", **more):
        environment = {**os.environ, "MEGJIT_CACHE_DIR": str(folder), "MEGJIT_COMPILE": "sync", "OMP_NUM_THREADS": "1", **more}
        if mode:
            environment["MEGJIT_TUNE"] = mode
        done = subprocess.run(
            [sys.executable, *command, str(script)], env=environment, capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    run.folder = folder
    return run


def timings(folder):
    return [path for path in folder.glob("*.k") if b"timing\n" in path.read_bytes()]


def test_the_faster_one_is_taken_and_stays(run):
    by_model = run()
    assert len(re.findall("few weights|many weights", by_model)) == 4 and not timings(run.folder)
    measured = run(mode="on")
    found = MEASURED.findall(measured)
    assert len(found) == 3 and len(timings(run.folder)) == 3
    assert [(bool(panels), bool(tiles)) for _, _, panels, tiles in found] == [(False, True), (True, True), (True, False)]
    for who, library, *kernels in found:
        generated = min(float(seconds) for seconds in kernels if seconds)
        assert generated <= float(library) if who == "generated" else generated >= float(library)
    assert run() == run(mode="cached") == run(mode="on") == measured  # nothing is measured twice
    assert run(mode="off") == by_model
    if len(os.sched_getaffinity(0)) > 1:
        assert run(OMP_NUM_THREADS="2") == by_model


def test_a_damaged_measurement_is_not_read(run):
    by_model = run()
    run(mode="on")
    for path in timings(run.folder):
        whole = path.read_bytes()
        path.write_bytes(whole[:-3] + b"777")
    assert run() == by_model
    assert MEASURED.findall(run(mode="on"))  # and takes its place


def test_the_command_lists_what_it_found(run):
    out = run("-m", "megengine", "tune")
    table = out[out.index("chosen") :].splitlines()
    assert len(table) == 5 and str(run.folder) in table[-1]
    head = out.splitlines()[-5].split()
    assert head == ["library", "panels", "tiles", "chosen"]
    for line in table[1:4]:
        times = [float(time) for time in re.findall(r"(\S+) ms", line)]
        chosen = re.search(r"ms +(library|panels|tiles) +dots of float32 <=", line).group(1)
        assert len(times) in (2, 3)
        assert chosen != "library" or times[0] == min(times)
    assert MEASURED.findall(run())


def test_the_command_says_when_there_is_nothing(tmp_path):
    (tmp_path / "script.py").write_text("print('hello')")
    done = subprocess.run(
        [sys.executable, "-m", "megengine", "tune", str(tmp_path / "script.py")], capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 1 and "no traced function" in done.stderr


def test_an_unknown_way_is_refused(monkeypatch):
    monkeypatch.setenv("MEGJIT_TUNE", "banana")
    _core.reload_debug()
    try:
        step = mge.jit.trace(lambda x, w: mge.functional.tanh(x @ w), symbolic=True, opt_level=3)
        with pytest.raises(ValueError, match="MEGJIT_TUNE=banana.*\n.*off, cached and on"):
            step(mge.tensor(np.ones((8, 16), "float32")), mge.tensor(np.ones((16, 16), "float32")))
    finally:
        monkeypatch.undo()
        _core.reload_debug()
