"""Save and load objects that hold tensors.

In: any picklable object. Out: a pickle file, and the object again. Files are data, not programs:
``load`` builds containers, numbers, NumPy arrays, tensors and the modules of this package, and
refuses everything else unless the caller asks for code with ``allow_pickle=True``.
"""

from __future__ import annotations

import contextlib
import enum
import functools
import importlib
import os
import pickle
import stat
import struct
import threading
import types
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
    return _load_from(
        f, str(getattr(f, "name", type(f).__name__)), map_location, pickle_module, allow_pickle
    )


def _load_from(
    file: IO[bytes], name: str, map_location: MapLocation, pickle_module: Any, allow_pickle: bool
) -> Any:
    # None leaves an enclosing dmap in force
    with contextlib.nullcontext() if map_location is None else dmap(map_location):
        if pickle_module is not pickle:
            return pickle_module.load(file)
        try:
            return pickle.load(file) if allow_pickle else _SafeUnpickler(file).load()
        except RefusedClassError as error:
            raise RefusedClassError(f"{name}: {error}") from None
        except _DAMAGE as error:
            if allow_pickle and not isinstance(error, (EOFError, pickle.UnpicklingError)):
                raise  # an error of the author's code
            raise RuntimeError(
                f"cannot read {name}: {type(error).__name__}: {error}; the file is truncated, damaged, or not a "
                "file that save() wrote; write or download it again"
            ) from error


# What unpickling random bytes may raise.
_DAMAGE = (
    EOFError,
    pickle.UnpicklingError,
    ValueError,
    KeyError,
    IndexError,
    AttributeError,
    TypeError,
    ImportError,
    OverflowError,
    MemoryError,
    AssertionError,
    RecursionError,
    struct.error,
)


class dmap:
    """Context manager: tensors that this thread unpickles inside go where ``map_location`` says."""

    _entered = 0  # how many, over all threads
    _lock = threading.Lock()

    def __init__(self, map_location: MapLocation) -> None:
        if (
            map_location is not None
            and not isinstance(map_location, (str, Mapping))
            and not callable(map_location)
        ):
            raise TypeError(
                f"map_location must be a device name, a mapping or a function, got {type(map_location).__name__}"
            )
        self.map_location = map_location

    def __enter__(self) -> dmap:
        from .tensor import Tensor

        if not hasattr(_active, "maps"):
            _active.maps = []
        _active.maps.append(self.map_location)
        with dmap._lock:
            dmap._entered += 1
            Tensor.dmap_callback = map_device
        return self

    def __exit__(self, type: Any, value: Any, traceback: Any) -> None:
        from .tensor import Tensor

        _active.maps.pop()
        with dmap._lock:
            dmap._entered -= 1
            if dmap._entered == 0:
                Tensor.dmap_callback = None


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
    "builtins": frozenset(
        {
            "bool",
            "bytearray",
            "bytes",
            "complex",
            "dict",
            "float",
            "frozenset",
            "int",
            "list",
            "object",
            "range",
            "set",
            "slice",
            "str",
            "tuple",
        }
    ),
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
_OUR_PACKAGES = (
    "megengine.tensor",
    "megengine.core.tensor",
    "megengine.core.ops.builtin",
    "megengine.module",
    "megengine.traced_module",
    "megengine.quantization",
)
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
    if (module, name) in _STAND_INS:
        return _STAND_INS[module, name]
    if (module, name) in _admitted:
        return _admitted[module, name]
    plain = module.replace("numpy._core", "numpy.core", 1)
    if name in _SAFE_NAMES.get(plain, ()):
        return _numpy_or_plain(module, name)
    found = _numpy_type(module, name) or _our_class(module, name)
    if found is None:
        raise RefusedClassError(
            f"the file wants to build {module}.{name}, which load() does not do by itself: it could run code. "
            "If you trust where the file comes from, load it with allow_pickle=True; "
            "else save a state_dict instead of the whole object"
        )
    return found


def _numpy_or_plain(module: str, name: str) -> Any:
    if module.startswith(
        ("numpy.core", "numpy._core")
    ):  # renamed in NumPy 2: either spelling may be there
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
    try:
        found = getattr(importlib.import_module(module), name, None)
    except ImportError:
        return None
    ours = isinstance(found, type) and found.__module__.startswith("megengine")
    return found if ours else None


def _no_giant_range(*args: int) -> range:
    """A range; but list(range(10**12)) must not fill the memory."""
    result = range(*args)
    if len(result) > 1 << 24:
        raise pickle.UnpicklingError(f"a range of {len(result)} numbers")
    return result


def _no_giant_bytes(kind: type, *args: Any) -> Any:
    """bytes or bytearray of some content; not of a mere length."""
    if args and isinstance(args[0], int):
        raise pickle.UnpicklingError(f"{kind.__name__} by length")
    return kind(*args)


_STAND_INS = {
    ("_codecs", "encode"): _encode_latin1,
    ("builtins", "unicode"): str,
    ("builtins", "range"): _no_giant_range,
    ("builtins", "bytes"): functools.partial(_no_giant_bytes, bytes),
    ("builtins", "bytearray"): functools.partial(_no_giant_bytes, bytearray),
}


class _SafeUnpickler(pickle._Unpickler):  # type: ignore[name-defined]
    """The standard library's unpickler in Python: the one in C cannot be told what BUILD and REDUCE may do."""

    dispatch = dict(pickle._Unpickler.dispatch)  # type: ignore[attr-defined]

    def find_class(self, module: str, name: str) -> Any:
        return _safe_global(module, name)

    def persistent_load(self, pid: Any) -> Any:
        raise pickle.UnpicklingError("persistent ids are not used by save()")

    def load_build(self) -> None:
        """State is set on objects; on a class or function it would change the running program."""
        if isinstance(self.stack[-2], (type, *_FUNCTION_TYPES)):
            raise pickle.UnpicklingError("state for a class or a function")
        super().load_build()

    def load_reduce(self) -> None:
        """Models are built without calling their constructors, which could allocate any amount."""
        called = self.stack[-2]
        ours = isinstance(called, type) and called.__module__.startswith("megengine")
        if ours and not _is_called_by_pickles(called):
            raise pickle.UnpicklingError(f"a call of {called.__name__}")
        super().load_reduce()

    def load_bytearray8(self) -> None:
        """Reads before it allocates: a damaged length fails at the end of the file."""
        (size,) = struct.unpack("<Q", self.read(8))
        content = bytearray(self.read(size))
        if len(content) != size:
            raise EOFError("pickle data was truncated")
        self.append(content)

    dispatch[pickle.BUILD[0]] = load_build
    dispatch[pickle.REDUCE[0]] = load_reduce
    dispatch[pickle.BYTEARRAY8[0]] = load_bytearray8


_FUNCTION_TYPES = (
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodType,
    functools.partial,
)


def _is_called_by_pickles(found: type) -> bool:
    """Of our classes: tensors and enums."""
    from .tensor import Tensor

    return issubclass(found, (Tensor, enum.Enum)) or found in _admitted.values()


def load_python2(path: str | os.PathLike) -> Any:
    """Content of a pickle that Python 2 wrote (CIFAR): strings as bytes, the same classes admitted as by ``load``."""
    with open(path, "rb") as file:
        try:
            return _SafeUnpickler(file, encoding="bytes").load()
        except _DAMAGE as error:
            raise RuntimeError(
                f"cannot read {os.fspath(path)}: {type(error).__name__}: {error}; "
                "the file is damaged: delete it and unpack it again"
            ) from error
