"""Trains a diffusion model on scikit-learn's hand-written digits, and draws digits that nobody has written.

    pip install scikit-learn
    python examples/diffuse_digits.py [--steps 4000] [--picture digits.png] [--checkpoint diffusion.pkl]

The network learns to say which noise was added to an image (Ho et al. 2020); drawing begins with noise alone and takes away, in some
steps (Song et al. 2020), what the network sees of it. The learning rate warms up and falls along a cosine, and what draws is an
average of the weights. ``--checkpoint`` goes on where a run was cut off, with the losses that the unbroken run would have had:
the file has the states of everything that changes, the random generators included.
"""

import argparse
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_digits
from tqdm import tqdm

import megengine as mge
import megengine.functional as F
import megengine.module as M
import megengine.optimizer as optim
from megengine.autodiff import GradManager
from megengine.jit import trace

LEVELS, BATCH = 200, 256
# How much of the image is left at each level of noise, from nearly all to nearly nothing.
KEPT = np.cos(np.linspace(0.02, 1.55, LEVELS)).astype("float32") ** 2


class Denoiser(M.Module):
    """Says the noise in images [n, 64], from the image, the level of noise and the digit."""

    kept: mge.Tensor

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.enter, self.leave = M.Linear(64, width), M.Linear(width, 64)
        self.level, self.digit = M.Embedding(LEVELS, width), M.Embedding(10, width)
        self.norms = [M.LayerNorm(width) for _ in range(layers)]
        self.up = [M.Linear(width, 2 * width) for _ in range(layers)]
        self.down = [M.Linear(2 * width, width) for _ in range(layers)]
        # Can be computed again, so it needs no place in files.
        self.register_buffer("kept", mge.tensor(KEPT), persistent=False)

    def forward(self, noisy: mge.Tensor, level: mge.Tensor, digit: mge.Tensor) -> mge.Tensor:
        told = self.level(level) + self.digit(digit)
        x = self.enter(noisy)
        for norm, up, down in zip(self.norms, self.up, self.down, strict=True):
            x = x + down(F.silu(up(norm(x) + told)))
        return self.leave(x)

    def loss(self, image: mge.Tensor, digit: mge.Tensor) -> mge.Tensor:
        """The mean squared error for noise at levels drawn by chance."""
        rows = int(image.shape[0])
        level = F.floor(mge.random.uniform(0, LEVELS, size=(rows,))).astype("int32")
        noise, kept = mge.random.normal(size=(rows, 64)), self.kept[level].reshape(-1, 1)
        noisy = F.sqrt(kept) * image + F.sqrt(1 - kept) * noise
        return F.loss.square_loss(self(noisy, level, digit), noise)


class Training:
    """What a run changes, and how it is saved."""

    def __init__(self, width: int, layers: int, steps: int) -> None:
        self.net = Denoiser(width, layers)
        self.optimizer = optim.AdamW(self.net.parameters(), lr=2e-3, weight_decay=0.01)
        self.schedule = optim.CosineAnnealingLR(self.optimizer, T_max=steps, warmup=min(100, steps // 10))
        self.ema = optim.EMA(self.net.parameters(), decay=0.99)
        self.gm, self.losses = GradManager().attach(self.net.parameters()), list[float]()
        # Runs that are to repeat bit for bit may not depend on when a kernel is ready.
        self.step = trace(self._step, symbolic=True, opt_level=3, numerics="exact")

    def _step(self, image: mge.Tensor, digit: mge.Tensor) -> mge.Tensor:
        with self.gm:
            loss = self.net.loss(image, digit)
            self.gm.backward(loss)
        optim.clip_grad_norm(self.net.parameters(), 1.0)
        self.optimizer.step().clear_grad()
        self.ema.update()
        return loss

    def run(self, images: np.ndarray, labels: np.ndarray, stop: int, file: Path | None) -> None:
        """Train until ``stop`` steps are done."""
        for done in tqdm(range(len(self.losses) + 1, stop + 1), disable=None):
            rows = np.random.randint(0, len(images), BATCH)
            self.losses.append(self.step(mge.tensor(images[rows]), mge.tensor(labels[rows])).item())
            self.schedule.step()
            if file and (done % 500 == 0 or done == stop):
                self.save(file)

    def save(self, file: Path) -> None:
        states: dict[str, Any] = {"losses": self.losses, "random": mge.random.get_state()}
        mge.save(states | {name: getattr(self, name).state_dict() for name in ("net", "optimizer", "schedule", "ema")}, str(file))

    def load(self, file: Path) -> None:
        states = mge.load(str(file))
        for name in ("net", "optimizer", "schedule", "ema"):
            getattr(self, name).load_state_dict(states[name])
        self.losses = states["losses"]
        mge.random.set_state(states["random"])


def draw(net: Denoiser, digits: np.ndarray, count: int = 50) -> np.ndarray:
    """Images [n, 8, 8] of these digits, made in ``count`` steps."""
    say = trace(net.forward, symbolic=True, opt_level=3, without_host=True)
    levels = np.linspace(LEVELS - 1, 0, count).astype("int32")
    x, asked = mge.random.normal(size=(len(digits), 64)), mge.tensor(digits)
    for level, later in zip(levels, [*levels[1:], -1], strict=True):
        kept, then = float(KEPT[level]), float(KEPT[later]) if later >= 0 else 1.0
        noise = say(x, F.full((len(digits),), int(level), dtype="int32"), asked)
        image = F.clip((x - (1 - kept) ** 0.5 * noise) / kept**0.5, -1, 1)
        noise = (x - kept**0.5 * image) / (1 - kept) ** 0.5
        x = then**0.5 * image + (1 - then) ** 0.5 * noise
    return x.numpy().reshape(-1, 8, 8)


def write_png(file: Path, images: np.ndarray, columns: int, scale: int = 4) -> None:
    """Images [n, 8, 8] from -1 (black) to 1, side by side, as a PNG in grey."""
    grey = (np.clip(images * 0.5 + 0.5, 0, 1) * 255).astype("uint8").repeat(scale, 1).repeat(scale, 2)
    rows = [np.concatenate(list(grey[i : i + columns]), axis=1) for i in range(0, len(grey), columns)]
    picture = np.concatenate(rows)
    height, width = picture.shape

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    lines = b"".join(b"\0" + line.tobytes() for line in picture)  # 0: no filter
    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    file.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b""))


def nearest(made: np.ndarray, images: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The label of the written digit that is most like each made one."""
    distances = ((made.reshape(-1, 1, 64) - images[None]) ** 2).sum(axis=2)
    return labels[distances.argmin(axis=1)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=4000, help="of the whole training, which the learning rate follows")
    parser.add_argument("--stop", type=int, help="end after this step, as if the run were cut off")
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--picture", type=Path, default=Path("digits.png"))
    parser.add_argument("--checkpoint", type=Path, metavar="FILE", help="save every 500 steps and at the end, and go on from there if the file exists")
    args = parser.parse_args()

    images, labels = load_digits(return_X_y=True)
    images, labels = (images / 8 - 1).astype("float32"), labels.astype("int32")
    mge.random.seed(0, numpy=True)
    training = Training(args.width, args.layers, args.steps)
    if args.checkpoint and args.checkpoint.exists():
        training.load(args.checkpoint)
    training.run(images, labels, args.stop or args.steps, args.checkpoint)
    losses = training.losses
    print(f"step {len(losses)}: loss {np.mean(losses[:10]):.2f} at first, {np.mean(losses[-50:]):.2f} at last, {sum(losses):.6f} in all")

    digits = np.arange(60, dtype="int32") % 10
    with training.ema.applied():
        made = draw(training.net, digits)
    write_png(args.picture, made, columns=10)
    print(f"{(nearest(made, images, labels) == digits).mean():.0%} of the drawn digits are most like a written one of their kind; see {args.picture}")


if __name__ == "__main__":
    main()
