"""Finds what a traced body does besides computing: ``trace(without_host="auto")`` skips only bodies
that do nothing else.

In: a function. Out: None, or the first thing found that acts on the outside, or might: a print, a log, an attribute that is
written. It follows all names in the code, and those attributes of objects whose names occur
somewhere. Functions that only compute are known to be quiet; unknown ones count as acting. Guards,
not this file, notice that containers have changed.
"""

from __future__ import annotations

import builtins
import dis
import types
from collections.abc import Callable
from typing import Any

import numpy as np

from ..autodiff import GradManager
from ..module import Module
from ..optimizer import Optimizer
from ..tensor import Tensor
from .code_reads import attributes_of, codes_of
from .reach import ALL, NOT_CALLED, PLAIN, WRITES, is_foreign, library_of, unwrapped
from .watched import MISSING, content


class _Acts(Exception):
    """Raised with a text that tells what acts."""


def acting_part(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    """Returns what a call of ``function`` does beyond its results and tensors; None if nothing."""
    mentioned: set[str] = {"forward", "__call__"}
    try:
        while True:
            walk = _Walk(mentioned)
            walk.judge(function, "the function")
            for value in (*args, *kwargs.values()):
                walk.judge(value, "an argument")
            if walk.mentioned == mentioned:
                return None
            mentioned = walk.mentioned
    except _Acts as found:
        return str(found)


class _Walk:
    """One walk over what a body reaches by the names that its code mentions."""

    def __init__(self, mentioned: set[str]) -> None:
        self._names = mentioned
        self.mentioned = set(mentioned)
        self._seen: dict[int, Any] = {}

    def judge(self, value: Any, name: str, attributes: frozenset[str] = frozenset()) -> None:
        """Raises _Acts unless ``value``, of which these attributes are taken, is quiet."""
        if isinstance(value, (*PLAIN, Tensor, np.ndarray)) or value is MISSING or id(value) in self._seen:
            return
        if isinstance(value, types.ModuleType):  # another place may take another attribute of it
            self._judge_module(value, name, attributes)
            return
        self._seen[id(value)] = value
        if isinstance(value, (list, tuple, set, frozenset, dict)):
            for item in value.values() if isinstance(value, dict) else value:
                self.judge(item, f"an item of {name}")
        elif (parts := unwrapped(value)) is not None:
            for part in parts:
                self.judge(part, name)
        elif is_foreign(getattr(value if callable(value) else type(value), "__module__", None)) or isinstance(
            value, (types.BuiltinFunctionType, np.ufunc)
        ):
            self._judge_foreign(value, name)
        elif isinstance(value, types.FunctionType):
            self._judge_code(value, name)
        else:
            self._judge_object(value, name)

    def _judge_module(self, module: types.ModuleType, name: str, attributes: frozenset[str]) -> None:
        for attribute in attributes - {""}:
            taken = getattr(module, attribute, MISSING)
            acts = library_of(module.__name__).acts
            if acts is not ALL and attribute in acts:
                raise _Acts(f"{name}.{attribute}")
            self.judge(taken, f"{name}.{attribute}", frozenset(self._names) if isinstance(taken, types.ModuleType) else frozenset())
        if "" in attributes:
            raise _Acts(f"{name}, a module that is handed on")

    def _judge_foreign(self, value: Any, name: str) -> None:
        if isinstance(value, (Module, Optimizer, GradManager)):
            self._judge_attributes(value, name)
            return
        origin = "numpy" if isinstance(value, np.ufunc) else str(getattr(value, "__module__", None) or "")
        known = getattr(value, "__name__", "")
        if known in library_of(origin).acts:
            raise _Acts(name)

    def _judge_code(self, function: types.FunctionType, name: str) -> None:
        for code in codes_of(function.__code__):
            for instruction in dis.get_instructions(code):
                if _stores(instruction, code):
                    raise _Acts(f"{name} writes {instruction.argval or 'an item'} (line {_line_of(instruction, code)})")
                if instruction.opname in ("LOAD_ATTR", "LOAD_METHOD"):
                    self.mentioned.add(str(instruction.argval))
        cells = dict(zip(function.__code__.co_freevars, map(content, function.__closure__ or ()), strict=True))
        for (kind, read), attributes in attributes_of(function.__code__).items():
            value = MISSING
            if kind == "cell":
                value = cells.get(read, MISSING)
            elif kind == "global":
                value = function.__globals__.get(read, getattr(builtins, read, MISSING))
                if read not in function.__globals__ and value is not MISSING and read in library_of("builtins").acts and not isinstance(value, PLAIN):
                    raise _Acts(f"{read}()")
            if attributes & WRITES and value is not MISSING and not isinstance(value, (types.ModuleType, Module, Optimizer)):
                raise _Acts(f"{read}.{min(attributes & WRITES)}()")
            if kind != "global" or read in function.__globals__:
                self.judge(value, read, attributes)
        for default in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
            self.judge(default, f"a default of {name}")

    def _judge_object(self, value: Any, name: str) -> None:
        """Judges an object or a class of the program: its methods whose names are mentioned, and
        its attributes.
        """
        is_class = isinstance(value, type)
        for kind in (value if is_class else type(value)).__mro__:
            if is_foreign(kind.__module__):
                continue
            for attribute, member in vars(kind).items():
                if is_class or attribute in self._names or (attribute.startswith("__") and attribute not in NOT_CALLED):
                    if isinstance(member, (types.FunctionType, staticmethod, classmethod, property)):
                        self.judge(member, f"{kind.__name__}.{attribute}")
        if not is_class:
            self._judge_attributes(value, name)

    def _judge_attributes(self, value: Any, name: str) -> None:
        """Judges what a module may run, its children and hooks; and of other objects the attributes that are mentioned."""
        for attribute, held in vars(value).items() if hasattr(value, "__dict__") else ():
            is_run = isinstance(value, Module) and (isinstance(held, (Module, list, tuple, dict)))
            if is_run or attribute in self._names:
                self.judge(held, f"{name}.{attribute}")


def _stores(instruction: dis.Instruction, code: types.CodeType) -> bool:
    """Whether it writes something other than a local variable."""
    name = instruction.opname
    if not name.startswith(("STORE_", "DELETE_")) or name.startswith(("STORE_FAST", "DELETE_FAST", "STORE_NAME")):
        return False
    return not (name == "STORE_DEREF" and instruction.argval in code.co_cellvars)


def _line_of(instruction: dis.Instruction, code: types.CodeType) -> int:
    lines = [line for start, _, line in code.co_lines() if line is not None and start <= instruction.offset]
    return max(lines, default=code.co_firstlineno)
