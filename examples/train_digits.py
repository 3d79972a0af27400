"""Trains a small CNN on scikit-learn's hand-written digits, the whole step as one static graph.

    python examples/train_digits.py [--epochs 15] [--report report.html] [--distributed 2] [--checkpoint digits.pkl]

Forward, backward and optimizer are in one function under ``@trace(symbolic=True, opt_level=3)``. Ends
with held-out accuracy, the time of a step beside eager mode, what the planner and the code generator did, and where to
read on. ``--distributed N`` shares each batch among N processes; ``--checkpoint`` goes on where a run was cut off.
"""

import argparse
import dataclasses
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from sklearn.datasets import load_digits
from tqdm import tqdm

import megengine as mge
import megengine.distributed as dist
import megengine.functional as F
import megengine.module as M
import megengine.optimizer as optim
from megengine.autodiff import GradManager
from megengine.jit import trace
from megengine.jit.plan_html import plan_page, size_text
from megengine.jit.report import GeneratedKernel, MemoryPlan

BATCH = 64
Rows = TypeVar("Rows", np.ndarray, mge.Tensor)


class DigitsNet(M.Module):
    """Two convolutions with batch norm and pooling, two linear layers; 8x8 images to 10 classes."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = M.Conv2d(1, 16, 3, padding=1), M.SyncBatchNorm(16)  # statistics of all processes
        self.conv2, self.bn2 = M.Conv2d(16, 32, 3, padding=1), M.SyncBatchNorm(32)
        self.pool = M.MaxPool2d(2)
        self.fc1, self.fc2 = M.Linear(32 * 2 * 2, 64), M.Linear(64, 10)

    def forward(self, x: mge.Tensor) -> mge.Tensor:
        x = self.pool(F.relu(self.bn1(self.conv1(x))))
        x = self.pool(F.relu(self.bn2(self.conv2(x))))
        x = F.flatten(x, 1)
        x = F.relu(self.fc1(x))
        if self.training:  # as F.dropout, but with numbers for the whole batch: any number of processes drops what one would
            x = x * share(mge.random.uniform(size=(BATCH, x.shape[1])) >= 0.2) / 0.8
        return self.fc2(x)


def share(batch: Rows) -> Rows:
    """What this process takes of a batch: as many rows as the others, in the order of ranks."""
    rows = BATCH // dist.get_world_size()
    return batch[dist.get_rank() * rows : (dist.get_rank() + 1) * rows]


def load_data(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(train images, train labels, test images, test labels); images float32 [n, 1, 8, 8] in 0..1."""
    images, labels = load_digits(return_X_y=True)
    images = (images / 16).astype(np.float32).reshape(-1, 1, 8, 8)
    labels = labels.astype(np.int32)
    order = np.random.RandomState(seed).permutation(len(images))
    test, train = order[:360], order[360:]
    return images[train], labels[train], images[test], labels[test]


def step(image: mge.Tensor, label: mge.Tensor, *, net: DigitsNet, optimizer: optim.Optimizer, gm: GradManager) -> mge.Tensor:
    with gm:
        logits = net(image)
        loss = F.loss.cross_entropy(logits, label)
        gm.backward(loss)
        optimizer.step().clear_grad()
    return dist.functional.all_reduce_sum(loss) / dist.get_world_size()  # of the whole batch, in every process


def seconds_per_step(function: Callable[..., mge.Tensor], batches: list[tuple[mge.Tensor, mge.Tensor]], **objects: Any) -> float:
    """Median over the batches, after one call to warm up."""
    function(*batches[0], **objects)
    times = []
    for batch in batches:
        start = time.perf_counter()
        function(*batch, **objects)
        times.append(time.perf_counter() - start)
    return float(np.median(times))


def train(
    train_step: trace[..., Any], train_x: np.ndarray, train_y: np.ndarray, schedule: optim.LRScheduler, args: argparse.Namespace, objects: dict[str, Any]
) -> tuple[float, float]:
    """Milliseconds of the first step, and seconds of all. An epoch's random numbers follow from its number alone, so that a
    run that goes on from a checkpoint draws what an unbroken one would."""
    steps_per_epoch = len(train_x) // BATCH
    done, losses = restored(args.checkpoint, schedule, **objects)
    started, first_step = time.perf_counter(), 0.0
    left = (args.epochs - done) * steps_per_epoch
    with tqdm(total=left, unit="step", desc="training", disable=dist.get_rank() > 0 or None) as bar:  # None: on a terminal only
        for epoch in range(done, args.epochs):
            mge.random.seed(1000 * args.seed + epoch)
            order = np.random.RandomState((args.seed, epoch)).permutation(len(train_x))
            for i in range(steps_per_epoch):
                batch = share(order[i * BATCH : (i + 1) * BATCH])
                loss = train_step(mge.tensor(train_x[batch]), mge.tensor(train_y[batch]), **objects)
                losses.append(loss.item())
                first_step = first_step or time.perf_counter() - started
                bar.update()
            schedule.step()
            if args.checkpoint and dist.get_rank() == 0:  # at once: a crash leaves the last one whole
                mge.save({"epochs": epoch + 1, "losses": losses, **states(schedule, **objects)}, args.checkpoint)
            bar.set_postfix(epoch=epoch + 1, loss=f"{np.mean(losses[-steps_per_epoch:]):.4f}")
    return first_step * 1e3, time.perf_counter() - started


def states(schedule: optim.LRScheduler, *, net: DigitsNet, optimizer: optim.Optimizer, gm: GradManager) -> dict[str, Any]:
    """What a checkpoint keeps: the same in every process, so that any number of them can go on."""
    return {"net": net.state_dict(), "optimizer": optimizer.state_dict(), "schedule": schedule.state_dict()}


def restored(
    path: str | None, schedule: optim.LRScheduler, *, net: DigitsNet, optimizer: optim.Optimizer, gm: GradManager
) -> tuple[int, list[float]]:
    """(epochs done, losses of their steps) of the checkpoint, whose states are loaded; (0, []) where there is none."""
    if not path or not Path(path).exists():
        return 0, []
    saved = mge.load(path)
    net.load_state_dict(saved["net"])
    optimizer.load_state_dict(saved["optimizer"])
    schedule.load_state_dict(saved["schedule"])
    return saved["epochs"], saved["losses"]


def summary(
    plan: MemoryPlan, kernels: Sequence[GeneratedKernel], accuracy: float, first_ms: float, seconds: float, traced: float, eager: float, report: str
) -> str:
    """What was seen, beside eager mode, and where to go next."""
    fresh = [kernel for kernel in kernels if not kernel.cached]
    made = f"{len(fresh)} compiled in {sum(k.compile_ms for k in fresh):.0f} ms" if fresh else "all from the cache of an earlier run"
    ratio = f"{eager / traced:.1f} times as fast" if traced < eager else f"{traced / eager:.1f} times as slow: is the machine busy?"
    return f"""
What you saw
  accuracy   {accuracy:.2%} of the held-out digits, after {seconds:.1f} s of training (first step {first_ms:.0f} ms: recorded)
  speed      {1 / traced:.0f} steps a second as one graph, {1 / eager:.0f} in eager mode: {ratio}
  memory     {size_text(plan.planned_bytes)} planned for a step, {size_text(plan.unplanned_bytes)} if each value had its own; no plan takes less than {size_text(plan.peak_live_bytes)}
  code       {len(kernels)} kernels generated for {sum(len(k.ops) for k in kernels)} operations; {made}
Where to go next
  {report}: open it in a browser; the memory plan drawn over the step, and the code of each kernel
  README.md: a tour in 40 lines; docs/architecture.md: how it works; docs/memory.md: steps that must fit into less
  make test: every default test; make bench: the same steps in PyTorch and JAX"""


def run(args: argparse.Namespace) -> tuple[str, str, float]:
    """What each process does; the page of the plan, the summary and the accuracy."""
    np.random.seed(args.seed)
    mge.random.seed(args.seed)
    train_x, train_y, test_x, test_y = load_data(args.seed)
    net = DigitsNet()
    dist.bcast_list_(net.parameters())
    optimizer = optim.SGD(net.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    schedule = optim.MultiStepLR(optimizer, milestones=[args.epochs * 2 // 3, args.epochs * 5 // 6])
    gm = GradManager().attach(net.parameters(), callbacks=[dist.make_allreduce_cb("mean")])
    objects: dict[str, Any] = {"net": net, "optimizer": optimizer, "gm": gm}
    # Runs that are to repeat bit for bit may not depend on when a kernel is ready.
    numerics = "exact" if args.distributed or args.checkpoint else "fast"
    train_step = trace(step, symbolic=True, opt_level=3, numerics=numerics)

    net.train()
    first_ms, seconds = train(train_step, train_x, train_y, schedule, args, objects)

    net.eval()
    predicted = F.argmax(net(mge.tensor(test_x)), axis=1).numpy()
    accuracy = float((predicted == test_y).mean())

    net.train()
    batches = [
        (mge.tensor(share(train_x[i : i + BATCH])), mge.tensor(share(train_y[i : i + BATCH])))
        for i in range(0, len(train_x) - BATCH + 1, BATCH)
    ]
    train_step(*batches[0], **objects)  # a checkpoint may have left nothing to train
    plan, kernels = train_step.memory_plan(), train_step.kernels()
    drawn = trace(step, symbolic=True, opt_level=3, numerics=numerics, profiling=True)
    seconds_per_step(drawn, batches, **objects)
    curve = drawn.plan_with_curve(*batches[0], **objects).curve  # what a step would take with less memory
    drawn_plan = dataclasses.replace(drawn.memory_plan(), curve=curve)
    traced = seconds_per_step(train_step, batches, **objects)
    eager = seconds_per_step(step, batches, **objects)

    notes = f"A training step of examples/train_digits.py: accuracy {accuracy:.2%}, {traced * 1e6:.0f} us traced, {eager * 1e6:.0f} us eager."
    page = plan_page(drawn_plan, kernels, "One training step on the digits", notes)
    return page, summary(plan, kernels, accuracy, first_ms, seconds, traced, eager, args.report), accuracy


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--report", default="report.html", help="where to write the memory plan")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--distributed", type=int, metavar="N", help="share each batch among N processes of this machine")
    parser.add_argument("--checkpoint", metavar="FILE", help="save after each epoch, and go on from there if the file exists")
    args = parser.parse_args()
    if args.distributed and BATCH % args.distributed:
        parser.error(f"--distributed {args.distributed} does not divide the batch of {BATCH}")

    results = dist.launcher(run, n_gpus=args.distributed)(args) if args.distributed else [run(args)]
    page, text, accuracy = results[0]
    Path(args.report).write_text(page, encoding="utf-8")
    print(text)
    if accuracy < 0.97 and args.epochs >= parser.get_default("epochs"):  # fewer epochs are for a first look
        raise SystemExit(f"held-out accuracy {accuracy:.2%} is below 97 %")


if __name__ == "__main__":
    main()
