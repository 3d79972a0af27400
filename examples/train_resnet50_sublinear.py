"""Trains ResNet-50 with a batch that does not fit into memory without recomputation.

    python examples/train_resnet50_sublinear.py --batch 200 --cap 11GB               # refused
    python examples/train_resnet50_sublinear.py --batch 200 --cap 11GB --sublinear   # fits

``--cap`` imitates a card: no more memory is taken from the system. ``--limit 6GB`` asks for the cheapest plan of
at most so many bytes; ``--plan`` tells what a step needs and runs nothing. ``--width 8 --side 32`` makes it small.
"""

import argparse
import time

import numpy as np

import megengine as mge
import megengine.functional as F
import megengine.module as M
import megengine.optimizer as optim
from megengine.autodiff import GradManager
from megengine.jit import SublinearMemoryConfig, trace


def conv_bn(cin: int, cout: int, size: int, stride: int = 1) -> M.Module:
    return M.Sequential(M.Conv2d(cin, cout, size, stride, size // 2, bias=False), M.BatchNorm2d(cout))


class Bottleneck(M.Module):
    def __init__(self, cin: int, width: int, stride: int) -> None:
        super().__init__()
        self.reduce, self.conv, self.widen = conv_bn(cin, width, 1), conv_bn(width, width, 3, stride), conv_bn(width, 4 * width, 1)
        self.short = M.Identity() if stride == 1 and cin == 4 * width else conv_bn(cin, 4 * width, 1, stride)

    def forward(self, x: mge.Tensor) -> mge.Tensor:
        y = self.widen(F.relu(self.conv(F.relu(self.reduce(x)))))
        return F.relu(y + self.short(x))


class ResNet50(M.Module):
    """He et al. 2016, table 1; ``width`` is 64 there."""

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.stem = M.Sequential(conv_bn(3, width, 7, 2), M.ReLU(), M.MaxPool2d(3, 2, 1))
        blocks: list[M.Module] = []
        cin = width
        for stage, depth in enumerate((3, 4, 6, 3)):
            for i in range(depth):
                blocks.append(Bottleneck(cin, width << stage, 2 if stage and not i else 1))
                cin = 4 * width << stage
        self.blocks, self.head = M.Sequential(*blocks), M.Linear(cin, classes)

    def forward(self, x: mge.Tensor) -> mge.Tensor:
        return self.head(F.mean(self.blocks(self.stem(x)), axis=(2, 3)))


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--side", type=int, default=224, help="of the images, pixels")
    parser.add_argument("--width", type=int, default=64, help="channels of the first stage")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--cap", help="memory of the imitated card, such as 11GB")
    parser.add_argument("--limit", help="what a step may take, such as 6GB")
    parser.add_argument("--sublinear", action="store_true", help="recompute activations")
    parser.add_argument("--plan", action="store_true", help="plan a step and stop")
    return parser.parse_args()


def main() -> None:
    args = parse_arguments()
    if args.cap:
        mge.device.set_memory_cap(args.cap)
    classes = 1000
    net = ResNet50(args.width, classes)
    gm = GradManager().attach(net.parameters())
    optimizer = optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    config = SublinearMemoryConfig() if args.sublinear else None

    @trace(symbolic=True, sublinear_memory_config=config, memory_limit=args.limit)
    def step(images: mge.Tensor, labels: mge.Tensor) -> mge.Tensor:
        with gm:
            loss = F.loss.cross_entropy(net(images), labels)
            gm.backward(loss)
        optimizer.step().clear_grad()
        return loss

    rng = np.random.RandomState(0)
    images = mge.tensor(rng.randn(args.batch, 3, args.side, args.side).astype(np.float32))
    labels = mge.tensor(rng.randint(classes, size=args.batch).astype(np.int32))
    plan = step.plan(images, labels)
    print(f"a step needs {plan.planned_bytes / 1e6:,.1f} MB and computes {plan.recompute_flops_ratio:.0%} again")
    if args.plan:
        return
    for i in range(args.steps):
        start = time.perf_counter()
        loss = step(images, labels).item()
        print(f"step {i}: loss {loss:.6f}, {time.perf_counter() - start:.2f} s")


if __name__ == "__main__":
    main()
