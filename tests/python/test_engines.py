"""Collective operations by the engines that no mpiexec starts: the checks of other files in worlds of `gloo` and `tcp` (`local` is what these
files have themselves, `mpi` in test_mpi), and in worlds that take their processes for those of two machines, which is what `auto` adds up
in two steps."""

import os
import subprocess
import sys
import textwrap
from importlib import import_module
from pathlib import Path

import pytest
import world_checks

from megengine.distributed import _engine

HERE = Path(__file__).parent
# Gloo adds up in an order of its own, and so do two machines.
BY_RANKS = {"large_tensors_give_the_bits_of_small_ones"}
# Ranks 0 and 1 are on one machine, rank 2 is on another one.
TWO_MACHINES = """
    import os, sys
    from megengine.distributed import _engine
    _engine.place_of = lambda engine, is_alone: f"{engine} MARK machine {os.environ['RANK'] == '2'}"
"""
ENGINES = {
    "gloo": ("gloo", ""),
    "tcp": ("tcp", ""),
    "two machines by gloo": ("auto", TWO_MACHINES.replace("MARK", "gloo")),
    "two machines by tcp": ("auto", TWO_MACHINES.replace("MARK", "-")),
}


def without(engine):
    return set() if engine == "tcp" else BY_RANKS


def run(folder, name, size, program, **variables):
    backend, before = ENGINES[name]
    if "gloo" in name and not _engine._has_gloo():
        pytest.skip("this build has no Gloo")
    script = folder / "script.py"
    script.write_text(textwrap.dedent(before) + textwrap.dedent(program))
    command = [sys.executable, "-m", "megengine.distributed.run", "-n", str(size), "--backend", backend, script]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(HERE), **variables}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """As of `world_checks.results_of`, by engine."""

    def start(engine, file, folder):
        return run(folder, engine, world_checks.SIZES[file], f"import world_checks\nworld_checks.main({file!r}, {str(folder)!r}, {without(engine)})")

    return world_checks.results_of(tmp_path_factory.mktemp, start, world_checks.SIZES)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("file", "name"), [(file, name) for file in world_checks.SIZES for name in import_module(file).CHECKS])
def test_the_battery(results, engine, file, name):
    if name in without(engine):
        pytest.skip("it is about bits of sums in the order of ranks, which this engine does not promise")
    world_checks.expect_passed(results(engine, file), name)


PROGRAM = """
import hashlib, os, signal
import numpy as np, megengine as mge, megengine.distributed as dist
dist.init_process_group(timeout=60)
rank, size = dist.get_rank(), dist.get_world_size()
"""

SUMS = PROGRAM + """
bits = []
for dtype, tolerance in (("float32", 1e-6), ("float64", 1e-6), ("float16", 2e-3), ("bfloat16", 2e-2), ("int64", 0), ("complex64", 1e-6)):
    for count in (1, 1000, 300_001):
        parts = [np.random.RandomState(each).normal(size=count) * 40 for each in range(size)]
        mine = mge.tensor(parts[rank].astype("float32" if dtype in ("bfloat16", "complex64") else dtype)).astype(dtype)
        total = dist.functional.all_reduce_sum(mine)
        expected = sum(dist.functional.all_gather(mine.reshape(1, -1)).numpy().astype("complex128" if dtype == "complex64" else "float64"))
        assert (abs(total.numpy().astype(expected.dtype) - expected) <= tolerance * sum(map(abs, parts))).all(), (dtype, count)
        bits.append(total.numpy().tobytes())
large = np.zeros(100_000, "float32")
large[7] = float("nan") if rank == 1 else 1
assert np.isnan(dist.functional.all_reduce_max(mge.tensor(large)).numpy()[7])
digests = set(dist.group._sd.world.gather(hashlib.sha256(b"".join(bits)).hexdigest()))
assert len(digests) == 1
if rank == 0:
    print(dist.group._sd.engine, *digests)
"""


@pytest.mark.parametrize("engine", ENGINES)
def test_sums_of_any_dtype_have_the_same_bits_everywhere_and_in_each_run(engine, tmp_path):
    first, second = (run(tmp_path, engine, 3, SUMS) for _ in range(2))
    assert first.returncode == 0, first.stderr
    assert first.stdout.startswith(f"[0] {'gloo' if 'gloo' in engine else 'tcp'} ") and first.stdout == second.stdout


def test_gloo_takes_no_time_limit_from_what_memory_held_before(tmp_path):
    """A context of Gloo's has none until it is told: with fresh memory that is no limit, with used memory anything."""
    done = run(tmp_path, "gloo", 2, SUMS, MALLOC_PERTURB_="1")
    assert done.returncode == 0 and done.stdout.startswith("[0] gloo "), done.stderr


@pytest.mark.parametrize("engine", ENGINES)
def test_mismatched_calls_are_named(engine, tmp_path):
    done = run(tmp_path, engine, 3, PROGRAM + """
x = mge.tensor(np.ones(100_000, "float32"))
dist.functional.all_reduce_max(x) if rank else dist.functional.all_reduce_sum(x)
""")
    assert done.returncode == 1
    assert "rank 0 calls all_reduce_sum of f32[100000]" in done.stderr and "calls all_reduce_max of f32[100000]" in done.stderr, done.stderr


@pytest.mark.parametrize("engine", ["gloo", "two machines by gloo"])
def test_who_is_killed_or_hangs_in_the_midst_is_named(engine, tmp_path):
    """A member that stops while vectors travel, after all have met."""
    kill = PROGRAM + """
x = mge.tensor(np.ones(1 << 22, "float32"))
dist.functional.all_reduce_sum(x)
if rank == 1:
    import threading
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGKILL)).start()
while True:
    dist.functional.all_reduce_sum(x)
"""
    done = run(tmp_path, engine, 3, kill)
    assert done.returncode == 128 + 9 and "rank 1 was killed by signal 9" in done.stderr, done.stderr
    hang = PROGRAM + """
x = mge.tensor(np.ones(1 << 22, "float32"))
dist.functional.all_reduce_sum(x)
dist.set_timeout(3)
if rank == 1:
    import threading
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGSTOP)).start()
while True:
    dist.functional.all_reduce_sum(x)
"""
    done = run(tmp_path, engine, 3, hang)
    assert done.returncode == 1 and (" has not answered for 3 s" in done.stderr or "has not ended for 3 s" in done.stderr), done.stderr


def test_an_engine_that_is_not_there_names_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setattr(_engine._core, "__file__", str(tmp_path / "_core.so"))
    with pytest.raises(RuntimeError, match="apt-get install libgloo-dev"):
        _engine.gloo()
    (tmp_path / "libmegjit_gloo.so").write_text("no library")
    with pytest.raises(RuntimeError, match="apt-get install libgloo0"):
        _engine.gloo()
