"""Takes a network of torchvision with its weights, gives it a new last layer, and trains it here; torch is used to make the network only.

    pip install torch torchvision scikit-learn
    python examples/finetune_torchvision.py                     # weights are random: nothing is downloaded
    python examples/finetune_torchvision.py --weights DEFAULT   # those of ImageNet, from torchvision's server

First the new layer alone learns, with the others as they came; then all of them, ten times more slowly.
"""

import argparse
from collections.abc import Iterable, Iterator

import numpy as np
import torch
import torchvision
from sklearn.datasets import load_digits

import megengine as mge
import megengine.functional as F
import megengine.module as M
import megengine.optimizer as optim
from megengine import fx
from megengine.autodiff import GradManager
from megengine.jit import trace

SIDE = 32  # pixels; the network takes any size


def load_data() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(images [n, 3, 32, 32] as ImageNet's are scaled, labels) for training, and the same for evaluation."""
    images, labels = load_digits(return_X_y=True)
    images = np.repeat(np.repeat(images.reshape(-1, 1, 8, 8) / 16, SIDE // 8, axis=2), SIDE // 8, axis=3)
    mean, std = np.reshape([0.485, 0.456, 0.406], (3, 1, 1)), np.reshape([0.229, 0.224, 0.225], (3, 1, 1))
    images, labels = ((images - mean) / std).astype("float32"), labels.astype("int32")
    test = np.arange(len(labels)) % 5 == 0
    return images[~test], labels[~test], images[test], labels[test]


def train(
    net: M.Module, parameters: Iterable[mge.Parameter], batches: Iterable[tuple[np.ndarray, np.ndarray]], lr: float
) -> tuple[float, float]:
    """Mean loss of the first and of the last five steps. Only ``parameters`` change."""
    chosen = list(parameters)
    gm, optimizer = GradManager().attach(chosen), optim.SGD(chosen, lr=lr, momentum=0.9)

    @trace(symbolic=True, opt_level=3)
    def step(image: mge.Tensor, label: mge.Tensor) -> mge.Tensor:
        with gm:
            loss = F.loss.cross_entropy(net(image), label)
            gm.backward(loss)
        optimizer.step().clear_grad()
        return loss

    losses = [step(mge.tensor(image), mge.tensor(label)).item() for image, label in batches]
    return float(np.mean(losses[:5])), float(np.mean(losses[-5:]))


def accuracy(net: M.Module, images: np.ndarray, labels: np.ndarray) -> float:
    net.eval()
    right = F.argmax(net(mge.tensor(images)), axis=1).numpy() == labels
    net.train()
    return float(right.mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weights", help="of torchvision, such as DEFAULT; none: random ones")
    parser.add_argument("--steps", type=int, default=100, help="of each of the two parts")
    parser.add_argument("--batch", type=int, default=32)
    args = parser.parse_args()

    torch.manual_seed(0)
    mge.random.seed(0)
    rng = np.random.RandomState(0)
    train_x, train_y, test_x, test_y = load_data()

    def batches() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for _ in range(args.steps):
            rows = rng.randint(len(train_x), size=args.batch)
            yield train_x[rows], train_y[rows]

    net = fx.from_torch(torchvision.models.resnet18(weights=args.weights))
    head = M.Linear(512, 10)
    net.add_submodule("fc", head)  # the graph calls the module at this path, whichever it is
    net.train()

    first, last = train(net, head.parameters(), batches(), lr=0.01)
    print(f"last layer: loss {first:.2f} to {last:.2f}, accuracy {accuracy(net, test_x, test_y):.1%}")
    first, last = train(net, net.parameters(), batches(), lr=0.001)
    print(f"all layers: loss {first:.2f} to {last:.2f}, accuracy {accuracy(net, test_x, test_y):.1%}")

    net.eval()
    net.save("digits.mge")  # read back without torch
    same = fx.load("digits.mge")(mge.tensor(test_x)).numpy() == net(mge.tensor(test_x)).numpy()
    print("the file gives the same results:", bool(same.all()))


if __name__ == "__main__":
    main()
