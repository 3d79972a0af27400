"""Trains one network in two processes that mpiexec or Ray has placed, and shows that both end with the same weights.

    pip install 'megjit[mpi]'; MEGJIT_COMM=mpi mpiexec -n 2 python examples/two_processes.py
    pip install 'megjit[ray]'; python examples/two_processes.py --ray

Each process takes every second row of a batch. Their gradients are averaged while the backward pass goes on.
"""

import argparse
import functools

import numpy as np

import megengine as mge
import megengine.distributed as dist
import megengine.functional as F
import megengine.module as M
import megengine.optimizer as optim
from megengine.autodiff import GradManager
from megengine.jit import trace


def train(steps: int) -> str:
    """What each process does; one line about both."""
    dist.init_process_group()
    mge.random.seed(0)
    rank, size = dist.get_rank(), dist.get_world_size()
    net = M.Sequential(M.Linear(2, 64), M.ReLU(), M.Linear(64, 1))
    gm = GradManager().attach(net.parameters(), callbacks=[dist.make_allreduce_cb("mean")])
    optimizer = optim.Adam(net.parameters(), lr=0.01)

    @trace(symbolic=True)
    def step(x: mge.Tensor, y: mge.Tensor) -> mge.Tensor:
        with gm:
            loss = F.loss.square_loss(net(x), y)
            gm.backward(loss)
        optimizer.step().clear_grad()
        return dist.functional.all_reduce_sum(loss) / size  # of the whole batch

    rng, losses = np.random.RandomState(0), []
    for _ in range(steps):  # all draw the same batch, and each takes its rows
        x = rng.uniform(-1, 1, (64, 2)).astype("float32")[rank::size]
        losses.append(step(mge.tensor(x), mge.tensor(x[:, :1] * x[:, 1:])).item())
    weights = F.concat([p.flatten() for p in net.parameters()])
    of_all = dist.functional.all_gather(weights).reshape(size, -1).numpy()
    return f"{size} processes: loss {losses[0]:.3f} at first, {losses[-1]:.4f} at last; the same weights: {bool((of_all == of_all[0]).all())}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--ray", action="store_true", help="let Ray place two processes, instead of mpiexec")
    args = parser.parse_args()
    if args.ray:
        from megengine.distributed import ray

        print(ray.run(functools.partial(train, args.steps), workers=2)[0])
    else:
        line = train(args.steps)
        if dist.get_rank() == 0:
            print(line)


if __name__ == "__main__":
    main()
