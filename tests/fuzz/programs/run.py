"""Runs a program in one way: what each call returned, and the state after it, as arrays; or the error."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .languages import MEGENGINE, Language
from .ways import Refused, leaves

Wrap = Callable[[Callable[..., Any]], Callable[..., Any]]


@dataclass(frozen=True)
class Outcome:
    """The outcome of one call. same: for each result and argument, which of those before it is the same object."""

    results: tuple[np.ndarray, ...] = ()
    state: tuple[np.ndarray, ...] = ()
    same: tuple[int, ...] = ()
    error: Exception | None = field(default=None, compare=False)

    @property
    def is_refusal(self) -> bool:
        return isinstance(self.error, Refused)


def outcome(returned: Any, arguments: Mapping[str, Any], state: list[Any], array: Callable[[Any], np.ndarray]) -> Outcome:
    if isinstance(returned, Exception):
        return Outcome(error=returned)
    try:
        given = leaves(returned)
        objects = [id(v) for v in (*arguments.values(), *given)]
        same = tuple(objects.index(i) for i in objects[len(arguments) :])
        return Outcome(tuple(map(array, given)), tuple(map(array, state)), same)
    except Exception as error:  # what is computed later may fail where it is read
        return Outcome(error=error)


def load(text: str) -> dict[str, Any]:
    scope: dict[str, Any] = {"__name__": "program"}
    exec(compile(text, "program.py", "exec"), scope)
    return scope


def run(text: str, wrap: Wrap, change: Callable[[dict[str, Any]], None] | None = None, language: Language = MEGENGINE, told: list[str] | None = None) -> list[Outcome]:
    """change: what is done to the scope of the program before it runs. told: where the texts of warnings go."""
    scope = load(text)
    if change:
        change(scope)
    with warnings.catch_warnings(record=told is not None) as heard:
        warnings.simplefilter("ignore" if told is None else "always")
        outcomes = [outcome(*yielded, language.array) for yielded in scope["program"](wrap)]
    if told is not None:
        told += [str(each.message) for each in heard or ()]
    return outcomes


def check_graphs() -> None:
    """Each graph and plan is verified, each kernel compared with the interpreter, and none is compiled behind a call."""
    os.environ.setdefault("MEGJIT_CHECK", "1")
    os.environ.setdefault("MEGJIT_COMPILE", "sync")
    os.environ.setdefault("OMP_NUM_THREADS", "1")
