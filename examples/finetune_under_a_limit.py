"""Trains a network on five digits, then teaches it the five others in less memory than the step needs by itself.

    pip install scikit-learn
    python examples/finetune_under_a_limit.py [--limit 0.6] [--epochs 6]

The limit holds for every call: what does not fit is computed again in the backward pass.
"""

import argparse

import numpy as np
from sklearn.datasets import load_digits

import megengine as mge
import megengine.functional as F
import megengine.module as M
import megengine.optimizer as optim
from megengine.autodiff import GradManager
from megengine.jit import trace

BATCH = 32


class Net(M.Module):
    """Convolutions at one size, whose results the backward pass needs, and a last layer for five digits."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.first = M.Conv2d(1, width, 3, padding=1)
        self.convs = [M.Conv2d(width, width, 3, padding=1) for _ in range(layers)]
        self.norms = [M.GroupNorm(4, width) for _ in range(layers)]
        self.out = M.Linear(width, 5)

    def forward(self, x: mge.Tensor) -> mge.Tensor:
        x = self.first(x)
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x = x + conv(F.relu(norm(x)))
        return self.out(F.mean(x, axis=(2, 3)))


def train(net: Net, images: np.ndarray, labels: np.ndarray, epochs: int, lr: float, part: float) -> int:
    """Train with this part of the memory that the step would take; gives the bytes of its plan."""
    gm, optimizer = GradManager().attach(net.parameters()), optim.AdamW(net.parameters(), lr=lr)

    def step(image: mge.Tensor, label: mge.Tensor) -> mge.Tensor:
        with gm:
            loss = F.loss.cross_entropy(net(image), label)
            gm.backward(loss)
        optimizer.step().clear_grad()
        return loss

    rng = np.random.RandomState(0)
    first = mge.tensor(images[:BATCH]), mge.tensor(labels[:BATCH])
    needed = trace(step, symbolic=True).plan(*first).planned_bytes  # nothing is computed
    limited = trace(step, symbolic=True, memory_limit=int(needed * part)) if part < 1 else trace(step, symbolic=True)
    for _ in range(epochs):
        order = rng.permutation(len(images))
        for i in range(0, len(order) - BATCH + 1, BATCH):
            rows = order[i : i + BATCH]
            limited(mge.tensor(images[rows]), mge.tensor(labels[rows]))
    return limited.memory_plan().planned_bytes


def accuracy(net: Net, images: np.ndarray, labels: np.ndarray) -> float:
    return float((F.argmax(net(mge.tensor(images)), axis=1).numpy() == labels).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limit", type=float, default=0.6, help="the part of the memory that fine-tuning may take")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument("--layers", type=int, default=6)
    args = parser.parse_args()

    images, labels = load_digits(return_X_y=True)
    images, labels = (images / 16).astype("float32").reshape(-1, 1, 8, 8), labels.astype("int32")
    mge.random.seed(0)
    net = Net(args.width, args.layers)
    for name, chosen, lr, part in (("trained", labels < 5, 5e-3, 1.0), ("fine-tuned", labels >= 5, 5e-3, args.limit)):
        x, y = images[chosen], labels[chosen] % 5
        taken = train(net, x[200:], y[200:], args.epochs, lr, part)
        print(f"{name} in {taken / 1e6:.1f} MB: {accuracy(net, x[:200], y[:200]):.0%} of the held-out digits")


if __name__ == "__main__":
    main()
