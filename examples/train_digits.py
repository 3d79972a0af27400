"""Trains a small CNN on scikit-learn's hand-written digits, the whole step as one static graph.

    python examples/train_digits.py [--epochs 15] [--report report.html]

Forward, backward and optimizer are in one function under ``@trace(symbolic=True, opt_level=3)``. Ends
with held-out accuracy, the time of a step beside eager mode, what the planner and the code generator did, and where to
read on.
"""

import argparse
import time
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits
from tqdm import tqdm

import megengine as mge
import megengine.functional as F
import megengine.module as M
import megengine.optimizer as optim
from megengine.autodiff import GradManager
from megengine.jit import trace
from megengine.jit.plan_html import bytes_text, plan_page

BATCH = 64


class DigitsNet(M.Module):
    """Two convolutions with batch norm and pooling, two linear layers; 8x8 images to 10 classes."""

    def __init__(self):
        super().__init__()
        self.conv1, self.bn1 = M.Conv2d(1, 16, 3, padding=1), M.BatchNorm2d(16)
        self.conv2, self.bn2 = M.Conv2d(16, 32, 3, padding=1), M.BatchNorm2d(32)
        self.pool = M.MaxPool2d(2)
        self.fc1, self.fc2 = M.Linear(32 * 2 * 2, 64), M.Linear(64, 10)
        self.dropout = M.Dropout(0.2)

    def forward(self, x):
        x = self.pool(F.relu(self.bn1(self.conv1(x))))
        x = self.pool(F.relu(self.bn2(self.conv2(x))))
        x = F.flatten(x, 1)
        return self.fc2(self.dropout(F.relu(self.fc1(x))))


def load_data(seed):
    """(train images, train labels, test images, test labels); images float32 [n, 1, 8, 8] in 0..1."""
    images, labels = load_digits(return_X_y=True)
    images = (images / 16).astype(np.float32).reshape(-1, 1, 8, 8)
    labels = labels.astype(np.int32)
    order = np.random.RandomState(seed).permutation(len(images))
    test, train = order[:360], order[360:]
    return images[train], labels[train], images[test], labels[test]


def step(image, label, *, net, optimizer, gm):
    with gm:
        logits = net(image)
        loss = F.loss.cross_entropy(logits, label)
        gm.backward(loss)
        optimizer.step().clear_grad()
    return loss


def seconds_per_step(function, batches, **objects):
    """Median over the batches, after one call to warm up."""
    function(*batches[0], **objects)
    times = []
    for batch in batches:
        start = time.perf_counter()
        function(*batch, **objects)
        times.append(time.perf_counter() - start)
    return float(np.median(times))


def train(train_step, train_x, train_y, schedule, args, objects):
    """Milliseconds of the first step, and seconds of all."""
    steps_per_epoch = len(train_x) // BATCH
    rng = np.random.RandomState(args.seed)
    started, first_step = time.perf_counter(), None
    with tqdm(total=args.epochs * steps_per_epoch, unit="step", desc="training") as bar:
        for epoch in range(args.epochs):
            order = rng.permutation(len(train_x))
            total = 0.0
            for i in range(steps_per_epoch):
                batch = order[i * BATCH : (i + 1) * BATCH]
                loss = train_step(mge.tensor(train_x[batch]), mge.tensor(train_y[batch]), **objects)
                total += loss.item()
                first_step = first_step or time.perf_counter() - started
                bar.update()
            schedule.step()
            bar.set_postfix(epoch=epoch + 1, loss=f"{total / steps_per_epoch:.4f}")
    return first_step * 1e3, time.perf_counter() - started


def summary(plan, kernels, accuracy, first_ms, seconds, traced, eager, report):
    """What was seen, beside eager mode, and where to go next."""
    fresh = [kernel for kernel in kernels if not kernel.cached]
    made = f"{len(fresh)} compiled in {sum(k.compile_ms for k in fresh):.0f} ms" if fresh else "all from the cache of an earlier run"
    ratio = f"{eager / traced:.1f} times as fast" if traced < eager else f"{traced / eager:.1f} times as slow: is the machine busy?"
    return f"""
What you saw
  accuracy   {accuracy:.2%} of the held-out digits, after {seconds:.1f} s of training (first step {first_ms:.0f} ms: recorded)
  speed      {1 / traced:.0f} steps a second as one graph, {1 / eager:.0f} in eager mode: {ratio}
  memory     {bytes_text(plan.planned_bytes)} planned for a step, {bytes_text(plan.unplanned_bytes)} if each value had its own; no plan takes less than {bytes_text(plan.peak_live_bytes)}
  code       {len(kernels)} kernels generated for {sum(len(k.ops) for k in kernels)} operations; {made}
Where to go next
  {report}: open it in a browser; the memory plan drawn over the step, and the code of each kernel
  README.md: a tour in 40 lines; docs/architecture.md: how it works; docs/memory.md: steps that must fit into less
  make test: every default test; make bench: the same steps in PyTorch and JAX"""


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--report", default="report.html", help="where to write the memory plan")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    np.random.seed(args.seed)
    mge.random.seed(args.seed)
    train_x, train_y, test_x, test_y = load_data(args.seed)
    net = DigitsNet()
    optimizer = optim.SGD(net.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    schedule = optim.MultiStepLR(optimizer, milestones=[args.epochs * 2 // 3, args.epochs * 5 // 6])
    gm = GradManager().attach(net.parameters())
    objects = {"net": net, "optimizer": optimizer, "gm": gm}
    train_step = trace(step, symbolic=True, opt_level=3)

    net.train()
    first_ms, seconds = train(train_step, train_x, train_y, schedule, args, objects)

    net.eval()
    predicted = F.argmax(net(mge.tensor(test_x)), axis=1).numpy()
    accuracy = float((predicted == test_y).mean())

    plan, kernels = train_step.memory_plan(), train_step.kernels()
    net.train()
    batches = [
        (mge.tensor(train_x[i : i + BATCH]), mge.tensor(train_y[i : i + BATCH])) for i in range(0, len(train_x) - BATCH + 1, BATCH)
    ]
    traced = seconds_per_step(train_step, batches, **objects)
    eager = seconds_per_step(step, batches, **objects)

    notes = f"A training step of examples/train_digits.py: accuracy {accuracy:.2%}, {traced * 1e6:.0f} us traced, {eager * 1e6:.0f} us eager."
    Path(args.report).write_text(plan_page(plan, kernels, "One training step on the digits", notes), encoding="utf-8")
    print(summary(plan, kernels, accuracy, first_ms, seconds, traced, eager, args.report))
    if accuracy < 0.97:
        raise SystemExit(f"held-out accuracy {accuracy:.2%} is below 97 %")


if __name__ == "__main__":
    main()
