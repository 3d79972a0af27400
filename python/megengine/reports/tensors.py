"""``python -m megengine plan FILE``: tensors of a file and what they take, without reading them."""

from __future__ import annotations

import contextlib
import math
import os
from collections import Counter
from typing import Any

from .. import _core
from .._files import kinds, modules, tensor_file

_FLOAT32 = 4  # bytes


def is_told(path: str) -> bool:
    """Tells whether a path is one of tensors: a folder, an index, or a file that begins like one.

    ValueError for a file of another known kind that is not a script.
    """
    if os.path.isdir(path) or path.endswith(tensor_file.INDEX_SUFFIX):
        return True
    with open(path, "rb") as file:
        begin = kinds.first_bytes(file)
    if kinds.holds_tensors(begin):
        return True
    if other := kinds.kind_of(begin):
        raise ValueError(
            f"plan: {path} is {other[0]}, whose tensors are known only when it is read\n"
            f"  fix: {other[1]}"
        )
    return False


def run(path: str) -> int:
    """Prints a line for each tensor, and sums. Returns the exit status."""
    path = tensor_file.in_folder(path)
    entries = _entries(path)
    names = max(map(len, entries), default=0)
    for name, entry in entries.items():
        size = _core.size_text(entry.end - entry.begin)
        print(f"{name:<{names}}  {entry.format:<5} {size:>9}  {list(entry.shape)}")
    print("\n".join(_summary(os.path.basename(path), entries)))
    return 0


def _entries(path: str) -> dict[str, Any]:
    with open(path, "rb") as file, contextlib.ExitStack() as stack, modules.explained(path):
        if path.endswith(tensor_file.INDEX_SUFFIX):
            parts, _ = tensor_file.parts_of_index(file, path, False, stack)
        else:
            parts = tensor_file.parts_of(tensor_file.stored_in(file, False), path)
        return {name: stored.entries[name] for name, (stored, _) in parts.items()}


def _summary(name: str, entries: dict[str, Any]) -> list[str]:
    sizes, counts = Counter[str](), Counter[str]()
    in_blocks = 0  # bytes of float32 that tensors in blocks become
    for entry in entries.values():
        sizes[entry.format] += entry.end - entry.begin
        counts[entry.format] += 1
        in_blocks += _FLOAT32 * math.prod(entry.shape) if entry.dtype is None else 0
    whole = _core.size_text(sizes.total())
    by_dtype = (f"{_core.size_text(sizes[each])} {each} ({counts[each]})" for each in sizes)
    lines = [
        f"{name}: {len(entries)} tensors, {whole}" + (": " if sizes else "") + ", ".join(by_dtype),
        f"  read (load): {whole} in each process",
        "  mapped (load with mmap=True): "
        f"the pages that are used, {whole} at most for all processes",
    ]
    if in_blocks:
        size = _core.size_text(in_blocks)
        lines.append(f"  as float32 (dequantize): {size} for what is in blocks")
    return lines
