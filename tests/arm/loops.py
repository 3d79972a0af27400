"""Counts the loops of kernels for Arm by llvm-mca: packages functions by `--isa neon` and prints, for two processors, which share of a loop's cycles
its arithmetic would take alone. `tools/test_arm.sh loops` runs it. Ends with 1 where a loop computes numbers one by one.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import megengine as mge
import megengine.functional as F
from megengine.jit import trace
from megengine.reports import package

TOOLS = Path("/usr/lib/llvm-22/bin")
PIPES = {"neoverse-v2": 4, "neoverse-n2": 2}  # that compute with vectors of 128 bits, by Arm's optimization guides


def ones(*shape):
    return mge.tensor(np.ones(shape, "float32"))


FUNCTIONS = {
    "product": (lambda x: F.matmul(x, ones(512, 512)), (512, 512)),
    "convolution": (lambda x: F.conv2d(x, ones(64, 64, 3, 3), padding=1), (1, 64, 28, 28)),
    "gelu": (F.gelu, (1024, 1024)),
    "softmax": (lambda x: F.softmax(x, axis=1), (256, 1024)),
    "layer_norm": (lambda x: F.layer_norm(x, (1024,), affine=False), (256, 1024)),
}


def objects_of(function, shape, folder: Path) -> list[Path]:
    traced = trace(function, symbolic=True, capture_as_const=True)
    traced(ones(*shape))
    traced.dump(str(folder / "net.dump"))
    package.run_static(str(folder / "net.dump"), str(folder), ["neon"], "", "net", False)
    return sorted(folder.glob("k*.o"))


def loops_of(file: Path) -> list[list[str]]:
    """The instructions of each innermost loop: from where a branch goes back to, to the branch."""
    text = subprocess.run([TOOLS / "llvm-objdump", "-d", "--no-show-raw-insn", file], check=True, capture_output=True, text=True).stdout
    lines = [(int(at, 16), code.split("<")[0].strip()) for at, code in re.findall(r"^ +([0-9a-f]+):\s+(.*)$", text, re.M)]
    backward = []
    for at, code in lines:
        found = re.search(r"^(b\.\w+|cbn?z|tbn?z)\s.*0x([0-9a-f]+)$", code)
        if found and int(found[2], 16) <= at:
            backward.append((int(found[2], 16), at))
    inner = [(first, last) for first, last in backward if not any(first <= a and b <= last and (a, b) != (first, last) for a, b in backward)]
    return [[code for at, code in lines if first <= at < last] for first, last in inner]


def cycles_of(loop: list[str], processor: str) -> float:
    done = subprocess.run(
        [TOOLS / "llvm-mca", "-mtriple=aarch64", f"-mcpu={processor}", "-iterations=200", "-instruction-info=0", "-resource-pressure=0"],
        input="\n".join(loop), capture_output=True, text=True, check=True,
    )  # fmt: skip
    return int(re.search(r"Total Cycles: +(\d+)", done.stdout)[1]) / 200


def is_real(code: str) -> bool:
    return re.match(r"f(?!mov|cvt)\w+\s", code) is not None


def main() -> int:
    failed = []
    for name, (function, shape) in FUNCTIONS.items():
        with tempfile.TemporaryDirectory() as folder:
            loops = [loop for file in objects_of(function, shape, Path(folder)) for loop in loops_of(file)]
        for loop in loops:
            real = [code for code in loop if is_real(code)]
            vector = [code for code in real if re.search(r"\bv\d+\.", code)]
            if len(real) < 4:
                continue
            shares = {processor: len(real) / pipes / cycles_of(loop, processor) for processor, pipes in PIPES.items()}
            told = ", ".join(f"{processor} {100 * share:.0f} %" for processor, share in shares.items())
            print(f"{name:12} {len(loop):4} instructions, {len(vector)} of {len(real)} on vectors: {told}")
            if not vector:
                failed.append(f"{name}: a loop without vectors")
    for each in failed:
        print(each, file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
