"""What a card does with the simplest programs: bandwidth, launches, uploads, reductions, instructions, large products.

Figures of card.json: memory, launch, upload, instructions, flops. parts.json has the reductions and chains besides.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np
from clock import fused, seconds_of, separate, tensor
from results import CUT_OFF, Part, run, size

import megengine as mge
import megengine.functional as F

KIB, MIB = 1 << 10, 1 << 20
NODES = size((100, 700), (10, 30))  # of CUDA graphs
COPIES = size([64 * KIB << shift for shift in range(15)], [64 * KIB, 256 * KIB])  # to 1 GiB
UPLOADS = (4, size(MIB, 64 * KIB))
EXTENTS = size([(8192, 768), (8192, 3072), (401408, 64), (8192, 50257)], [(64, 48), (128, 8)])
AXES = {"rows": 1, "columns": 0, "all": None}
ELEMENTS = size(1 << 24, 1 << 10)  # of instruction-bound chains
LARGE = size(8192, 32)  # extent of products


def chain_of_sums(count: int) -> Callable[[mge.Tensor, mge.Tensor], mge.Tensor]:
    """`count` kernels, each of which reads what the one before it wrote."""

    def sums(x: mge.Tensor, y: mge.Tensor) -> mge.Tensor:
        for _ in range(count):
            x = x + y
        return x

    return sums


def launches(part: Part) -> None:
    x = tensor(1)
    few, many = (seconds_of(separate(chain_of_sums(count)), (x, x)) for count in NODES)
    each = (many - few) / (NODES[1] - NODES[0])
    words = f"CUDA graphs of {NODES[0]} and {NODES[1]} kernels of one element: {few:.3g} and {many:.3g} s"
    if each > 0:  # as on any card; the clock of an emulated one knows no launches
        part.figure(words, what="launch", seconds=each)
    part.note(graphs={str(NODES[0]): few, str(NODES[1]): many})


def copies(part: Part) -> None:
    """Sums of two arrays: two are read, one is written."""
    known = part.told.get("graphs", {str(NODES[0]): 0.0})
    launch = known[str(NODES[0])] / NODES[0]
    for total in COPIES:
        count = max(2, min(50, size(1 << 31, 1 << 20) // total))
        x = tensor(total // 12)
        seconds = seconds_of(separate(chain_of_sums(count)), (x, x)) / count - launch
        if seconds > 0:
            part.figure("sums of arrays beyond their launches", what="memory", bytes=total // 12 * 12, per_second=total // 12 * 12 / seconds)


def uploads(part: Part) -> None:
    for count in UPLOADS:
        array = np.ones(count // 4, "float32")
        seconds = seconds_of(lambda array=array: mge.tensor(array, device="gpu0"))
        part.figure("new tensors of an array", what="upload", bytes=count, seconds=seconds)


def reductions(part: Part) -> None:
    rows = {}
    for extents in EXTENTS:
        total = 4 * extents[0] * extents[1]
        xs = [tensor(*extents) for _ in range(max(1, min(4, (1 << 31) // total)))]
        for name, axis in AXES.items():
            seconds = seconds_of(separate(lambda *xs, axis=axis: [F.sum(x, axis) for x in xs]), xs) / len(xs)
            rows[f"{name} of {extents[0]} x {extents[1]}"] = {"seconds": seconds, "bytes_per_second": total / seconds}
            part.note(reductions=rows)


def chains(part: Part) -> None:
    """Seconds of one operation of one element; a multiplication and an addition are two instructions, which nobody may join."""
    steps = {
        "fma": (128, lambda x, y: x * y + y),
        "exp": (16, lambda x, y: F.exp(x) - y),
        "erf": (16, lambda x, y: F.erf(x) - y),
    }
    rows = {}
    x = tensor(ELEMENTS) * 0.01
    for name, (count, function) in steps.items():

        def repeated(x: mge.Tensor, y: mge.Tensor, count: int = count, function: Callable = function) -> mge.Tensor:
            for _ in range(count):
                x = function(x, y)
            return x

        seconds = seconds_of(fused(repeated), (x, x))
        rows[name] = seconds / count / ELEMENTS
        if name == "fma":
            words = f"{count} multiplications and additions of each of {ELEMENTS} elements"
            part.figure(words, what="instructions", per_second=2 * count * ELEMENTS / seconds)
        part.note(chains=rows)


def products(part: Part) -> None:
    mge.config.benchmark_kernel = True
    for dtype in ("bfloat16", "float16", "tf32", "float32", "int8"):
        mge.config.tf32 = dtype == "tf32"
        a, b = (tensor(LARGE, LARGE, dtype="float32" if dtype == "tf32" else dtype) for _ in range(2))
        seconds = seconds_of(separate(F.matmul), (a, b))
        part.figure(f"a product of {LARGE}, {LARGE} and {LARGE}", what="flops", dtype=dtype, per_second=2 * LARGE**3 / seconds)
    mge.config.tf32 = mge.config.benchmark_kernel = False


def main(part: Part) -> str:
    done = part.told.setdefault("done", [])
    units = (launches, copies, products, chains, uploads, reductions)
    for unit in units:
        if unit.__name__ in done:
            continue
        if part.left() < 5:
            return f"{CUT_OFF} before {unit.__name__}"
        unit(part)
        done.append(unit.__name__)
        part.note()
    graphs, chain = part.told["graphs"], part.told["chains"]
    return f"graphs of {' and '.join(graphs)} nodes {' and '.join(f'{1e6 * s:.4g}' for s in graphs.values())} us; fma {chain['fma']:.3g}, exp {chain['exp']:.3g}, erf {chain['erf']:.3g} s an element"


if __name__ == "__main__":
    sys.exit(run("micro", 60, main))
