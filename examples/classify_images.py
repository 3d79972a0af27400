"""Trains an image classifier as one does it: augmentation, mixed precision, checkpoints, resume, progress, a picture of the loss.

    python examples/classify_images.py --epochs 8 --out runs/digits           # trains, writes checkpoints and loss.svg
    python examples/classify_images.py --epochs 12 --out runs/digits --resume # goes on where the last run stopped

The images are scikit-learn's hand-written digits. `--half` computes products in float16 and scales the loss.
"""

import argparse
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits
from tqdm import tqdm

import megengine as mge
import megengine.functional as F
import megengine.module as M
import megengine.optimizer as optim
from megengine import amp
from megengine.autodiff import GradManager
from megengine.data import DataLoader, RandomSampler, SequentialSampler
from megengine.data.dataset import ArrayDataset
from megengine.data.transform import Compose, Normalize, RandomCrop, ToMode
from megengine.jit import trace


def loaders(batch_size: int, seed: int) -> tuple[DataLoader, DataLoader]:
    """Batches for training, shuffled and shifted by up to a pixel, and for evaluation, as they are."""
    images, labels = load_digits(return_X_y=True)
    images = images.astype("float32").reshape(-1, 8, 8, 1)  # what transforms see is height, width, channels
    labels = labels.astype("int32")
    test = np.arange(len(labels)) % 5 == 0
    order = ["image", "image_category"]
    plain = [Normalize(mean=8.0, std=8.0), ToMode("CHW")]
    augmented = Compose([RandomCrop(8, padding_size=1, padding_value=[0]), *plain], order=order)
    train_set, test_set = ArrayDataset(images[~test], labels[~test]), ArrayDataset(images[test], labels[test])
    return (
        # drop_last: a smaller batch would be another shape, and so another version of the traced step.
        DataLoader(train_set, RandomSampler(train_set, batch_size, drop_last=True, seed=seed), transform=augmented),
        DataLoader(test_set, SequentialSampler(test_set, batch_size), transform=Compose(plain, order=order)),
    )


class Net(M.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = M.Conv2d(1, 16, 3, padding=1), M.BatchNorm2d(16)
        self.conv2, self.bn2 = M.Conv2d(16, 32, 3, padding=1), M.BatchNorm2d(32)
        self.out = M.Linear(32 * 2 * 2, 10)

    def forward(self, x: mge.Tensor) -> mge.Tensor:
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(x))), 2)
        x = F.max_pool2d(F.relu(self.bn2(self.conv2(x))), 2)
        return self.out(F.flatten(x, 1))


def make_step(half: bool) -> Callable[..., mge.Tensor]:
    """The training step. float16 has few exponents: small gradients are kept by scaling the loss."""
    scaler = amp.GradScaler(init_scale=128.0)

    @trace(symbolic=True, opt_level=3)
    def step(image: mge.Tensor, label: mge.Tensor, *, net: Net, optimizer: optim.Optimizer, gm: GradManager) -> mge.Tensor:
        with gm, amp.autocast(enabled=half):
            loss = F.loss.cross_entropy(net(image), label, label_smooth=0.05)
            if half:
                scaler.backward(gm, loss)
            else:
                gm.backward(loss)
        optimizer.step().clear_grad()
        return loss

    return step


def accuracy(net: Net, batches: Iterable[tuple[np.ndarray, np.ndarray]]) -> float:
    net.eval()  # statistics of batch normalization stay as they are
    right = [F.argmax(net(mge.tensor(image)), axis=1).numpy() == label for image, label in batches]
    net.train()
    return float(np.concatenate(right).mean())


def loss_picture(losses: list[list[float]], width: int = 640, height: int = 240) -> str:
    """The losses of all steps, and their mean by epoch, as an SVG picture."""
    top = max(max(epoch) for epoch in losses)
    steps = [loss for epoch in losses for loss in epoch]

    def line(points: list[tuple[float, float]], colour: str, thickness: int) -> str:
        text = " ".join(f"{x:.1f},{height - y / top * (height - 20):.1f}" for x, y in points)
        return f'<polyline points="{text}" fill="none" stroke="{colour}" stroke-width="{thickness}"/>'

    each = [(i * width / len(steps), loss) for i, loss in enumerate(steps)]
    means = [((i + 0.5) * width / len(losses), float(np.mean(epoch))) for i, epoch in enumerate(losses)]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">'
        f'<rect width="{width}" height="{height}" fill="white"/>{line(each, "#9bd", 1)}'
        f'{line(means, "#05a", 2)}<text x="4" y="14">{top:.2f}</text>'
        f'<text x="{width - 80}" y="{height - 6}">{len(losses)} epochs</text></svg>'
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--out", type=Path, default=Path("digits"))
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--half", action="store_true")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)

    mge.random.seed(0)
    np.random.seed(0)  # transforms draw from NumPy
    train, test = loaders(args.batch, seed=0)
    net = Net()
    optimizer = optim.AdamW(net.parameters(), lr=3e-3, weight_decay=0.01)
    schedule = optim.MultiStepLR(optimizer, milestones=[6, 10])
    gm = GradManager().attach(net.parameters())
    step = make_step(args.half)
    losses: list[list[float]] = []  # by epoch

    checkpoint = args.out / "last.pkl"
    if args.resume:
        state = mge.load(checkpoint)  # names and arrays: the file runs no code
        net.load_state_dict(state["net"])
        optimizer.load_state_dict(state["optimizer"])
        schedule.load_state_dict(state["schedule"])
        losses = state["losses"]
        print(f"resumed after epoch {len(losses)}")

    for epoch in range(len(losses), args.epochs):
        losses.append([])
        bar = tqdm(train, desc=f"epoch {epoch + 1}", disable=None)  # None: on a terminal only
        for image, label in bar:
            loss = step(mge.tensor(image), mge.tensor(label), net=net, optimizer=optimizer, gm=gm)
            losses[-1].append(loss.item())
            bar.set_postfix(loss=f"{losses[-1][-1]:.3f}")
        schedule.step()
        mge.save(
            {"net": net.state_dict(), "optimizer": optimizer.state_dict(), "schedule": schedule.state_dict(), "losses": losses},
            checkpoint,
        )
        print(f"epoch {epoch + 1}: loss {np.mean(losses[-1]):.3f}, accuracy {accuracy(net, test):.1%}")
    (args.out / "loss.svg").write_text(loss_picture(losses), encoding="utf-8")


if __name__ == "__main__":
    main()
