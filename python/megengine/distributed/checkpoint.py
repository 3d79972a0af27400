"""Checkpoints of a world: each process writes its part in the background, while training goes on; any number of processes reads them.

A checkpoint is a folder: a file of arrays for each process, and a manifest, which is renamed to its
place last: a folder that has one is complete.
The processes agree by the world's server; the folder lies where all of them reach it.
"""

from __future__ import annotations

import hashlib
import heapq
import inspect
import json
import math
import os
import shutil
import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from .._files.container import Container, Damaged, can_hold, parse
from .._files.container import write as write_container
from .._files.disk import replaced
from ..core import random_state
from ..logger import get_logger
from ..tensor import Tensor
from ._parts import Part, ShardedParameter
from .group import get_client, get_rank, get_world_size

if TYPE_CHECKING:
    from .server import Client

__all__ = ["load", "save", "wait"]

_KEPT = 2  # whole checkpoints
_MANIFEST = "manifest.json"
_PIECE = 16 << 20  # bytes that are read at once
_Array = Tensor | np.ndarray | Part

_pending: _Saving | None = None  # only one save runs at a time
_saved = 0  # number of saves, the same in all processes


def save(folder: str | os.PathLike[str], state: Mapping[str, Any], step: int) -> None:
    """Writes a checkpoint in the background; all processes of the world call it together.

    Parameters
    ----------
    folder : str or PathLike
        Where checkpoints lie, one folder for all processes; made where it is not there.
    state : mapping of str
        Modules, optimizers and others with a ``state_dict``; tensors, arrays, numbers, texts, None,
        and lists, tuples and dicts of these. Values are those at the call. It has the same form in
        all processes; values that are not sharded are the same in all, and each writes a part of
        them.
    step : int
        Its number, from 0.

    Raises
    ------
    TypeError
        For values that no checkpoint holds.
    ValueError
        For a negative step.

    Notes
    -----
    Returns when the one before is written. If writing fails, on a full disk say, a warning says why,
    and the last whole checkpoint stays. The last two are kept. The random states of megengine and
    NumPy are saved, too.

    Examples
    --------
    >>> import tempfile, megengine as mge, megengine.module as M
    >>> from megengine.distributed import checkpoint
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     checkpoint.save(folder, {"net": M.Linear(3, 2), "losses": [0.5]}, step=7)
    ...     state, step = checkpoint.load(folder)
    >>> sorted(state["net"]), state["losses"], step
    (['bias', 'weight'], [0.5], 7)
    """
    global _pending, _saved
    if not isinstance(step, int) or step < 0:
        raise ValueError(f"checkpoint.save: step must be an int from 0, got {step!r}")
    arrays: dict[str, _Array] = {}
    tree = _encoded(dict(state), arrays, "state", as_arrays=False)
    wait()
    _saved += 1
    os.makedirs(folder, exist_ok=True)
    _pending = _Saving(os.fspath(folder), step, tree, arrays, _saved)
    _pending.start()


def wait() -> str:
    """Waits until the checkpoint that is being written is there.

    Returns
    -------
    str
        Why it could not be written; "" where all is well.

    Examples
    --------
    >>> from megengine.distributed import checkpoint
    >>> checkpoint.wait()
    ''
    """
    global _pending
    if _pending is None:
        return ""
    _pending.join()
    why, _pending = _pending.why, None
    return why


def load(folder: str | os.PathLike[str]) -> tuple[dict[str, Any], int] | None:
    """Reads the newest whole checkpoint; all processes of the world call it together, however many have written it.

    Parameters
    ----------
    folder : str or PathLike
        As of `save`.

    Returns
    -------
    (dict of str, int) or None
        State and step; None if there is no checkpoint. Of what had a ``state_dict`` it is what
        ``load_state_dict`` takes. Random states go on where they were: each process's own in a world of the
        same size, else those of rank 0.

    Raises
    ------
    RuntimeError
        If no checkpoint that is there can be read.

    Notes
    -----
    Where one is damaged, a warning says so, and the one before is taken.

    Examples
    --------
    >>> from megengine.distributed import checkpoint
    >>> checkpoint.load("/nonexistent") is None
    True
    """
    wait()
    folder = os.fspath(folder)
    found = _newest(folder) if get_rank() == 0 else None
    if get_world_size() > 1:
        name = get_client().bcast_val((found[0] if found else "") if get_rank() == 0 else None, "checkpoint.load", get_world_size())
        if name and get_rank():
            found = name, *_read(os.path.join(folder, name))
    if found is None:
        return None
    _, manifest, arrays, states = found
    random = states[get_rank() if len(states) == get_world_size() else 0]
    random_state.restore(*random["megengine"])
    np.random.set_state(tuple(random["numpy"]))
    return _decoded(manifest["state"], arrays), manifest["step"]


# ---- values


def _encoded(value: Any, arrays: dict[str, _Array], where: str, as_arrays: bool) -> Any:
    """Writes a value as JSON, arrays by their names. as_arrays: tensors come back as arrays, like
    those of a state_dict.
    """
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, ShardedParameter):
        value = value._as_part()
    if isinstance(value, (Tensor, np.ndarray, np.generic, Part)):
        kind = "tensor" if isinstance(value, Tensor) and not as_arrays else "array"
        return {kind: _noted(value, arrays, where)}
    if isinstance(value, Mapping):
        for key in value:
            if key is not None and not isinstance(key, (bool, int, float, str)):
                raise TypeError(f"checkpoint.save: {where} has the key {key!r}; keys are texts and numbers")
        return {"dict": [[key, _encoded(each, arrays, f"{where}[{key!r}]", as_arrays)] for key, each in value.items()]}
    if isinstance(value, (list, tuple)):
        return {
            "tuple" if isinstance(value, tuple) else "list": [
                _encoded(each, arrays, f"{where}[{i}]", as_arrays) for i, each in enumerate(value)
            ]
        }
    if hasattr(value, "_state_of_parts"):
        return _encoded(value._state_of_parts(), arrays, where, as_arrays=True)
    if hasattr(value, "state_dict"):
        # their values need no copy
        has_handles = "keep_var" in inspect.signature(value.state_dict).parameters
        return _encoded(value.state_dict(**({"keep_var": True} if has_handles else {})), arrays, where, as_arrays=True)
    raise TypeError(
        f"checkpoint.save: {where} is of type {type(value).__name__}\n"
        "  fix: give what has a state_dict, tensors, arrays, numbers, texts, None, and lists, tuples and dicts of these"
    )


def _noted(value: Any, arrays: dict[str, _Array], where: str) -> str:
    """Notes an array and returns its name. A tensor is not copied: its value never changes, only
    its handle gets new ones.
    """
    name = str(len(arrays))
    dtype = np.dtype((value.values if isinstance(value, Part) else value).dtype)
    if not can_hold(dtype):
        raise TypeError(f"checkpoint.save: {where} has the dtype {dtype}, which no file of arrays holds")
    if isinstance(value, Part):
        arrays[name] = replace(value, values=value.values.detach())
    else:
        arrays[name] = value.detach() if isinstance(value, Tensor) else np.array(value)
    return name


def _decoded(tree: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    if not isinstance(tree, dict):
        return tree
    ((kind, content),) = tree.items()
    if kind == "dict":
        return {key: _decoded(each, arrays) for key, each in content}
    if kind in ("list", "tuple"):
        each_one = [_decoded(each, arrays) for each in content]
        return tuple(each_one) if kind == "tuple" else each_one
    return Tensor(arrays[content], dtype=arrays[content].dtype) if kind == "tensor" else arrays[content]


def _shape(value: _Array) -> list[int]:
    return [int(extent) for extent in (value._tuple_shape if isinstance(value, Tensor) else value.shape)]


def _own(arrays: Mapping[str, _Array], rank: int, size: int) -> dict[str, tuple[Tensor | np.ndarray, int]]:
    """Returns what this process writes, by name, with its offset in the whole: its own parts, and
    its share of the other bytes.
    """
    loads = [(0, each) for each in range(size)]
    own: dict[str, tuple[Tensor | np.ndarray, int]] = {}
    by_bytes = sorted(arrays.items(), key=lambda item: (-math.prod(_shape(item[1])), item[0]))
    for name, value in by_bytes:
        if isinstance(value, Part):
            own[name] = value.values, value.begin
            continue
        load, owner = loads[0]
        heapq.heapreplace(loads, (load + math.prod(_shape(value)) * np.dtype(value.dtype).itemsize, owner))
        if owner == rank:
            own[name] = value, 0
    return own


# ---- writing


class _Saving(threading.Thread):
    """Writes one checkpoint. Not a daemon: a program ends when it is written."""

    def __init__(self, folder: str, step: int, tree: Any, arrays: dict[str, _Array], number: int) -> None:
        super().__init__(name="checkpoint")
        self.why = ""
        self._folder, self._step, self._tree, self._number = folder, step, tree, number
        self._rank, self._size = get_rank(), get_world_size()
        self._client = get_client() if self._size > 1 else None
        self._own = _own(arrays, self._rank, self._size)
        self._shapes = {name: _shape(value) for name, value in arrays.items()}
        numpy_state = np.random.get_state(legacy=True)
        words = [word.tolist() if isinstance(word, np.ndarray) else word for word in numpy_state]
        self._random = {"megengine": random_state.state(), "numpy": words}

    @property
    def _place(self) -> str:
        return os.path.join(self._folder, f"step-{self._step:012}")

    def run(self) -> None:
        try:
            self.why = self._follow(self._client) if self._client is not None and self._rank else self._lead()
        except RuntimeError as error:  # the world ended, because a process is gone
            self.why = str(error)
        if self.why:
            get_logger(__name__).warning("the checkpoint of step %d was not written: %s", self._step, self.why)

    def _lead(self) -> str:
        """Runs in rank 0: begins, writes, waits for the others, ends."""
        why = self._or_why(self._begin)
        self._tell("begin", why)
        if why:
            return why
        told = [self._written()]
        if self._client is not None:
            told += [json.loads(self._client.user_pop(self._key("written", rank))) for rank in range(1, self._size)]
        for rank, each in enumerate(told):
            if not why and "why" in each:
                why = f"rank {rank}: {each['why']}"
            elif not why and each["shapes"] != told[0]["shapes"]:
                why = f"the state of rank {rank} has other tensors than that of rank 0"
        why = why or self._or_why(lambda: self._end(told))
        if why:
            shutil.rmtree(self._place, ignore_errors=True)
        self._tell("end", why)
        return why

    def _follow(self, client: Client) -> str:
        why: str = client.user_pop(self._key("begin", self._rank))
        if why:
            return why
        client.user_set(self._key("written", self._rank), json.dumps(self._written()))
        return client.user_pop(self._key("end", self._rank))

    def _key(self, what: str, rank: int) -> str:
        return f"checkpoint {self._number} {what} {rank}"

    def _tell(self, what: str, text: str) -> None:
        if self._client is not None:
            for rank in range(1, self._size):
                self._client.user_set(self._key(what, rank), text)

    def _or_why(self, act: Any) -> str:
        try:
            act()
            return ""
        except (OSError, Damaged, MemoryError) as error:
            return str(error) or type(error).__name__

    def _begin(self) -> None:
        os.makedirs(self._place, exist_ok=True)
        if os.path.exists(manifest := os.path.join(self._place, _MANIFEST)):
            os.remove(manifest)  # an earlier run left it; it is incomplete from here on

    def _written(self) -> dict[str, Any]:
        """Writes this process's file. Returns what the manifest says of it, or why it could not be written."""
        shard: dict[str, Any] = {"file": f"{self._rank}-of-{self._size}.safetensors"}
        shapes = hashlib.blake2b(json.dumps(self._shapes).encode(), digest_size=16).hexdigest()
        why = self._or_why(lambda: shard.update(self._write(os.path.join(self._place, shard["file"]))))
        return {"why": why} if why else {**shard, "shapes": shapes}

    def _write(self, path: str) -> dict[str, Any]:
        flat = {
            name: (value.numpy() if isinstance(value, Tensor) else value).reshape(-1) for name, (value, _) in self._own.items()
        }
        begins = {name: begin for name, (_, begin) in self._own.items()}
        with replaced(path) as partial, open(partial, "wb") as file:
            counted = _Counted(file)
            write_container(counted, {"begins": json.dumps(begins), "random": json.dumps(self._random)}, flat)  # type: ignore[arg-type]  # it writes alone
            _to_disk(file)
        return {"bytes": counted.bytes, "blake2b": counted.digest.hexdigest()}

    def _end(self, shards: list[dict[str, Any]]) -> None:
        manifest = {"step": self._step, "shards": shards, "shapes": self._shapes, "state": self._tree}
        with replaced(os.path.join(self._place, _MANIFEST)) as partial, open(partial, "w") as file:
            json.dump(manifest, file)
            _to_disk(file)
        whole = [name for name in _steps(self._folder) if os.path.exists(os.path.join(self._folder, name, _MANIFEST))]
        kept = {*whole[-_KEPT:], os.path.basename(self._place)}
        for name in _steps(self._folder):
            if name not in kept:
                shutil.rmtree(os.path.join(self._folder, name), ignore_errors=True)


class _Counted:
    """A file that counts the bytes written to it and computes their checksum."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.bytes = 0
        self.digest = hashlib.blake2b(digest_size=16)

    def write(self, data: Any) -> None:
        self._file.write(data)
        self.bytes += memoryview(data).nbytes
        self.digest.update(data)


def _to_disk(file: IO[Any]) -> None:
    file.flush()
    os.fsync(file.fileno())


# ---- reading


def _steps(folder: str) -> list[str]:
    """Names of checkpoints, the newest last."""
    names = os.listdir(folder) if os.path.isdir(folder) else []
    return sorted(name for name in names if name.startswith("step-"))


def _newest(folder: str) -> tuple[str, dict[str, Any], dict[str, np.ndarray], list[dict[str, Any]]] | None:
    """Returns name and content of the newest complete checkpoint."""
    wrong = ""
    for name in reversed(_steps(folder)):
        path = os.path.join(folder, name)
        if not os.path.exists(os.path.join(path, _MANIFEST)):
            continue  # it was never written to its end
        try:
            return name, *_read(path)
        except (Damaged, OSError) as error:
            wrong = f"{path} is damaged: {error}"
            get_logger(__name__).warning("%s; the checkpoint before it is taken", wrong)
    if wrong:
        raise RuntimeError(f"no checkpoint of {folder} can be read; {wrong}")
    return None


def _read(path: str) -> tuple[dict[str, Any], dict[str, np.ndarray], list[dict[str, Any]]]:
    """Reads the manifest, whole arrays by name, and the random states by rank. Damaged or OSError
    if a file is not as it was written.
    """
    with open(os.path.join(path, _MANIFEST)) as text:
        manifest = parse(text.read())
    arrays: dict[str, np.ndarray] = {}
    filled = dict.fromkeys(manifest["shapes"], 0)
    states = []
    for shard in manifest["shards"]:
        with open(os.path.join(path, shard["file"]), "rb") as file:
            _check(file, shard)
            container = Container(file)
            states.append(json.loads(container.metadata["random"]))
            for name, begin in json.loads(container.metadata["begins"]).items():
                filled[name] += _place(arrays, name, container.array(name), manifest["shapes"][name], begin)
    for name, count in filled.items():
        if count < math.prod(manifest["shapes"][name]):
            raise Damaged(f"it has {count} elements of a tensor of shape {manifest['shapes'][name]}")
    return manifest, arrays, states


def _place(arrays: dict[str, np.ndarray], name: str, part: np.ndarray, shape: list[int], begin: int) -> int:
    """Puts a part where it belongs in the whole; how many elements that were."""
    if name not in arrays:
        arrays[name] = np.empty(shape, part.dtype)
    whole = arrays[name].reshape(-1)
    count = max(0, min(part.size, whole.size - begin))
    whole[begin : begin + count] = part[:count]
    return count


def _check(file: IO[bytes], shard: dict[str, Any]) -> None:
    digest, count = hashlib.blake2b(digest_size=16), 0
    while piece := file.read(_PIECE):
        digest.update(piece)
        count += len(piece)
    if count != shard["bytes"]:
        raise Damaged(f"{shard['file']} has {count} bytes, {shard['bytes']} were written")
    if digest.hexdigest() != shard["blake2b"]:
        raise Damaged(f"{shard['file']} has another checksum than what was written")
    file.seek(0)
