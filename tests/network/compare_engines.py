"""How long does an all-reduce take between two hosts by each engine, beside torch's gloo? Two namespaces, one process each, cables without a limit.

    python tests/network/compare_engines.py [--engine mpi gloo tcp] [--torch PYTHON] [--rounds 3]

torch is that of another Python, where --torch names one, and adds up in place. The engines take turns. MPI is the MPICH beside this Python, told by UCX_TLS to
use TCP: the two hosts have a memory in common. Not a test: it depends on time. Needs root.
"""

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from namespaces import Network, address

MEGABYTES = {1: 20, 64: 5}  # how many calls
PROGRAM = """
import sys, time
import numpy as np

def of_torch(rank):
    import torch, torch.distributed as dist
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="tcp://ADDRESS:23456", rank=rank, world_size=2)
    def prepared(x):
        x = torch.from_numpy(x)
        return lambda: dist.all_reduce(x)
    return prepared, dist.barrier, rank

def of_megjit():
    import megengine as mge, megengine.distributed as dist
    dist.init_process_group()
    def prepared(x):
        x = mge.tensor(x)
        return lambda: dist.functional.all_reduce_sum(x)
    return prepared, dist.group_barrier, dist.get_rank()

prepared, barrier, rank = of_torch(int(sys.argv[1])) if sys.argv[1:] else of_megjit()
for megabytes, calls in CALLS.items():
    add_up = prepared(np.ones(megabytes << 18, "float32"))
    times = []
    for _ in range(calls + 1):
        barrier()
        begin = time.perf_counter()
        add_up()
        times.append(time.perf_counter() - begin)
    if rank == 0:
        print(megabytes, "took", *times[1:], flush=True)
"""
ENVIRONMENT = {
    **os.environ, "MEGENGINE_DISTRIBUTED_TOKEN": "compare", "OMP_NUM_THREADS": "1", "MEGJIT_COMPILE": "sync", "UCX_TLS": "tcp,self", "GLOO_SOCKET_IFNAME": "cable"
}  # fmt: skip


def commands(network, engine, torch, folder):
    """What to start on the hosts."""
    script = folder / "program.py"
    if engine == "torch":
        return [[*network.on(rank), torch, script, str(rank)] for rank in range(2)]
    if engine == "mpi":
        remote = folder / "remote"  # as ssh: options, a host, a command
        remote.write_text(f'#!/bin/sh\nwhile [ "$1" != {address(1)} ]; do shift; done\nshift\nexec {" ".join(network.on(1))} sh -c "$*"\n')
        remote.chmod(0o755)
        mpiexec = [Path(sys.prefix, "bin/mpiexec"), "-launcher", "ssh", "-launcher-exec", remote, "-hosts", f"{address(0)},{address(1)}"]
        variables = {"MEGJIT_COMM": "mpi", "MASTER_ADDR": address(0), "MASTER_PORT": "23456"}
        told = [word for name, value in variables.items() for word in ("-genv", name, value)]
        return [[*network.on(0), *mpiexec, "-ppn", "1", "-n", "2", *told, sys.executable, script]]
    run = [sys.executable, "-m", "megengine.distributed.run", "-n", "1", "--world-size", "2", "--master-ip", address(0), "--port", "23456", "--backend", engine]
    return [[*network.on(rank), *run, "--rank-start", str(rank), script] for rank in range(2)]


def times_of(network, engine, torch, folder):
    """Seconds of each call in rank 0, by megabytes."""
    hosts = [
        subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for command in commands(network, engine, torch, folder)
    ]
    said = [each.communicate(timeout=120) for each in hosts]
    if any(each.returncode for each in hosts):
        raise RuntimeError(f"{engine}: {said}")
    found = re.findall(r"(\d+) took (.*)", "".join(out for out, _ in said))
    return {int(megabytes): [float(each) for each in times.split()] for megabytes, times in found}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--engine", nargs="+", default=["mpi", "gloo", "tcp"])
    parser.add_argument("--torch", metavar="PYTHON")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    engines = given.engine + (["torch"] if given.torch else [])
    with Network(2) as network, tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "program.py").write_text(PROGRAM.replace("ADDRESS", address(0)).replace("CALLS", repr(MEGABYTES)))
        for number in range(given.rounds):
            for engine in engines:
                times = times_of(network, engine, given.torch, folder)
                told = (f"{each} MB best {min(times[each]) * 1e3:.2f} median {statistics.median(times[each]) * 1e3:.2f} ms" for each in MEGABYTES)
                print(f"round {number}, {engine}: {'; '.join(told)}", flush=True)


if __name__ == "__main__":
    main()
