"""Writes what train_digits.cpp needs: the training step and the prediction of examples/train_digits.py in one file, and its data.

    python examples/cpp/dump_digits.py FOLDER [--epochs 15] [--train]

``--train`` trains here, too, and writes the losses, which the C++ program has to the bit.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from train_digits import BATCH, DigitsNet, load_data, step  # noqa: E402  # the other example

import megengine as mge  # noqa: E402
import megengine.optimizer as optim  # noqa: E402
from megengine.autodiff import GradManager  # noqa: E402
from megengine.jit import dump_functions, trace  # noqa: E402

SEED = 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--train", action="store_true", help="train in Python as well, and write the losses")
    args = parser.parse_args()
    mge.random.seed(SEED)
    train_x, train_y, test_x, test_y = load_data(SEED)
    steps = len(train_x) // BATCH
    orders = [np.random.RandomState((SEED, epoch)).permutation(len(train_x)) for epoch in range(args.epochs)]
    order = np.stack([each[: steps * BATCH] for each in orders]).astype(np.int32)

    net = DigitsNet()
    optimizer = optim.SGD(net.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    objects: dict[str, Any] = {"net": net, "optimizer": optimizer, "gm": GradManager().attach(net.parameters())}

    # Recorded, not run: the file has the state of the start.
    train_step = trace(step, record_only=True, opt_level=3, numerics="exact")
    train_step(mge.tensor(train_x[:BATCH]), mge.tensor(train_y[:BATCH]), **objects)
    predict = trace(lambda image: net(image), record_only=True, opt_level=3, numerics="exact")
    net.eval()
    predict(mge.tensor(test_x))
    net.train()
    args.folder.mkdir(parents=True, exist_ok=True)
    dump_functions(args.folder / "digits.dump", {"step": train_step, "predict": predict}, output_names={"step": ["loss"], "predict": ["scores"]})
    data = {"order": order, "train_images": train_x, "train_labels": train_y, "test_images": test_x, "test_labels": test_y}
    for name, array in data.items():
        array.tofile(args.folder / name)

    if args.train:
        schedule = optim.MultiStepLR(optimizer, milestones=[args.epochs * 2 // 3, args.epochs * 5 // 6])
        traced = trace(step, symbolic=True, opt_level=3, numerics="exact")
        losses = []
        for epoch in range(args.epochs):
            mge.random.seed(1000 * SEED + epoch)
            for rows in order[epoch].reshape(steps, BATCH):
                losses.append(traced(mge.tensor(train_x[rows]), mge.tensor(train_y[rows]), **objects).numpy())
            schedule.step()
        np.stack(losses).astype(np.float32).tofile(args.folder / "losses_of_python")


if __name__ == "__main__":
    main()
