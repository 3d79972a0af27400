"""Finds squares, discs and triangles in pictures that it draws itself, and draws boxes around what it found.

    python examples/detect_shapes.py --steps 400 --out shapes

A detector without anchors: each cell of a coarse grid says whether the middle of an object lies in it, which kind it is, and where its
box ends (Tian et al. 2019, simplified). Boxes that overlap are thinned by `F.vision.nms`. Pictures need `pip install 'megjit[vision]'`.
"""

import argparse
from pathlib import Path

import cv2
import numpy as np

import megengine as mge
import megengine.functional as F
import megengine.module as M
import megengine.optimizer as optim
from megengine.autodiff import GradManager
from megengine.jit import trace

KINDS = ("square", "disc", "triangle")
SIDE, CELL = 64, 8  # pixels of a picture, and of a cell of the grid
GRID = SIDE // CELL
Found = tuple[np.ndarray, int, float]  # box, kind, score


def draw(rng: np.random.RandomState) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(picture [3, 64, 64], boxes [n, 4] as x0, y0, x1, y1, kinds [n]); the objects have middles in different cells."""
    picture = rng.uniform(0, 60, (SIDE, SIDE, 3)).astype("uint8")
    boxes, kinds = [], []
    used: set[tuple[int, int]] = set()
    for _ in range(rng.randint(1, 4)):
        radius = rng.randint(6, 12)
        x, y = rng.randint(radius, SIDE - radius, 2)
        if any(abs(x - a) + abs(y - b) < 24 for a, b in used):
            continue
        used.add((x, y))
        kind, colour = rng.randint(3), [int(c) for c in rng.randint(120, 255, 3)]
        x0, y0, x1, y1 = x - radius, y - radius, x + radius, y + radius
        if kind == 0:
            cv2.rectangle(picture, (x0, y0), (x1, y1), colour, -1)
        elif kind == 1:
            cv2.circle(picture, (x, y), radius, colour, -1)
        else:
            cv2.fillPoly(picture, [np.array([[x, y0], [x0, y1], [x1, y1]])], colour)
        boxes.append((x0, y0, x1, y1))
        kinds.append(kind)
    return picture.transpose(2, 0, 1), np.array(boxes, "float32"), np.array(kinds)


def targets_of(boxes: np.ndarray, kinds: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For each cell: is a middle in it (or near), the kind, the distances from the cell's middle to the box's sides, in cells."""
    there, kind, sides = np.zeros((GRID, GRID), "float32"), np.zeros((GRID, GRID), "int32"), np.zeros((4, GRID, GRID), "float32")
    for (x0, y0, x1, y1), k in zip(boxes, kinds, strict=True):
        column, row = int((x0 + x1) / 2 // CELL), int((y0 + y1) / 2 // CELL)
        cx, cy = (column + 0.5) * CELL, (row + 0.5) * CELL
        there[row, column], kind[row, column] = 1, k
        sides[:, row, column] = np.array([cx - x0, cy - y0, x1 - cx, y1 - cy]) / CELL
    return there, kind, sides


def batch_of(rng: np.random.RandomState, count: int) -> list[mge.Tensor]:
    pictures, rows = [], []
    for _ in range(count):
        picture, boxes, kinds = draw(rng)
        pictures.append(picture)
        rows.append(targets_of(boxes, kinds))
    there, kind, sides = (np.stack(part) for part in zip(*rows, strict=True))
    return [mge.tensor(np.stack(pictures).astype("float32") / 255), mge.tensor(there), mge.tensor(kind), mge.tensor(sides)]


class Detector(M.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        layers: list[M.Module] = []
        channels = 3
        for i in range(3):  # each halves the picture: 64 pixels become 8 cells
            layers += [M.Conv2d(channels, width << i, 3, 2, 1), M.BatchNorm2d(width << i), M.ReLU()]
            channels = width << i
        layers += [M.Conv2d(channels, channels, 3, 1, 1), M.BatchNorm2d(channels), M.ReLU()]
        self.body, self.head = M.Sequential(*layers), M.Conv2d(channels, 1 + len(KINDS) + 4, 1)

    def forward(self, x: mge.Tensor) -> tuple[mge.Tensor, mge.Tensor, mge.Tensor]:
        """(score [n, g, g], kinds [n, 3, g, g], sides [n, 4, g, g])"""
        y = self.head(self.body(x))
        return y[:, 0], y[:, 1:4], F.exp(F.clip(y[:, 4:], -4.0, 4.0))


def loss_of(net: Detector, picture: mge.Tensor, there: mge.Tensor, kind: mge.Tensor, sides: mge.Tensor) -> mge.Tensor:
    score, kinds, found = net(picture)
    count = there.sum() + 1
    # Few cells have an object: what is there counts as much as what is not.
    miss = F.loss.binary_cross_entropy(score, there, reduction="none")
    objectness = (miss * there).sum() / count + (miss * (1 - there)).mean() * 4
    which = (F.loss.cross_entropy(kinds, kind, reduction="none") * there).sum() / count
    # One minus intersection over union: both boxes hold the cell's middle.
    overlap = F.minimum(found, sides)
    both = (overlap[:, 0] + overlap[:, 2]) * (overlap[:, 1] + overlap[:, 3])
    area = (found[:, 0] + found[:, 2]) * (found[:, 1] + found[:, 3]) + (sides[:, 0] + sides[:, 2]) * (sides[:, 1] + sides[:, 3])
    where = ((1 - both / (area - both + 1e-6)) * there).sum() / count
    return objectness + which + where


def detect(net: Detector, picture: np.ndarray, least: float = 0.4) -> list[Found]:
    """What is in one picture."""
    of_cells, of_kinds, of_sides = (y[0] for y in net(mge.tensor(picture[None].astype("float32") / 255)))
    score, kinds, sides = F.sigmoid(of_cells).numpy(), F.argmax(of_kinds, axis=0).numpy(), of_sides.numpy() * CELL
    rows, columns = np.nonzero(score > least)
    if not len(rows):
        return []
    cx, cy, (left, up, right, down) = (columns + 0.5) * CELL, (rows + 0.5) * CELL, sides[:, rows, columns]
    boxes = np.stack([cx - left, cy - up, cx + right, cy + down], axis=1).astype("float32")
    kept = F.vision.nms(mge.tensor(boxes), mge.tensor(score[rows, columns]), 0.4).numpy()
    return [(boxes[i], int(kinds[rows[i], columns[i]]), float(score[rows[i], columns[i]])) for i in kept]


def overlap_of(a: np.ndarray, b: np.ndarray) -> float:
    """Intersection over union."""
    width = min(a[2], b[2]) - max(a[0], b[0])
    height = min(a[3], b[3]) - max(a[1], b[1])
    both = max(width, 0) * max(height, 0)
    return float(both / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - both))


def drawn(picture: np.ndarray, found: list[Found]) -> np.ndarray:
    """The picture, three times as large, with a box and a name for each thing found."""
    image = cv2.resize(picture.transpose(1, 2, 0), None, fx=3, fy=3, interpolation=cv2.INTER_NEAREST)
    for box, kind, score in found:
        x0, y0, x1, y1 = (int(3 * v) for v in box)
        cv2.rectangle(image, (x0, y0), (x1, y1), (255, 255, 255), 1)
        cv2.putText(image, f"{KINDS[kind]} {score:.2f}", (x0, max(y0 - 3, 9)), cv2.FONT_HERSHEY_SIMPLEX, 0.35, (255, 255, 255), 1)
    return image


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--width", type=int, default=16, help="channels of the first layer")
    parser.add_argument("--out", type=Path, default=Path("shapes"))
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)

    mge.random.seed(0)
    rng = np.random.RandomState(0)
    net = Detector(args.width)
    gm, optimizer = GradManager().attach(net.parameters()), optim.Adam(net.parameters(), lr=5e-3)

    @trace(symbolic=True, opt_level=3)
    def step(picture: mge.Tensor, there: mge.Tensor, kind: mge.Tensor, sides: mge.Tensor) -> mge.Tensor:
        with gm:
            loss = loss_of(net, picture, there, kind, sides)
            gm.backward(loss)
        optimizer.step().clear_grad()
        return loss

    for i in range(args.steps):
        loss = step(*batch_of(rng, 16))
        if i % 100 == 0:
            print(f"step {i}: loss {loss.item():.3f}")

    net.eval()
    right = asked = 0
    for i in range(50):
        picture, boxes, kinds = draw(rng)
        found = detect(net, picture)
        if i < 4:
            cv2.imwrite(str(args.out / f"{i}.png"), drawn(picture, found))
        asked += len(boxes)
        right += sum(
            any(kind == k and overlap_of(box, b) > 0.5 for b, k, _ in found) for box, kind in zip(boxes, kinds, strict=True)
        )
    print(f"found {right / asked:.0%} of the shapes, with the right kind and half of the box")


if __name__ == "__main__":
    main()
