"""The closed list of what a skipped body may reach, and of what it may do there.

A value of a kind that never changes needs no watching; an object that changes unseen but can be pickled is compared by its pickle; a wrapper
is what it holds. A function or a class that is not a program's own is known by its module and its
name. It is pure if its result follows from its arguments and from state that guards watch; it is
quiet if it acts on nothing but its result. A function without a row is neither: under
``without_host=True`` such a body is recorded again in each call, with the reason, and "auto" runs
it.
"""

from __future__ import annotations

import builtins
import collections
import datetime
import functools
import operator
import re
import sys
import threading
import types
from collections.abc import Collection
from typing import Any, Literal, NamedTuple

import numpy as np

from .._core import RandomState
from ..core._origin import PACKAGE, is_library

# ---- values

PLAIN = (int, float, complex, str, bytes, bool, type(None), type(Ellipsis), range, np.generic, np.dtype)
_EXACT = frozenset(PLAIN) - {np.generic, np.dtype}
# Kinds of C, or of the standard library, without anything that could change.
_OPAQUE = (
    types.CodeType, types.WrapperDescriptorType, types.MethodDescriptorType, types.ClassMethodDescriptorType,
    types.GetSetDescriptorType, types.MemberDescriptorType, types.UnionType, types.NotImplementedType,
    re.Pattern, operator.attrgetter, operator.itemgetter, operator.methodcaller,
    datetime.date, datetime.time, datetime.timedelta, datetime.tzinfo, np.ufunc, type(threading.Lock()), type(threading.RLock()),
    type(vars(collections.namedtuple("_Pair", "first"))["first"]), RandomState,
)  # fmt: skip
# Attributes of wrappers that hold what runs, or is read.
WRAPPERS: dict[type, tuple[str, ...]] = {
    types.MethodType: ("__self__", "__func__"), functools.partial: ("func", "args", "keywords"),
    staticmethod: ("__func__",), classmethod: ("__func__",), property: ("fget",),
}  # fmt: skip


def _loaded(*paths: str) -> tuple[type, ...]:
    """Returns the classes whose modules the program has loaded. Others have no instances yet, and
    loading them here is slow.
    """
    found = (getattr(sys.modules.get(module), name, None) for module, _, name in (path.rpartition(".") for path in paths))
    return tuple(kind for kind in found if kind is not None)


def opaque() -> tuple[type, ...]:
    """Returns the kinds whose objects hold nothing that could change."""
    return (*_OPAQUE, *_loaded("fractions.Fraction", "uuid.UUID"))


def pickled() -> tuple[type, ...]:
    """Returns the kinds whose changes cannot be seen, and which are compared by their pickles."""
    return (bytearray, *_loaded("numpy.random.Generator", "numpy.random.RandomState", "random.Random", "array.array"))


def _sources() -> tuple[type, ...]:
    """Returns the kinds that give random numbers, unless a program gives a seed."""
    return _loaded("random.Random", "numpy.random.RandomState", "numpy.random.Generator", "numpy.random.BitGenerator")


def unwrapped(value: object) -> list[Any] | None:
    """Returns the object that a wrapper holds; None for other objects."""
    return next(([getattr(value, part) for part in parts] for kind, parts in WRAPPERS.items() if isinstance(value, kind)), None)


def is_plain(value: object) -> bool:
    """Whether it is a value that never changes, of a class that adds nothing."""
    kind = type(value)
    if kind in _EXACT:
        return True
    return isinstance(value, np.generic | np.dtype) and package_of(kind.__module__) == "numpy" and kind is not np.void


# ---- names in the code

# Names by which code asks the interpreter about itself, and names whose values cannot be compared.
UNSEEN = {
    "__globals__", "__subclasses__", "__closure__", "__code__", "f_back", "f_locals", "f_globals", "currentframe", "_getframe", "getcontext",
    "localcontext", "gi_frame", "getrefcount", "locked", "acquire", "isEnabledFor", "getEffectiveLevel", "hasHandlers", "getChild", "manager",
}  # fmt: skip
FILLS = {"append", "extend", "add"}  # code that only calls these on a container does not read it
# Methods that change their object; of arrays only those without an operator of the same effect.
WRITES = FILLS | {
    "insert", "pop", "popitem", "popleft", "appendleft", "clear", "update", "remove", "discard", "setdefault",
    "sort", "reverse", "fill", "tofile", "dump", "resize", "write", "writelines", "put",
}  # fmt: skip
# using an object does not call these
NOT_CALLED = {"__init__", "__new__", "__del__", "__repr__", "__str__", "__reduce__", "__getstate__", "__setstate__"}

# ---- libraries


class Library(NamedTuple):
    """A row: a module, with all below it that have no row of their own.

    moves: names that are not pure: they ask for files, clocks, settings, or for what the interpreter knows of the program. acts: names
    that are not quiet. is_base: a program's classes may derive from its classes. holds: where an object of a part of Python has what a program
    sets: in attributes and items, where nobody sees it, or nowhere. reads_grads: its functions may read gradients.
    """

    moves: Collection[str] = ()
    acts: Collection[str] = ()
    is_base: bool = False
    holds: Literal["attributes", "unseen", "nothing"] = "unseen"
    reads_grads: bool = False


class _AllBut(frozenset[str]):
    """A set of all names except these."""

    def __contains__(self, name: object) -> bool:
        return not super().__contains__(name)


ALL = _AllBut()
_QUIET_BUILTINS = {
    "abs", "all", "any", "bool", "bytes", "callable", "chr", "complex", "dict", "divmod", "enumerate", "filter", "float", "format",
    "frozenset", "getattr", "hasattr", "hash", "id", "int", "isinstance", "issubclass", "iter", "len", "list", "map", "max", "min",
    "object", "ord", "pow", "range", "repr", "reversed", "round", "set", "slice", "sorted", "str", "sum", "super", "tuple", "type", "zip",
    "NotImplemented", "Ellipsis", "__debug__", "__name__", "__build_class__",
}  # fmt: skip
_QUIET_BUILTINS |= {name for name, value in vars(builtins).items() if isinstance(value, type) and issubclass(value, BaseException)}
_PURE = Library()
_UNKNOWN = Library(moves=ALL, acts=ALL)
_ACTING = Library(acts=ALL)  # its result is pure, but it writes, warns, or keeps its arguments
LIBRARIES: dict[str, Library] = {
    "builtins": Library(
        moves={"globals", "locals", "vars", "eval", "exec", "input", "open", "compile", "__import__", "breakpoint", "memoryview"},
        acts=_AllBut(_QUIET_BUILTINS),
        is_base=True,
        holds="attributes",
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
    "argparse": Library(moves=ALL, acts=ALL, is_base=True, holds="attributes"),
    "typing_extensions": Library(moves=ALL, acts=ALL, is_base=True),
    **dict.fromkeys(("collections", "enum", "functools", "types"), Library(is_base=True, holds="attributes")),
    **dict.fromkeys(("contextlib", "numbers"), Library(is_base=True)),
    **dict.fromkeys(("abc", "dataclasses", "typing"), Library(is_base=True, holds="nothing")),
    **dict.fromkeys(("_abc", "inspect"), Library(moves=ALL, acts=ALL, holds="nothing")),
    **dict.fromkeys(("contextvars", "pickle", "pprint", "warnings", "_thread"), _ACTING),  # "_thread": repr of dataclasses
    "_io": Library(moves={"open"}, acts=ALL),
    "logging": Library(moves={"getLogger", "getLoggerClass", "getLevelName", "getHandlerByName"}, acts=ALL, is_base=True),
    # This package. Modules without a row give settings, devices, counters, files.
    "megengine": Library(moves=ALL, acts=ALL, is_base=True),
    **dict.fromkeys((
        "megengine._core", "megengine.core.ops", "megengine.core.tensor", "megengine.tensor", "megengine.amp", "megengine.distributions", "megengine.quantization",
        "megengine.onnx.functions", "megengine.utils.mkldnn",
    ), Library(is_base=True)),
    **dict.fromkeys(("megengine.module", "megengine.optimizer", "megengine.autodiff"), Library(is_base=True, reads_grads=True)),
    "megengine.functional": Library(moves={"get_execution_strategy"}, acts={"set_execution_strategy"}, is_base=True),
    "megengine.random": Library(moves={"get_rng_state"}, is_base=True),
    "megengine.jit": Library(moves={"is_tracing"}, acts=ALL, is_base=True),
    **dict.fromkeys(("megengine.distributed", "megengine.fx", "megengine.traced_module"), Library(acts=ALL, is_base=True)),
}  # fmt: skip


def library_of(module: object) -> Library:
    """Returns the row of a module, or of a package around it."""
    name = module if isinstance(module, str) else ""
    while name not in LIBRARIES and "." in name:
        name = name.rpartition(".")[0]
    return LIBRARIES.get(name, _UNKNOWN)


def package_of(module: object) -> str:
    """The package that a module is in, by its name."""
    return module.split(".")[0] if isinstance(module, str) else ""


def is_ours(module: object) -> bool:
    return package_of(module) == "megengine"


def is_of_python(module: object) -> bool:
    return package_of(module) in sys.stdlib_module_names


def is_foreign(name: str | None) -> bool:
    """Whether this module belongs to a library, which does not change while a program runs."""
    top = package_of(name)
    if top in ("__main__", "megengine", "numpy", "builtins"):
        return top != "__main__"
    file = getattr(sys.modules.get(top), "__file__", None)
    if file is None or file.startswith("<"):
        return is_of_python(top)
    return is_library(file)  # a program may have a module with the name of one of Python's


def is_foreign_code(function: types.FunctionType) -> bool:
    """Whether a function comes from a library. Its file tells, as any program may set its module's
    name.
    """
    file = function.__code__.co_filename
    return is_foreign(function.__module__) and (file.startswith(("<", PACKAGE)) or is_library(file))


_HEAP = 1 << 9  # Py_TPFLAGS_HEAPTYPE: made by a class statement, as a rule


def is_foreign_class(kind: type) -> bool:
    """Whether a class comes from a library. A class that its module does not hold under its name is
    a program's.
    """
    holder: Any = sys.modules.get(kind.__module__)
    for part in kind.__qualname__.split("."):
        holder = getattr(holder, part, None) if part != "<locals>" else None
    return is_foreign(kind.__module__) and (holder is kind or kind.__module__ in ("builtins", "typing") or not kind.__flags__ & _HEAP)


# ---- refusals


class Unwatchable(Exception):
    """The body reads something whose changes cannot be seen; its text says what."""


def refuse_by_object(value: types.FunctionType | type, name: str) -> None:
    """Raises Unwatchable for functions that read files or draw numbers, under every name."""
    if (isinstance(value, type) and issubclass(value, _sources())) or (value.__module__ and value.__name__ in library_of(value.__module__).moves):
        raise Unwatchable(f"the body reaches {name}, and what it gives cannot be watched")


def refuse_impure(module: str | None, what: str) -> None:
    """Raises Unwatchable for a library that is not known to be pure; for this package the function
    decides.
    """
    if module and not is_ours(module) and is_foreign(module) and library_of(module).moves is ALL:
        raise Unwatchable(f"{what}, and what {package_of(module)} gives cannot be watched")


def refuse_foreign(value: types.FunctionType | type, name: str) -> None:
    """Raises Unwatchable for a function or a class of a library that is not known to be pure."""
    refuse_impure(value.__module__, f"the body reaches {name}")
    refuse_by_object(value, name)
