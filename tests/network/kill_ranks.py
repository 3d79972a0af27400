"""kill -9 of a random rank, again and again: does each world end, in time, and leave nothing behind?

    python tests/network/kill_ranks.py [--times 100] [--processes 4]

Not a test: it takes minutes. Every second world trains eagerly, the others traced, each process with a worker that loads its data; the kill
comes at a random moment, from joining the world on. Prints a line for each run, and what came of all.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TRAIN = """
import os, sys
from pathlib import Path
import numpy as np
import megengine as mge, megengine.distributed as dist, megengine.functional as F, megengine.module as M, megengine.optimizer as optim
from megengine.autodiff import GradManager
from megengine.data import DataLoader, RandomSampler
from megengine.data.dataset import ArrayDataset
from megengine.jit import trace

Path(sys.argv[1], os.environ["RANK"]).write_text(str(os.getpid()))
dist.init_process_group()
net = M.Sequential(M.Linear(64, 1024), M.ReLU(), M.Linear(1024, 10))  # 300 kB of gradients
dist.bcast_list_(net.parameters())
optimizer = optim.SGD(net.parameters(), lr=1e-3)
gm = GradManager().attach(net.parameters(), callbacks=[dist.make_allreduce_cb("mean")])

def step(x, y):
    with gm:
        gm.backward(F.loss.cross_entropy(net(x), y))
    optimizer.step().clear_grad()

if sys.argv[2] == "traced":
    step = trace(step, symbolic=True, opt_level=3)
data = ArrayDataset(np.ones((512, 64), "float32"), np.zeros(512, "int32"))
while True:
    for x, y in DataLoader(data, RandomSampler(data, batch_size=16, seed=0), num_workers=1):
        step(mge.tensor(x), mge.tensor(y))
"""
MARK = "MEGJIT_KILL_RANKS"  # a variable of all processes that a run starts
SECONDS = 10  # in which a world ends


def marked(mark):
    """Processes that run, with this mark."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if f"{MARK}={mark}".encode() in folder.joinpath("environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
        except OSError:  # it has ended, or is somebody else's
            pass
    return found


def run(folder, number, processes, chance):
    """(seconds from the kill to the end of the command, what was not as it should be)"""
    pids = [Path(folder, str(rank)) for rank in range(processes)]
    for path in pids:
        path.unlink(missing_ok=True)
    mark, rank = f"{os.getpid()}.{number}", chance.randrange(processes)
    command = [sys.executable, "-m", "megengine.distributed.run", "-n", str(processes), Path(folder, "train.py"), folder, ["eager", "traced"][number % 2]]
    world = subprocess.Popen(command, env={**os.environ, MARK: mark, "OMP_NUM_THREADS": "1"}, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    while not all(path.exists() and path.read_text() for path in pids):
        time.sleep(0.01)
    time.sleep(chance.uniform(0, 4))
    os.kill(int(pids[rank].read_text()), signal.SIGKILL)
    begin = time.monotonic()
    errors = world.communicate()[1]
    seconds = time.monotonic() - begin
    orphans = marked(mark)
    if orphans:  # the kernel may not be through with them
        time.sleep(0.5)
        orphans = marked(mark)
    wrong = []
    if orphans:
        wrong.append(f"{len(orphans)} orphans")
        for pid in orphans:
            os.kill(pid, signal.SIGKILL)
    if seconds > SECONDS:
        wrong.append(f"{seconds:.1f} s")
    if world.returncode != 128 + signal.SIGKILL or f"rank {rank} was killed by signal 9" not in errors:
        wrong.append(f"exit code {world.returncode}: {errors[-2000:]}")
    return seconds, wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--times", type=int, default=100)
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    chance, shared = random.Random(given.seed), set(os.listdir("/dev/shm"))
    all_seconds, unclean = [], 0
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "train.py").write_text(TRAIN)
        for number in range(given.times):
            seconds, wrong = run(folder, number, given.processes, chance)
            all_seconds.append(seconds)
            unclean += bool(wrong)
            print(f"run {number}: {'; '.join(wrong) or f'{seconds:.2f} s'}", flush=True)
    left = sorted(set(os.listdir("/dev/shm")) - shared)
    print(
        f"{given.times - unclean} of {given.times} worlds of {given.processes} ended as they should, without orphans, in {SECONDS} s; "
        f"median {sorted(all_seconds)[given.times // 2]:.2f} s, longest {max(all_seconds):.2f} s; new in /dev/shm: {left or 'nothing'}"
    )


if __name__ == "__main__":
    main()
