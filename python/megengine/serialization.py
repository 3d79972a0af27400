"""Save and load objects that hold tensors.

In: any picklable object. Out: a pickle file, and the object again. Files are data, not programs:
``load`` builds containers, numbers, NumPy arrays, tensors and the modules of this package, and
refuses everything else unless the caller asks for code with ``allow_pickle=True``.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import pickle
import stat
import threading
from collections.abc import Callable, Mapping
from typing import IO, Any

MapLocation = str | Mapping[str, str] | Callable[[str], str] | None

_active = threading.local()  # .maps: stack of the map_locations that are in force in this thread


class RefusedClassError(pickle.UnpicklingError, RuntimeError):
    """The file names a class or function that ``load`` does not build by itself."""


# --------------------------------------------------------------------------------------------- save


def save(
    obj: Any,
    f: str | os.PathLike | IO[bytes],
    pickle_module: Any = pickle,
    pickle_protocol: int = pickle.DEFAULT_PROTOCOL,
) -> None:
    """Write ``obj`` to a path or to an open binary file.

    A path gets its new content at once, by renaming: an error or a crash leaves the old file as it was.
    pickle_module: module with ``dump``. Raises what pickling raises, and OSError.
    """
    if not isinstance(f, (str, os.PathLike)):
        pickle_module.dump(obj, f, pickle_protocol)
        return
    path = os.path.realpath(f)
    if os.path.exists(path) and not stat.S_ISREG(os.stat(path).st_mode):  # a device or a pipe
        with open(path, "wb") as file:
            pickle_module.dump(obj, file, pickle_protocol)
        return
    partial = f"{path}.{os.getpid()}.{threading.get_ident()}.part"
    try:
        with open(partial, "wb") as file:
            pickle_module.dump(obj, file, pickle_protocol)
        os.replace(partial, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.remove(partial)


# --------------------------------------------------------------------------------------------- load


def load(
    f: str | os.PathLike | IO[bytes],
    map_location: MapLocation = None,
    pickle_module: Any = pickle,
    *,
    allow_pickle: bool = False,
) -> Any:
    """Read an object that ``save`` wrote.

    f: a path or an open binary file. map_location: where tensors go: a device ("cpu0"), a mapping of
    devices ({"gpu0": "cpu0"}) or a function from logical device name to device; None: where they were.
    allow_pickle: build whatever the file names, which runs code of the file's author; asking for
    another ``pickle_module`` means the same.

    Raises RuntimeError with the file's name for a truncated or damaged file, and RefusedClassError
    (a RuntimeError) for classes outside of containers, numbers, arrays, tensors and our modules.
    """
    if isinstance(f, (str, os.PathLike)):
        with open(f, "rb") as file:
            return _load_from(file, os.fspath(f), map_location, pickle_module, allow_pickle)
    return _load_from(f, str(getattr(f, "name", type(f).__name__)), map_location, pickle_module, allow_pickle)


def _load_from(file: IO[bytes], name: str, map_location: MapLocation, pickle_module: Any, allow_pickle: bool) -> Any:
    # None leaves an enclosing dmap in force
    with contextlib.nullcontext() if map_location is None else dmap(map_location):
        if pickle_module is not pickle:
            if map_location is None or not isinstance(getattr(pickle_module, "Unpickler", None), type):
                return pickle_module.load(file)
            return _mapping_unpickler(pickle_module.Unpickler)(file).load()
        unpickler = _TrustingUnpickler(file) if allow_pickle else _Unpickler(file)
        try:
            return unpickler.load()
        except RefusedClassError as error:
            raise RefusedClassError(f"{name}: {error}") from None
        except _DAMAGE as error:
            if allow_pickle and not isinstance(error, (EOFError, pickle.UnpicklingError)):
                raise  # an error of the author's code
            raise RuntimeError(
                f"cannot read {name}: {type(error).__name__}: {error}; the file is truncated, damaged, or not a "
                "file that save() wrote; write or download it again") from error


# What unpickling random bytes may raise.
_DAMAGE = (EOFError, pickle.UnpicklingError, ValueError, KeyError, IndexError, AttributeError, TypeError,
           ImportError, OverflowError, MemoryError, AssertionError, RecursionError)


class dmap:
    """Context manager: tensors unpickled by this thread inside go where ``map_location`` says."""

    def __init__(self, map_location: MapLocation) -> None:
        if map_location is not None and not isinstance(map_location, (str, Mapping)) and not callable(map_location):
            raise TypeError(
                f"map_location must be a device name, a mapping or a function, got {type(map_location).__name__}")
        self.map_location = map_location

    def __enter__(self) -> dmap:
        if not hasattr(_active, "maps"):
            _active.maps = []
        _active.maps.append(self.map_location)
        return self

    def __exit__(self, type: Any, value: Any, traceback: Any) -> None:
        _active.maps.pop()


def map_device(device: str) -> str:
    """Device that a tensor saved on ``device`` is to be loaded to, by the innermost ``dmap``."""
    location = _active.maps[-1] if getattr(_active, "maps", None) else None
    if location is None:
        return device
    if isinstance(location, str):
        return location
    if isinstance(location, Mapping):
        # "gpu0:0" is found by its full name or as "gpu0"
        return location.get(device, location.get(device[:4], device))
    return location(device)


# -------------------------------------------------------------------------------- what may be built

# Exact names only: a dotted name such as "Tensor.__init__.__globals__" never matches.
_SAFE_NAMES: dict[str, frozenset[str]] = {
    "builtins": frozenset({"bool", "bytearray", "bytes", "complex", "dict", "float", "frozenset", "int", "list",
                           "object", "range", "set", "slice", "str", "tuple"}),
    "collections": frozenset({"Counter", "OrderedDict", "defaultdict", "deque"}),
    "copyreg": frozenset({"_reconstructor"}),
    "numpy": frozenset({"ndarray", "dtype"}),
    "numpy.core.multiarray": frozenset({"_reconstruct", "scalar"}),
    "numpy.core.numeric": frozenset({"_frombuffer"}),
    "ml_dtypes": frozenset({"bfloat16", "int2", "uint2", "int4", "uint4"}),
    "ml_dtypes._ml_dtypes_ext": frozenset({"bfloat16", "int2", "uint2", "int4", "uint4"}),
}
_PYTHON2_MODULES = {"__builtin__": "builtins", "copy_reg": "copyreg"}

# Packages of ours whose classes describe models and tensors; functions in them are not admitted.
_OUR_PACKAGES = ("megengine.tensor", "megengine.core", "megengine.module", "megengine.traced_module",
                 "megengine.quantization", "megengine._core")
_admitted: dict[tuple[str, str], Any] = {}


def admit(obj: Any) -> Any:
    """Let ``load`` build this class or call this function without ``allow_pickle``; returns it.

    For parts of this package whose reconstruction runs no code that a file could choose.
    """
    _admitted[obj.__module__, obj.__qualname__] = obj
    return obj


def _encode_latin1(text: str, encoding: str = "latin1") -> bytes:
    """How protocol 2 spells bytes; the only codec it uses."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"codec {encoding!r} in a pickle of bytes")
    return text.encode("latin1")


def _safe_global(module: str, name: str) -> Any:
    module = _PYTHON2_MODULES.get(module, module)
    if (module, name) == ("_codecs", "encode"):
        return _encode_latin1
    if (module, name) in _admitted:
        return _admitted[module, name]
    plain = module.replace("numpy._core", "numpy.core", 1)
    if name in _SAFE_NAMES.get(plain, ()) or (plain == "builtins" and name == "unicode"):
        return _numpy_or_plain(module, name)
    found = _numpy_type(module, name) or _our_class(module, name)
    if found is None:
        raise RefusedClassError(
            f"the file wants to build {module}.{name}, which load() does not do by itself: it could run code. "
            "If you trust where the file comes from, load it with allow_pickle=True; "
            "else save a state_dict instead of the whole object")
    return found


def _numpy_or_plain(module: str, name: str) -> Any:
    if name == "unicode":
        return str
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
    import numpy as np

    if module in ("numpy", "numpy.dtypes") and name.isidentifier():
        holder = np if module == "numpy" else getattr(np, "dtypes", None)
        found = getattr(holder, name, None)
        if isinstance(found, type) and issubclass(found, (np.generic, np.dtype)):
            return found
    return None


def _our_class(module: str, name: str) -> Any:
    if not any(module == package or module.startswith(package + ".") for package in _OUR_PACKAGES):
        return None
    if module == "megengine.core._imperative_rt" or not all(part.isidentifier() for part in module.split(".")):
        return None
    try:
        found = getattr(importlib.import_module(module), name, None)
    except ImportError:
        return None
    if not isinstance(found, type) and module == "megengine.tensor":
        return None
    ours = isinstance(found, type) and str(found.__module__).startswith("megengine")
    return found if ours else None


def _is_tensor_class(found: Any) -> bool:
    if not isinstance(found, type) or not str(getattr(found, "__module__", "")).startswith("megengine"):
        return False
    from megengine import Tensor

    return issubclass(found, Tensor)


class _MappedMeta(type):
    """Calls of the stand-in class become calls of the tensor class, with the device mapped."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        args, kwargs = _with_mapped_device(args, kwargs)
        return cls._tensor_class(*args, **kwargs)  # type: ignore[attr-defined]


def _mapped(tensor_class: type) -> type:
    """A stand-in for ``tensor_class`` that unpicklers may call or instantiate by ``__new__``."""

    def new(cls: type, *args: Any, **kwargs: Any) -> Any:
        args, kwargs = _with_mapped_device(args, kwargs)
        return tensor_class.__new__(tensor_class, *args, **kwargs)

    return _MappedMeta(tensor_class.__name__, (), {"__new__": new, "_tensor_class": tensor_class})


def _with_mapped_device(args: tuple, kwargs: dict) -> tuple[tuple, dict]:
    """Constructor arguments are (data, dtype, device name, ...)."""
    if len(args) > 2 and isinstance(args[2], str):
        args = (*args[:2], map_device(args[2]), *args[3:])
    if isinstance(kwargs.get("device"), str):
        kwargs = {**kwargs, "device": map_device(kwargs["device"])}
    return args, kwargs


def _map_active() -> bool:
    return bool(getattr(_active, "maps", None)) and _active.maps[-1] is not None


def _mapping_unpickler(base: type) -> type:
    class MappingUnpickler(base):  # type: ignore[misc, valid-type]
        def find_class(self, module: str, name: str) -> Any:
            found = super().find_class(module, name)
            return _mapped(found) if _map_active() and _is_tensor_class(found) else found

    return MappingUnpickler


class _SafeUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        return _safe_global(module, name)

    def persistent_load(self, pid: Any) -> Any:
        raise pickle.UnpicklingError("persistent ids are not used by save()")


_Unpickler = _mapping_unpickler(_SafeUnpickler)
_TrustingUnpickler = _mapping_unpickler(pickle.Unpickler)


def load_python2(path: str | os.PathLike) -> Any:
    """Content of a pickle that Python 2 wrote (CIFAR): strings as bytes, the same classes admitted as by ``load``."""
    with open(path, "rb") as file:
        try:
            return _SafeUnpickler(file, encoding="bytes").load()
        except _DAMAGE as error:
            raise RuntimeError(f"cannot read {os.fspath(path)}: {type(error).__name__}: {error}; "
                               "the file is damaged: delete it and unpack it again") from error
