"""What kernels that promise bits compute on gpu0, as hashes; as a part of gpu_check.sh, beside those of GPU_BITS.

    MEGJIT_EMULATED_GPUS=1 bits.py write FILE      what a card is compared with
    GPU_BITS=FILE bits.py [--out DIR] ...

The emulated card executes PTX as it is written: a card that gives other bits was given code that its assembler may change, or computes
otherwise. Each dtype and compiler is a process of its own.
"""

import hashlib
import json
import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from results import LEFT_OUT, Part, run

import megengine as mge
import megengine.functional as F
from megengine.jit import trace

Function = Callable[..., mge.Tensor]
COMPILERS = ("NVRTC", "MLIR")
DTYPES = ("float32", "float16", "bfloat16")
ONE = "exp log sin cos tanh sigmoid gelu silu softplus logsigmoid sqrt abs floor round relu6 hswish expm1 log1p erf square asinh acosh atanh".split()
TWO = "add sub mul div pow maximum minimum atan2 floor_div mod".split()
ROWS: dict[str, Function] = {
    "sums": lambda x: F.sum(x, axis=1),
    "columns": lambda x: F.mean(x, axis=0),
    "all": lambda x: F.sum(F.exp(x)),
    "softmax": lambda x: F.softmax(x, axis=1),
    "softmax of columns": lambda x: F.softmax(x, axis=0),
    "norm": lambda x: (x - F.mean(x, axis=1, keepdims=True)) / F.sqrt(F.var(x, axis=1, keepdims=True) + 1e-5),
    "norm of the whole": lambda x: F.norm(F.flatten(x * 2 + 1)),
}  # fmt: skip


def cases() -> Iterator[tuple[str, Function, int]]:
    """Name, function, number of operands."""
    for name in ONE:
        yield name, getattr(F, name), 1
    for name in TWO:
        yield name, getattr(F, name), 2
    for name, function in ROWS.items():
        yield name, function, 1


def bits(compiler: str, function: Function, operands: list[mge.Tensor]) -> str:
    os.environ["MGB_JIT_BACKEND"] = compiler
    # A second operation, so that there is something to generate.
    result = trace(lambda *x: function(*x) + 1, symbolic=True, opt_level=3)(*operands)
    return hashlib.sha256(result.numpy().tobytes()).hexdigest()[:16]


def bits_of(dtype: str, compiler: str) -> dict[str, str]:
    random = np.random.default_rng(0)
    numbers = [random.standard_normal((61, 1030)) * 3, random.standard_normal((61, 1030)) + 0.5]
    operands = [mge.tensor(x.astype("float32"), device="gpu0").astype(dtype) for x in numbers]
    return {f"{name} of {dtype} by {compiler}": bits(compiler, function, operands[:count]) for name, function, count in cases()}


def all_bits() -> dict[str, str]:
    found: dict[str, str] = {}
    ways = list(product(DTYPES, COMPILERS))
    with ProcessPoolExecutor(min(len(ways), len(os.sched_getaffinity(0))), get_context("spawn")) as pool:
        for part in pool.map(bits_of, *zip(*ways, strict=True)):
            found |= part
    return found


def differing(wanted: dict[str, str], found: dict[str, str]) -> list[str]:
    return [name for name in wanted if found.get(name) != wanted[name]]


def main(part: Part) -> str:
    if not (file := os.environ.get("GPU_BITS")):
        return f"{LEFT_OUT}: nobody computed them on the emulated card (make card)"
    wanted = json.loads(Path(file).read_text())
    other = differing(wanted, all_bits())
    part.note(other=other)
    assert not other, f"{len(other)} of {len(wanted)} cases have other bits, first {other[0]}"
    return f"{len(wanted)} cases have the bits of the emulated card"


if __name__ == "__main__":
    if sys.argv[1:2] == ["write"]:
        Path(sys.argv[2]).write_text(json.dumps(all_bits(), indent=0))
    else:
        sys.exit(run("bits", 25, main))
