"""A tree of modules as a file: one flat list that holds each module and tensor once; they refer to
each other by place.

Tensors are named as in the state dict. What a class of modules keeps besides plain attributes, such as a graph,
its `Form` writes and reads.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator
from typing import IO, Any, NamedTuple

import numpy as np

from ..core.tensor.dtype import is_quantize
from ..core.tensor.quantized import QuantizedTensor
from ..module import Module
from ..tensor import Parameter, Tensor
from ..version import __version__, megjit_version
from .admitted import Admission, Trusted, name_of
from .container import Container, Damaged, ModelFileError, can_hold, parse, write
from .disk import written_whole
from .kinds import first_bytes, is_model_file, kind_of
from .locations import MapLocation, dmap, map_device
from .mapped import mapped_tensor
from .values import (
    ValueReader,
    ValueWriter,
    check_attribute,
    expect,
    index,
    read_dtype,
    record,
    write_dtype,
)

SCHEMA = 1
KEY = "megengine.model"  # the key of the text in the container
_DEFAULTS = {"name": None, "training": True, "quantize_disabled": False, "_short_name": None}
_HOOKS = ("_forward_pre_hooks", "_forward_hooks")
_CLASSES: dict[str, type] = {
    "Tensor": Tensor, "Parameter": Parameter, "QuantizedTensor": QuantizedTensor, "ndarray": np.ndarray,
}  # fmt: skip


class Form(NamedTuple):
    """The parts of a class of modules in files besides attributes. ``hidden`` are attributes that
    are not written.

    write(module, writer) gives JSON, of which read(module, JSON, reader) makes the rest of ``module``, whose attributes,
    and those of all other modules, are there already. finish(module, version) is called when all are whole.
    """

    hidden: frozenset[str]
    write: Callable[[Any, ValueWriter], Any]
    read: Callable[[Any, Any, ValueReader], None]
    finish: Callable[[Any, str], None]


FORMS: dict[type, Form] = {}


def _form_of(cls: type) -> Form | None:
    return next((FORMS[base] for base in cls.__mro__ if base in FORMS), None)


# -- writing -------------------------------------------------------------------------------------


def save(root: Module, f: str | os.PathLike[str] | IO[bytes]) -> None:
    """Write ``root`` to a path, which gets its new content at once, or to an open binary file."""
    try:
        texts, arrays = _Writer(root).result()
        with written_whole(f) as file:
            write(file, texts, arrays)
    except (Damaged, RecursionError, ValueError) as error:
        if isinstance(error, ModelFileError):
            raise
        raise ModelFileError(f"{type(root).__name__} cannot be saved: {error}") from error


class _Writer:
    def __init__(self, root: Module) -> None:
        self._values = ValueWriter(self._tensor_name, self._place)
        self._modules: list[Module] = []
        self._places: dict[int, int] = {}
        self._names = {id(tensor): path for path, tensor in root.named_tensors()}
        self._taken = set(self._names.values())
        self._tensors: dict[str, Any] = {}
        self._arrays: dict[str, np.ndarray | Tensor] = {}
        self._kept: list[Any] = []  # kept alive, so that their ids stay valid
        self._place(root)

    def result(self) -> tuple[dict[str, str], dict[str, np.ndarray | Tensor]]:
        records = []
        for module in self._modules:  # the list grows meanwhile
            records.append(self._record(module))
        model = {
            "schema": SCHEMA,
            "writer": f"megjit {megjit_version}",
            "version": __version__,
            "modules": records,
            "tensors": self._tensors,
        }
        return {KEY: json.dumps(model, separators=(",", ":"), allow_nan=False)}, self._arrays

    def _place(self, module: Module) -> int:
        if id(module) not in self._places:
            self._places[id(module)] = len(self._modules)
            self._modules.append(module)
        return self._places[id(module)]

    def _record(self, module: Module) -> dict[str, Any]:
        cls, form = type(module), _form_of(type(module))
        hidden = form.hidden if form is not None else frozenset()
        attributes = {}
        for key, value in vars(module).items():
            if key in _HOOKS:
                if value:
                    raise Damaged(f"a {cls.__name__} has hooks, which are code\n  fix: remove them before saving")
            elif key not in hidden and not (key in _DEFAULTS and value is _DEFAULTS[key]):
                with _of(f"{cls.__name__}.{key}"):
                    check_attribute(cls, key, value)
                    attributes[key] = self._values(value)
        written = {"class": name_of(cls), "attributes": attributes}
        if form is not None:
            written["graph"] = form.write(module, self._values)
        return written

    def _tensor_name(self, value: Tensor | np.ndarray) -> str:
        name = self._names.get(id(value))
        if name is None:
            number = len(self._kept)
            name = f"constants.{number}"
            while name in self._taken:
                name = f"_{name}"
            self._names[id(value)] = name
            self._taken.add(name)
            self._kept.append(value)
        if name not in self._tensors:
            self._tensors[name] = {}  # qparams may hold tensors in turn
            self._tensors[name] = self._described(name, value)
        return name

    def _described(self, name: str, value: Tensor | np.ndarray) -> dict[str, Any]:
        kind = type(value)
        if _CLASSES.get(kind.__name__) is not kind:
            raise Damaged(f"{name} is a {kind.__name__}, which is not a tensor class that files can hold")
        told: dict[str, Any] = {"class": kind.__name__}
        array = value
        if is_quantize(value.dtype):
            told["dtype"] = write_dtype(value.dtype)
            array = value if isinstance(value, np.ndarray) else value.numpy()
            array = array.view(np.dtype(array.dtype.str))
        if not can_hold(array.dtype):
            raise Damaged(f"{name} is an array of {array.dtype}, which files do not hold")
        if isinstance(value, Tensor):
            told["device"] = value.device.logical_name
            if value.format != "default":
                told["format"] = value.format
            if value._qparams is not None:
                told["qparams"] = self._values(value._qparams)
        self._arrays[name] = array
        return told


@contextlib.contextmanager
def _of(what: str) -> Iterator[None]:
    try:
        yield
    except (Damaged, ValueError) as error:
        raise Damaged(f"{what}: {error}") from error


# -- reading -------------------------------------------------------------------------------------

# Errors that checked data may still raise, such as a device that does not exist or a damaged graph.
_WRONG = (
    Damaged, ValueError, TypeError, KeyError, IndexError, AttributeError, AssertionError, OverflowError, RuntimeError,
    SyntaxError, MemoryError,
)  # fmt: skip


def load(
    f: str | os.PathLike[str] | IO[bytes],
    kind: type[Module],
    trusted: Trusted = (),
    map_location: MapLocation = None,
) -> Any:
    """The module of class ``kind`` that `save` wrote. Reads data and runs no code of the file.

    trusted: functions and classes of the caller that the file may name, or a mapping from names to them.
    ModelFileError, which says what is wrong and what to do, for a file that cannot be read.
    """
    name = os.fspath(f) if isinstance(f, (str, os.PathLike)) else str(getattr(f, "name", type(f).__name__))
    with contextlib.ExitStack() as stack:
        file = stack.enter_context(open(f, "rb")) if isinstance(f, (str, os.PathLike)) else f
        if map_location is not None:
            stack.enter_context(dmap(map_location))
        with explained(name, first_bytes(file)):
            return read(Container(file), kind, trusted)


def read(container: Container, kind: type[Module], trusted: Trusted) -> Any:
    """The module that an open file holds; see `load`."""
    return _Reader(container, Admission(trusted)).result(kind)


@contextlib.contextmanager
def explained(name: str, begin: bytes = b"") -> Iterator[None]:
    """Turns errors of reading a file into a ModelFileError that names it. ``begin``: the file's
    first bytes, which tell what it is instead of a model.
    """
    try:
        yield
    except ModelFileError as error:
        raise ModelFileError(f"cannot read {name}: {error}") from None
    except _WRONG as error:
        why = str(error) if isinstance(error, Damaged) else f"{type(error).__name__}: {error}"
        fix = "the file is truncated, damaged, or not one that save() wrote: "
        fix += "write or download it again"
        other = None if is_model_file(begin) else kind_of(begin)
        if other is not None:
            why, fix = f"it is {other[0]}", other[1]
        elif isinstance(error, Damaged) and error.fix:
            fix = error.fix
        raise ModelFileError(f"cannot read {name}: {why}\n  fix: {fix}") from error


class _Reader:
    def __init__(self, container: Container, admission: Admission) -> None:
        self._container = container
        self._values = ValueReader(admission, self._tensor, self._module)
        model = self._model(container.metadata)
        self._version = expect(model["version"], str)
        self._records = [
            record(item, "class attributes", "graph") for item in expect(model["modules"], list)
        ]
        self._told = expect(model["tensors"], dict)
        self._tensors: dict[str, Any] = {}
        self._modules = [self._shell(item["class"]) for item in self._records]

    @staticmethod
    def _model(texts: dict[str, str]) -> dict[str, Any]:
        if KEY not in texts:
            raise ModelFileError(
                "it holds tensors and no model, as a safetensors file\n"
                "  fix: net.load_state_dict(megengine.load(path))"
            )
        model = expect(parse(texts[KEY]), dict)
        schema = model.get("schema")
        if type(schema) is int and schema > SCHEMA:
            raise ModelFileError(
                f"it was written by {str(model.get('writer'))[:60]}, with schema {schema}; this version reads {SCHEMA}\n"
                "  fix: install that version or a newer one"
            )
        if schema != SCHEMA:
            raise Damaged(f"it has schema {schema!r}")
        return record(model, "schema writer version modules tensors")

    def result(self, kind: type[Module]) -> Any:
        if not self._modules or not isinstance(self._modules[0], kind):
            found = type(self._modules[0]).__name__ if self._modules else "nothing"
            raise ModelFileError(f"it holds a {found}, not a {kind.__name__}\n  fix: megengine.load(path) gives what it holds")
        for module, item in zip(self._modules, self._records, strict=True):
            for key, value in expect(item["attributes"], dict).items():
                module.__dict__[key] = made = self._values(value)
                check_attribute(type(module), key, made)
        forms = [(module, _form_of(type(module))) for module in self._modules]
        for (module, form), item in zip(forms, self._records, strict=True):
            if (form is not None) != ("graph" in item):
                raise Damaged(f"a {type(module).__name__} has a graph that belongs to another class")
            if form is not None:
                form.read(module, item["graph"], self._values)
        for module, form in forms:
            if form is not None:
                form.finish(module, self._version)
        return self._modules[0]

    def _shell(self, name: Any) -> Module:
        cls = self._values.admission.type(expect(name, str), Module)
        module: Module = object.__new__(cls)
        Module.__init__(module)
        form = _form_of(cls)
        if form is not None:
            module.__dict__.update(dict.fromkeys(form.hidden))
        return module

    def _module(self, place: Any) -> Module:
        return self._modules[index(place, len(self._modules), "a module that it does not hold")]

    def _tensor(self, name: str) -> Any:
        if name not in self._tensors:
            self._tensors[name] = None
            self._tensors[name] = self._made(name)
        if self._tensors[name] is None:
            raise Damaged(f"the tensor {name!r} is said to be a part of itself")
        return self._tensors[name]

    def _made(self, name: str) -> Any:
        told = record(self._told.get(name), "class", "dtype device format qparams")
        cls = _CLASSES.get(expect(told["class"], str))
        if cls is None:
            raise Damaged(f"{name!r} is of the unknown class {told['class']!r}")
        is_plain = cls in (Tensor, Parameter) and "dtype" not in told
        if is_plain and self._container.mapped is not None:
            device = map_device(expect(told["device"], str))
            tensor = cls(mapped_tensor(self._container.pages(name), device))
        else:
            tensor = self._read(name, told, cls)
        if isinstance(tensor, Tensor):
            tensor.format = told.get("format", "default")
            if "qparams" in told:
                tensor._qparams = self._values(told["qparams"])
        return tensor

    def _read(self, name: str, told: dict[str, Any], cls: type) -> Any:
        array = self._container.array(name)
        dtype = read_dtype(told["dtype"]) if "dtype" in told else array.dtype
        if dtype != array.dtype:
            raise Damaged(f"{name!r} is said to be {dtype}, its data is {array.dtype}")
        if is_quantize(dtype):
            array = array.view(dtype)
        if cls is np.ndarray:
            return array
        if issubclass(cls, QuantizedTensor) != is_quantize(dtype):
            raise Damaged(f"{name!r} is a {cls.__name__} of {dtype}")
        return cls(array, dtype=dtype, device=expect(told["device"], str))
