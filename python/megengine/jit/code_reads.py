"""Finds the names that the code of a function reads: globals, closure cells, imports, and what it
takes from them.
"""

from __future__ import annotations

import collections
import dis
import functools
import types
from collections.abc import Iterator

from .reach import FILLS

_LOADS = {
    "LOAD_GLOBAL": "global", "LOAD_NAME": "global", "LOAD_DEREF": "cell", "LOAD_CLASSDEREF": "cell",
    "LOAD_FROM_DICT_OR_GLOBALS": "global", "LOAD_FROM_DICT_OR_DEREF": "cell",
}  # fmt: skip


def codes_of(code: types.CodeType) -> Iterator[types.CodeType]:
    """The code of a function and of the functions, comprehensions and classes in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from codes_of(constant)


def attributes_of(code: types.CodeType) -> dict[tuple[str, str], frozenset[str]]:
    """Returns (kind, name) -> attributes that the code takes from it, "" for any other use."""
    return {name: frozenset(path.removesuffix("()").split(".")[0] for path in paths) for name, paths in paths_of(code).items()}


@functools.lru_cache(maxsize=4096)
def paths_of(code: types.CodeType) -> dict[tuple[str, str], frozenset[str]]:
    """Returns (kind, name) -> what the code takes from it, such as "linalg.norm" of np; with "()"
    where it calls that without arguments; "" for any other use.

    kind: global, cell, import (of a module, in the body), or unknown: an instruction of a newer Python that loads by name.
    """
    found: dict[tuple[str, str], set[str]] = {}
    for part in codes_of(code):
        last: tuple[str, str] | None = None
        path: list[str] = []
        for instruction in dis.get_instructions(part):
            # from Python 3.13 on the last one stands between a callable and its call
            if instruction.opname in ("CACHE", "EXTENDED_ARG", "PUSH_NULL"):
                continue
            is_attribute = instruction.opname in ("LOAD_ATTR", "LOAD_METHOD")
            if last and is_attribute:
                path.append(instruction.argval)
                continue
            if last:
                is_bare_call = instruction.opname in ("PRECALL", "CALL") and instruction.arg == 0
                found[last].add(".".join(path) + ("()" if path and is_bare_call else ""))
            path = []
            kind = _LOADS.get(instruction.opname)
            if instruction.opname == "IMPORT_NAME":
                kind = "import"
            elif kind is None and _may_load_by_name(instruction.opname):
                kind = "unknown"
            last = None if kind is None else (kind, str(instruction.argval))
            if last:
                found.setdefault(last, set())
    return {name: frozenset(attributes) for name, attributes in found.items()}


def _may_load_by_name(opname: str) -> bool:
    return opname.startswith("LOAD_") and any(word in opname for word in ("GLOBAL", "NAME", "DEREF", "DICT"))


def names_in(code: types.CodeType) -> set[str]:
    return {name for part in codes_of(code) for name in part.co_names}


def words_in(code: types.CodeType) -> set[str]:
    """Returns the names in code, and its texts, which may be names for getattr()."""
    return {word for part in codes_of(code) for word in (*part.co_names, *part.co_consts) if isinstance(word, str)}


def is_only_filled(value: object, attributes: frozenset[str]) -> bool:
    """Whether the code only puts something into this container."""
    return bool(attributes) and {path.removesuffix("()") for path in attributes} <= FILLS and type(value) in (list, set, collections.deque)
