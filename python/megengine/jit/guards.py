"""Guards of ``trace(without_host=True)``: what a recording could read besides its tensors.

A call without the Python body is right only while everything that the body would read is as it was.
From the function, everything is reached that its code names: globals, closure cells, default
arguments, objects with their attributes and classes, containers with their items, and the functions
that these hold. All of it is noted before the function is recorded, compared after it (a body that
changes what it reads is recorded again in each call) and before each later call.
"""

from __future__ import annotations

import abc
import builtins
import collections
import functools
import inspect
import itertools
import logging
import operator
import pickle
import random
import sys
import types
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from .._core import Facts
from ..autodiff import Function, GradManager
from ..core import random_state
from ..core._origin import is_library
from ..core._tree import LEAF, Branch, branch_of, opened, unflatten
from ..core.tensor.amp import state as _amp
from ..module import Module
from ..optimizer import Optimizer
from ..tensor import Tensor
from .code_reads import _UNSEEN, _is_only_filled, _names_in, _paths, _words_in
from .reach import ALL, library_of
from .steps import ManualSteps
from .watchable import (
    _MISSING,
    _MUTABLE,
    _OPAQUE,
    Unwatchable,
    _is_foreign,
    _is_foreign_class,
    _is_foreign_code,
    _is_machinery,
    _is_plain,
    _refuse_by_object,
    _refuse_impure,
    _same,
    _same_array,
    _same_items,
)
from .watched import (
    _NO_FACTS,
    _attached,
    _content,
    _facts_of,
    _held_options,
    _options,
    _settings_of,
    _slots_of,
    _values_of,
)

_numbers = itertools.count(1)  # of guards
_MOST_OBJECTS = 100_000
_AUTOCASTING, _WORLD = "autocasting", "the world of processes"
_TOLD = {_AUTOCASTING: "autocasting was switched", _WORLD: "a world of processes began or ended"}
_BOOKKEEPING = frozenset(vars(GradManager()))
_Cached = type(functools.lru_cache(lambda: None))


def _reads_grads(function: types.FunctionType) -> bool:
    """May it read gradients? Functions of ours may by what they are for."""
    module = str(function.__module__)
    if module.startswith("megengine"):
        return module.startswith(("megengine.optimizer", "megengine.autodiff", "megengine.module"))
    return any("grad" in word for word in _words_in(function.__code__))


def _added_to(function: ManualSteps, names: frozenset[str]) -> tuple[Any, ...]:
    """What a program has put on a traced function, beside the attributes of these names."""
    return tuple(part for key, value in vars(function).items() if key not in names for part in (key, value))


class Guards:
    """What one recording could read. ``reason(...)`` is None while it still reads the same."""

    def __init__(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        leaves: list[Tensor],
    ):
        self.facts = Facts()
        self._names: list[str] = []  # of the things in it
        self.number = next(_numbers)
        self.result_tree: Any = None  # of the recorded call, as trace flattens it
        self.make_result: Callable[[list[Any]], Any] = list  # makes the result of a call of its tensors
        self._checks_of_body: list[tuple[Callable[[], bool], str]] = []  # of what only the body itself must leave alone
        self._seen: set[int] = set()
        self._followed: set[int] = set()  # functions of libraries that are methods of modules and the like
        self._methods: set[tuple[int, str]] = set()
        self._words: set[str] = set()  # names and texts in the code
        self._handed_on: dict[int, tuple[types.ModuleType, str, set[str]]] = {}  # modules of ours, with what was taken from them
        self._kept: list[Any] = []  # what was seen: no other object takes its id
        self._queue: list[tuple[Any, str]] = [(function, "the function")]
        self._leaves = {id(leaf): place for place, leaf in enumerate(leaves)}
        self._leaf_count = len(leaves)
        self._leaf_ids: list[int] | None = None  # where the body asks for id() or hash()
        self._reads_grads = False
        self._grads = [leaf.grad for leaf in leaves]
        self._grad_places: list[int] = []  # of arguments whose gradient the body may read
        self._captured_leaves: list[tuple[int, Tensor]] = []
        self._captured: dict[int, Tensor] = {}  # by id: tensors that the body finds by itself, and that are no arguments
        self._arguments: list[tuple[Any, str]] = []
        self._unwatchable: str | None = None
        self._host_random = _host_random_state()
        self._watch("given", _precisions, _AUTOCASTING)
        self._watch("entry", vars(random_state), _WORLD, "_noise")
        self._structure = self._structure_of(args, kwargs)
        try:
            self._queue.extend(self._arguments)
            while self._queue or self._visit_handed_on():
                self._visit_all()
            if self._reads_grads:
                self._queue.extend((grad, "an argument's gradient") for grad in self._grads if grad is not None)
                self._visit_all()
            if self._leaf_ids is not None:
                self._kept += leaves
        except Unwatchable as reason:
            self._unwatchable = str(reason)
        self._set_call(kwargs, leaves)

    def _set_call(self, kwargs: dict[str, Any], leaves: list[Tensor]) -> None:
        """What the arguments of a call must be, for the facts to take it."""
        grads = [(place, self._grads[place]) for place in self._grad_places]
        fixed = [*enumerate(leaves)] if self._leaf_ids is not None else self._captured_leaves
        self.facts.set_call(self._structure[0], kwargs, grads, fixed, [*self._captured.values()])

    def result_maker(self) -> Callable[[list[Any]], Any]:
        """What makes the recorded result of other tensors."""
        tree = self.result_tree
        if tree is LEAF:
            return operator.itemgetter(0)
        if type(tree) is Branch and tree.kind in (list, tuple) and all(part is LEAF for part in tree.parts):
            return tree.kind
        return lambda flat: unflatten(tree, iter(flat), {})

    def has_seen(self, value: object) -> bool:
        """Was it there before the body ran, where the body can find it?"""
        return id(value) in self._seen

    def leave_grads_of(self, tensors: list[Tensor], kwargs: dict[str, Any], leaves: list[Tensor]) -> None:
        """Each call sets their ``.grad`` anew, and asks by itself whether it was None."""
        self._kept += tensors
        own = {id(tensor) for tensor in tensors}
        if self._reads_grads:
            self._grad_places = [place for leaf, place in self._leaves.items() if leaf not in own]
        else:
            self._grads = []
        self.facts.leave_grads(tensors)
        self._set_call(kwargs, leaves)

    def reason_after_recording(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], leaves: list[Tensor]
    ) -> str | None:
        """Why a later call needs the body in any case: it changes what it reads."""
        if self._unwatchable:
            return self._unwatchable
        if self._host_random != _host_random_state():
            return "the body draws random numbers on the host"
        reason = self.reason(args, kwargs, leaves)
        reason = reason or next((f"{name} has changed" for holds, name in self._checks_of_body if not holds()), None)
        return reason and f"{reason}, by the body itself"

    def reason(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], leaves: list[Tensor]
    ) -> str | None:
        """None while everything reads the same, else what changed."""
        if not _same(self._structure_of(args, kwargs), self._structure):
            return "the call has other arguments"
        if any(leaves[place].grad is not self._grads[place] for place in self._grad_places):
            return "an argument has another gradient"
        return self._reason_of_objects(leaves) or self._reason_of_facts()

    def _reason_of_facts(self) -> str | None:
        """What of the facts has changed: other objects may be equal numbers, which are taken from then on."""
        place = self.facts.differing(0)
        while place < self.facts.count:
            name = self._names[place]
            try:
                is_same = _same((*self.facts.now(place),), (*self.facts.held(place),))
            except Exception:
                return f"{name} is gone"
            if not is_same:
                return _TOLD.get(name, f"{name} has changed")
            self.facts.hold(place)
            place = self.facts.differing(place + 1)
        return None

    # ---- arguments

    def _reason_of_objects(self, leaves: list[Tensor]) -> str | None:
        """What a body could tell by which objects the arguments are."""
        if self._leaf_ids is not None and self._leaf_ids != [*dict.fromkeys(map(id, leaves))]:
            return "an argument is another object, and the body asks for its id()"
        if not self._captured.keys().isdisjoint(map(id, leaves)):
            return "an argument is a tensor that the body also reaches by itself"
        if any(leaves[place] is not tensor for place, tensor in self._captured_leaves):
            return "an argument that the body also reaches by itself is another one"
        return None

    def _structure_of(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        """Tensors among the positional arguments are inputs; the rest is compared."""
        self._arguments = []
        positional = tuple(self._shape_of(value, f"argument {i}") for i, value in enumerate(args))
        for name, value in kwargs.items():
            self._arguments.append((value, f"argument {name}"))
        named = tuple((name, self._keyword(value)) for name, value in kwargs.items())
        return positional, named

    def _shape_of(self, value: Any, name: str) -> Any:
        if isinstance(value, Tensor):
            facts = _facts_of(value)
            if facts != (Tensor,):
                self._arguments += ((fact, name) for fact in facts)
            return facts
        if (branch := opened(value)) is None:
            self._arguments.append((value, name))
            return value
        self._arguments.append((branch.kind, branch.kind.__name__))
        return (branch.kind, branch.names, tuple(map(self._shape_of, branch.parts, branch.named(name))))

    def _keyword(self, value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return ("array", value.dtype.str, value.shape, value.tobytes())
        branch = branch_of(value)
        return value if branch is None else (branch.kind, branch.names, tuple(map(self._keyword, branch.parts)))

    # ---- everything else

    def _visit_all(self) -> None:
        while self._queue:
            self._visit(*self._queue.pop())
            if len(self._seen) > _MOST_OBJECTS:
                raise Unwatchable("the function reaches too many objects to watch")

    def _watch(self, kind: str, thing: object, name: str, key: object = None) -> None:
        """What a thing of this kind holds (python/bindings/facts.h) is a fact."""
        self.facts.add(kind, thing, key)
        self._names.append(name)

    def _check(self, holds: Callable[[], bool], name: str) -> None:
        self._watch("given", holds, name)

    def _later(self, value: Any, name: str) -> None:
        if not _is_plain(value) and id(value) not in self._seen:
            self._queue.append((value, name))

    def _entry(self, table: dict[str, Any], key: Any, name: str) -> None:
        """One entry of a namespace, which may also be missing."""
        self._watch("entry", table, name, key)
        value = table.get(key, _MISSING)
        if not isinstance(value, types.ModuleType):  # which is watched by what is taken from it
            self._later(value, name)

    def _visit(self, value: Any, name: str) -> None:
        if id(value) in self._seen or _is_plain(value) or isinstance(value, _OPAQUE) or value is _MISSING:
            return
        self._seen.add(id(value))
        self._kept.append(value)
        if isinstance(value, Tensor):
            self._visit_tensor(value, name)
        elif isinstance(value, np.ndarray):
            if value.dtype.hasobject:
                raise Unwatchable(f"the body reaches {name}, an array of objects")
            copy = value.copy()
            self._check(lambda: _same_array(value, copy), name)
            if type(value) is not np.ndarray:
                self._visit_object(value, name)
        elif isinstance(value, (types.FunctionType, types.MethodType, functools.partial)):
            self._visit_callable(value, name)
        elif isinstance(value, types.BuiltinFunctionType) or type(value).__name__ == "cython_function_or_method":
            self._visit_builtin(value, name)
        elif isinstance(value, logging.Logger):
            self._watch("given", functools.partial(_settings_of, value), name)
            if value.parent is not None:
                self._later(value.parent, f"{name}.parent")
        elif isinstance(value, types.MethodWrapperType):
            self._later(value.__self__, name)
        elif isinstance(value, types.GenericAlias):
            self._later(value.__origin__, name)
        elif isinstance(value, slice):
            for part in (value.start, value.stop, value.step):
                self._later(part, name)
        elif isinstance(value, types.ModuleType):
            if not self._hand_on(value, name):
                raise Unwatchable(f"the body reaches {name}, a module that is handed on")
        elif isinstance(value, weakref.ref):
            referent = value()
            self._check(lambda: value() is referent, name)
            self._later(referent, name)
            if type(value) is not weakref.ref:
                self._visit_object(value, name)
        elif isinstance(value, type):
            self._visit_class(value, name)
        elif isinstance(value, (staticmethod, classmethod)):
            self._later(value.__func__, name)
        elif isinstance(value, property):
            for function in (value.fget, value.fset):
                self._later(function, name)
            if type(value) is not property:
                self._visit_object(value, name)
        elif isinstance(value, GradManager):
            self._reads_grads = True
            self._watch("given", functools.partial(_attached, value), name)
            self._later([spec.callbacks for spec in value._attach_specs.values()], f"{name}'s callbacks")
            if type(value) is not GradManager:
                self._later(type(value), type(value).__name__)
                self._check_attributes(value, name)
        else:
            self._visit_object(value, name)

    def _visit_tensor(self, tensor: Tensor, name: str) -> None:
        self._watch("tensor", tensor, f"{name}.grad, or another attribute,")
        for key in vars(tensor):
            if key not in _NO_FACTS:
                self._entry(vars(tensor), key, f"{name}.{key}")
        if (place := self._leaves.get(id(tensor))) is not None:
            self._captured_leaves.append((place, tensor))
        else:
            self._captured[id(tensor)] = tensor

    def _visit_builtin(self, value: Any, name: str) -> None:
        """A function of C, or a method of an object of C."""
        owner = getattr(value, "__self__", None)
        if owner is None or isinstance(owner, types.ModuleType) or value.__module__ == "megengine.core.ops":
            _refuse_impure(value.__module__, f"the body reaches {name}")
            _refuse_by_object(value, name)
        else:
            self._later(owner, f"what {name} belongs to")

    def _visit_callable(self, value: Any, name: str) -> None:
        if isinstance(value, types.MethodType):
            self._later(value.__func__, name)
            self._later(value.__self__, name)
            return
        if isinstance(value, functools.partial):
            parts = (value.func, value.args, value.keywords)
            self._check(lambda: all(map(operator.is_, (value.func, value.args, value.keywords), parts)), name)
            for part in (*parts, vars(value)):
                self._later(part, name)
            return
        if _reads_grads(value):
            self._reads_grads = True
        if _is_foreign_code(value) and id(value) not in self._followed:
            _refuse_impure(value.__module__, f"the body reaches {name}")
            _refuse_by_object(value, name)
            return
        code = value.__code__
        self._watch("function", value, name)
        self._later(value.__defaults__, f"a default of {name}")
        self._later(value.__kwdefaults__, f"a default of {name}")
        self._later(vars(value), name)
        reads = _paths(code)
        self._words |= _words_in(code)
        if unseen := _UNSEEN & _names_in(code):
            raise Unwatchable(f"the body names {min(unseen)}, and what that gives cannot be watched")
        names = _names_in(code)
        if names & {"id", "hash"} and not (code.co_filename.startswith("<") or is_library(code.co_filename)):  # a repr of a dataclass asks, too
            self._leaf_ids = [*self._leaves]
        asked = _words_in(code) - names if names & {"getattr", "hasattr"} else set()
        for name in {name for name in names if hasattr(Tensor, name)} | {text for text in asked if text.isidentifier()}:
            self._method(Tensor, name)
        for (kind, read), attributes in reads.items():
            if kind == "unknown":
                raise Unwatchable(f"the body reads {read} by an instruction that is not known here")
            if kind == "import":
                _refuse_impure(read, f"the body imports {read}")
                if (module := sys.modules.get(read)) is None:
                    raise Unwatchable(f"the body imports {read or 'a neighbour'}, which is not known yet")
                if not self._hand_on(module, read):
                    self._visit_module(module, read, frozenset(_names_in(code)) & vars(module).keys())
            if kind == "global" and not _is_only_filled(value.__globals__.get(read), attributes):
                self._visit_global(value.__globals__, read, attributes)
        for read, cell in zip(code.co_freevars, value.__closure__ or (), strict=True):
            attributes = reads.get(("cell", read), frozenset())
            if _is_only_filled(_content(cell), attributes):
                continue
            self._watch("cell", cell, read)
            held = _content(cell)
            if isinstance(held, types.ModuleType):
                self._visit_module(held, read, attributes)
            else:
                self._later(held, read)

    def _method(self, kind: type, name: str) -> None:
        """A method of ours, which a program may replace."""
        for base in kind.__mro__:
            if (base is kind or name in vars(base)) and (id(base), name) not in self._methods:
                self._methods.add((id(base), name))
                self._watch("entry", vars(base), f"{base.__name__}.{name}", name)

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
        """What code takes from a module: also of a library, where somebody may put another value."""
        _refuse_impure(module.__name__, f"the body reads {read}")
        is_ours = module.__name__.startswith("megengine")
        for path in paths:
            name, _, rest = path.removesuffix("()").partition(".")
            rest += "()" if rest and path.endswith("()") else ""
            if not name:
                if self._hand_on(module, read):
                    continue
                raise Unwatchable(f"the body hands on {read}, a module")
            if name not in vars(module) and "__getattr__" in vars(module) and not is_ours:
                raise Unwatchable(f"the body reads {read}.{name}, which {read} makes up")
            moves = library_of(module.__name__).moves
            if moves is not ALL and name in moves:
                raise Unwatchable(f"the body names {read}.{name}, and what it gives cannot be watched")
            if name in ("Random", "RandomState") and path == name:  # with a seed
                self._watch("entry", vars(module), f"{read}.{name}", name)
                continue
            if is_ours and isinstance(getattr(type(module), name, None), property):
                self._setting(module, name, f"{read}.{name}")
                continue
            self._entry(vars(module), name, f"{read}.{name}")
            part = vars(module).get(name)
            if isinstance(part, types.ModuleType):
                self._visit_module(part, f"{read}.{name}", frozenset({rest}))

    def _hand_on(self, module: types.ModuleType, read: str) -> bool:
        """Is it a module of ours? All that the code names anywhere may be taken from it."""
        is_ours = module.__name__.split(".")[0] == "megengine"
        if is_ours:
            self._handed_on.setdefault(id(module), (module, read, set()))
        return is_ours

    def _visit_handed_on(self) -> bool:
        """Was there anything left to visit?"""
        before = len(self._handed_on)
        is_new = False
        for module, read, taken in [*self._handed_on.values()]:
            if names := (self._words & {*vars(module), *vars(type(module))}) - taken:
                is_new = True
                taken |= names
                self._visit_module(module, read, frozenset(names))
        return is_new or len(self._handed_on) > before

    def _setting(self, module: types.ModuleType, name: str, shown: str) -> None:
        """A property of a module of ours, as `config` has them: a value that a program sets."""
        value = getattr(module, name)
        self._check(lambda: _same(getattr(module, name), value), shown)

    def _visit_class(self, value: type, name: str) -> None:
        is_followed = issubclass(value, (Module, Function, Optimizer, GradManager)) and not value.__module__.startswith("megengine")
        if _is_foreign_class(value) and not is_followed:
            _refuse_impure(value.__module__, f"the body reaches {name}")
            _refuse_by_object(value, name)
            return
        for base in value.__mro__:
            if _is_foreign_class(base) and not library_of(base.__module__).is_base and not issubclass(base, _MUTABLE):
                raise Unwatchable(f"the body reaches {name}, which derives from {base.__name__} of {base.__module__}")
        table, bases = dict(vars(value)), value.__bases__
        self._check(lambda: _same_items(vars(value), table) and _same(value.__bases__, bases), name)
        if type(value) is not type:
            self._later(type(value), type(value).__name__)
        if isinstance(value, abc.ABCMeta):
            token = abc.get_cache_token()  # of what is registered as a subclass
            self._check(lambda: abc.get_cache_token() == token, name)
        if is_followed:
            self._followed.update(id(item) for item in table.values())
        for key, item in table.items():
            self._later(item, f"{name}.{key}")
        for base in value.__bases__:
            self._later(base, base.__name__)

    def _visit_object(self, value: Any, name: str) -> None:
        """An instance: its class, its items when it is a container, its attributes."""
        if isinstance(value, ManualSteps):  # a program keeps it beside what its body reads; in a trace it is its function
            function = value.__wrapped__
            self._check(lambda: value.__wrapped__ is function, name)
            own_names = value._own_names()
            self._watch("given", functools.partial(_added_to, value, own_names), name)
            for part in (function, *_added_to(value, own_names)):
                self._later(part, name)
            return
        kind = type(value)
        if kind is _Cached:  # what it keeps, and whether it was emptied, nobody but itself can tell
            raise Unwatchable(f"the body reaches {name}, which keeps its results (functools.cache)")
        if issubclass(kind, Optimizer):
            self._reads_grads = True
        if _is_foreign_class(kind):  # whose attributes can be asked for without running code of the program
            if callable(value) and isinstance(getattr(value, "__name__", None), str):
                _refuse_by_object(value, name)
            if kind.__module__ == "typing":
                self._later(getattr(value, "__origin__", None), name)
        top = str(kind.__module__).split(".")[0]
        is_ours = issubclass(kind, (Module, Function, Optimizer, GradManager))
        if is_ours and kind.__module__.startswith("megengine"):
            self._method(kind, "forward")
        if _is_foreign_class(kind) and not is_ours and top not in ("megengine", "numpy", "builtins") and top not in sys.stdlib_module_names:
            raise Unwatchable(f"the body reaches {name}, a {kind.__name__} of {top}")
        if kind not in (list, tuple, dict):
            self._watch("instance", value, f"the class of {name}")
            if not _is_foreign_class(kind) or issubclass(kind, (Module, Function, Optimizer)):
                self._later(kind, kind.__name__)
        if isinstance(value, (list, tuple, collections.deque, set, frozenset)):
            if not isinstance(value, tuple):
                self._watch("sequence", value, name)
            for i, item in enumerate(value):
                self._later(item, f"{name}[{i}]")
        elif isinstance(value, dict):
            self._watch("table", value, name)
            for key, item in value.items():
                label = repr(key) if _is_plain(key) else "..."
                self._later(item, f"{name}[{label}]")
                self._later(key, name)
            if isinstance(value, collections.defaultdict):
                factory = value.default_factory
                self._check(lambda: value.default_factory is factory, name)
                self._later(factory, name)
        elif not hasattr(value, "__dict__") or isinstance(value, _MUTABLE) or hasattr(kind, "__next__"):
            self._visit_opaque(value, name)
        if isinstance(value, BaseException):
            told = (value.args, value.__cause__, value.__context__)
            self._check(lambda: _same((value.args, value.__cause__, value.__context__), told), name)
            self._later(told, name)
        slots = _slots_of(kind)
        if slots and not _is_foreign(kind.__module__):
            held = [getattr(value, slot, _MISSING) for slot in slots]
            self._check(
                lambda: all(_same(h, getattr(value, s, _MISSING)) for s, h in zip(slots, held)),
                name,
            )
            for slot, item in zip(slots, held):
                self._later(item, f"{name}.{slot}")
        if not hasattr(value, "__dict__"):
            return
        if not _is_machinery(kind):
            self._visit_attributes(value, name)
        elif not library_of(kind.__module__).keeps_no_state:
            raise Unwatchable(f"the body reaches {name}, a {kind.__name__}, whose changes cannot be seen")

    def _check_attributes(self, value: Any, name: str) -> None:
        """Those that a subclass adds to what our class has."""
        for key in vars(value):
            if key not in _BOOKKEEPING:
                self._entry(vars(value), key, f"{name}.{key}")

    def _visit_attributes(self, value: Any, name: str) -> None:
        table = vars(value)
        self._watch("table", table, name)
        is_optimizer = isinstance(value, Optimizer) and _is_foreign(type(value).__module__)
        if is_optimizer:
            # Its numbers are read anew in each call; whether they are zero decides what is done.
            options, held = _options(value), _held_options(value)

            def is_alike() -> bool:
                nonlocal held
                now = _held_options(value)
                if len(now) != len(held) or not all(map(operator.is_, now, held)):
                    if not _same(_options(value), options):
                        return False
                    held = now
                return True

            self._check(is_alike, f"{name}.param_groups")
            values = _values_of(value)
            self._checks_of_body.append((lambda: _same(_values_of(value), values), f"{name}.param_groups"))
        for key, item in table.items():
            if not (is_optimizer and key == "param_groups"):
                self._later(item, f"{name}.{key}")

    def _visit_opaque(self, value: Any, name: str) -> None:
        """Something of C: an iterator, random numbers, bytes. Its pickle says whether it moved on."""
        if inspect.isgenerator(value) or inspect.iscoroutine(value):
            raise Unwatchable(f"the body reaches the generator {name}")
        kind = type(value)
        if isinstance(value, _MUTABLE) or hasattr(kind, "__next__"):
            pass
        elif kind is object or library_of(kind.__module__).keeps_no_state or not _is_foreign(kind.__module__) or kind.__module__.startswith("megengine"):
            return  # what a class of the program keeps in slots is watched beside this
        else:
            raise Unwatchable(f"the body reaches {name}, a {kind.__name__}, whose changes cannot be seen")
        try:
            state = pickle.dumps(value)
        except Exception:
            raise Unwatchable(f"the body reaches {name}, a {type(value).__name__}") from None
        self._check(lambda: pickle.dumps(value) == state, name)


def _precisions() -> tuple[bool, str, str]:
    now = _amp.get()
    return now.enabled, now.low, now.high


def _host_random_state() -> tuple[Any, ...]:
    state: Any = np.random.get_state()
    name, keys, *rest = state
    return random.getstate(), name, keys.tobytes(), *rest
