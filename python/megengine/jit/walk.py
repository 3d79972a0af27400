"""The walk over everything that a skipped body could read besides its tensors.

It follows from a function all that its code names: globals, closure cells, default
arguments, objects with their attributes and classes, containers with their items, and the functions
that these hold. In: such things. Out: a fact for each, with its name; `Unwatchable` for what is not on
the closed list (reach.py).
"""

from __future__ import annotations

import abc
import builtins
import collections
import functools
import inspect
import logging
import operator
import pickle
import sys
import types
import weakref
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from .._core import Facts
from ..autodiff import Function, GradManager
from ..core._origin import is_library
from ..module import Module
from ..optimizer import Optimizer
from ..tensor import Tensor
from . import reach, watched
from .code_reads import is_only_filled, names_in, paths_of, words_in
from .reach import ALL, UNSEEN, Unwatchable, is_ours, is_plain, library_of, opaque, pickled
from .steps import ManualSteps
from .watched import MISSING, same

_MOST_OBJECTS = 100_000
_BOOKKEEPING = frozenset(vars(GradManager()))
_OURS = (Module, Function, Optimizer, GradManager)
_Cached = type(functools.lru_cache(lambda: None))


def _may_read_grads(function: types.FunctionType) -> bool:
    if is_ours(function.__module__):
        return library_of(function.__module__).reads_grads
    return any("grad" in word for word in words_in(function.__code__))


def _added_to(function: ManualSteps[...], names: frozenset[str]) -> tuple[Any, ...]:
    """Returns the attributes that a program has set on a traced function, except those of these
    names.
    """
    return tuple(part for key, value in vars(function).items() if key not in names for part in (key, value))


class Walk:
    """The objects that were reached so far, and the facts about them."""

    def __init__(self, leaves: list[Tensor]) -> None:
        self.facts = Facts()
        self._opaque, self._pickled = opaque(), pickled()
        self.names: list[str] = []  # the names of the facts, in order
        # checks of what only the body itself must not change
        self.checks_of_body: list[tuple[Callable[[], bool], str]] = []
        self.seen: set[int] = set()
        self.kept: list[Any] = []  # keeps objects alive, so that no other object gets their ids
        self.reads_grads = False
        self.asks_for_ids = False  # whether the body calls id() or hash()
        self.captured_leaves: list[tuple[int, Tensor]] = []
        # id -> tensor that the body finds by itself and that is no argument
        self.captured: dict[int, Tensor] = {}
        self.leaves = {id(leaf): place for place, leaf in enumerate(leaves)}  # the arguments, by id
        self._queue: list[tuple[Any, str]] = []
        self._followed: set[int] = set()  # functions of libraries that are methods of modules and the like
        self._methods: set[tuple[int, str]] = set()
        self._words: set[str] = set()  # names and texts in the code
        # modules of ours, with the names taken from them
        self._handed_on: dict[int, tuple[types.ModuleType, str, set[str]]] = {}

    def follow(self, things: Iterable[tuple[Any, str]]) -> None:
        """Visits these things, by their names, and all that is reached from them."""
        self._queue.extend(things)
        while self._queue or self._visit_handed_on():
            while self._queue:
                self._visit(*self._queue.pop())
                if len(self.seen) > _MOST_OBJECTS:
                    raise Unwatchable("the function reaches too many objects to watch")

    def watch(self, kind: str, thing: object, name: str, key: object = None) -> None:
        """Notes as a fact what a thing of this kind holds (python/bindings/facts.h)."""
        self.facts.add(kind, thing, key)
        self.names.append(name)

    def _check(self, holds: Callable[[], bool], name: str) -> None:
        self.watch("given", holds, name)

    def _read(self, read: Callable[[], tuple[Any, ...]], name: str) -> None:
        """Notes the result of ``read`` as a fact, and visits it."""
        self.watch("given", read, name)
        for part in read():
            self._later(part, name)

    def _later(self, value: Any, name: str) -> None:
        if not is_plain(value) and id(value) not in self.seen:
            self._queue.append((value, name))

    def _entry(self, table: dict[str, Any], key: Any, name: str) -> None:
        """Visits one entry of a namespace, which may also be missing."""
        self.watch("entry", table, name, key)
        value = table.get(key, MISSING)
        # modules are watched by what code takes from them
        if not isinstance(value, types.ModuleType):
            self._later(value, name)

    def _visit(self, value: Any, name: str) -> None:
        if id(value) in self.seen or is_plain(value) or isinstance(value, self._opaque) or value is MISSING:
            return
        self.seen.add(id(value))
        self.kept.append(value)
        if isinstance(value, Tensor):
            self._visit_tensor(value, name)
        elif isinstance(value, np.ndarray):
            self._visit_array(value, name)
        elif isinstance(value, types.FunctionType):
            self._visit_function(value, name)
        elif (parts := reach.unwrapped(value)) is not None:
            self._visit_wrapper(value, name, parts)
        elif isinstance(value, types.BuiltinFunctionType) or type(value).__name__ == "cython_function_or_method":
            self._visit_builtin(value, name)
        elif isinstance(value, logging.Logger):
            self.watch("given", functools.partial(watched.settings_of, value), name)
            self._later(value.parent, f"{name}.parent")
        elif isinstance(value, types.MethodWrapperType):
            self._later(value.__self__, name)
        elif isinstance(value, types.GenericAlias):
            self._later(value.__origin__, name)
        elif isinstance(value, slice):
            self._later((value.start, value.stop, value.step), name)
        elif isinstance(value, types.ModuleType):
            if not self._hand_on(value, name):
                raise Unwatchable(f"the body reaches {name}, a module that is handed on")
        elif isinstance(value, weakref.ref):
            self._read(lambda: (value(),), name)
            if type(value) is not weakref.ref:
                self._visit_object(value, name)
        elif isinstance(value, type):
            self._visit_class(value, name)
        elif isinstance(value, GradManager):
            self._visit_manager(value, name)
        else:
            self._visit_object(value, name)

    def _visit_tensor(self, tensor: Tensor, name: str) -> None:
        self.watch("tensor", tensor, f"{name}.grad, or another attribute,")
        for key in vars(tensor):
            if key not in watched.NO_FACTS:
                self._entry(vars(tensor), key, f"{name}.{key}")
        if (place := self.leaves.get(id(tensor))) is not None:
            self.captured_leaves.append((place, tensor))
        else:
            self.captured[id(tensor)] = tensor

    def _visit_array(self, array: np.ndarray, name: str) -> None:
        if array.dtype.hasobject:
            raise Unwatchable(f"the body reaches {name}, an array of objects")
        copy = array.copy()
        self._check(lambda: watched.same_array(array, copy), name)
        if type(array) is not np.ndarray:
            self._visit_object(array, name)

    def _visit_manager(self, manager: GradManager, name: str) -> None:
        self.reads_grads = True
        self.watch("given", functools.partial(watched.attached, manager), name)
        self._later([spec.callbacks for spec in manager._attach_specs.values()], f"{name}'s callbacks")
        if type(manager) is not GradManager:
            self._later(type(manager), type(manager).__name__)
            for key in vars(manager):
                if key not in _BOOKKEEPING:  # an attribute that a subclass adds
                    self._entry(vars(manager), key, f"{name}.{key}")

    # ---- code

    def _visit_builtin(self, value: Any, name: str) -> None:
        """Visits a function of C, or a method of an object of C."""
        owner = getattr(value, "__self__", None)
        if owner is None or isinstance(owner, types.ModuleType) or value.__module__ == "megengine.core.ops":
            reach.refuse_foreign(value, name)
        else:
            self._later(owner, f"what {name} belongs to")

    def _visit_wrapper(self, value: Any, name: str, parts: list[Any]) -> None:
        if isinstance(value, functools.partial):
            self._read(lambda: (value.func, value.args, value.keywords, vars(value)), name)
            return
        for part in parts:
            self._later(part, name)
        if isinstance(value, property):
            self._later(value.fset, name)
            if type(value) is not property:
                self._visit_object(value, name)

    def _visit_function(self, function: types.FunctionType, name: str) -> None:
        self.reads_grads |= _may_read_grads(function)
        if reach.is_foreign_code(function) and id(function) not in self._followed:
            reach.refuse_foreign(function, name)
            return
        self.watch("function", function, name)
        self._later(function.__defaults__, f"a default of {name}")
        self._later(function.__kwdefaults__, f"a default of {name}")
        self._later(vars(function), name)
        code, names, words = function.__code__, names_in(function.__code__), words_in(function.__code__)
        self._words |= words
        if unseen := UNSEEN & names:
            raise Unwatchable(f"the body names {min(unseen)}, and what that gives cannot be watched")
        if names & {"id", "hash"} and not (code.co_filename.startswith("<") or is_library(code.co_filename)):  # a repr of a dataclass asks, too
            self.asks_for_ids = True
        asked = words - names if names & {"getattr", "hasattr"} else set()
        for method in {name for name in names if hasattr(Tensor, name)} | {text for text in asked if text.isidentifier()}:
            self._method(Tensor, method)
        reads = paths_of(code)
        for (kind, read), paths in reads.items():
            if kind == "unknown":
                raise Unwatchable(f"the body reads {read} by an instruction that is not known here")
            if kind == "import":
                self._visit_import(read, names)
            if kind == "global" and not is_only_filled(function.__globals__.get(read), paths):
                self._visit_global(function.__globals__, read, paths)
        for read, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            paths = reads.get(("cell", read), frozenset())
            if not is_only_filled(held := watched.content(cell), paths):
                self.watch("cell", cell, read)
                if isinstance(held, types.ModuleType):
                    self._visit_module(held, read, paths)
                else:
                    self._later(held, read)

    def _method(self, kind: type, name: str) -> None:
        """Visits a method of ours, which a program may replace."""
        for base in kind.__mro__:
            if (base is kind or name in vars(base)) and (id(base), name) not in self._methods:
                self._methods.add((id(base), name))
                self.watch("entry", vars(base), f"{base.__name__}.{name}", name)

    def _visit_import(self, read: str, names: set[str]) -> None:
        reach.refuse_impure(read, f"the body imports {read}")
        if (module := sys.modules.get(read)) is None:
            raise Unwatchable(f"the body imports {read or 'a neighbour'}, which is not known yet")
        if not self._hand_on(module, read):
            self._visit_module(module, read, frozenset(names) & vars(module).keys())

    def _visit_global(self, table: dict[str, Any], read: str, paths: frozenset[str]) -> None:
        if read not in table and read in library_of("builtins").moves:
            raise Unwatchable(f"the body calls {read}()")
        self._entry(table, read, read)
        if read not in table:
            self._entry(vars(builtins), read, read)
        value = table.get(read)
        if isinstance(value, types.ModuleType):
            self._visit_module(value, read, paths)

    def _visit_module(self, module: types.ModuleType, read: str, paths: frozenset[str]) -> None:
        """Visits what code takes from a module, even from a library, whose values a program may
        replace.
        """
        reach.refuse_impure(module.__name__, f"the body reads {read}")
        for path in paths:
            name, _, rest = path.removesuffix("()").partition(".")
            rest += "()" if rest and path.endswith("()") else ""
            if not name:
                if self._hand_on(module, read):
                    continue
                raise Unwatchable(f"the body hands on {read}, a module")
            shown = f"{read}.{name}"
            if name not in vars(module) and "__getattr__" in vars(module) and not is_ours(module.__name__):
                raise Unwatchable(f"the body reads {shown}, which {read} makes up")
            moves = library_of(module.__name__).moves
            if moves is not ALL and name in moves:
                raise Unwatchable(f"the body names {shown}, and what it gives cannot be watched")
            if name in ("Random", "RandomState") and path == name:  # it is called with a seed
                self.watch("entry", vars(module), shown, name)
            elif is_ours(module.__name__) and isinstance(getattr(type(module), name, None), property):
                self._setting(module, name, shown)
            else:
                self._entry(vars(module), name, shown)
                part = vars(module).get(name)
                if isinstance(part, types.ModuleType):
                    self._visit_module(part, shown, frozenset({rest}))

    def _hand_on(self, module: types.ModuleType, read: str) -> bool:
        """Whether it is a module of ours, from which code may take any name that it holds."""
        if not is_ours(module.__name__):
            return False
        self._handed_on.setdefault(id(module), (module, read, set()))
        return True

    def _visit_handed_on(self) -> bool:
        """Visits modules that were handed on; returns whether there was anything left to visit."""
        before = len(self._handed_on)
        is_new = False
        for module, read, taken in [*self._handed_on.values()]:
            if names := (self._words & {*vars(module), *vars(type(module))}) - taken:
                is_new = True
                taken |= names
                self._visit_module(module, read, frozenset(names))
        return is_new or len(self._handed_on) > before

    def _setting(self, module: types.ModuleType, name: str, shown: str) -> None:
        """Visits a property of a module of ours, such as those of `config`: a value that a program
        sets.
        """
        value = getattr(module, name)
        self._check(lambda: same(getattr(module, name), value), shown)

    # ---- classes and objects

    def _visit_class(self, value: type, name: str) -> None:
        is_followed = issubclass(value, _OURS) and not is_ours(value.__module__)
        if reach.is_foreign_class(value) and not is_followed:
            reach.refuse_foreign(value, name)
            return
        for base in value.__mro__:
            if reach.is_foreign_class(base) and not library_of(base.__module__).is_base and not issubclass(base, self._pickled):
                raise Unwatchable(f"the body reaches {name}, which derives from {base.__name__} of {base.__module__}")
        table, bases = dict(vars(value)), value.__bases__
        self._check(lambda: watched.same_items(vars(value), table) and same(value.__bases__, bases), name)
        if type(value) is not type:
            self._later(type(value), type(value).__name__)
        if isinstance(value, abc.ABCMeta):
            token = abc.get_cache_token()  # changes when a subclass is registered
            self._check(lambda: abc.get_cache_token() == token, name)
        if is_followed:
            self._followed.update(map(id, table.values()))
        for key, item in table.items():
            self._later(item, f"{name}.{key}")
        for base in bases:
            self._later(base, base.__name__)

    def _visit_object(self, value: Any, name: str) -> None:
        """Visits an instance: its class, its items if it is a container, its attributes."""
        # a program keeps it beside the state of its body; a trace treats it as its function
        if isinstance(value, ManualSteps):
            own_names = value._own_names()
            self._read(lambda: (value.__wrapped__, *_added_to(value, own_names)), name)
            return
        kind = type(value)
        if kind is _Cached:  # only the cache itself knows what it holds
            raise Unwatchable(f"the body reaches {name}, which keeps its results (functools.cache)")
        if kind not in (list, tuple, dict):
            self._visit_kind_of(value, name)
        if isinstance(value, (list, tuple, collections.deque, set, frozenset, dict)):
            self._visit_items(value, name)
        elif not hasattr(value, "__dict__") or isinstance(value, self._pickled) or hasattr(kind, "__next__"):
            self._visit_opaque(value, name)
        if isinstance(value, BaseException):
            self._read(lambda: (value.args, value.__cause__, value.__context__), name)
        slots = watched.slots_of(kind)
        if slots and not reach.is_foreign(kind.__module__):
            held = [getattr(value, slot, MISSING) for slot in slots]
            self._check(lambda: all(same(h, getattr(value, s, MISSING)) for s, h in zip(slots, held)), name)
            for slot, item in zip(slots, held):
                self._later(item, f"{name}.{slot}")
        if not hasattr(value, "__dict__"):
            return
        holds = library_of(kind.__module__).holds if reach.is_of_python(kind.__module__) else "attributes"
        if holds == "unseen":
            raise Unwatchable(f"the body reaches {name}, a {kind.__name__}, whose changes cannot be seen")
        if holds == "attributes":
            self._visit_attributes(value, name)

    def _visit_kind_of(self, value: Any, name: str) -> None:
        kind, origin = type(value), type(value).__module__
        self.reads_grads |= issubclass(kind, Optimizer)
        # reading their attributes runs no code of the program
        if has_foreign_class := reach.is_foreign_class(kind):
            if callable(value) and isinstance(getattr(value, "__name__", None), str):
                reach.refuse_by_object(value, name)
            if origin == "typing":
                self._later(getattr(value, "__origin__", None), name)
        if issubclass(kind, _OURS):
            if is_ours(origin):
                self._method(kind, "forward")
        elif has_foreign_class and not (is_ours(origin) or reach.is_of_python(origin) or reach.package_of(origin) == "numpy"):
            raise Unwatchable(f"the body reaches {name}, a {kind.__name__} of {reach.package_of(origin)}")
        self.watch("instance", value, f"the class of {name}")
        if not has_foreign_class or issubclass(kind, (Module, Function, Optimizer)):
            self._later(kind, kind.__name__)

    def _visit_items(self, value: Any, name: str) -> None:
        if not isinstance(value, dict):
            if not isinstance(value, tuple):
                self.watch("sequence", value, name)
            for i, item in enumerate(value):
                self._later(item, f"{name}[{i}]")
            return
        self.watch("table", value, name)
        for key, item in value.items():
            self._later(item, f"{name}[{repr(key) if is_plain(key) else '...'}]")
            self._later(key, name)
        if isinstance(value, collections.defaultdict):
            self._read(lambda: (value.default_factory,), name)

    def _visit_attributes(self, value: Any, name: str) -> None:
        table = vars(value)
        self.watch("table", table, name)
        is_optimizer = isinstance(value, Optimizer) and reach.is_foreign(type(value).__module__)
        if is_optimizer:
            self._visit_options(value, f"{name}.param_groups")
        for key, item in table.items():
            if not (is_optimizer and key == "param_groups"):
                self._later(item, f"{name}.{key}")

    def _visit_options(self, optimizer: Optimizer, name: str) -> None:
        """Visits an optimizer's options: numbers are read anew in each call, but whether they are
        zero is a fact.
        """
        decided, held, values = watched.options(optimizer), watched.held_options(optimizer), watched.values_of(optimizer)

        def is_alike() -> bool:
            nonlocal held
            now = watched.held_options(optimizer)
            if len(now) != len(held) or not all(map(operator.is_, now, held)):
                if not same(watched.options(optimizer), decided):
                    return False
                held = now
            return True

        self._check(is_alike, name)
        self.checks_of_body.append((lambda: same(watched.values_of(optimizer), values), name))

    def _visit_opaque(self, value: Any, name: str) -> None:
        """Visits an object of C: an iterator, random numbers, bytes. Its pickle tells whether it
        has moved on.
        """
        if inspect.isgenerator(value) or inspect.iscoroutine(value):
            raise Unwatchable(f"the body reaches the generator {name}")
        kind = type(value)
        if not (isinstance(value, self._pickled) or hasattr(kind, "__next__")):
            origin = kind.__module__
            if kind is object or library_of(origin).holds == "nothing" or not reach.is_foreign(origin) or is_ours(origin):
                return  # slots of the program's classes are watched elsewhere
            raise Unwatchable(f"the body reaches {name}, a {kind.__name__}, whose changes cannot be seen")
        try:
            state = pickle.dumps(value)
        except Exception:
            raise Unwatchable(f"the body reaches {name}, a {kind.__name__}") from None
        self._check(lambda: pickle.dumps(value) == state, name)
