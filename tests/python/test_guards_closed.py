"""``without_host``: whatever a body reads is compared, or cannot change, or the body runs. Each case changes what only it can see."""

import array
import collections
import contextvars
import copy
import ctypes
import enum
import fractions
import functools
import itertools
import math
import os
import pathlib
import random
import string
import threading
import time
import types
import uuid
import weakref

import numpy as np
import pytest

from megengine import Tensor
from megengine.autodiff import GradManager
from megengine.jit import trace

pytestmark = pytest.mark.filterwarnings("ignore:.* is recorded again in each call")


class Box:
    def __init__(self, **held):
        for name, value in held.items():
            setattr(self, name, value)


class Adder:
    def __init__(self):
        self.k = 1.0

    def add(self, x):
        return x + self.k


class Slotted:
    __slots__ = ("v",)


class Shown(type):
    @property
    def v(cls):
        return cls.held


class Colour(enum.Enum):
    RED = 1


ADDER, BOX = Adder(), Box(v=1.0)
VARIABLE = contextvars.ContextVar("variable", default=1.0)


def increment(holder, name="v"):
    return lambda: setattr(holder, name, getattr(holder, name) + 1)


def of_dict(make):
    """A case that reads an entry of a dict through what ``make`` gives for it."""

    def case():
        table = {"a": 1.0}
        view = make(table)
        return (lambda x: x + view()), (lambda: table.update(a=table["a"] + 1))

    return case


def of_object(thing, read, change):
    return lambda: ((lambda x: x + read(thing)), lambda: change(thing))


def zero():
    box = Box(v=0.0)
    return (lambda x: x / (x * 0 + box.v)), lambda: setattr(box, "v", -0.0 if math.copysign(1, box.v) > 0 else 0.0)


def members():
    held = {1}
    return (
        lambda x: x + (1 if any(value is True for value in held) else 0)
    ), lambda: held.symmetric_difference_update({1}) or held.add(len(flips) % 2 == 0 or 1) or flips.append(1)


flips = []


def file_of(tmp_path, read):
    path = tmp_path / "value"
    path.write_text("1")
    return (lambda x: x + float(read(path))), lambda: path.write_text(str(float(path.read_text()) + 1))


def defaults(name, function, changed):
    def case():
        def inner(x, k=1.0, *, j=1.0):
            return x + k + j

        def change():
            setattr(inner, name, changed(getattr(inner, name)))

        return (lambda x: inner(x)), change

    return case


def module_value(module, name, change):
    def case(monkeypatch):
        monkeypatch.setattr(module, name, getattr(module, name))

        def body(x):
            return x + float(getattr_of(module, name))

        return body, lambda: setattr(module, name, change(getattr(module, name)))

    return case


def getattr_of(module, name):
    return getattr(module, name)


def pi(monkeypatch):
    monkeypatch.setattr(math, "pi", math.pi)
    return (lambda x: x + math.pi), increment(math, "pi")


def digits(monkeypatch):
    monkeypatch.setattr(string, "digits", string.digits)
    return (lambda x: x + float(string.digits[1])), lambda: setattr(string, "digits", string.digits[1:] + string.digits[0])


def imported_in_the_body(monkeypatch):
    monkeypatch.setattr(math, "e", math.e)

    def body(x):
        import math as m

        return x + m.e

    return body, increment(math, "e")


def a_module_in_a_cell(monkeypatch):
    import colorsys

    monkeypatch.setattr(colorsys, "ONE_THIRD", 1.0)
    return (lambda x: x + colorsys.ONE_THIRD), increment(colorsys, "ONE_THIRD")


def environment(monkeypatch):
    monkeypatch.setenv("MEGJIT_TEST_VALUE", "1")
    held = os.environ
    return (lambda x: x + float(held["MEGJIT_TEST_VALUE"])), lambda: monkeypatch.setenv(
        "MEGJIT_TEST_VALUE", str(float(held["MEGJIT_TEST_VALUE"]) + 1)
    )


def of_a_cached_function():
    state = [1.0]

    @functools.lru_cache
    def cached():
        return state[0]

    return (lambda x: x + cached()), lambda: (state.append(state.pop() + 1), cached.cache_clear())


def of_a_metaclass():
    kind = Shown("Kind", (), {"held": 1.0})
    return (lambda x: x + kind.v), increment(kind, "held")


def of_a_base():
    class Base:
        v = 1.0

    class Derived(Base):
        pass

    thing = Derived()
    return (lambda x: x + thing.v), increment(Base)


def of_slots():
    thing = Slotted()
    thing.v = 1.0
    return (lambda x: x + thing.v), increment(thing)


def of_a_fallback():
    store = {"z": 1.0}

    class Falls:
        def __getattr__(self, name):
            return store[name]

    thing = Falls()
    return (lambda x: x + thing.z), lambda: store.update(z=store["z"] + 1)


def of_a_weak_reference():
    thing = Box(v=1.0)
    held, reference = [thing], weakref.ref(thing)
    return (lambda x: x + reference().v), lambda: increment(held[0])()


def of_a_weak_dict():
    thing = Box()
    held, table = [thing], weakref.WeakKeyDictionary({thing: 1.0})
    return (lambda x: x + sum(table.values())), lambda: table.update({held[0]: table[held[0]] + 1})


def objects_in_an_array():
    held = np.empty(1, object)
    held[0] = [1.0]
    return (lambda x: x + held[0][0]), lambda: held[0].append(held[0].pop() + 1)


def item(sequence):
    return of_object(sequence, lambda held: held[0], lambda held: held.__setitem__(0, held[0] + 1))


CHANGES = {
    "a method called add": lambda: ((lambda x: ADDER.add(x)), increment(ADDER, "k")),
    "the sign of zero": zero,
    "1 and True in a set": members,
    "an entry through get": of_dict(lambda table: functools.partial(table.get, "a")),
    "a bound method of a dict": of_dict(lambda table: lambda get=table.get: get("a")),
    "values of a dict": of_dict(lambda table: lambda view=table.values(): sum(view)),
    "a read-only view": of_dict(lambda table: lambda view=types.MappingProxyType(table): view["a"]),
    "a chain of maps": of_dict(lambda table: lambda view=collections.ChainMap({}, table): view["a"]),
    "a counter": of_object(collections.Counter(a=1), lambda held: held["a"], lambda held: held.update("a")),
    "a default dict": of_object(collections.defaultdict(float), lambda held: held["a"], lambda held: held.update(a=held["a"] + 1)),
    "a deque": item(collections.deque([1.0])),
    "a list": item([1.0]),
    "an array": item(array.array("d", [1.0])),
    "a bytearray": item(bytearray(b"\x01")),
    "a NumPy array": item(np.ones(2)),
    "a view of memory": of_object(memoryview(bytearray(b"\x01")), lambda held: held[0], lambda held: held.__setitem__(0, held[0] + 1)),
    "a C integer": of_object(ctypes.c_int(1), lambda held: held.value, lambda held: increment(held, "value")()),
    "a context variable": of_object(VARIABLE, lambda held: held.get(), lambda held: held.set(held.get() + 1)),
    "a thread's own": of_object(threading.local(), lambda held: getattr(held, "v", 1.0), lambda held: setattr(held, "v", getattr(held, "v", 1.0) + 1)),
    "an attribute by computed name": of_object(BOX, lambda held: getattr(held, "v" + ""), lambda held: increment(held)()),
    "a copy of an object": of_object(Box(v=1.0), lambda held: copy.copy(held).v, lambda held: increment(held)()),
    "an attribute of an enum's member": lambda: (setattr(Colour.RED, "extra", 1.0), ((lambda x: x + Colour.RED.extra), increment(Colour.RED, "extra")))[1],
    "defaults": defaults("__defaults__", None, lambda old: (old[0] + 1,)),
    "defaults of keywords": defaults("__kwdefaults__", None, lambda old: {"j": old["j"] + 1}),
    "math.pi": pi,
    "string.digits": digits,
    "a module that the body imports": imported_in_the_body,
    "a module in a cell": a_module_in_a_cell,
    "the environment": environment,
    "a cached function": of_a_cached_function,
    "a property of a metaclass": of_a_metaclass,
    "an attribute of a base": of_a_base,
    "a slot": of_slots,
    "an attribute by __getattr__": of_a_fallback,
    "a weak reference": of_a_weak_reference,
    "a weak dict": of_a_weak_dict,
    "objects in an array": objects_in_an_array,
    "a file by open": lambda tmp_path: file_of(tmp_path, lambda path: open_and_read(path)),
    "a file by a path": lambda tmp_path: file_of(tmp_path, pathlib.Path.read_text),
    "a file by NumPy": lambda tmp_path: file_of(tmp_path, lambda path: np.loadtxt(path)),
}


def open_and_read(path):
    with open(path) as file:
        return file.read()


@pytest.mark.parametrize("case", CHANGES)
def test_a_call_sees_what_has_changed(case, request):
    make = CHANGES[case]
    wanted = make.__code__.co_varnames[: make.__code__.co_argcount]
    body, change = make(**{name: request.getfixturevalue(name) for name in wanted})
    traced, x = trace(body, without_host=True), Tensor([1.0])
    for _ in range(3):
        np.testing.assert_array_equal(traced(x).numpy(), body(x).numpy())
    for _ in range(3):
        change()
        np.testing.assert_array_equal(traced(x).numpy(), body(x).numpy())


CLOCK, RANDOM = time.perf_counter_ns, random.SystemRandom()
MOVES = {
    "a clock": lambda x: x + CLOCK() % 2**24,
    "a clock of the module": lambda x: x + time.perf_counter_ns() % 2**24,
    "draws of a new generator": lambda x: x + float(np.random.default_rng().random()),
    "draws of the system": lambda x: x + random.SystemRandom().random(),
    "a generator of the system": lambda x: x + RANDOM.random(),
    "draws of Python": lambda x: x + random.random(),
    "draws of NumPy": lambda x: x + float(np.random.rand()),
    "secrets": lambda x: x + os.urandom(1)[0] + CLOCK() % 2**24,
    "an iterator": lambda x, moving=itertools.count(): x + next(moving),
    "a cycle": lambda x, moving=itertools.cycle([1.0, 2.0]): x + next(moving),
    "a generator": lambda x, moving=(i for i in range(100)): x + next(moving),
}


@pytest.mark.parametrize("case", MOVES)
def test_a_body_that_reads_what_moves_by_itself_runs_in_each_call(case):
    traced, x = trace(MOVES[case], without_host=True), Tensor([1.0])
    values = [traced(x).item() for _ in range(4)]
    assert all(a != b for a, b in itertools.pairwise(values)), values
    assert "recorded again because" in traced.explain()


class Manager(GradManager):
    def __init__(self):
        super().__init__()
        self._k = 1.0


def put(thing, name, value):
    return lambda: setattr(thing, name, value)


HELD = threading.Lock()
MANAGER, BARE, TESTED = Manager(), Tensor([2.0]), Tensor([2.0])


@pytest.mark.parametrize(
    ("body", "change"),
    [
        (lambda x: x if HELD.acquire(blocking=False) and HELD.release() is None else x + 1, HELD.acquire),
        (lambda x: x * MANAGER._k, put(MANAGER, "_k", 2.0)),
        (lambda x: x * getattr(BARE, "scale", 1.0), put(BARE, "scale", 3.0)),
        (lambda x: x * 2 if hasattr(TESTED, "scale") else x, put(TESTED, "scale", 3.0)),
    ],
    ids=["a lock that is tried", "what a manager's class adds", "an attribute of a tensor", "whether a tensor has an attribute"],
)
def test_a_call_sees_what_was_not_there(body, change):
    traced, x = trace(body, without_host=True), Tensor([1.0])
    for _ in range(3):
        np.testing.assert_array_equal(traced(x).numpy(), body(x).numpy())
    change()
    for _ in range(3):
        np.testing.assert_array_equal(traced(x).numpy(), body(x).numpy())


def test_a_call_sees_what_its_arguments_carry():
    def body(x):
        return x * getattr(x, "scale", 1.0) + len(getattr(x, "more", ()))

    traced, x, y = trace(body, without_host=True), Tensor([1.0]), Tensor([2.0])
    y.scale, y.more = 5.0, [1]
    for given in (x, x, x, y, y, x, y, x):
        np.testing.assert_array_equal(traced(given).numpy(), body(given).numpy())
    x.scale = 3.0
    np.testing.assert_array_equal(traced(x).numpy(), [3.0])
    y.more.append(2)
    np.testing.assert_array_equal(traced(y).numpy(), [12.0])
    assert traced._guards is not None


@pytest.mark.parametrize("first", ["one", "two"])
def test_a_call_sees_whether_two_arguments_are_one(first):
    def body(a, b):
        return a + 1 if a is b else a + b

    traced, x, y = trace(body, without_host=True), Tensor([1.0]), Tensor([5.0])
    pairs = [(x, x), (x, y)] if first == "one" else [(x, y), (x, x)]
    for _ in range(3):
        for pair in pairs:
            np.testing.assert_array_equal(traced(*pair).numpy(), body(*pair).numpy())


def test_kinds_of_modules_that_load_late_never_change():
    half, one = fractions.Fraction(1, 2), uuid.UUID(int=1)
    traced, x = trace(lambda x: (x * float(half), half, one), without_host=True), Tensor([3.0])
    for _ in range(3):
        y, *rest = traced(x)
        assert y.item() == 1.5 and rest == [half, one]
    assert traced._guards is not None
