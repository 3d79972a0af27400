"""Does ResNet-50 train on a card of 11 GB: batch 100, batch 200 only with sub-linear memory; and how large a batch at most?

    MGE_DEFAULT_DEVICE=gpu0 python benchmarks/memory_on_card.py

Runs examples/train_resnet50_sublinear.py in processes of its own. The status is 1 where an answer is not the one
that is wanted.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[1] / "examples" / "train_resnet50_sublinear.py"
# An emulated card interprets its code: a narrow network, small images.
IS_EMULATED = bool(os.environ.get("MEGJIT_EMULATED_GPUS"))
BATCH, CAP, SHAPE = (
    (16, "24MB", ["--width", "4", "--side", "64"]) if IS_EMULATED else (100, "11GB", [])
)
MORE_WANTED = 3.0  # batches with sub-linear memory to batches without


def example(batch, *options):
    environment = {"MGE_DEFAULT_DEVICE": "gpu0", **os.environ}
    return subprocess.run(
        [sys.executable, str(EXAMPLE), "--batch", str(batch), "--cap", CAP, *SHAPE, *options],
        capture_output=True, text=True, env=environment,
    )  # fmt: skip


def runs(batch, *options):
    """Whether three steps fit; and what was said last."""
    done = example(batch, *options)
    refused = "MemoryError" in done.stderr
    if done.returncode and not refused:
        sys.exit(done.stderr)
    last = done.stdout.splitlines()[-1] if not refused else "refused: out of memory"
    return not refused, last


def largest_batch(*options):
    """By plans alone, to a tenth of BATCH; bytes of parameters and inputs are not in a plan."""
    cap = float(CAP.removesuffix("GB").removesuffix("MB")) * (1e9 if CAP.endswith("GB") else 1e6)
    batch, unit = 0, max(1, BATCH // 10)
    for step in (64 * unit, 16 * unit, 4 * unit, unit):
        while needed(batch + step, *options) <= cap:
            batch += step
    return batch


def needed(batch, *options):
    plan = example(batch, "--plan", *options)
    if plan.returncode:
        return float("inf")  # what it reads alone does not fit
    return float(re.search(r"needs ([\d.,]+) MB", plan.stdout)[1].replace(",", "")) * 1e6


def main():
    is_good = True
    for batch, options, wanted in (
        (BATCH, [], True),
        (2 * BATCH, [], False),
        (2 * BATCH, ["--sublinear"], True),
    ):
        fits, last = runs(batch, *options)
        is_good &= fits == wanted
        print(
            f"batch {batch} {' '.join(options)}: {last}{'' if fits == wanted else ' (NOT WANTED)'}",
            flush=True,
        )
    plain, more = largest_batch(), largest_batch("--sublinear")
    is_good &= more >= MORE_WANTED * plain
    print(f"largest batch under {CAP}: {plain}, with --sublinear {more}: {more / max(1, plain):.1f} times, "
          f"{MORE_WANTED} wanted")  # fmt: skip
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
