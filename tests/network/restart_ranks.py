"""kill -9 of a random rank at a random moment, again and again, while a world trains under ``run --restarts`` or `distributed.ray.run`: does
training end with the losses of an undisturbed run, to the last bit, and how much was computed twice?

    python tests/network/restart_ranks.py [--kills 100] [--processes 2] [--engine local gloo ray]

`make test-cluster` runs it, and three kills are part of `make test`. Prints a line for each training, and what came of all.
"""

import argparse
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

INTERVAL = 4  # steps between checkpoints
TRAIN = f"""
import os, sys, time
from pathlib import Path
import numpy as np
import megengine as mge, megengine.distributed as dist, megengine.functional as F, megengine.module as M, megengine.optimizer as optim
from megengine.autodiff import GradManager
from megengine.distributed import checkpoint

def train(folder, steps, seconds):
    os.makedirs(folder + ".pids", exist_ok=True)
    Path(folder + ".pids", os.environ["RANK"]).write_text(str(os.getpid()))
    dist.init_process_group()
    rank, size = dist.get_rank(), dist.get_world_size()
    mge.random.seed(1)
    net = M.Sequential(M.Linear(64, 1024), M.ReLU(), M.Dropout(0.5), M.Linear(1024, 8))  # 300 kB of gradients: what Gloo carries itself
    opt = optim.sharded(optim.Adam(net.parameters(), lr=0.01))
    gm = GradManager().attach(net.parameters())
    losses, found = [], checkpoint.load(folder)
    if found:
        net.load_state_dict(found[0]["net"])
        opt.load_state_dict(found[0]["opt"])
        losses = found[0]["losses"]
    for step in range(len(losses), steps):
        x = np.random.RandomState(step).normal(size=(8, 64)).astype("float32")[rank * 8 // size : (rank + 1) * 8 // size]
        with gm:
            loss = ((net(mge.tensor(x)) - x.sum(1, keepdims=True)) ** 2).mean()
            gm.backward(loss)
        opt.step().clear_grad()
        losses.append(dist.functional.all_reduce_sum(loss).item())
        if step % {INTERVAL} == {INTERVAL - 1}:
            checkpoint.save(folder, {{"net": net, "opt": opt, "losses": losses}}, step)
        if rank == 0:
            with open(folder + ".steps", "a") as file:
                file.write(f"{{step}}\\n")
        time.sleep(seconds)
    checkpoint.wait()
    return losses

def by_ray(folder, steps, seconds, size, restarts):
    import ray
    from megengine.distributed.ray import run
    ray.init("local", num_cpus=size, object_store_memory=80 << 20, include_dashboard=False, log_to_driver=False)
    return run(lambda folder: train(folder, steps, seconds), size, restarts=restarts, checkpoint=folder)[0]

if __name__ == "__main__":
    given = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    losses = by_ray(*given, *map(int, sys.argv[4:])) if sys.argv[4:] else train(*given)
    if dist.get_rank() == 0:
        Path(sys.argv[1] + ".losses").write_text(repr(losses))
"""
PAUSE = 0.02  # seconds after each step, so that a training outlasts its kills


def pids_of(folder, size):
    found = []
    for rank in range(size):
        try:
            found.append(int(Path(f"{folder}.pids", str(rank)).read_text()))
        except (OSError, ValueError):
            return []
    return found


def kill_one(folder, size, chance, before, is_over):
    """Kills one of a world that is another one than `before`, and gives its processes; None where training ended first."""
    while (pids := pids_of(folder, size)) == [] or set(pids) & set(before):
        if is_over():
            return None
        time.sleep(0.01)
    time.sleep(chance.uniform(0, 1.5))
    try:
        os.kill(chance.choice(pids), signal.SIGKILL)
    except ProcessLookupError:  # it had ended
        return None
    return pids


def lost_steps(folder):
    """How many steps were computed again after each restart."""
    steps = [int(line) for line in Path(f"{folder}.steps").read_text().split()]
    return [before - after + 1 for before, after in zip(steps, steps[1:], strict=False) if after <= before]


def training(script, folder, given, engine, kills, chance):
    """(kills, losses, steps lost by each restart, restarts) of a world that is killed so many times."""
    size = given.processes
    command = [sys.executable, script, folder, str(given.steps), str(PAUSE)]
    if engine == "ray":
        command += [str(size), str(kills)]
    else:
        command[1:1] = ["-m", "megengine.distributed.run", "-n", str(size), "--backend", engine, "--restarts", str(kills)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MEGJIT_COMPILE": "sync"}
    with open(f"{folder}.out", "w") as out:
        world = subprocess.Popen(command, env=environment, stdout=out, stderr=out)
        done, before = 0, []
        while done < kills and before is not None:
            before = kill_one(folder, size, chance, before, lambda: world.poll() is not None)
            done += before is not None
        code = world.wait()
    said = Path(f"{folder}.out").read_text()
    if code:
        return done, f"exit code {code}: {said[-1500:]}", [], 0
    return done, Path(f"{folder}.losses").read_text(), lost_steps(folder), len(re.findall("all processes start again", said))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--each", type=int, default=25, help="kills of one training")
    parser.add_argument("--steps", type=int, default=300, help="of one training")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--engine", nargs="+", default=["local", "gloo", "ray"])
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    chance, wrong, all_lost, total = random.Random(given.seed), 0, [], 0
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "train.py")
        script.write_text(TRAIN)
        expected = {}
        for engine in given.engine:
            expected[engine] = training(script, f"{folder}/{engine}", given, engine, 0, chance)[1]
            if expected[engine].startswith("exit code"):  # which a killed run that fails alike would equal
                return f"{engine}: the undisturbed training ended with {expected[engine]}"
        number = 0
        while total < given.kills:
            engine = given.engine[number % len(given.engine)]
            here = min(given.each, given.kills - total)
            begin = time.monotonic()
            kills, losses, lost, restarts = training(script, f"{folder}/{number}", given, engine, here, chance)
            is_good = losses == expected[engine] and max(lost, default=0) <= 2 * INTERVAL
            wrong += not is_good
            total += kills
            all_lost += lost
            number += 1
            verdict = "the same losses" if losses == expected[engine] else f"OTHER losses: {losses[:1500]}"
            print(
                f"{engine}: {kills} kills, {restarts} restarts, {verdict}; steps lost: {lost}; {time.monotonic() - begin:.0f} s", flush=True
            )
            if kills == 0:
                break
    print(
        f"{total} kills in {number} trainings of {given.processes} processes: {number - wrong} ended with the losses of an undisturbed run, to the "
        f"last bit, and within {2 * INTERVAL} steps; lost at most {max(all_lost, default=0)} steps, {sum(all_lost) / max(1, len(all_lost)):.1f} on average"
    )
    return wrong != 0 or total < given.kills


if __name__ == "__main__":
    sys.exit(main())
