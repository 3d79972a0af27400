"""README's tour, with its function annotated."""

import numpy as np

import megengine as mge
import megengine.functional as F
import megengine.module as M
import megengine.optimizer as optim
from megengine import Tensor
from megengine.autodiff import GradManager
from megengine.jit import trace

net = M.Sequential(M.Linear(64, 256), M.ReLU(), M.Linear(256, 10))
optimizer = optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
gm = GradManager().attach(net.parameters())


@trace(symbolic=True, opt_level=3)
def train_step(image: Tensor, label: Tensor, *, net: M.Sequential, opt: optim.Optimizer, gm: GradManager) -> Tensor:
    with gm:
        loss = F.loss.cross_entropy(net(image), label)
        gm.backward(loss)
        opt.step().clear_grad()
    return loss


losses: list[float] = []
for _ in range(3):
    image = mge.tensor(np.random.randn(128, 64).astype("float32"))
    label = mge.tensor(np.random.randint(0, 10, 128).astype("int32"))
    losses.append(train_step(image, label, net=net, opt=optimizer, gm=gm).item())

plan = train_step.memory_plan()
print(f"{plan.planned_bytes >> 10} KiB planned, {plan.arena_bytes >> 10} KiB arena")
print([kernel.ops for kernel in train_step.kernels()])
print(train_step.explain())
