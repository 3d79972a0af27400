"""A traced training loop: schedule, clipping, evaluation, checkpoint."""

import os
import tempfile

import numpy as np

import megengine as mge
import megengine.functional as F
import megengine.module as M
import megengine.optimizer as optim
from megengine.autodiff import GradManager
from megengine.jit import trace


class Trainer:
    def __init__(self, net: M.Sequential, lr: float) -> None:
        self.net = net
        self.gm = GradManager().attach(net.parameters())
        self.optimizer = optim.Adam(net.parameters(), lr=lr, weight_decay=1e-4)
        self.schedule = optim.MultiStepLR(self.optimizer, milestones=[2, 4], gamma=0.5)

    @trace(symbolic=True, memory_limit="60MB")
    def step(self, x: mge.Tensor, y: mge.Tensor) -> tuple[mge.Tensor, mge.Tensor]:
        with self.gm:
            scores = self.net(x)
            loss = F.loss.cross_entropy(scores, y, label_smooth=0.1) + 1e-3 * (scores**2).mean()
            self.gm.backward(loss)
        norm = optim.clip_grad_norm(self.net.parameters(), max_norm=1.0)
        self.optimizer.step().clear_grad()
        return loss, norm

    @trace
    def right(self, x: mge.Tensor, y: mge.Tensor) -> mge.Tensor:
        return (F.argmax(self.net(x), axis=1) == y).sum()


rng = np.random.RandomState(0)
data, labels = rng.randn(256, 8).astype("float32"), rng.randint(0, 3, 256).astype("int32")
trainer = Trainer(M.Sequential(M.Linear(8, 32), M.ReLU(), M.Dropout(0.1), M.Linear(32, 3)), lr=1e-2)
best = 0.0
for epoch in range(5):
    trainer.net.train()
    total = 0.0
    for i in range(0, len(data), 64):
        loss, norm = trainer.step(mge.tensor(data[i : i + 64]), mge.tensor(labels[i : i + 64]))
        total += loss.item() if norm.item() < 10 else 0
    trainer.schedule.step()
    trainer.net.eval()
    accuracy = int(trainer.right(mge.tensor(data), mge.tensor(labels))) / len(data)
    best = max(best, accuracy)
    print(f"{epoch}: loss {total / 4:.3f}, {accuracy:.0%} right")

with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "net.pkl")
    mge.save(trainer.net.state_dict(), path)
    trainer.net.load_state_dict(mge.load(path))
