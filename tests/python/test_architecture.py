"""The arrows between the rooms, as docs/architecture.md draws them."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MAY_INCLUDE = {
    "runtime": set(),
    "memory": {"runtime"},
    "codegen": {"runtime"},
    "backends": {"runtime", "codegen"},
    "jit": {"runtime", "memory", "codegen"},
    "python": {"runtime", "memory", "codegen", "jit", "backends"},
}


def includes(room):
    for path in sorted((ROOT / room).rglob("*.[ch]*")):
        for target in re.findall(r'#include "(\w+)/([\w/]*)', path.read_text(encoding="utf-8")):
            yield path.relative_to(ROOT), *target


def test_every_include_follows_the_arrows():
    wrong = [
        f"{path}: {target}/"
        for room, allowed in MAY_INCLUDE.items()
        for path, target, _ in includes(room)
        if target in MAY_INCLUDE and target != room and target not in allowed
    ]
    assert not wrong, "includes against the arrows:\n" + "\n".join(wrong)


def test_backends_do_not_know_each_other():
    wrong = [
        f"{path}: {rest}"
        for path, target, rest in includes("backends")
        if target == "backends" and rest.split("/")[0] != path.parts[1]
    ]
    assert not wrong, "one backend includes another:\n" + "\n".join(wrong)
