"""Save and load objects that hold tensors.

In: any picklable object, or tensors by name. Out: a pickle or a safetensors file, and the object
again; GGUF files are read. Files are data, not programs: ``load`` builds containers, numbers, NumPy
arrays, tensors, the modules of this package and objects of classes that the program itself has
defined or imported. It refuses everything else unless the caller asks for code with
``allow_pickle=True``.
"""

from __future__ import annotations

import contextlib
import os
import pickle
from types import ModuleType
from typing import IO, Any

from ._files import kinds, modules, tensor_file, unpickler
from ._files.admitted import Admission, Trusted
from ._files.blocks import QuantizedBlocks
from ._files.container import Container, ModelFileError
from ._files.disk import written_whole
from ._files.locations import MapLocation, dmap
from ._files.locations import map_device as map_device
from ._files.tensor_file import TensorFile
from ._files.unpickler import RefusedClassError as RefusedClassError
from .module import Module

__all__ = ["QuantizedBlocks", "TensorFile", "load", "save"]

# --------------------------------------------------------------------------------------------- save


def save(
    obj: object,
    f: str | os.PathLike[str] | IO[bytes],
    pickle_module: ModuleType = pickle,
    pickle_protocol: int = pickle.DEFAULT_PROTOCOL,
) -> None:
    """Writes an object to a path or to an open binary file, for `megengine.load`.

    Parameters
    ----------
    obj : object
        Anything that can be pickled, such as a state dict; for a path that ends with
        ".safetensors" a mapping from names to tensors and arrays.
    f : str, PathLike or IO
        Path or open binary file. A path gets its new content at once, by renaming: an error or a
        crash leaves the old file as it was. The suffix ".safetensors" asks for a safetensors file,
        which can be mapped; all else is a pickle.
    pickle_module : module
        Module that has ``dump``, as ``pickle`` has.
    pickle_protocol : int
        Version of pickle's format, as ``pickle.dump`` takes it.

    Raises
    ------
    OSError
        If the file cannot be written; pickling may raise other errors.
    TypeError
        If the object and the file are given in the other order, and for a value that a safetensors
        file does not hold.

    See Also
    --------
    load : Reads what was written.
    module.Module.state_dict : The values of a module, which files best hold.

    Examples
    --------
    >>> import io, megengine as mge
    >>> file = io.BytesIO()
    >>> mge.save({"weight": mge.Tensor([1.0, 2.0]), "epoch": 3}, file)
    >>> _ = file.seek(0)
    >>> mge.load(file)["weight"].tolist()
    [1.0, 2.0]
    """
    if isinstance(obj, (str, os.PathLike)) and isinstance(f, (dict, Module)):
        raise TypeError(f"save: the file is a {type(f).__name__}, and the object is {obj!r}\n  fix: save(object, path)")
    if isinstance(f, (str, os.PathLike)) and os.fspath(f).endswith(tensor_file.SUFFIX):
        tensor_file.save(obj, f)
        return
    with written_whole(f) as file:
        try:
            pickle_module.dump(obj, file, pickle_protocol)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            path, part = _unpicklable("", obj, set())
            if part is obj:
                raise
            raise type(error)(
                f"save: {path} is {part!r}, which cannot be pickled: {str(error).partition(chr(10))[0]}\n"
                "  fix: save the state_dict() instead of the whole object, or take that member out"
            ) from error


def _unpicklable(path: str, obj: Any, seen: set[int]) -> tuple[str, Any]:
    """The innermost part of ``obj`` that cannot be pickled: its path and itself."""
    seen.add(id(obj))
    if isinstance(obj, dict):
        parts = {f"{path}[{key!r}]": value for key, value in obj.items()}
    elif isinstance(obj, list | tuple | set):
        parts = {f"{path}[{place}]": value for place, value in enumerate(obj)}
    else:
        parts = {f"{path}.{name}": value for name, value in getattr(obj, "__dict__", {}).items()} if not callable(obj) or isinstance(obj, Module) else {}
    for at, part in parts.items():
        if id(part) in seen:
            continue
        try:
            pickle.dumps(part)
        except Exception:
            return _unpicklable(at, part, seen)
    return path.removeprefix("."), obj


# --------------------------------------------------------------------------------------------- load


def load(
    f: str | os.PathLike[str] | IO[bytes],
    map_location: MapLocation = None,
    pickle_module: ModuleType = pickle,
    *,
    trusted: Trusted = (),
    allow_pickle: bool = False,
    mmap: bool = False,
) -> Any:
    """Reads an object that ``save`` wrote, the module of a model file, or the tensors of a
    safetensors or GGUF file; it runs no code that the file chooses.

    Parameters
    ----------
    f : str, PathLike or IO
        A path or an open binary file. A path may also be that of an index of safetensors files
        (``model.safetensors.index.json``), or of a folder that has an index or one such file.
    map_location : str, mapping of str to str, callable or None
        Where tensors go: a device ("cpu0"), a mapping of devices ({"gpu0": "cpu0"}) or a function
        from logical device name to device. None takes the devices that they were on; for files that
        name none the default device.
    pickle_module : module
        Module that has ``load``; another one than ``pickle`` means the same as allow_pickle.
    trusted : iterable or mapping of str
        More classes and functions that the file may name, as a list, or as a mapping from the names
        in the file; restoring them runs their code. A class that ``__main__`` or an imported module
        of the program defines needs an entry only if restoring it calls the class; otherwise only
        its `__new__` and `__setstate__` run.
    allow_pickle : bool
        Whether to build whatever the file names, which runs code of the file's author.
    mmap : bool
        Whether tensors are pages of the file, which are read when they are used, are shared with
        other processes and are never written to. On another device than the host they are copies.
        For model files, safetensors and GGUF.

    Returns
    -------
    object
        The object that was saved; `serialization.TensorFile` of a safetensors or GGUF file.

    Raises
    ------
    RuntimeError
        With the file's name for a truncated or damaged file and for one that cannot be mapped, and
        RefusedClassError (a RuntimeError) for classes outside of containers, numbers, arrays,
        tensors, our modules and the program's.

    See Also
    --------
    save : Writes such a file.
    serialization.TensorFile : The tensors of a file by name.
    module.Module.load_state_dict : Writes values into a module.

    Examples
    --------
    >>> import io, pickle, subprocess, megengine as mge
    >>> try:
    ...     mge.load(io.BytesIO(pickle.dumps(subprocess.run)))
    ... except RuntimeError as error:
    ...     print("subprocess.run" in str(error))
    True
    """
    # None leaves an enclosing dmap in force
    with contextlib.nullcontext() if map_location is None else dmap(map_location):
        if not isinstance(f, (str, os.PathLike)):
            name = str(getattr(f, "name", type(f).__name__))
            return _load_from(f, name, pickle_module, trusted, allow_pickle, mmap)
        path = tensor_file.in_folder(os.fspath(f))
        with open(path, "rb") as file:
            return _load_from(file, path, pickle_module, trusted, allow_pickle, mmap)


def _load_from(
    file: IO[bytes],
    name: str,
    pickle_module: Any,
    trusted: Trusted,
    allow_pickle: bool,
    mmap: bool,
) -> Any:
    begin = kinds.first_bytes(file) if pickle_module is pickle else b""
    if name.endswith(tensor_file.INDEX_SUFFIX) or kinds.holds_tensors(begin):
        return _tensors_from(file, name, trusted, mmap)
    other = kinds.kind_of(begin)
    if other is not None and other != kinds.PICKLE:
        raise RuntimeError(f"cannot read {name}: it is {other[0]}\n  fix: {other[1]}")
    if mmap or name.endswith((tensor_file.SUFFIX, ".gguf")):
        is_pickle = other is not None or pickle_module is not pickle
        what = "a pickle" if is_pickle else "neither a safetensors nor a GGUF file"
        raise RuntimeError(
            f"cannot read {name}: it is {what}\n  fix: mmap=True and names that end with .gguf or "
            f"{tensor_file.SUFFIX} are for such files; save(tensors, 'x{tensor_file.SUFFIX}')"
        )
    return _unpickled(file, name, pickle_module, trusted, allow_pickle)


def _tensors_from(file: IO[bytes], name: str, trusted: Trusted, mmap: bool) -> Any:
    try:
        with modules.explained(name), contextlib.ExitStack() as stack:
            if name.endswith(tensor_file.INDEX_SUFFIX):
                return TensorFile(*tensor_file.parts_of_index(file, name, mmap, stack))
            stored = tensor_file.stored_in(file, mmap)
            if isinstance(stored, Container) and modules.KEY in stored.metadata:
                return modules.read(stored, Module, trusted)
            return TensorFile(tensor_file.parts_of(stored, name), stored.metadata)
    except ModelFileError as error:  # a ValueError: what fx.load and traced_module.load raise
        raise RuntimeError(str(error)) from error.__cause__


def _unpickled(
    file: IO[bytes], name: str, pickle_module: Any, trusted: Trusted, allow_pickle: bool
) -> Any:
    if pickle_module is not pickle:
        return pickle_module.load(file)
    if not allow_pickle:
        return unpickler.load(file, name, trusted)
    with unpickler.explained(name, (EOFError, pickle.UnpicklingError)):  # the rest are errors of the author's code
        return pickle.load(file)


def load_python2(path: str | os.PathLike[str]) -> Any:
    """Content of a pickle that Python 2 wrote (CIFAR): strings as bytes, the same classes admitted as by ``load``."""
    with open(path, "rb") as file:
        try:
            return unpickler.read(file, Admission(), encoding="bytes")
        except unpickler.DAMAGE as error:
            raise RuntimeError(
                f"cannot read {os.fspath(path)}: {type(error).__name__}: {error}; "
                "the file is damaged: delete it and unpack it again"
            ) from error
