"""Functions and classes by name: the only ones that a file can lead to.

There are those of megengine that compute, those of `operator` and `math`, a few builtins, what the program has
registered (`wrap`, `register_as_builtin`, `register_supported_type`), and what the caller trusts. A name is looked
up in this table; nothing is imported, and no attribute is followed, because a file says so.
"""

from __future__ import annotations

import builtins
import collections
import contextlib
import functools
import importlib
import math
import operator
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any

import numpy as np

from .. import quantization as _quantization  # noqa: F401 (before the layers that it lists, which import parts of it)
from ..module.qat import QATModule
from .container import ModelFileError

Trusted = Iterable[Any] | Mapping[str, Any]

_BUILTINS = (
    "abs", "bool", "complex", "dict", "divmod", "float", "getattr", "int", "isinstance", "len", "list",
    "max", "min", "pow", "range", "reversed", "round", "slice", "sorted", "sum", "tuple", "zip",
)  # fmt: skip
_TYPES = (str, bytes, set, frozenset, object, type(None), type(...), collections.OrderedDict)
# these act on more than their arguments
_NOT_OF_OPERATOR = {"attrgetter", "itemgetter", "methodcaller", "call"}
# Packages whose public functions compute. Their registries and the loaders of foreign engines do not.
_FUNCTIONS = ("functional", "functional.fft", "functional.linalg", "functional.loss", "functional.math",
              "functional.metric", "functional.nn", "functional.quantized", "functional.tensor",
              "functional.vision", "functional.elemwise", "random", "fx.torchlike.aten", "fx.torchlike.elementwise", "fx.torchlike.images", "fx.torchlike.losses",
              "fx.torchlike.networks", "fx.torchlike.pooling", "fx.torchlike.reductions", "fx.torchlike.shapes",
              *(_ONNX := tuple(f"onnx.functions.{name}" for name in (
                  "arrays", "draws", "elementwise", "indices", "layers", "loops", "quantized", "recurrent", "resizing", "windows"))))  # fmt: skip
_DEFINED_IN = ("megengine.functional", "megengine.fx.torchlike", *(f"megengine.{package}" for package in _ONNX))
_CLASSES = ("module", "module.qat", "module.quantized", "quantization", "quantization.fake_quant",
            "quantization.observer", "quantization.utils", "traced_module.fake_quant", "core.ops.builtin",
            "tensor", "core.tensor.quantized", "core.tensor.dtype", "fx.passes.shape_prop", "fx.torchlike.layers",
            "fx.torchlike.recurrent", "utils.mkldnn")  # fmt: skip
# Steps that fx and traced_module make themselves -> the modules that define them.
_OF_GRAPHS = {
    "megengine.fx.GraphModule": "fx.graph_module",
    "megengine.fx.check_concrete_arg": "fx.tracer",
    "megengine.traced_module.TracedModule": "traced_module.traced_module",
}

# Registered by the program, through the package's functions for this.
registered: dict[str, Any] = {}
# (namespace, name), looked up when it is needed
registered_globals: list[tuple[dict[str, Any], str]] = []


def register(thing: Any) -> None:
    """Let files name ``thing``, a function or class of the program; one inside of a function has no name."""
    with contextlib.suppress(ValueError):
        registered[own_name(thing)] = thing


def own_name(thing: Any) -> str:
    """ Returns "module.name" of the definition. ValueError for an object that no module holds under
    a name.
    """
    name = f"{getattr(thing, '__module__', None)}.{getattr(thing, '__qualname__', None)}"
    if "<" in name or "None" in name.split(".") or isinstance(thing, types.MethodType):
        raise ValueError(f"{thing!r} cannot be saved: it is not at the top of a module")
    return name


def _public(package: str) -> Iterator[tuple[str, Any]]:
    """Iterates over (name, thing) of all that a package of ours offers."""
    module = importlib.import_module(f"megengine.{package}")
    # dir() includes names that are loaded when asked for
    for name in dict.fromkeys([*vars(module), *dir(module)]):
        if not name.startswith("_"):
            yield f"megengine.{package}.{name}", getattr(module, name)


@functools.cache
def _known() -> dict[str, Any]:
    """Name -> function or class of the packages. A thing with several names is written by its first."""
    known: dict[str, Any] = {}
    for package in _FUNCTIONS:
        for name, thing in _public(package):
            plain = isinstance(thing, types.FunctionType) and thing.__module__.startswith(_DEFINED_IN)
            if plain or isinstance(thing, types.MethodType):
                known[name] = thing
    for package in _CLASSES:
        for name, thing in _public(package):
            if isinstance(thing, type) and thing.__module__.startswith("megengine."):
                known[name] = thing
    for name in dir(operator):
        if not name.startswith("_") and name not in _NOT_OF_OPERATOR:
            known[f"operator.{name}"] = getattr(operator, name)
    for name in dir(math):
        if isinstance(getattr(math, name), types.BuiltinFunctionType):
            known[f"math.{name}"] = getattr(math, name)
    known |= {f"builtins.{name}": getattr(builtins, name) for name in _BUILTINS}
    known |= {own_name(kind): kind for kind in _TYPES}
    for kind in np.sctypeDict.values():
        known[f"numpy.{kind.__name__}"] = kind
    # Their helpers that are steps of graphs, too (`fx.wrap`), even with private names.
    known |= {name: thing for name, thing in registered.items() if name.startswith(_DEFINED_IN)}
    known["functools.partial"] = functools.partial
    for name, home in _OF_GRAPHS.items():
        known[name] = getattr(importlib.import_module(f"megengine.{home}"), name.rpartition(".")[2])
    rounded = QATModule._apply_fakequant_with_observer
    known[f"megengine.module.qat.{rounded.__qualname__}"] = rounded
    return known


@functools.cache
def _by_definition() -> dict[str, Any]:
    """Maps the place where a thing is defined, which is its name in pickles, to the thing."""
    found = {}
    for thing in _known().values():
        with contextlib.suppress(ValueError):
            found[own_name(thing)] = thing
    return found


@functools.cache
def _names() -> dict[Any, str]:
    names: dict[Any, str] = {}
    for name, thing in _known().items():
        names.setdefault(thing, name)
    return names


def name_of(thing: Any) -> str:
    """Returns the name of a function or class in files. ValueError for one without a name at the
    top of a module.
    """
    return _names().get(thing) or own_name(thing)


class Admission:
    """The classes and functions that one reading may use: the table, and what the caller trusts."""

    def __init__(self, trusted: Trusted = ()) -> None:
        if isinstance(trusted, Mapping):
            self._trusted = dict(trusted)
        else:
            self._trusted = {own_name(thing): thing for thing in trusted}
        self._checks: list[Callable[[], object]] = []

    def trusted(self, name: str) -> Any:
        """Returns the object that the caller trusts under that name, or None."""
        return self._trusted.get(name)

    def by_definition(self, module: str, name: str) -> Any:
        """Returns the admitted object that is defined there, or None."""
        return _by_definition().get(f"{module}.{name}") or self.find(f"{module}.{name}")

    def check_at_end(self, check: Callable[[], object]) -> None:
        """Calls ``check`` when the whole file is read, because a graph is checked with the modules
        that it reads from.
        """
        self._checks.append(check)

    def check_graphs(self) -> None:
        """Runs the checks that `check_at_end` has taken."""
        for check in self._checks:
            check()

    def is_own(self, thing: Any) -> bool:
        """Whether ``thing`` is of the program: registered, or trusted by the caller."""
        return any(thing is own for own in (*self._trusted.values(), *registered.values()))

    def find(self, name: str) -> Any:
        """The thing of that name, or None."""
        for table in (self._trusted, _known(), registered):
            if name in table:
                return table[name]
        for namespace, key in registered_globals:
            thing = namespace.get(key)
            if callable(thing) and own_name(thing) == name:
                return thing
        return None

    def function(self, name: str) -> Callable[..., Any]:
        """The function or class of that name. ModelFileError for one that is not admitted."""
        found = self.find(name)
        if found is None or not callable(found):
            raise refused(name)
        return found

    def type(self, name: str, base: type = object) -> type:
        """The class of that name, a subclass of ``base``. ModelFileError for one that is not admitted."""
        found = self.find(name)
        if not isinstance(found, type) or not issubclass(found, base):
            raise refused(name)
        return found


def refused(name: str) -> ModelFileError:
    """The error for a name in a file that is not in the table."""
    short = name if len(name) < 200 else f"{name[:200]}..."
    last = short.rpartition(".")[2]
    return ModelFileError(
        f"the file names {short!r}, which is not admitted: reading a file finds only what megengine has, what the "
        "program registered, and what the caller trusts\n"
        f"  fix: if it is yours, load(path, trusted=[{last}])"
    )


_admission: ContextVar[Admission | None] = ContextVar("admission", default=None)


@contextlib.contextmanager
def reading(admission: Admission) -> Iterator[Admission]:
    """Marks a block that reads a pickle: functions that restore objects get the admission from
    `active`.
    """
    outside = _admission.set(admission)
    try:
        yield admission
    finally:
        _admission.reset(outside)


def active() -> Admission | None:
    """The admission of the file that this thread reads, or None: plain pickles are the caller's."""
    return _admission.get()
