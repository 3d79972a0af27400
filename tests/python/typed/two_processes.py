"""The launcher: a function in two processes, with gradients averaged between them."""

import numpy as np

import megengine as mge
import megengine.distributed as dist
import megengine.functional as F
import megengine.module as M
import megengine.optimizer as optim
from megengine.autodiff import GradManager
from megengine.jit import trace


@dist.launcher(n_gpus=2)
def train(steps: int, lr: float = 0.05) -> tuple[int, list[float]]:
    rank, size = dist.get_rank(), dist.get_world_size()
    mge.random.seed(0)
    net = M.Linear(4, 1)
    dist.bcast_list_(net.parameters())
    gm = GradManager().attach(net.parameters(), callbacks=[dist.make_allreduce_cb("mean")])
    optimizer = optim.SGD(net.parameters(), lr=lr)

    @trace(symbolic=True)
    def step(x: mge.Tensor, y: mge.Tensor) -> mge.Tensor:
        with gm:
            loss = F.loss.square_loss(net(x), y)
            gm.backward(loss)
        optimizer.step().clear_grad()
        return dist.functional.all_reduce_sum(loss) / size

    rng = np.random.RandomState(0)
    losses: list[float] = []
    for _ in range(steps):
        x = rng.rand(8, 4).astype("float32")[rank::size]
        losses.append(step(mge.tensor(x), mge.tensor(x.sum(axis=1, keepdims=True))).item())
    dist.group_barrier()
    return rank, losses


if __name__ == "__main__":
    for rank, losses in train(5, lr=0.1):
        print(rank, losses[-1] < losses[0])
