"""What a background checkpoint costs the steps beside it: the same steps in turns, with one checkpoint at their begin and without.

    python tests/network/checkpoint_cost.py [--processes 2] [--steps 20] [--rounds 20]

Not a test: it depends on time, and on the folder's disk (`TMPDIR`).
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

TRAIN = """
import statistics, sys, time
import numpy as np
import megengine as mge, megengine.distributed as dist, megengine.functional as F, megengine.module as M, megengine.optimizer as optim
from megengine.autodiff import GradManager
from megengine.distributed import checkpoint
from megengine.jit import trace

folder, steps, rounds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
dist.init_process_group()
net = M.Sequential(M.Linear(1024, 2048), M.ReLU(), M.Linear(2048, 2048), M.ReLU(), M.Linear(2048, 1000))
dist.bcast_list_(net.parameters())
optimizer = optim.Adam(net.parameters(), lr=1e-4)
gm = GradManager().attach(net.parameters(), callbacks=[dist.make_allreduce_cb("mean")])

@trace(symbolic=True)
def step(x, y):
    with gm:
        gm.backward(F.loss.cross_entropy(net(x), y))
    optimizer.step().clear_grad()

x, y = mge.tensor(np.random.RandomState(0).normal(size=(256, 1024)).astype("float32")), mge.tensor(np.zeros(256, "int32"))

def seconds(number):
    \"\"\"Of so many steps, with a checkpoint where it has a number, and of the call alone.\"\"\"
    dist.group_barrier()
    begin = time.perf_counter()
    if number is not None:
        checkpoint.save(folder, {"net": net, "optimizer": optimizer}, number)
    called = time.perf_counter() - begin
    for _ in range(steps):
        step(x, y)
    dist.group_barrier()
    took = time.perf_counter() - begin
    waited = time.perf_counter()
    if checkpoint.wait():
        sys.exit("a checkpoint was not written")
    return took, called, time.perf_counter() - waited

seconds(0)
quiet, beside, calls = [], [], []
for number in range(1, rounds + 1):
    quiet.append(seconds(None)[0])
    took, called, waited = seconds(number)
    beside.append(took)
    calls.append(called)
    if waited > 0.1:
        sys.exit(f"the checkpoint was not written within its {steps} steps: {waited:.1f} s more")
lost = statistics.median(beside) - statistics.median(quiet)
if dist.get_rank() == 0:
    megabytes = 3 * sum(each.numpy().nbytes for each in net.parameters()) / 1e6
    print(f"{megabytes:.0f} MB, {dist.get_world_size()} processes, {steps} steps of {statistics.median(quiet) / steps * 1e3:.1f} ms: "
          f"{lost * 1e3:.0f} ms lost to a checkpoint, 2 % of {lost / 0.02:.1f} s; the call took "
          f"{statistics.median(calls) * 1e3:.0f} ms (medians of {rounds}; without {min(quiet):.2f} to {max(quiet):.2f} s, with {min(beside):.2f} to {max(beside):.2f} s)")
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--steps", type=int, default=20, help="beside which it is written")
    parser.add_argument("--rounds", type=int, default=20)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "train.py")
        script.write_text(TRAIN)
        command = [sys.executable, "-m", "megengine.distributed.run", "-n", str(given.processes), script, f"{folder}/checkpoints"]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "MEGJIT_COMPILE": "sync"}
        return subprocess.run([*command, str(given.steps), str(given.rounds)], env=environment).returncode


if __name__ == "__main__":
    sys.exit(main())
