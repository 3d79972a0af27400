"""How long is it from the name of a file of 2 GB to its first values, and in what private memory?

Beside the package safetensors, which maps the file, too. The file is a hole on the disk, which
costs nothing to make.
"""

import json
import os
import struct
import tempfile
from functools import partial

import numpy as np
from case import Case, Subject, Target
from cases import _frameworks as on

PATH = os.path.join(tempfile.gettempdir(), "megjit-weights.safetensors")
TENSORS, SHAPE, WANTED = 200, (1024, 2621), "layers.57.weight"


def make_file():
    """Writes the file if there is none: another process may have mapped the one that is there."""
    if os.path.exists(PATH):
        return
    size = 4 * SHAPE[0] * SHAPE[1]
    header = {}
    for i in range(TENSORS):
        place = [i * size, (i + 1) * size]
        header[f"layers.{i}.weight"] = {"dtype": "F32", "shape": SHAPE, "data_offsets": place}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(f"{PATH}.part", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + TENSORS * size)
    os.replace(f"{PATH}.part", PATH)


def megjit():
    on.setup_megjit()
    import megengine as mge

    return lambda: mge.load(PATH, mmap=True)[WANTED][0].numpy()


def safetensors():
    from safetensors import safe_open

    def first():
        with safe_open(PATH, "np") as file:
            return file.get_slice(WANTED)[0]

    return first


def private_bytes():
    with open("/proc/self/status") as status:
        return 1024 * next(int(line.split()[1]) for line in status if line.startswith("RssAnon"))


def subject(builder, is_memory):
    make_file()
    first = builder()

    def run(calls):
        before = private_bytes()
        for _ in range(calls):
            first()
        return float(private_bytes() - before) if is_memory else None

    return Subject(run, lambda: {"first": np.asarray(first())})


def case(name, words, at_most, **options):
    builders = {
        each.__name__: partial(subject, each, options.get("unit") == "B")
        for each in (megjit, safetensors)
    }
    target = Target(f"2 GB mapped, {words}", at_most=at_most)
    return Case(name=name, builders=builders, targets=(target,), reference="safetensors", **options)


CASES = [
    case("load_weights", "first values", 0.1),
    case(
        "load_weights_bytes", "private memory", 20 << 20, unit="B", fresh=True, rounds=(3, 2)
    ),
]
