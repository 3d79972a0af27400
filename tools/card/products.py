"""Products, convolutions and attention of the networks by cuBLASLt and cuDNN: their times, as figures of card.json.

First as many processes as there are cores for let the libraries' proposals be timed (at most eight a problem), whose
choices the cache on disk keeps; then each problem runs alone, by the kernel that was chosen.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from typing import Any

from results import CUT_OFF, ROOT, Part, run, size

Figure = dict[str, Any]
SEARCHED = 0.6  # part of the time in which proposals are timed
SEARCHERS = size(max(1, min(8, len(os.sched_getaffinity(0)) // 2)), 1)
RUNS = size(10, 1)
TOKENS, HEADS, BATCH, WIDTH, WORDS = size((1024, 12, 8, 768, 50257), (16, 2, 2, 32, 97))  # GPT-2 small
PITCH = (WORDS + 7) // 8 * 8  # words in rows that begin at 16 bytes
LINEARS = ((3 * WIDTH, WIDTH), (WIDTH, WIDTH), (4 * WIDTH, WIDTH), (WIDTH, 4 * WIDTH), (WORDS, WIDTH), (PITCH, WIDTH))
IMAGES, SIDE = size((128, 224), (2, 32))
DIRECTIONS = {"conv": "forward", "conv_backward_data": "input", "conv_backward_filter": "filter",
              "attention": "forward", "attention_grad": "backward"}  # fmt: skip


def linear(dtype: str, rows: int, out: int, features: int) -> list[Figure]:
    """Forward, and the gradients of input and weight."""
    forms = ((rows, out, features, False, True), (rows, features, out, False, False), (out, features, rows, True, False))
    names = ("m", "n", "k", "transpose_a", "transpose_b")
    return [{"what": "product", "dtype": dtype, "batch": 1, **dict(zip(names, form, strict=True))} for form in forms]


def convolutions(dtype: str, net: Any, images: int, side: int) -> list[Figure]:
    """Those that differ."""
    found: list[Figure] = []

    def add(shape: tuple[int, ...], stride: int, side: int) -> int:
        k, c, r, s = shape
        figure = {"what": "convolution", "dtype": dtype, "n": images, "c": c, "h": side, "w": side, "k": k, "r": r, "s": s,
                  "stride": stride, "padding": r // 2, "groups": 1}  # fmt: skip
        if figure not in found:
            found.append(figure)
        return (side - 1) // stride + 1

    inside, entry = 0, 0
    for name, shape, stride in net.convolutions():
        if name == "stem.conv":
            inside = (add(shape, stride, side) - 1) // 2 + 1  # behind the pooling
        elif ".down." in name:
            add(shape, stride, entry)
        else:
            entry = inside if name.endswith("conv1") else entry
            inside = add(shape, stride, inside)
    return found


def problems() -> list[Figure]:
    sys.path.insert(0, str(ROOT / "benchmarks"))
    from cases import _resnet

    rows = TOKENS * BATCH
    found = [figure for shape in LINEARS for figure in linear("bfloat16", rows, *shape)]
    found.append({"what": "attention", "dtype": "bfloat16", "batch": BATCH, "heads": HEADS, "queries": TOKENS, "keys": TOKENS,
                  "width": WIDTH // HEADS, "causal": True})  # fmt: skip
    for dtype in ("bfloat16", "tf32"):
        found += convolutions(dtype, _resnet.RESNET50, IMAGES, SIDE)
        found += linear(dtype, IMAGES, 1000, 2048)
    found += convolutions("tf32", _resnet.RESNET18, IMAGES, size(32, 16))
    # Emulated, one of each kind.
    return size(found, list({(figure["what"], figure["dtype"]): figure for figure in found}.values()))


def function_of(problem: Figure) -> tuple[Any, list[Any]]:
    """What computes it and, but for products, its gradients; and the operands."""
    from clock import tensor

    import megengine.functional as F
    from megengine.amp import convert_tensor_format
    from megengine.autodiff import GradManager

    p = problem
    dtype = "float32" if p["dtype"] == "tf32" else p["dtype"]
    if p["what"] == "product":
        a = tensor(*((p["k"], p["m"]) if p["transpose_a"] else (p["m"], p["k"])), dtype=dtype)
        b = tensor(*((p["n"], p["k"]) if p["transpose_b"] else (p["k"], p["n"])), dtype=dtype)
        return lambda a, b: F.matmul(a, b, transpose_a=p["transpose_a"], transpose_b=p["transpose_b"]), [a, b]
    if p["what"] == "convolution":
        out = (p["h"] + 2 * p["padding"] - p["r"]) // p["stride"] + 1
        inputs = [tensor(p["n"], p["c"], p["h"], p["w"], dtype=dtype), tensor(p["k"], p["c"], p["r"], p["s"], dtype=dtype)]
        dy = tensor(p["n"], p["k"], out, out, dtype=dtype)
        # As in the networks: activations are channels-last on a GPU, weights in the networks of halves.
        for each in (inputs[0], dy, *(inputs[1:] if dtype == "bfloat16" else [])):
            convert_tensor_format(each)

        def forward(x: Any, w: Any) -> Any:
            return F.conv2d(x, w, stride=p["stride"], padding=p["padding"])
    else:
        inputs = [tensor(p["batch"], p["heads"], p["queries"], p["width"], dtype=dtype) for _ in range(3)]
        dy = inputs[0]

        def forward(*inputs: Any) -> Any:
            return F.nn.scaled_dot_product_attention(*inputs, is_causal=p["causal"])

    gm = GradManager().attach(inputs)

    def both(*arguments: Any) -> tuple[Any, ...]:
        with gm:
            y = forward(*inputs)
            gm.backward(y, dy)
        grads = tuple(x.grad for x in inputs)
        for x in inputs:
            x.grad = None
        return y, *grads

    return both, []


def measure(problem: Figure, is_search: bool) -> list[tuple[Figure, float]]:
    """Seconds by device events, for each direction."""
    from clock import separate

    import megengine as mge

    gc.collect()  # what computed the last problem
    mge.config.tf32, mge.config.benchmark_kernel = problem["dtype"] == "tf32", is_search
    function, arguments = function_of(problem)
    traced = separate(function, profiling=True)
    for _ in range(2 if is_search else 2 + RUNS):
        traced(*arguments)
    profile = traced.get_profile()["profiler"]
    found = []
    for step in profile["steps"]:
        op = step["ops"][0]
        if op == "matmul" or op in DIRECTIONS:
            way = {} if op == "matmul" else {"direction": DIRECTIONS[op]}
            found.append(({**problem, **way}, step["seconds"] / profile["runs"]))
    return found


def search(first: int) -> int:
    """Each SEARCHERS-th problem; says which is done."""
    for index in range(first, len(problems()), SEARCHERS):
        try:
            measure(problems()[index], is_search=True)
        except (RuntimeError, MemoryError) as error:
            print(f"problem {index}: {error}".splitlines()[0], file=sys.stderr, flush=True)
        print(index, flush=True)
    return 0


def searched_by_processes(seconds: float) -> set[int]:
    command = ["timeout", "-k", "1", f"{seconds:.0f}", sys.executable, __file__, "--search"]
    searchers = [subprocess.Popen([*command, str(first)], stdout=subprocess.PIPE, text=True) for first in range(SEARCHERS)]
    return {int(line) for each in searchers for line in each.communicate()[0].split()}


def main(part: Part) -> str:
    done: list[int] = part.told.setdefault("done", [])
    searched = set(part.told.get("searched", []))
    if len(searched) < len(problems()):
        searched |= searched_by_processes(SEARCHED * part.left())
        part.note(searched=sorted(searched))
    failed: dict[str, str] = {}
    for index, problem in enumerate(problems()):
        if index in done or index not in searched:
            continue
        if part.left() < 3:
            break
        try:
            for figure, seconds in measure(problem, is_search=False):
                part.figure("the fastest of up to eight proposals", **figure, seconds=seconds)
        except (RuntimeError, MemoryError) as error:
            failed[str(problem)] = str(error).splitlines()[0]
        done.append(index)
        part.note(failed=failed)
    told = f"{len(done)} of {len(problems())} problems, {len(failed)} without a time"
    return told if len(done) == len(problems()) else f"{CUT_OFF} after {told}"


if __name__ == "__main__":
    sys.exit(search(int(sys.argv[2])) if sys.argv[1:2] == ["--search"] else run("products", 90, main))
