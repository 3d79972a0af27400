"""Guards of ``trace(without_host=True)``: what a recording read besides its tensors.

A call without the Python body is right only while everything that the body would read is as it was:
plain arguments, and the globals, closure cells and attributes that its code names. Each is noted when
the function is recorded and compared before each later call; a difference records again.
"""

from __future__ import annotations

import dis
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ..module import Module
from ..optimizer import Optimizer
from ..tensor import Tensor

_PLAIN = (int, float, complex, str, bytes, bool, type(None))
_MAX_DEPTH = 4  # of functions that the body calls, and of containers


def _fingerprint(value: Any, depth: int = 0) -> Any:
    """Something that compares equal as long as ``value`` reads the same to the body."""
    if isinstance(value, _PLAIN):
        return (type(value), value)
    if isinstance(value, np.ndarray):
        return ("array", value.dtype.str, value.shape, value.tobytes())
    if isinstance(value, np.generic):
        return ("array", value.dtype.str, (), value.tobytes())
    if depth < _MAX_DEPTH and type(value) in (list, tuple):
        return (type(value), tuple(_fingerprint(item, depth + 1) for item in value))
    if depth < _MAX_DEPTH and type(value) is dict:
        return (
            dict,
            tuple((key, _fingerprint(item, depth + 1)) for key, item in value.items()),
        )
    return ("object", id(value))  # tensors, modules, functions: their content is watched elsewhere


def _attribute_chains(code: types.CodeType) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """(kind, name, attributes) for each ``name.a.b`` that the code reads; kind is global, cell or local."""
    kinds = {
        "LOAD_GLOBAL": "global",
        "LOAD_NAME": "global",
        "LOAD_DEREF": "cell",
        "LOAD_CLASSDEREF": "cell",
        "LOAD_FAST": "local",
    }
    root: tuple[str, str] | None = None
    chain: list[str] = []
    for instruction in dis.get_instructions(code):
        if instruction.opname in kinds:
            if root:
                yield (*root, tuple(chain))
            root, chain = (kinds[instruction.opname], instruction.argval), []
        elif root and instruction.opname in ("LOAD_ATTR", "LOAD_METHOD"):
            chain.append(instruction.argval)
        elif root and instruction.opname not in ("CACHE", "PUSH_NULL", "PRECALL"):
            yield (*root, tuple(chain))
            root, chain = None, []
    if root:
        yield (*root, tuple(chain))


class Guards:
    """What one recording read. ``hold(args, kwargs)`` says whether it still reads the same."""

    def __init__(self, function: Callable, args: tuple, kwargs: dict):
        self._checks: list[tuple[Callable[[tuple, dict], Any], Any, str]] = []
        self._seen: set[int] = set()
        for position, value in enumerate(args):
            self._watch_argument(value, f"argument {position}", lambda a, k, i=position: a[i])
        for name, value in kwargs.items():
            self._watch_argument(value, f"argument {name}", lambda a, k, n=name: k.get(n))
        self._count = (len(args), tuple(kwargs))
        self._watch_function(function, args, kwargs, 0)

    def reason(self, args: tuple, kwargs: dict) -> str | None:
        """None while everything reads the same, else what changed."""
        if (len(args), tuple(kwargs)) != self._count:
            return "the call has other arguments"
        for read, expected, name in self._checks:
            try:
                if read(args, kwargs) != expected:
                    return f"{name} has changed"
            except (AttributeError, KeyError, IndexError, ValueError):
                return f"{name} is gone"
        return None

    def _add(self, read: Callable[[tuple, dict], Any], name: str, args: tuple, kwargs: dict) -> None:
        def fingerprint(a, k):
            return _fingerprint(read(a, k))

        self._checks.append((fingerprint, fingerprint(args, kwargs), name))

    def _watch_argument(self, value: Any, name: str, read: Callable) -> None:
        if isinstance(value, (Tensor, list, tuple, dict)) and not isinstance(value, _PLAIN):
            if not isinstance(value, Tensor):
                self._watch_object(value, name)
            return  # tensors are inputs: their types are compared by the runtime
        self._checks.append((lambda a, k: _fingerprint(read(a, k)), _fingerprint(value), name))
        self._watch_object(value, name)

    def _watch_object(self, value: Any, name: str, depth: int = 0) -> None:
        """Modules: training flags and plain attributes. Containers: their items."""
        if id(value) in self._seen or depth > _MAX_DEPTH:
            return
        if isinstance(value, Module):
            self._seen.add(id(value))
            for path, module in value.named_modules():
                self._seen.add(id(module))
                label = f"{name}.{path}" if path else name
                self._checks.append((_module_reader(module), _module_state(module), label))
        elif isinstance(value, Optimizer):
            self._seen.add(id(value))
            expected = _optimizer_state(value)
            self._checks.append((lambda a, k: _optimizer_state(value), expected, name))
        elif isinstance(value, (list, tuple)):
            for item in value:
                self._watch_object(item, name, depth + 1)
        elif isinstance(value, dict):
            for item in value.values():
                self._watch_object(item, name, depth + 1)

    def _watch_function(self, function: Callable, args: tuple, kwargs: dict, depth: int) -> None:
        function = getattr(function, "__func__", function)
        code = getattr(function, "__code__", None)
        if code is None or id(code) in self._seen or depth > _MAX_DEPTH:
            return
        self._seen.add(id(code))
        cells = dict(zip(code.co_freevars, function.__closure__ or ()))
        for kind, name, chain in dict.fromkeys(_attribute_chains(code)):
            if kind == "global" and name in function.__globals__:
                table = function.__globals__
                self._watch_path(lambda n=name: table[n], name, chain, args, kwargs, depth)
            elif kind == "cell" and name in cells:
                cell = cells[name]
                self._watch_path(lambda c=cell: c.cell_contents, name, chain, args, kwargs, depth)

    def _watch_path(self, root: Callable[[], Any], name: str, chain: tuple, args, kwargs, depth: int) -> None:
        """``name`` and each longer prefix of ``name.a.b``, as far as the body could notice a change."""

        def reader(attributes: tuple[str, ...]) -> Callable[[tuple, dict], Any]:
            def read(args, kwargs):
                value = root()
                for attribute in attributes:
                    value = getattr(value, attribute)
                return value

            return read

        value = root()
        self._add(reader(()), name, args, kwargs)
        self._descend(value, name, args, kwargs, depth)
        for length in range(1, len(chain) + 1):
            if isinstance(value, (Tensor, Module, np.ndarray)) or not hasattr(value, chain[length - 1]):
                return  # methods of tensors; modules are watched as a whole
            if isinstance(value, types.ModuleType) and value.__name__.split(".")[0] in ("megengine", "numpy"):
                return
            value = getattr(value, chain[length - 1])
            label = ".".join((name, *chain[:length]))
            if not callable(value) or isinstance(value, Module):
                self._add(reader(chain[:length]), label, args, kwargs)
            self._descend(value, label, args, kwargs, depth)

    def _descend(self, value: Any, name: str, args, kwargs, depth: int) -> None:
        self._watch_object(value, name)
        if isinstance(value, (types.FunctionType, types.MethodType)):
            if not (value.__module__ or "").startswith("megengine."):
                self._watch_function(value, args, kwargs, depth + 1)


def _module_state(module: Module) -> tuple:
    return tuple(
        (name, value if isinstance(value, _PLAIN) else id(value))
        for name, value in vars(module).items()
        if isinstance(value, (*_PLAIN, Tensor, Module))
    )


def _module_reader(module: Module) -> Callable[[tuple, dict], tuple]:
    return lambda args, kwargs: _module_state(module)


def _optimizer_state(optimizer: Optimizer) -> tuple:
    """Which parameters are updated, and whether decay and momentum are on; their values are inputs."""
    return tuple(
        (len(group["params"]), tuple((name, bool(value)) for name, value in group.items() if isinstance(value, (int, float))))
        for group in optimizer.param_groups
    )
