"""Remarks of `lint`: nothing is broken, but an edit of one thing would change another one too."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from .core import Call


def remarks_on_sharing(
    parts: Iterable[tuple[str, Any]],
    calls: Iterable[tuple[Call, Any]],
    reads: Iterable[tuple[Call, Any]],
) -> list[str]:
    """A sentence for each module or tensor that has two names, or that two calls use.

    parts: (path, module or tensor) at every path. calls: (call, the module that it calls without a graph of its own being
    looked at). reads: (call, the tensor that it reads).
    """
    paths: dict[int, list[str]] = defaultdict(list)
    found = []
    parts = list(parts)
    for path, part in parts:
        paths[id(part)].append(path)
    for path, part in parts:
        names = paths[id(part)]
        if len(names) > 1 and names[0] == path:
            found.append(
                f"{_listed(names)} are one {type(part).__name__}: an edit of one is an edit of all"
            )
    callers: dict[int, list[Call]] = defaultdict(list)
    for call, module in calls:
        callers[id(module)].append(call)
    for module, users in callers.items():
        if len(users) > 1:
            found.append(
                f"{_name(paths[module])} is called by {_described(users)}: an edit of it changes all of these"
            )
    for read, tensor in reads:
        inside = [
            user
            for module, users in callers.items()
            for user in users
            if any(
                path.startswith(f"{holder}.")
                for path in paths[id(tensor)]
                for holder in paths[module]
            )
        ]
        if inside:
            found.append(
                f"{read.describe()} reads {_name(paths[id(tensor)])}, which {_described(inside)} computes with: an "
                "edit of it changes both"
            )
    return found


def _name(paths: list[str]) -> str:
    return repr(paths[0]) if paths else "a module"


def _listed(names: list[str]) -> str:
    return ", ".join(map(repr, names[:-1])) + f" and {names[-1]!r}"


def _described(calls: list[Call]) -> str:
    return ", ".join(call.describe() for call in calls)
