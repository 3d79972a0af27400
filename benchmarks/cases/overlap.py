"""How much of the exchange of gradients does a data-parallel ResNet-18 step wait for, on a network that takes a third?

Two or four processes in a network namespace of their own, whose rate is set so that the exchange by itself takes half
of the time of a step without. What is measured: (step - step without exchange) / exchange by itself. Needs root, and
Linux with ``unshare`` and ``tc``.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from case import Case, Subject, Target
from cases import _resnet

NET, BATCH, SIZE = _resnet.RESNET18, 16, 160
BYTES = 46_800_000  # of the gradients: a bucket of 1 MB, one of 25, and the rest
ROUNDS = 5


def measured(processes):
    """Seconds of the three, medians of rounds in turns; in one of the processes."""
    import numpy as np

    import megengine as mge
    import megengine.distributed as dist

    callbacks = [dist.make_allreduce_cb("mean")]
    alone, shared = (_resnet.megjit(NET, BATCH, SIZE, callbacks=each) for each in ([], callbacks))
    vectors = [
        mge.tensor(np.ones(count // 4, np.float32)) for count in (1 << 20, 25 << 20, BYTES - (26 << 20))
    ]

    def exchange(calls):
        for _ in range(calls):
            for vector in vectors:
                dist.functional.all_reduce_sum(vector)

    def seconds(run):
        dist.group_barrier()
        begin = time.perf_counter()
        run(1)
        dist.group_barrier()
        return time.perf_counter() - begin

    runs = {"alone": alone.run, "shared": shared.run, "exchange": exchange}
    for run in runs.values():
        run(2)
    step = statistics.median(seconds(alone.run) for _ in range(3))
    if dist.get_rank() == 0:
        bits = 2 * (processes - 1) * BYTES * 8 / (step / 2)
        limit = f"rate {bits:.0f} burst 1mb latency 1s"
        subprocess.run(f"tc qdisc replace dev lo root tbf {limit}".split(), check=True)
    times = {name: [] for name in runs}
    for _ in range(ROUNDS):
        for name, run in runs.items():
            times[name].append(seconds(run))
    return {name: statistics.median(each) for name, each in times.items()}


def subject(processes):
    command = ["unshare", "--net", sys.executable, __file__, str(processes)]
    path = os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])
    threads = str(max(1, (os.cpu_count() or 1) // processes))
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": threads, "MEGJIT_COMPILE": "sync"}
    environment["MEGJIT_CROSS_MEMORY"] = "0"  # as between machines

    def run(calls):
        output = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout
        times = json.loads(output.splitlines()[-1])
        print(times, file=sys.stderr)
        return max(0.0, times["shared"] - times["alone"]) / times["exchange"]

    return Subject(run, dict)


CASES = [
    Case(
        name=f"overlap_{processes}",
        builders={"megjit": partial(subject, processes)},
        targets=(Target(f"exchange that is waited for, {processes} processes", at_most=0.4),),
        reference=None,
        unit="part",
        rounds=(1, 1),
        beside_others=processes > 2,  # on two cores
    )
    for processes in (2, 4)
]

if __name__ == "__main__":
    from megengine.distributed import launcher

    subprocess.run("ip link set lo up".split(), check=True)
    processes = int(sys.argv[1])
    print(json.dumps(launcher(measured, n_gpus=processes)(processes)[0]))
