"""The closed list of what a skipped body may call: by the library that a function or a class is from, what it is known to do.

A function that is not a program's own is known by its module and its name. It is pure where it gives the same for the same
arguments and the same of what guards watch; it is quiet where it acts on nothing but what it gives. Whatever stands in no row is
neither: under ``without_host=True`` such a body is recorded again in each call, with the reason, and "auto" runs it.
"""

from __future__ import annotations

import builtins
from collections.abc import Collection
from typing import NamedTuple


class Library(NamedTuple):
    """A row: a module, with all below it that have no row of their own.

    moves: names that are not pure: they ask for files, clocks, settings, or for what the interpreter knows of the program. acts: names
    that are not quiet. is_base: a program's classes may derive from its classes, whose instances hold attributes and items alone.
    keeps_no_state: its objects hold nothing that a program sets.
    """

    moves: Collection[str] = ()
    acts: Collection[str] = ()
    is_base: bool = False
    keeps_no_state: bool = False


class _All(frozenset[str]):
    """Every name."""

    def __contains__(self, name: object) -> bool:
        return True


ALL = _All()
_QUIET_BUILTINS = {
    "abs", "all", "any", "bool", "bytes", "callable", "chr", "complex", "dict", "divmod", "enumerate", "filter", "float", "format",
    "frozenset", "getattr", "hasattr", "hash", "id", "int", "isinstance", "issubclass", "iter", "len", "list", "map", "max", "min",
    "object", "ord", "pow", "range", "repr", "reversed", "round", "set", "slice", "sorted", "str", "sum", "super", "tuple", "type", "zip",
    "NotImplemented", "Ellipsis", "__debug__", "__name__", "__build_class__",
}  # fmt: skip
_QUIET_BUILTINS |= {name for name, value in vars(builtins).items() if isinstance(value, type) and issubclass(value, BaseException)}


class _AllBut(frozenset[str]):
    """Every name but these."""

    def __contains__(self, name: object) -> bool:
        return not super().__contains__(name)


_PURE = Library()
_ACTING = Library(acts=ALL)  # pure for what it gives, but it writes, warns, or keeps what it is given
LIBRARIES: dict[str, Library] = {
    "builtins": Library(
        moves={"globals", "locals", "vars", "eval", "exec", "input", "open", "compile", "__import__", "breakpoint", "memoryview"},
        acts=_AllBut(_QUIET_BUILTINS),
        is_base=True,
    ),
    "numpy": Library(
        moves={
            "load", "loadtxt", "genfromtxt", "fromfile", "fromregex", "memmap", "DataSource", "open_memmap", "default_rng", "SeedSequence",
            "geterr", "get_printoptions", "ctypeslib", "lib",
        },
        acts={"save", "savez", "savez_compressed", "savetxt", "memmap", "seterr", "set_printoptions", "copyto", "put", "place", "putmask"},
    ),
    "_mt19937": Library(moves={"default_rng", "SeedSequence"}),
    # The standard library.
    **dict.fromkeys((
        "__future__", "array", "bisect", "cmath", "copy", "fractions", "heapq", "itertools", "json", "keyword", "math", "operator", "random", "re",
        "reprlib", "statistics", "string", "struct", "textwrap", "unicodedata", "weakref", "_collections", "_collections_abc", "_functools", "_operator",
        "_random", "_weakref",
    ), _PURE),
    **dict.fromkeys(("argparse", "typing_extensions"), Library(moves=ALL, acts=ALL, is_base=True)),
    **dict.fromkeys(("collections", "contextlib", "enum", "functools", "numbers", "types"), Library(is_base=True)),
    **dict.fromkeys(("abc", "dataclasses", "typing"), Library(is_base=True, keeps_no_state=True)),
    "_abc": Library(moves=ALL, acts=ALL, keeps_no_state=True),
    "inspect": Library(moves=ALL, acts=ALL, keeps_no_state=True),
    **dict.fromkeys(("contextvars", "pickle", "pprint", "warnings", "_thread"), _ACTING),  # "_thread": repr of dataclasses
    "_io": Library(moves={"open"}, acts=ALL),
    "logging": Library(moves={"getLogger", "getLoggerClass", "getLevelName", "getHandlerByName"}, acts=ALL, is_base=True),
    # Ours. What has no row gives settings, devices, counters, files.
    "megengine": Library(moves=ALL, acts=ALL, is_base=True),
    **dict.fromkeys((
        "megengine._core", "megengine.core.ops", "megengine.core.tensor", "megengine.tensor", "megengine.module", "megengine.optimizer", "megengine.autodiff",
        "megengine.amp", "megengine.distributions", "megengine.quantization",
    ), Library(is_base=True)),
    "megengine.functional": Library(moves={"get_execution_strategy"}, acts={"set_execution_strategy"}, is_base=True),
    "megengine.random": Library(moves={"get_rng_state"}, is_base=True),
    "megengine.jit": Library(moves={"is_tracing"}, acts=ALL, is_base=True),
    **dict.fromkeys(("megengine.distributed", "megengine.fx", "megengine.traced_module"), Library(acts=ALL, is_base=True)),
}  # fmt: skip
_UNKNOWN = Library(moves=ALL, acts=ALL)


def library_of(module: object) -> Library:
    """The row of a module, or of what is around it."""
    name = module if isinstance(module, str) else ""
    while name not in LIBRARIES and "." in name:
        name = name.rpartition(".")[0]
    return LIBRARIES.get(name, _UNKNOWN)
