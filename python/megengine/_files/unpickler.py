"""Reads pickles as data: containers, numbers, arrays, tensors, models of this package, and trusted
classes.

What a pickle may name, call and change is listed here; everything else is refused. Functions of megengine may be
named, for graphs hold them, but are not called. So may classes of the program itself, if it has imported them: their
objects are made without a call, and get their state. Nothing is imported because a file says so.
"""

from __future__ import annotations

import enum
import functools
import importlib
import math
import pickle
import re
import struct
import sys
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, Any

import ml_dtypes
import numpy as np

from .._graph.tree import FrozenDict, FrozenList
from ..core import _older_names
from ..core._origin import is_library
from ..device import Device
from ..tensor import Tensor
from . import admitted
from .container import Damaged, ModelFileError


class RefusedClassError(pickle.UnpicklingError, RuntimeError):
    """The file names a class or function that ``load`` does not build by itself."""

    __module__ = "megengine.serialization"  # where programs import it from, which tracebacks print


# Exact names only: a dotted name such as "Tensor.__init__.__globals__" never matches.
_PLAIN: dict[str, frozenset[str]] = {
    "builtins": frozenset(
        "Ellipsis bool bytearray bytes complex dict float frozenset int list object set slice str tuple".split()
    ),
    "collections": frozenset({"Counter", "OrderedDict", "defaultdict", "deque"}),
    "numpy": frozenset({"ndarray"}),
    "numpy.core.numeric": frozenset({"_frombuffer"}),
    "ml_dtypes": frozenset({"bfloat16", "int2", "uint2", "int4", "uint4"}),
    "ml_dtypes._ml_dtypes_ext": frozenset({"bfloat16", "int2", "uint2", "int4", "uint4"}),
}
_PYTHON2_MODULES = {"__builtin__": "builtins", "copy_reg": "copyreg"}
# Functions that pickles of plain data call. Dtypes name types of NumPy, which are never called: np.void(10**12) is a size.
_CALLED = frozenset(
    {("builtins", name) for name in ("complex", "dict", "frozenset", "object", "set", "slice")}
    | {("collections", name) for name in ("Counter", "OrderedDict", "defaultdict", "deque")}
    | {("numpy.core.numeric", "_frombuffer")}
)
# Packages of ours whose classes describe models and tensors.
_OUR_PACKAGES = (
    "megengine.tensor", "megengine.core.tensor", "megengine.core.ops.builtin", "megengine.module",
    "megengine.traced_module", "megengine.quantization",
)  # fmt: skip
_OUR_CLASSES = frozenset(
    {
        ("megengine.fx.graph_module", "GraphModule"), ("megengine.fx.graph", "Graph"),
        ("megengine.fx.graph", "_Place"), ("megengine.fx.graph", "_RandomFunction"),
        ("megengine.fx.passes.shape_prop", "TensorMetadata"), ("megengine._graph.tree", "FrozenList"),
        ("megengine._graph.tree", "FrozenDict"), ("megengine.device", "Device"),
    }
)  # fmt: skip


def read(file: IO[bytes], admission: admitted.Admission, **options: Any) -> Any:
    """The object in a pickle. RefusedClassError for a name that is not admitted."""
    with admitted.reading(admission):
        found = _Unpickler(file, admission, **options).load()
        admission.check_graphs()
        return found


# Errors that unpickling random bytes may raise.
DAMAGE = (
    EOFError, pickle.UnpicklingError, ValueError, KeyError, IndexError, AttributeError, TypeError, ImportError, OverflowError, MemoryError,
    AssertionError, RecursionError, struct.error, Damaged,
)  # fmt: skip


@contextmanager
def explained(name: str, damage: tuple[type[Exception], ...] = DAMAGE) -> Iterator[None]:
    """Turns errors of reading a pickle into a RuntimeError that names it."""
    try:
        yield
    except (RefusedClassError, ModelFileError) as error:
        raise RefusedClassError(f"{name}: {error}") from None
    except damage as error:
        why = f"{type(error).__name__}: {error}".removesuffix(": ")
        fix = "the file is truncated, damaged, or not one that megengine.save wrote: "
        fix += "write or download it again"
        raise RuntimeError(f"cannot read {name}: {why}\n  fix: {fix}") from error


def load(file: IO[bytes], name: str, trusted: admitted.Trusted = ()) -> Any:
    """The object in a pickle. RefusedClassError for a name that is not admitted, RuntimeError for one that is damaged; both name the file."""
    with explained(name):
        return read(file, admitted.Admission(trusted))


_Base: Any = pickle._Unpickler  # type checkers know neither its stack nor its load_* methods
# the deepest nesting of tuples; a pickler with Python's limit of recursion writes less
_DEEPEST = 1000


def _noting_depth(load: Callable[[Any], None]) -> Callable[[Any], None]:
    def load_tuple(unpickler: Any) -> None:
        load(unpickler)
        unpickler._note_depth(unpickler._depth_of(unpickler.stack[-1]))

    return load_tuple


class _Unpickler(_Base):  # type: ignore[misc]  # as said above
    """The standard library's unpickler written in Python: the one in C does not let us restrict
    BUILD and REDUCE.
    """

    dispatch: dict[int, Callable[[Any], None]] = dict(_Base.dispatch)

    def __init__(self, file: IO[bytes], admission: admitted.Admission, **options: Any) -> None:
        super().__init__(file, **options)
        self._admission = admission
        self._callable: set[int] = set()  # ids of found objects that may be called
        # id of a container of tuples -> its depth, and itself to keep it alive
        self._nested: dict[int, tuple[int, Any]] = {}

    def find_class(self, module: str, name: str) -> Any:
        found, may_be_called = self._find(_PYTHON2_MODULES.get(module, module), name)
        if may_be_called:
            self._callable.add(id(found))
        return found

    def _find(self, module: str, name: str) -> tuple[Any, bool]:
        if (module, name) in _STAND_INS:
            return _STAND_INS[module, name], True
        trusted = self._admission.trusted(f"{module}.{name}")
        if trusted is not None:
            return trusted, True
        plain = module.replace("numpy._core", "numpy.core", 1)
        if (plain, name) in _STAND_INS:
            return _STAND_INS[plain, name], True
        if name in _PLAIN.get(plain, ()):
            return _numpy_or_plain(module, name), (plain, name) in _CALLED
        found = _our_class(module, name)
        if found is not None:
            return found, _is_called_by_pickles(found)
        found = _numpy_type(module, name) or self._admission.by_definition(module, name)
        if found is None and (own := _class_of_the_program(module, name)) is not None:
            return own, issubclass(own, enum.Enum)
        if found is None:
            raise RefusedClassError(
                f"the file names {module}.{name}, which load() does not admit\n"
                "  why: building it could run code\n"
                f"  fix: if it is yours, load(file, trusted=[{name}]); if you trust the source of the file, load(file, allow_pickle=True); "
                "or save a state_dict instead of the whole object"
            )
        return found, False

    def persistent_load(self, pid: Any) -> Any:
        raise pickle.UnpicklingError("persistent ids are not used by save()")

    def _check_call(self, called: Any, args: Any) -> None:
        """Refuses calls of constructors of models, which could allocate any amount of memory."""
        if id(called) not in self._callable and not _is_member_by_name(called, args):
            raise pickle.UnpicklingError(f"a call of {getattr(called, '__qualname__', type(called).__name__)}")
        if any(isinstance(arg, range) for arg in args):  # list(range(10**12)) must not fill the memory
            raise pickle.UnpicklingError("a range is to be expanded")

    def load_build(self) -> None:
        """Sets the state of an object that the file made; for any other object this would change
        the running program.
        """
        target = self.stack[-2]
        if isinstance(target, (type, enum.Enum, functools.partial)) or hasattr(target, "__code__") or (
            callable(target) and id(target) in self._callable
        ):
            raise pickle.UnpicklingError("state for a class or a function")
        if isinstance(target, np.dtype):
            _check_dtype(target, self.stack[-1])
        if isinstance(target, np.ndarray):
            _check_array(self.stack[-1])
        super().load_build()

    def load_reduce(self) -> None:
        args = self.stack[-1]
        self._check_call(self.stack[-2], args)
        super().load_reduce()
        self._note_depth(self._depth_of(args))

    def load_newobj(self) -> None:
        kind, args = self.stack[-2:]
        _check_new(kind, args)
        super().load_newobj()
        self._note_depth(self._depth_of(args))

    def load_newobj_ex(self) -> None:
        kind, args, named = self.stack[-3:]
        _check_new(kind, (*args, *named.values()))
        super().load_newobj_ex()
        self._note_depth(max(self._depth_of(args), self._depth_of((*named.values(),))))

    def _depth_of(self, parts: tuple[Any, ...]) -> int:
        return 1 + max((self._nested[id(part)][0] if id(part) in self._nested else type(part) is tuple for part in parts), default=0)

    def _note_depth(self, depth: int) -> None:
        """Notes how deep tuples are nested: hashing one recurses on C's stack, whose overflow ends
        the process.
        """
        if depth > _DEEPEST:
            raise pickle.UnpicklingError(f"tuples nest more than {_DEEPEST} deep")
        if depth > 1:
            self._nested[id(self.stack[-1])] = depth, self.stack[-1]

    def _instantiate(self, klass: Any, args: Any) -> None:
        self._check_call(klass, args)
        super()._instantiate(klass, args)

    def load_bytearray8(self) -> None:
        """Reads before it allocates: a damaged length fails at the end of the file."""
        (size,) = struct.unpack("<Q", self.read(8))
        content = bytearray(self.read(size))
        if len(content) != size:
            raise EOFError("pickle data was truncated")
        self.append(content)

    dispatch[pickle.BUILD[0]] = load_build
    dispatch[pickle.REDUCE[0]] = load_reduce
    dispatch[pickle.NEWOBJ[0]] = load_newobj
    dispatch[pickle.NEWOBJ_EX[0]] = load_newobj_ex
    for _code in (pickle.TUPLE[0], pickle.TUPLE1[0], pickle.TUPLE2[0], pickle.TUPLE3[0]):
        dispatch[_code] = _noting_depth(_Base.dispatch[_code])
    dispatch[pickle.BYTEARRAY8[0]] = load_bytearray8


# -- what names lead to --------------------------------------------------------------------------


def _numpy_or_plain(module: str, name: str) -> Any:
    if module.startswith(("numpy.core", "numpy._core")):  # renamed in NumPy 2: either spelling may be there
        rest = module.split("core", 1)[1]
        for prefix in ("numpy._core", "numpy.core"):
            try:
                return getattr(importlib.import_module(prefix + rest), name)
            except (ImportError, AttributeError):
                continue
        raise pickle.UnpicklingError(f"this NumPy has no {module}.{name}")
    return getattr(importlib.import_module(module), name)


def _numpy_type(module: str, name: str) -> Any:
    """Scalar types (numpy.float32) and dtype classes (numpy.dtypes.Float32DType)."""
    if module in ("numpy", "numpy.dtypes") and name.isidentifier():
        holder = np if module == "numpy" else getattr(np, "dtypes", None)
        found = getattr(holder, name, None)
        if isinstance(found, type) and issubclass(found, (np.generic, np.dtype)):
            return found
    return None


@functools.cache
def _our_modules() -> frozenset[str]:
    """Returns the names of our modules; no other name is imported, as that would search the disk.
    """
    from pathlib import Path  # slow to import

    root = Path(__file__).parents[1]
    paths = (path.relative_to(root.parent).with_suffix("") for path in root.rglob("*.py"))
    return frozenset([*(".".join(path.parts).removesuffix(".__init__") for path in paths), *_older_names.paths()])


def _our_class(module: str, name: str) -> Any:
    ours = any(module == package or module.startswith(package + ".") for package in _OUR_PACKAGES)
    if module not in _our_modules() or not ours and (module, name) not in _OUR_CLASSES:
        return None
    found = getattr(importlib.import_module(module), name, None)
    defined = isinstance(found, type) and found.__module__.startswith("megengine")
    return found if defined else None


@functools.cache
def _distributed() -> frozenset[str]:
    """Returns the top modules of all installed distributions: those of this user, in zip files, and
    editable ones too.
    """
    from importlib.metadata import packages_distributions  # slow to import

    return frozenset(packages_distributions())


def _is_of_a_library(module: str, file: str) -> bool:
    return is_library(file) or module.split(".")[0] in _distributed()


def _class_of_the_program(module: str, name: str) -> type | None:
    """Returns a class that ``__main__`` or an imported module of the program defines. Classes of
    libraries are refused: not all are harmless.
    """
    holder: Any = sys.modules.get(module)
    if module != "__main__":
        file = getattr(holder, "__file__", None)
        if file is None or _is_of_a_library(module, file) or module.split(".")[0] == "megengine":
            return None
    for part in name.split("."):
        holder = vars(holder).get(part) if isinstance(holder, (type, types.ModuleType)) else None
    defined = isinstance(holder, type) and (holder.__module__, holder.__qualname__) == (module, name)
    return holder if defined else None


def _is_member_by_name(called: Any, args: Any) -> bool:
    """Whether a call is the spelling of an enum's member that some Pythons write: ``getattr(Colour,
    "RED")``.
    """
    if called is not getattr or type(args) is not tuple or len(args) != 2:
        return False
    kind, name = args
    return isinstance(kind, enum.EnumMeta) and type(name) is str and name in kind.__members__


def _is_called_by_pickles(found: type) -> bool:
    """Whether it is a class of ours that pickles call: a tensor, an enum, a small value."""
    return issubclass(found, (Tensor, enum.Enum, FrozenDict, FrozenList, Device))


def _check_new(kind: Any, args: Any) -> None:
    """Refuses objects of a size that the file merely names: np.void(10**12), np.ndarray((10**12,)).
    """
    if isinstance(kind, type) and issubclass(kind, (np.ndarray, np.generic, np.dtype)):
        raise pickle.UnpicklingError(f"a {kind.__name__} made by __new__")
    if any(isinstance(arg, range) for arg in args) or isinstance(kind, type) and issubclass(kind, bytes) and any(type(arg) is int for arg in args):
        raise pickle.UnpicklingError("a size in place of a content")


def _check_array(state: Any) -> None:
    """Checks the length of a list of objects: NumPy takes as many as the shape says, even behind
    its end.
    """
    shape, dtype, _, content = state[-4:] if isinstance(state, tuple) and len(state) in (4, 5) else (None,) * 4
    sound = isinstance(shape, tuple) and all(type(edge) is int and edge >= 0 for edge in shape) and isinstance(dtype, np.dtype)
    if not sound or dtype.hasobject and not (type(content) is list and len(content) == math.prod(shape)):
        raise pickle.UnpicklingError("an array whose content is not of its shape")


def _check_dtype(dtype: np.dtype, state: Any) -> None:
    """Checks the state of a dtype, which NumPy trusts: wrong sizes and offsets would read and write
    beyond arrays.
    """
    if not isinstance(state, tuple) or len(state) not in (8, 9):
        raise pickle.UnpicklingError("a dtype without its state")
    version, order, inner, names, fields, size, alignment, flags = state[:8]
    sound = (
        all(type(number) is int for number in (version, size, alignment, flags))
        and version in (3, 4)
        and order in ("<", ">", "|", "=", b"<", b">", b"|")
        and inner is None
        and size in (-1, dtype.itemsize)
        and alignment in (-1, 1, 2, 4, 8, 16)
        and _is_metadata(dtype, state[8:])
    )
    if names is None:
        sound = sound and fields is None and flags == dtype.flags
    else:  # flags 1, 2 and 4 mark dtypes with objects
        sound = sound and dtype.kind == "V" and not flags & 7 and _are_fields(names, fields, size)
    if not sound:
        raise pickle.UnpicklingError(f"a dtype that {dtype} is not")


def _is_metadata(dtype: np.dtype, rest: tuple[Any, ...]) -> bool:
    """Whether the rest of a dtype's state is valid: the unit of a date, else None or a dict."""
    if dtype.kind not in "mM":
        return not rest or type(rest[0]) in (dict, type(None))
    if not rest or type(rest[0]) is not tuple or len(rest[0]) != 2 or type(rest[0][1]) is not tuple:
        return False
    noted, (unit, *numbers) = rest[0][0], rest[0][1] or (None,)
    return (
        type(noted) in (dict, type(None))
        and type(unit) in (bytes, str)
        and len(numbers) == 3
        and all(type(number) is int and 0 < number < 1 << 31 for number in numbers)
    )


def _are_fields(names: Any, fields: Any, size: int) -> bool:
    """Whether fields of a structured dtype lie within its ``size`` bytes."""
    return (
        isinstance(names, tuple)
        and type(fields) is dict
        and set(names) == set(fields)
        and all(type(name) is str and type(fields[name]) is tuple and len(fields[name]) == 2 for name in names)
        and all(
            isinstance(kind, np.dtype)
            and not kind.hasobject
            and type(place) is int
            and 0 <= place <= size - kind.itemsize
            for kind, place in fields.values()
        )
    )


# -- in the places of functions whose sizes a file could choose ----------------------------------


def _encode_latin1(text: str, encoding: str = "latin1") -> bytes:
    """Encodes text as bytes, which is how protocol 2 writes bytes; it uses no other codec."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"codec {encoding!r} in a pickle of bytes")
    return text.encode("latin1")


def _short_range(*args: int) -> range:
    """Returns a range whose list would fit into memory."""
    result = range(*args)
    if len(result) > 1 << 24:
        raise pickle.UnpicklingError(f"a range of {len(result)} numbers")
    return result


def _type_of_constant(value: Any) -> type:
    """Returns NoneType or the type of Ellipsis, which pickles write as calls of `type`; they call
    it for nothing else.
    """
    if value is not None and value is not ...:
        raise pickle.UnpicklingError("the type of a value")
    return type(value)


def _content(kind: type, *args: Any) -> Any:
    """Returns bytes or bytearray of given content; a mere length is refused."""
    if args and not isinstance(args[0], (bytes, bytearray, str)):
        raise pickle.UnpicklingError(f"{kind.__name__} of no text")
    return kind(*args)


def _plain_object(cls: type, base: Any, state: Any) -> Any:
    """copyreg._reconstructor: an object of old protocols, made without its constructor."""
    if base not in (object, int, float, str, bytes, tuple, list, dict, set):
        raise pickle.UnpicklingError(f"an object made by {base!r}")
    _check_new(base, (state,))
    return base.__new__(cls) if base is object else base.__new__(cls, state)


def _empty_array(cls: type, shape: Any, kind: Any) -> Any:
    """NumPy's _reconstruct: an array to be filled by its state, so of no size yet."""
    if cls is not np.ndarray or shape != (0,):
        raise pickle.UnpicklingError("an array with a size but without content")
    return np.empty(0, np.int8)


def _dtype(spec: Any, align: Any = False, copy: Any = False) -> np.dtype:
    """Returns numpy.dtype of one letter and a size, or of a class of scalars; its fields come as
    its state.
    """
    if isinstance(spec, bytes):
        spec = spec.decode()
    known = spec if isinstance(spec, type) and issubclass(spec, (np.generic, ml_dtypes.bfloat16)) else None
    if known is None and not (isinstance(spec, str) and re.fullmatch(r"[<>=|]?[a-zA-Z?]\d{0,9}", spec)):
        raise pickle.UnpicklingError("a dtype of no known letter")
    return np.dtype(spec, bool(align), bool(copy))


def _scalar(dtype: Any, content: Any) -> Any:
    """NumPy's scalar."""
    if dtype.hasobject:
        return content
    (value,) = np.frombuffer(_encode_latin1(content) if isinstance(content, str) else content, dtype)
    return value


_STAND_INS: dict[tuple[str, str], Callable[..., Any]] = {
    ("_codecs", "encode"): _encode_latin1,
    ("builtins", "unicode"): str,
    ("builtins", "bytes"): functools.partial(_content, bytes),
    ("builtins", "bytearray"): functools.partial(_content, bytearray),
    ("builtins", "range"): _short_range,
    ("builtins", "xrange"): _short_range,
    ("builtins", "type"): _type_of_constant,
    ("copyreg", "_reconstructor"): _plain_object,
    ("numpy", "dtype"): _dtype,
    ("numpy.core.multiarray", "_reconstruct"): _empty_array,
    ("numpy.core.multiarray", "scalar"): _scalar,
}
