"""Tensors by name in files: safetensors files, folders of them, and GGUF files.

Files are read as a whole, or mapped.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterator, Mapping
from typing import IO, Any

import numpy as np

from ..core.tensor.dtype import is_quantize
from ..device import get_default_device
from ..tensor import Tensor
from . import container, kinds
from .blocks import QuantizedBlocks
from .container import Container, Damaged, Stored
from .disk import written_whole
from .gguf import GGUF
from .locations import map_device
from .mapped import MappedFile, mapped_tensor

SUFFIX, INDEX_SUFFIX = ".safetensors", ".safetensors.index.json"
_INDEX = f"model{INDEX_SUFFIX}"
_NOT_OF_TENSORS = ("U32", "U64")  # dtypes that arrays in model files may have
_AXES = 8  # the most axes of a tensor
_Parts = dict[str, tuple[Stored, str]]  # tensor's name -> its file, and the file's name


class TensorFile(Mapping[str, Tensor | QuantizedBlocks]):
    """Tensors of a safetensors or GGUF file by name: the mapping that `megengine.load` returns.

    Of a mapped file a tensor is made when it is first asked for. It shares the file's pages with
    every process that maps the file, and takes no memory of its own. A write to it, such as an
    optimizer's step, gives it a new value in memory; the file stays as it is.

    Parameters
    ----------
    parts : mapping of str
        By tensor the open file that has it, and that file's name; `megengine.load` gives them.
    metadata : mapping of str
        What the file says beside its tensors.

    Attributes
    ----------
    metadata : dict of str
        What the file says beside its tensors: texts of a safetensors file; numbers, texts, arrays
        and lists of a GGUF file.

    See Also
    --------
    load : Reads or maps such a file.
    serialization.QuantizedBlocks : A tensor of a GGUF file whose elements have few bits.

    Notes
    -----
    ``dict(file)`` has the same tensors and can be changed.

    Examples
    --------
    >>> import os, tempfile, megengine as mge, megengine.module as M
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "net.safetensors")
    ...     mge.save(M.Linear(3, 2).state_dict(), path)
    ...     state = mge.load(path, mmap=True)
    >>> sorted(state), state["weight"].shape
    (['bias', 'weight'], (2, 3))
    """

    __module__ = "megengine.serialization"  # where programs import it from

    def __init__(self, parts: _Parts, metadata: Mapping[str, Any]) -> None:
        self.metadata = dict(metadata)
        self._device = map_device(str(get_default_device()))
        self._made: dict[str, Tensor | QuantizedBlocks | None] = dict.fromkeys(parts)
        self._mapped: _Parts = {}
        self._paths = list(dict.fromkeys(path for _, path in parts.values()))
        for name, (stored, path) in parts.items():
            _check(name, stored.entries[name])
            if stored.mapped is None:
                self._made[name] = self._value(stored, name)
            else:
                self._mapped[name] = stored, path

    def __getitem__(self, name: str) -> Tensor | QuantizedBlocks:
        made = self._made[name]
        if made is None:
            stored, path = self._mapped[name]
            try:
                made = self._made[name] = self._value(stored, name)
            except Damaged as error:
                raise RuntimeError(
                    f"cannot read {name!r} of {path}: {error}\n"
                    "  fix: load the file again; replace files (rename) rather than write to them"
                ) from None
        return made

    def _value(self, stored: Stored, name: str) -> Tensor | QuantizedBlocks:
        entry, content = stored.entries[name], stored.content(name)
        if entry.dtype is None:
            return QuantizedBlocks(entry.format, entry.shape, content)
        array = container.as_array(name, entry, content)
        if stored.mapped is None:
            return Tensor(array, dtype=entry.dtype, device=self._device)
        return mapped_tensor(array, self._device)

    def __contains__(self, name: object) -> bool:
        return name in self._made

    def __iter__(self) -> Iterator[str]:
        return iter(self._made)

    def __len__(self) -> int:
        return len(self._made)

    def __reduce__(self) -> tuple[type, tuple[dict[str, Tensor | QuantizedBlocks]]]:
        return dict, (dict(self),)  # pages belong to this process, values can be copied

    def __repr__(self) -> str:
        return f"TensorFile({len(self)} tensors of {', '.join(self._paths) or 'no file'})"


def _check(name: str, entry: Any) -> None:
    if entry.format in _NOT_OF_TENSORS:
        raise container.not_held(name, entry.format)
    if len(entry.shape) > _AXES:
        raise Damaged(f"{name!r} has {len(entry.shape)} axes; a tensor has {_AXES} at most")
    # closes the file of an empty one, too
    if math.prod(max(1, extent) for extent in entry.shape) >= 1 << 62:
        raise Damaged(f"{name!r} has the shape {list(entry.shape)}, which no tensor can have")


# ---- files and folders


def in_folder(path: str) -> str:
    """Returns the file that lists the tensors of a folder: its index, or its only safetensors file.

    A path that is no folder is returned as it is.
    """
    if not os.path.isdir(path):
        return path
    index = os.path.join(path, _INDEX)
    if os.path.exists(index):
        return index
    found = [name for name in os.listdir(path) if name.endswith(SUFFIX)]
    if len(found) != 1:
        raise RuntimeError(
            f"cannot read {path}: it has no {_INDEX}, and {len(found)} files {SUFFIX}\n"
            "  fix: give the path of one file"
        )
    return os.path.join(path, found[0])


def stored_in(file: IO[bytes], is_mapped: bool) -> Stored:
    """The tensors of a file that begins like a safetensors or a GGUF file."""
    begin = kinds.first_bytes(file)
    mapped = MappedFile(file) if is_mapped else None
    return Container(file, mapped) if kinds.is_model_file(begin) else GGUF(file, mapped)


def parts_of(stored: Stored, path: str) -> _Parts:
    """All tensors of one open file."""
    return dict.fromkeys(stored.entries, (stored, path))


def parts_of_index(
    file: IO[bytes], path: str, is_mapped: bool, stack: contextlib.ExitStack
) -> tuple[_Parts, dict[str, Any]]:
    """The tensors that an index finds in files beside it, which the stack closes; its metadata."""
    text = file.read(container.HEADER_BYTES + 1)
    if len(text) > container.HEADER_BYTES:
        raise Damaged(f"it has more than {container.HEADER_BYTES} bytes")
    said = container.parse(container.decoded(text))
    places = said.get("weight_map") if isinstance(said, dict) else None
    if not isinstance(places, dict) or not all(isinstance(name, str) for name in places.values()):
        raise Damaged("it has no weight_map, which names a file for each tensor")
    names = dict.fromkeys(places.values())
    files = {name: _shard(path, name, is_mapped, stack) for name in names}
    for tensor, name in places.items():
        if tensor not in files[name][0].entries:
            raise Damaged(f"its weight_map names {name} for {tensor!r}, which is not in that file")
    metadata = said.get("metadata")
    parts = {tensor: files[name] for tensor, name in places.items()}
    return parts, metadata if isinstance(metadata, dict) else {}


def _shard(
    index: str, name: str, is_mapped: bool, stack: contextlib.ExitStack
) -> tuple[Stored, str]:
    if os.path.basename(name) != name or not name.endswith(SUFFIX):
        raise Damaged(f"its weight_map names {name!r}, which is no {SUFFIX} file beside it")
    path = os.path.join(os.path.dirname(index), name)
    try:
        file = stack.enter_context(open(path, "rb"))
    except FileNotFoundError:
        raise Damaged(f"its weight_map names {name}, which is not there") from None
    other = kinds.kind_of(kinds.first_bytes(file))
    if other is not None:
        raise Damaged(f"{name} is {other[0]}", other[1])
    try:
        return Container(file, MappedFile(file) if is_mapped else None), path
    except Damaged as error:
        raise Damaged(f"{name}: {error}", error.fix) from None


# ---- writing


def save(tensors: object, path: str | os.PathLike[str]) -> None:
    """Writes tensors and arrays by name. TypeError that names what a file does not hold."""
    if not isinstance(tensors, Mapping):
        raise TypeError(
            f"save: {os.fspath(path)} holds tensors by name, the object is a "
            f"{type(tensors).__name__}\n"
            "  fix: save state_dict(), or give the file another suffix"
        )
    held = {name: _held(name, each) for name, each in tensors.items()}
    with written_whole(path) as file:
        try:
            container.write(file, {}, held)
        except Damaged as error:
            raise ValueError(f"save: {os.fspath(path)} cannot be written: {error}") from None


def _held(name: object, value: Any) -> np.ndarray | Tensor:
    """The value, if a file can hold it."""
    if not isinstance(name, str) or name == "__metadata__":
        raise TypeError(f"save: the key {name!r} is no name of a tensor\n  fix: use texts as keys")
    if isinstance(value, np.generic):
        value = np.asarray(value)
    if isinstance(value, Tensor):
        value.__getstate__()  # raises for a process's part of a parameter, as in a pickle
    if isinstance(value, np.ndarray | Tensor):
        if container.can_hold(value.dtype) and not is_quantize(value.dtype):
            return value
        what = f"of the dtype {value.dtype}"
    else:
        what = f"a {type(value).__name__}"
    raise TypeError(
        f"save: {name!r} is {what}; safetensors files hold tensors and arrays of numbers\n"
        f"  fix: convert it, or save under another suffix than {SUFFIX} (a pickle)"
    )
