"""State dicts: reading the tensors of a module tree into arrays and writing them back."""

from __future__ import annotations

import warnings
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..core._registry import WrongKey
from ..core.tensor.dtype import is_quantize
from ..core.tensor.quantized import QuantizedTensor
from ..distributed._parts import ShardedParameter, own_array, whole_array, whole_shape
from ..tensor import Tensor
from ._structure import _flatten, _is_module, _is_tensor, all_paths

StateSource = Mapping[str, Any] | Callable[[str, Tensor], Any]


def collect(
    module: object, rst: dict[str, Any] | None, prefix: str, keep_var: bool
) -> tuple[dict[str, Any], set[str]]:
    """The state dict of ``module``, and those of its keys whose entries are kept flat."""
    result: dict[str, Any] = OrderedDict() if rst is None else rst
    flat: set[str] = set()
    for path, tensor, owner in _flatten(module, _is_tensor):
        if owner._not_saved and path.rpartition(".")[2] in owner._not_saved:
            continue
        path = prefix + path
        if owner._flat_state:
            flat.add(path)
        if keep_var:
            result[path] = tensor
        else:
            array = whole_array(tensor, tensor)
            result[path] = array.reshape(-1) if owner._flat_state else array
    return result, flat


def load(module: object, source: StateSource, strict: bool) -> None:
    """Writes ``source`` into the tensors of ``module``; the contract is
    Module.load_state_dict's."""
    targets, flat = collect(module, None, "", keep_var=True)
    if _is_module(source) or not (callable(source) or isinstance(source, Mapping)):
        raise TypeError(
            f"`state_dict` must load a dict or callable, got {type(source)}\n"
            "  fix: pass module.state_dict(), or megengine.load(path) of a file that holds one"
        )
    layers = {path: owner for path, tensor, owner in _flatten(module, _is_tensor) if hasattr(owner, "_read_stored") and tensor is owner.weight}
    if callable(source):
        for key, target in targets.items():
            value = source(key, target)
            if value is not None:
                _write(key, target, _read_by(layers.get(key), value), key in flat)
        return
    source = _once(module, _unpacked(module, source), targets)
    _check_keys(source, targets.keys(), strict)
    fitting = [(key, target, _read_by(layers.get(key), source[key])) for key, target in targets.items() if key in source]
    for key, target, value in fitting:  # all are checked before the first is written
        _check_shape(key, target, value, key in flat)
    for key, target, value in fitting:
        _write(key, target, value, key in flat)


def _read_by(layer: Any, value: Any) -> Any:
    """Returns ``value``; for a layer of blocks the bytes of a file's blocks."""
    return value if layer is None or not hasattr(value, "as_tensor") else layer._read_stored(value)


def _unpacked(module: Any, source: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns ``source`` with each array that MegEngine's layers keep whole replaced by its parts.
    """
    packed = [(path, owner) for path, owner in module.named_modules() if owner._packed_entry]
    result = dict(source) if packed else source
    for path, owner in packed:
        prefix = f"{path}." if path else ""
        if (array := result.pop(prefix + owner._packed_entry, None)) is not None:  # type: ignore[attr-defined]  # a dict
            result.update((prefix + name, part) for name, part in owner._parts_of(array).items())  # type: ignore[attr-defined]
    return result


def _once(module: object, source: Mapping[str, Any], targets: Mapping[str, Tensor]) -> Mapping[str, Any]:
    """Returns ``source`` with one entry for each tensor that the module holds at several paths,
    under the path in its own state dict.
    """
    if all(key in targets for key in source):
        return source
    canonical = {id(tensor): path for path, tensor in targets.items()}
    tied = {path: canonical.get(id(tensor)) for path, tensor in all_paths(module) if path in source and path not in targets}
    result = dict(source)
    for path, first in tied.items():
        if first is None:
            continue
        value = result.pop(path)
        if first not in result:
            result[first] = value
        elif not np.array_equal(_array(result[first]), _array(value)):
            raise ValueError(
                f"load_state_dict: {first} and {path} are one tensor of the module, and the state dict has two values for it\n"
                "  fix: build the module with two tensors, or leave one of the keys out"
            )
    return result


def _array(value: Any) -> np.ndarray:
    return whole_array(value, value) if isinstance(value, Tensor) else np.asarray(value)


def _check_keys(given: Mapping[str, Any], wanted: Any, strict: bool) -> None:
    unused = [key for key in given if key not in wanted]
    missing = [key for key in wanted if key not in given]
    if not unused and not missing:
        return
    text = "load_state_dict: the keys differ from those of the module"
    if strict:
        kind, keys = ("unused", unused) if unused else ("missing", missing)
        text = f"{kind.capitalize()} params violate `strict=True`, {kind}={{{', '.join(map(repr, keys[:8]))}{', ...' if len(keys) > 8 else ''}}}"
    if missing:
        text += f"\n  missing in the state dict: {_some(missing)}"
    if unused:
        text += f"\n  unused in the state dict: {_some(unused)}"
    if strict:
        whole = next((key for key in unused if isinstance(given[key], Mapping)), None)
        fix = "rename the keys, or pass strict=False to load those that fit"
        prefix = next((key.removesuffix(missing[0]) for key in unused if missing and key.endswith(f".{missing[0]}")), "")
        if prefix and {prefix + key for key in missing} <= set(unused):
            fix = f"take the prefix away, as in {{key.removeprefix({prefix!r}): value for key, value in state_dict.items()}}"
        if whole is not None:
            fix = f"pass the part of the checkpoint that is the module's, as in state_dict[{whole!r}]"
        raise WrongKey(f"{text}\n  fix: {fix}")
    warnings.warn(text, stacklevel=4)


def _some(keys: list[str]) -> str:
    shown = ", ".join(keys[:8])
    return shown if len(keys) <= 8 else f"{shown} and {len(keys) - 8} more"


def _check_shape(key: str, target: Tensor, value: Any, flat: bool) -> None:
    have, want = tuple(_shape_of(value)), _shape_of(target)
    if have == want or (flat and max(have, default=1) == np.prod(have) == np.prod(want)):
        return
    fix = "build the module with the sizes of the saved one, or leave the key out (strict=False)"
    if np.prod(have) == np.prod(want):
        fix = f"give the array that shape: {'array.T' if have == want[::-1] else f'array.reshape{want}'}, if its elements mean the same"
    raise ValueError(f"param `{key}` shape mismatch, should be {want}, get {have}\n  fix: {fix}")


def _shape_of(value: Any) -> tuple[int, ...]:
    return whole_shape(value) if isinstance(value, Tensor) else np.shape(value)


def _write(key: str, target: Tensor, value: Any, flat: bool) -> None:
    _check_shape(key, target, value, flat)
    if isinstance(value, Tensor) and _can_share(target, value):
        target._reset(value.detach())
        return
    array = _array(value)
    array = own_array(target, array)
    target._reset(Tensor(array, device=str(target.device)))
    if isinstance(target, QuantizedTensor) and is_quantize(array.dtype):
        target._quantized_dtype = array.dtype  # integers mean nothing without their scale


def _can_share(target: Tensor, value: Tensor) -> bool:
    """Whether ``target`` may hold the value of another tensor without a copy.

    A mapped file then stays unread. A write gives a tensor another value, so neither of the two
    sees writes to the other.
    """
    special = ShardedParameter, QuantizedTensor
    return (
        value._tuple_shape == target._tuple_shape
        and value.device == target.device
        and value._layout == "row_major"
        and value.dtype not in (np.int64, np.float64)
        and not isinstance(target, special)
        and not isinstance(value, special)
    )
