"""Ops of users' C++ libraries: after `load`, ``custom.MatMulScale(scale=0.1)`` is one, for ``apply(op, lhs, rhs)``.

`megengine.utils.custom_op_tools` builds such a library. Its ops are those of the registry from then on: eager calls, traces and
dumps know them as ``custom.MatMulScale``.
"""

import os
from collections.abc import Callable
from typing import Any

from ..._core import load_library_ops
from ..op_objects import OpDef


class CustomOp(OpDef):
    """An op of a library, with its parameters."""

    _function: Callable[..., Any]
    _kinds: dict[str, str]  # name of a parameter -> its kind

    def __init__(self, **params: Any) -> None:
        for name in params:
            if name not in self._kinds:
                raise TypeError(f"{type(self).__name__}: no parameter {name}; there are {', '.join(self._kinds) or 'none'}")
        super().__init__(**params)

    def run(self, *inputs: Any) -> Any:
        attrs = {
            name: " ".join(repr(float(each)) for each in value) if self._kinds[name] == "reals" else value
            for name, value in vars(self).items()
        }
        return self._function(*inputs, **attrs)


_ops: dict[str, type[CustomOp]] = {}


def load(lib_path: str | os.PathLike[str]) -> list[str]:
    """The ops of a shared library become names of this module; their names. Loading it again changes nothing.

    RuntimeError for a file that cannot be opened, ValueError for one that is not such a library, was made for another version of the
    interface, or has an op whose name is taken.
    """
    rows = load_library_ops(os.path.realpath(lib_path))
    for name, function, kinds in rows:
        if name not in _ops:
            facts = {"__doc__": function.__doc__, "_function": staticmethod(function), "_kinds": kinds}
            _ops[name] = type(name, (CustomOp,), facts)
    return [name for name, _, _ in rows]


def __getattr__(name: str) -> type[CustomOp]:
    try:
        return _ops[name]
    except KeyError:
        raise AttributeError(
            f"there is no custom op {name}: loaded are {', '.join(sorted(_ops)) or 'none'}; "
            "megengine.utils.custom_op_tools.build_and_load makes one of C++"
        ) from None


def __dir__() -> list[str]:
    return sorted([*globals(), *_ops])
