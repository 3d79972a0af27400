"""Arguments and attributes as JSON: numbers, text, containers, and names of what the program has.

None, bool, int, str, finite floats and lists stand as they are. Every other value is an object with one key, its
kind: {"tuple": [...]}, {"tensor": name}, {"module": place}, {"node": place}, {"global": name of a function or class}.
A `Kind` says how one of them is written and read; reading checks everything, and calls nothing that a file chose.
"""

from __future__ import annotations

import base64
import enum
import functools
import math
import os
import sys
import types
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import ml_dtypes
import numpy as np

from .._graph.tree import FrozenDict, FrozenList, Value
from ..core.op_objects import OpDef
from ..core.qparams import QParams
from ..core.tensor.dtype import (
    QuantDtypeMeta,
    _builtin_quant_dtypes,
    create_quantized_dtype,
    get_quantize_entry,
    is_quantize,
)
from ..device import Device
from ..module import Module
from ..tensor import Tensor
from .admitted import Admission, name_of, refused

if TYPE_CHECKING:
    import builtins  # `list` is a method of the classes below
from .container import Damaged

DEPTH = 50  # the deepest nesting of containers
_KEYS = 4096


class Kind(NamedTuple):
    """holds: whether a value is of this kind. write(writer, value) gives JSON, of which read(reader, JSON) makes it."""

    tag: str
    holds: Callable[[Any], bool]
    write: Callable[[ValueWriter, Any], Any]
    read: Callable[[ValueReader, Any], Any]


class ValueWriter:
    """Writes values. tensor, module: give the name or place of one; nodes: value of the graph at hand -> its place."""

    def __init__(self, tensor: Callable[[Any], str], module: Callable[[Module], int]) -> None:
        self.tensor, self.module = tensor, module
        self.nodes: dict[Value, int] = {}
        self._depth = 0

    def __call__(self, value: Any) -> Any:
        kind = type(value)
        if value is None or kind in (bool, int, str) or kind is float and math.isfinite(value):
            return value
        self._depth += 1
        try:
            if self._depth > DEPTH:
                raise Damaged(f"values are nested more than {DEPTH} deep")
            if kind in (list, FrozenList):
                return self.list(value)
            found = next((known for known in KINDS if known.holds(value)), None)
            if found is None:
                raise Damaged(f"{_short(value)} is a {_full_name(kind)}, which files do not hold")
            return {found.tag: found.write(self, value)}
        finally:
            self._depth -= 1

    def node(self, value: Value) -> int:
        """The place of a value of the graph at hand."""
        if value not in self.nodes:
            raise Damaged(f"{value.name!r} is read before it is made, or is a value of another graph")
        return self.nodes[value]

    def list(self, values: Any) -> list[Any]:
        """Each value of an iterable."""
        return [self(value) for value in values]

    def pairs(self, values: Any) -> builtins.list[Any]:
        """Keys and values of a dict: a JSON object would make all keys text."""
        return [[self(key), self(value)] for key, value in values.items()]

    def by_name(self, values: Any) -> dict[str, Any]:
        """A dict whose keys are str."""
        return {key: self(value) for key, value in values.items()}

    def call(self, args: Any, kwargs: Any, source: str) -> dict[str, Any]:
        """Returns the record of a call: its arguments, and "file:line" without the folder; empty
        parts are left out.
        """
        written: dict[str, Any] = {}
        if args:
            written["args"] = self.list(args)
        if kwargs:
            written["kwargs"] = self.by_name(kwargs)
        if source:
            written["source"] = os.path.basename(source)
        return written


class ValueReader:
    """Reads values. tensor, module: give the tensor of a name, the module at a place; nodes: values read so far."""

    def __init__(
        self, admission: Admission, tensor: Callable[[str], Any], module: Callable[[int], Module]
    ) -> None:
        self.admission, self.tensor, self.module = admission, tensor, module
        self.nodes: list[Value] = []
        self._depth = 0

    def __call__(self, data: Any) -> Any:
        if data is None or isinstance(data, (bool, int, float, str)):
            return data
        self._depth += 1
        try:
            if self._depth > DEPTH:
                raise Damaged(f"its values are nested more than {DEPTH} deep")
            if isinstance(data, list):
                return self.list(data)
            tag, content = one_of(data.items())
            if tag not in _BY_TAG:
                raise Damaged(f"it has a value of an unknown kind, {_short(tag)}")
            return _BY_TAG[tag].read(self, content)
        finally:
            self._depth -= 1

    def list(self, data: Any) -> list[Any]:
        """Each value of a list."""
        return [self(item) for item in expect(data, list)]

    def pairs(self, data: Any) -> builtins.list[tuple[Any, ...]]:
        """Returns (key, value) of a dict."""
        found = [tuple(self.list(exactly(pair, 2))) for pair in expect(data, list)]
        check_keys([key for key, _ in found])
        return found

    def items(self, data: Any) -> builtins.list[Any]:
        """The items of a set."""
        return check_keys(self.list(data))

    def by_name(self, data: Any) -> dict[str, Any]:
        """A dict whose keys are str."""
        return {key: self(value) for key, value in expect(data, dict).items()}

    def call(self, data: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any], str]:
        """Returns (args, kwargs, source) of a call."""
        args = tuple(self.list(data.get("args", [])))
        return args, self.by_name(data.get("kwargs", {})), expect(data.get("source", ""), str)

    def node(self, place: Any) -> Value:
        """A value of the graph that was made before."""
        return self.nodes[index(place, len(self.nodes), "a value that is not made before")]


# -- checks of what is read ----------------------------------------------------------------------


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _full_name(kind: type) -> str:
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def expect(data: Any, kind: type | tuple[type, ...]) -> Any:
    """Returns ``data`` if it has exactly that JSON type. Damaged otherwise."""
    if type(data) not in (kind if isinstance(kind, tuple) else (kind,)):
        raise Damaged(f"it holds {_short(data)} where something else belongs")
    return data


def exactly(data: Any, count: int) -> list[Any]:
    """A list of ``count`` items."""
    if len(expect(data, list)) != count:
        raise Damaged(f"it holds {len(data)} items where {count} belong")
    return data


def one_of(items: Any) -> Any:
    """The only item."""
    if len(items) != 1:
        raise Damaged(f"it holds an object of {len(items)} keys where one belongs")
    return next(iter(items))


def index(data: Any, count: int, what: str) -> int:
    """An int from 0 to count - 1."""
    if type(data) is not int or not 0 <= data < count:
        raise Damaged(f"it names {what}: {_short(data)}")
    return data


def record(data: Any, required: str, optional: str = "") -> dict[str, Any]:
    """An object with the keys ``required`` and perhaps ``optional``, both separated by spaces."""
    keys = set(expect(data, dict))
    missing = set(required.split()) - keys
    unknown = keys - set(required.split()) - set(optional.split())
    if missing or unknown:
        wrong = f"lacks {sorted(missing)[0]}" if missing else f"has the unknown key {_short(sorted(unknown)[0])}"
        raise Damaged(f"an object in it {wrong}")
    return data


def check_keys(keys: list[Any]) -> list[Any]:
    """Returns ``keys``. Damaged for many keys whose hashes a file could have chosen to be equal,
    which would take hours.
    """
    if len(keys) > _KEYS and not all(
        type(key) is str or (type(key) is int and abs(key) < sys.hash_info.modulus) for key in keys
    ):
        raise Damaged(f"it has a set or dict of more than {_KEYS} keys that are neither text nor small numbers")
    return keys


def check_attribute(cls: type, name: str, value: Any) -> None:
    """Raises Damaged unless an object of ``cls`` may hold ``value`` there: a method is hidden by
    modules and tensors only.
    """
    if not name or (name.startswith("__") and name.endswith("__")):
        raise Damaged(f"an attribute of {cls.__name__} is called {_short(name)}")
    there = getattr(cls, name, None)
    hides = callable(there) or hasattr(there, "__get__") and not isinstance(there, types.MemberDescriptorType)
    if hides and not isinstance(value, (Module, Tensor)):
        raise Damaged(f"the attribute {name!r} would hide the one of the class {cls.__name__}")


# -- dtypes --------------------------------------------------------------------------------------

_PLAIN_DTYPES = {
    name: np.dtype(name)
    for name in (
        "bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float32",
        "float64", "complex64", "complex128",
    )
} | {"bfloat16": np.dtype(ml_dtypes.bfloat16)}  # fmt: skip


def write_dtype(dtype: np.dtype) -> Any:
    """Returns the name of a dtype; for a quantized one name, scale and zero point."""
    if is_quantize(dtype):
        return dict(get_quantize_entry(dtype))
    if dtype.name not in _PLAIN_DTYPES:
        raise Damaged(f"files do not hold the dtype {dtype}")
    return dtype.name


def read_dtype(data: Any) -> np.dtype:
    """The dtype that `write_dtype` described."""
    if isinstance(data, str):
        if data not in _PLAIN_DTYPES:
            raise Damaged(f"it has the dtype {_short(data)}, which this version does not know")
        return _PLAIN_DTYPES[data]
    entry = record(data, "name scale", "zero_point")
    scale = expect(entry["scale"], (float, int))
    for meta in _builtin_quant_dtypes.values():
        if meta.cname is not None and meta.cname == entry["name"]:
            return create_quantized_dtype(meta, scale, entry.get("zero_point"))
    raise Damaged(f"it has the quantized dtype {_short(entry['name'])}, which this version does not know")


def _write_scalar(writer: ValueWriter, value: np.generic) -> list[Any]:
    number = value.item() if not isinstance(value, ml_dtypes.bfloat16) else float(value)
    return [write_dtype(value.dtype), writer(number)]


def _read_scalar(reader: ValueReader, data: Any) -> np.generic:
    dtype, number = exactly(data, 2)
    number = reader(number)
    if type(number) not in (bool, int, float, complex):
        raise Damaged(f"it has the scalar {_short(number)}")
    return read_dtype(dtype).type(number)


# -- objects -------------------------------------------------------------------------------------


def _slots(cls: type) -> list[str]:
    return [name for base in cls.__mro__ for name in getattr(base, "__slots__", ())]


def _is_object(value: Any) -> bool:
    """Whether attributes are all there is to know of an object."""
    cls = type(value)
    plain = all(
        getattr(cls, name, None) is getattr(object, name, None)
        for name in ("__reduce__", "__reduce_ex__", "__getstate__", "__setstate__")
    )
    in_python = cls.__flags__ & 1 << 9  # Py_TPFLAGS_HEAPTYPE: not a class of C with state that nobody sees
    return isinstance(value, OpDef) or bool(plain and in_python and not callable(value))


def _write_object(writer: ValueWriter, value: Any) -> list[Any]:
    attributes = dict(getattr(value, "__dict__", {}))
    attributes |= {name: getattr(value, name) for name in _slots(type(value)) if hasattr(value, name)}
    for name, item in attributes.items():
        check_attribute(type(value), name, item)
    return [name_of(type(value)), writer.by_name(attributes)]


def _read_object(reader: ValueReader, data: Any) -> Any:
    name, attributes = exactly(data, 2)
    cls = reader.admission.type(expect(name, str))
    if issubclass(cls, (Module, Tensor, type)) or not (
        issubclass(cls, (QParams, OpDef)) or reader.admission.is_own(cls)
    ):
        raise refused(name)
    made = object.__new__(cls)
    for key, value in reader.by_name(attributes).items():
        check_attribute(cls, key, value)
        object.__setattr__(made, key, value)
    return made


def _is_named_tuple(value: Any) -> bool:
    return isinstance(value, tuple) and hasattr(type(value), "_fields")


def _read_named_tuple(reader: ValueReader, data: Any) -> Any:
    name, items = exactly(data, 2)
    cls = reader.admission.type(expect(name, str), tuple)
    made: Any = tuple.__new__(cls, reader.list(exactly(items, len(getattr(cls, "_fields", ())))))
    if cls is QuantDtypeMeta:
        return next((meta for meta in _builtin_quant_dtypes.values() if meta == made), made)
    return made


def _read_enum(reader: ValueReader, data: Any) -> enum.Enum:
    name, member = map(expect, exactly(data, 2), (str, str))
    members: Mapping[str, enum.Enum] = reader.admission.type(name, enum.Enum).__members__  # type: ignore[attr-defined]  # an Enum
    if member not in members:
        raise Damaged(f"{name} has no member {_short(member)}")
    return members[member]


def _read_partial(reader: ValueReader, data: Any) -> functools.partial[Any]:
    function, args, kwargs = exactly(data, 3)
    return functools.partial(
        reader.admission.function(expect(function, str)), *reader.list(args), **reader.by_name(kwargs)
    )


def _read_range(reader: ValueReader, data: Any) -> range:
    found = range(*exactly(data, 3))
    if len(found) > 1 << 24:
        raise Damaged(f"it holds a range of {len(found)} numbers, which a program may make a list of")
    return found


def _read_float(reader: ValueReader, data: Any) -> float:
    if data not in ("inf", "-inf", "nan"):
        raise Damaged(f"it holds the number {_short(data)}")
    return float(data)


def _is(*kinds: type) -> Callable[[Any], bool]:
    return lambda value: type(value) in kinds


_FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType, types.MethodType, type)

# In this order: the first that holds a value writes it.
KINDS: list[Kind] = [
    Kind("node", lambda v: isinstance(v, Value), lambda w, v: w.node(v), lambda r, d: r.node(d)),
    Kind("tuple", _is(tuple), lambda w, v: w.list(v), lambda r, d: tuple(r.list(d))),
    Kind("dict", _is(dict, FrozenDict), lambda w, v: w.pairs(v), lambda r, d: dict(r.pairs(d))),
    Kind("global", lambda v: isinstance(v, _FUNCTIONS), lambda w, v: name_of(v),
         lambda r, d: r.admission.function(expect(d, str))),
    Kind("tensor", lambda v: isinstance(v, (Tensor, np.ndarray)), lambda w, v: w.tensor(v),
         lambda r, d: r.tensor(expect(d, str))),
    Kind("module", lambda v: isinstance(v, Module), lambda w, v: w.module(v), lambda r, d: r.module(d)),
    Kind("float", _is(float), lambda w, v: repr(v), _read_float),
    Kind("complex", _is(complex), lambda w, v: w.list((v.real, v.imag)), lambda r, d: complex(*r.list(exactly(d, 2)))),
    Kind("slice", _is(slice), lambda w, v: w.list((v.start, v.stop, v.step)), lambda r, d: slice(*r.list(exactly(d, 3)))),
    Kind("ellipsis", _is(type(...)), lambda w, v: None, lambda r, d: ...),
    Kind("range", _is(range), lambda w, v: [v.start, v.stop, v.step], _read_range),
    Kind("bytes", _is(bytes), lambda w, v: base64.b64encode(v).decode(),
         lambda r, d: base64.b64decode(expect(d, str), validate=True)),
    Kind("set", _is(set), lambda w, v: w.list(v), lambda r, d: set(r.items(d))),
    Kind("frozenset", _is(frozenset), lambda w, v: w.list(v), lambda r, d: frozenset(r.items(d))),
    Kind("ordered_dict", _is(OrderedDict), lambda w, v: w.pairs(v), lambda r, d: OrderedDict(r.pairs(d))),
    Kind("dtype", lambda v: isinstance(v, np.dtype), lambda w, v: write_dtype(v), lambda r, d: read_dtype(d)),
    Kind("scalar", lambda v: isinstance(v, np.generic) and v.dtype.name in _PLAIN_DTYPES, _write_scalar, _read_scalar),
    Kind("device", _is(Device), lambda w, v: v.logical_name, lambda r, d: Device(expect(d, str))),
    Kind("enum", lambda v: isinstance(v, enum.Enum), lambda w, v: [name_of(type(v)), v.name], _read_enum),
    Kind("partial", _is(functools.partial), lambda w, v: [name_of(v.func), w.list(v.args), w.by_name(v.keywords)],
         _read_partial),
]  # fmt: skip
_LAST = [
    Kind("named_tuple", _is_named_tuple, lambda w, v: [name_of(type(v)), w.list(v)], _read_named_tuple),
    Kind("object", _is_object, _write_object, _read_object),
]  # fmt: skip
KINDS += _LAST
_BY_TAG = {kind.tag: kind for kind in KINDS}


def add_kind(kind: Kind) -> None:
    """Adds a kind of values, which is tried before those of any class."""
    KINDS.insert(-len(_LAST), kind)
    _BY_TAG[kind.tag] = kind
