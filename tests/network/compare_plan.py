"""How far is `plan --world` off? Prints what it tells of a step in 2 and 4 processes, and what the step took over namespaces with a rate limit.

    python tests/network/compare_plan.py [--rate 100] [--steps 10]

Not a test: it depends on time. Needs root, and a machine that has cores to spare: each message waits until a process runs.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from namespaces import Network, address

STEP = """
import sys, time
import numpy as np
import megengine as mge, megengine.distributed as dist, megengine.functional as F, megengine.module as M, megengine.optimizer as optim
from megengine.autodiff import GradManager
from megengine.jit import trace

dist.init_process_group()
net = M.Sequential(M.Linear(256, 1024), M.ReLU(), M.Linear(1024, 768), M.ReLU(), M.Linear(768, 768), M.ReLU(), M.Linear(768, 10))
dist.bcast_list_(net.parameters())
optimizer = optim.SGD(net.parameters(), lr=1e-3)
gm = GradManager().attach(net.parameters(), callbacks=[dist.make_allreduce_cb("mean")])

@trace(symbolic=True, opt_level=3)
def step(x, y):
    with gm:
        gm.backward(F.loss.cross_entropy(net(x), y))
    optimizer.step().clear_grad()

x, y = mge.tensor(np.random.RandomState(0).normal(size=(32, 256)).astype("float32")), mge.tensor(np.zeros(32, "int32"))
times = []
for _ in range(int(sys.argv[1]) + 2):
    dist.group_barrier()
    begin = time.perf_counter()
    step(x, y)
    times.append(time.perf_counter() - begin)
print("seconds", np.median(times[2:]))
"""


def measured(network, script, processes, steps):
    """Seconds of a step: of the slowest process, the median."""
    environment = {**os.environ, "MEGENGINE_DISTRIBUTED_TOKEN": "compare", "MEGJIT_COMPILE": "sync", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "megengine.distributed.run", "-n", "1", "--world-size", str(processes), "--master-ip", address(0)]
    launchers = [
        subprocess.Popen([*network.on(rank), *command, "--rank-start", str(rank), "--port", "23456", script, str(steps)], env=environment, stdout=subprocess.PIPE, text=True)
        for rank in range(processes)
    ]
    return max(float(re.search("seconds (.*)", each.communicate()[0])[1]) for each in launchers)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rate", type=float, default=100, help="megabits a second of each cable")
    parser.add_argument("--steps", type=int, default=10)
    given = parser.parse_args()
    bandwidth = given.rate * 1e6 / 8 * 1448 / 1514  # of a frame, what TCP carries
    with tempfile.TemporaryDirectory() as folder, Network(4) as network:
        script = Path(folder, "step.py")
        script.write_text(STEP)
        network.limit(f"{given.rate:g}mbit")
        for processes in (2, 4):
            command = [sys.executable, "-m", "megengine", "plan", script, "--world", processes, "--bandwidth", bandwidth, "--latency", "1e-4", "--json", given.steps]
            # All at once, as they will run: where there are fewer cores than processes, each computes at a part of the speed.
            planners = [subprocess.Popen(list(map(str, command)), env={**os.environ, "OMP_NUM_THREADS": "1"}, stdout=subprocess.PIPE, text=True) for _ in range(processes)]
            told = max(json.loads(each.communicate()[0])[0]["bucketed_seconds"] for each in planners)
            seconds = measured(network, script, processes, given.steps)
            print(f"{processes} processes, {given.rate:g} Mbit/s: told {told:.3f}, measured {seconds:.3f}, ratio {told / seconds:.3f}", flush=True)


if __name__ == "__main__":
    main()
