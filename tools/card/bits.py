"""gpu_bits.py write FILE | compare FILE: what kernels that promise bits compute on gpu0, as hashes.

The emulated card executes PTX as it is written: a card that gives other bits was given code that its assembler may change, or computes
otherwise. `compare` names the cases that differ. MEGJIT_EMULATED_GPUS=1 writes what a card is compared with.
"""

import hashlib
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

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


def all_bits() -> dict[str, str]:
    random = np.random.default_rng(0)
    numbers = [random.standard_normal((61, 1030)) * 3, random.standard_normal((61, 1030)) + 0.5]
    found = {}
    for dtype in DTYPES:
        operands = [mge.tensor(x.astype("float32"), device="gpu0").astype(dtype) for x in numbers]
        for name, function, count in cases():
            for compiler in COMPILERS:
                found[f"{name} of {dtype} by {compiler}"] = bits(compiler, function, operands[:count])
    return found


def main(way: str, file: str) -> int:
    os.environ["MEGJIT_COMPILE"] = "sync"
    found = all_bits()
    if way == "write":
        Path(file).write_text(json.dumps(found, indent=0))
        return 0
    wanted = json.loads(Path(file).read_text())
    other = [name for name in wanted if found.get(name) != wanted[name]]
    for name in other:
        print(f"other bits: {name}")
    print(f"{len(wanted) - len(other)} of {len(wanted)} cases have the bits of {file}")
    return bool(other)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
