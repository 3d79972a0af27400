"""Checks that run in the processes of one world, which is started once for all of a file."""

import importlib
import json
import sys
import traceback
from pathlib import Path

import pytest

import megengine.distributed as dist

# Files of checks that all engines pass, and in how many processes.
SIZES = {"test_collectives": 3, "test_gradient_buckets": 2, "test_sharded_optimizer": 3, "test_fully_shard": 3}


class Checks(dict):
    """Those of a file, by name: ``@add`` puts a function of the rank there."""

    def add(self, function):
        self[function.__name__] = function
        return function

    def results(self, processes):
        """A fixture, to be called ``results``: what `run` gives, once for the file."""
        return pytest.fixture(scope="module", name="results")(lambda: run(self, processes))


def failures_here(checks):
    """Each check with the rank of this process: the traceback of each one that failed, by name."""
    failed = {}
    for name, check in checks.items():
        try:
            check(dist.get_rank())
        except BaseException:
            failed[name] = traceback.format_exc()
    return failed


def run(checks, processes):
    """failures_here in each process of a new world, by rank."""
    return dist.launcher(lambda: failures_here(checks), n_gpus=processes, timeout=120.0)()


def expect_passed(results, name):
    failures = [f"rank {rank}: {failed[name]}" for rank, failed in enumerate(results) if name in failed]
    assert not failures, "\n".join(failures)


def results_of(mktemp, start, sizes):
    """(engine, file of checks) -> what each rank says of them. ``start(engine, file, folder)`` runs a world, once for each."""
    found = {}

    def of(engine, file):
        if (engine, file) not in found:
            folder = mktemp("world")
            done = start(engine, file, folder)
            assert done.returncode == 0, done.stdout + done.stderr
            found[engine, file] = [json.loads((folder / f"{rank}.json").read_text()) for rank in range(sizes[file])]
        return found[engine, file]

    return of


def main(file, folder, without=()):
    """In a process that something else has started: the checks of a file but for some; what failed goes to ``folder/RANK.json``."""
    dist.init_process_group(timeout=120.0)
    checks = importlib.import_module(file).CHECKS
    failed = failures_here({name: check for name, check in checks.items() if name not in without})
    Path(folder, f"{dist.get_rank()}.json").write_text(json.dumps(failed))


if __name__ == "__main__":
    main(*sys.argv[1:])
