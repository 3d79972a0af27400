"""What of the things that a traced body reads can be compared, cannot change, or cannot be watched.

In: a value, a class, the name of a module. Out: which of the three it is; `Unwatchable` for the last.
"""

from __future__ import annotations

import array
import collections
import datetime
import fractions
import operator
import random
import re
import struct
import sys
import threading
import types
import uuid
from collections.abc import Mapping
from typing import Any

import numpy as np

from .._core import RandomState
from ..core._origin import PACKAGE, is_library
from .reach import ALL, library_of

_PLAIN = (
    int,
    float,
    complex,
    str,
    bytes,
    bool,
    type(None),
    type(Ellipsis),
    range,
    np.generic,
    np.dtype,
)
_EXACT = frozenset(kind for kind in _PLAIN if kind not in (np.generic, np.dtype))
# Of C, or of the standard library, and without anything that could change.
_OPAQUE = (
    types.CodeType, types.WrapperDescriptorType, types.MethodDescriptorType, types.ClassMethodDescriptorType,
    types.GetSetDescriptorType, types.MemberDescriptorType, types.UnionType, types.NotImplementedType,
    re.Pattern, operator.attrgetter, operator.itemgetter, operator.methodcaller, fractions.Fraction,
    datetime.date, datetime.time, datetime.timedelta, datetime.tzinfo, uuid.UUID, np.ufunc, type(threading.Lock()), type(threading.RLock()),
    type(vars(collections.namedtuple("_Pair", "first"))["first"]), RandomState,
)  # fmt: skip
_MUTABLE = (np.random.Generator, np.random.RandomState, random.Random, array.array, bytearray)
_MISSING = object()


class Unwatchable(Exception):
    """The body reads something whose changes cannot be seen; its text says what."""


def _same(a: Any, b: Any) -> bool:
    """Does a body read the same from both? Objects are compared by identity: their content is watched."""
    if a is b:
        return True
    if isinstance(a, np.dtype):
        return isinstance(b, np.dtype) and a == b and a.metadata == b.metadata  # the latter holds the scale of a quantized one
    if _is_plain(a):
        return type(a) is type(b) and (_bits(a) == _bits(b) if isinstance(a, _FLOATING) else bool(a == b))
    if isinstance(a, types.MethodType):  # made anew by each access
        return (
            isinstance(b, types.MethodType)
            and a.__func__ is b.__func__
            and a.__self__ is b.__self__
        )
    return type(a) is tuple and type(b) is tuple and len(a) == len(b) and all(map(_same, a, b))


_FLOATING = (float, complex, np.inexact)


def _bits(value: Any) -> bytes:
    """What tells -0.0 from 0.0, and one NaN from another."""
    if isinstance(value, np.inexact):
        return value.tobytes()
    return struct.pack("dd", value.real, value.imag)


def _is_plain(value: Any) -> bool:
    """Is it a value that never changes, and not of a class that adds anything to it?"""
    kind = type(value)
    if kind in _EXACT:
        return True
    return isinstance(value, np.generic | np.dtype) and kind.__module__.split(".")[0] == "numpy" and kind is not np.void


def _same_items(now: Mapping[Any, Any], then: Mapping[Any, Any]) -> bool:
    return len(now) == len(then) and all(
        _same(key, old_key) and _same(value, old)
        for (key, value), (old_key, old) in zip(now.items(), then.items(), strict=True)
    )


def _is_foreign(name: str | None) -> bool:
    """Does this module belong to a library, which does not change while a program runs?"""
    top = name.split(".")[0] if isinstance(name, str) else ""
    if top == "__main__":
        return False
    if top in ("megengine", "numpy", "builtins"):
        return True
    file = getattr(sys.modules.get(top), "__file__", None)
    if file is None or file.startswith("<"):
        return top in sys.stdlib_module_names
    return is_library(file)  # a program may have a module with the name of one of Python's


def _is_foreign_code(function: types.FunctionType) -> bool:
    """Does a function come from a library? By its file: what its module is called anybody may set."""
    file = function.__code__.co_filename
    return _is_foreign(function.__module__) and (file.startswith(("<", PACKAGE)) or is_library(file))


def _is_foreign_class(kind: type) -> bool:
    holder: Any = sys.modules.get(kind.__module__)
    for part in kind.__qualname__.split("."):
        holder = getattr(holder, part, None) if part != "<locals>" else None
    return _is_foreign(kind.__module__) and (holder is kind or kind.__module__ in ("builtins", "typing") or not kind.__flags__ & _HEAP)


_HEAP = 1 << 9  # Py_TPFLAGS_HEAPTYPE: made by a class statement, as a rule


def _is_machinery(kind: type) -> bool:
    """Is it a part of the standard library that holds no state of programs, as a logger?"""
    top = kind.__module__.split(".")[0]
    return top in sys.stdlib_module_names and top not in (
        "builtins",
        "collections",
        "types",
        "argparse",
        "functools",
        "enum",
    )


def _refuse_by_object(value: Any, name: str) -> None:
    """Unwatchable for what reads files or draws numbers, under whatever name a program has it."""
    is_source = isinstance(value, type) and issubclass(value, (random.Random, np.random.RandomState, np.random.Generator, np.random.BitGenerator))
    if is_source or (value.__module__ and value.__name__ in library_of(value.__module__).moves):
        raise Unwatchable(f"the body reaches {name}, and what it gives cannot be watched")


def _refuse_impure(module: Any, what: str) -> None:
    """Unwatchable for a library that is not known to be pure. Of ours it depends on the function."""
    top = module.split(".")[0] if isinstance(module, str) else ""
    if top and top != "megengine" and _is_foreign(module) and library_of(module).moves is ALL:
        raise Unwatchable(f"{what}, and what {top} gives cannot be watched")


def _same_array(a: np.ndarray, b: np.ndarray) -> bool:
    return a.shape == b.shape and a.dtype == b.dtype and a.flags.writeable == b.flags.writeable and a.tobytes() == b.tobytes()
