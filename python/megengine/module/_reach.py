"""Reach into nested modules, lists and dicts by a dotted key; switch a module's mode for a while."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, MutableMapping, MutableSequence
from typing import TYPE_CHECKING, Any, TypeVar

from ..core._registry import WrongKey
from ..core._tree import leaves
from ..tensor import Tensor

if TYPE_CHECKING:
    from .module import Module

_M = TypeVar("_M", bound="Module")


def get_expand_structure(obj: object, key: str) -> Any:
    """Follow a dotted ``key`` such as ``"layers.0.weight"``: attributes, list indices, dict keys.

    Raises KeyError naming the step that is missing.
    """
    for step in key.split("."):
        obj = _child(obj, step, key)
    return obj


def set_expand_structure(obj: object, key: str, value: object) -> None:
    """Replaces what ``get_expand_structure(obj, key)`` gives. A tuple on the way is rebuilt."""
    *path, last = key.split(".")
    holder = get_expand_structure(obj, ".".join(path)) if path else obj
    if isinstance(holder, tuple) and not hasattr(holder, last):
        _child(holder, last, key)
        rebuilt = list(holder)
        rebuilt[int(last)] = value
        if not path:
            raise TypeError(
                f"cannot replace item {last} of a tuple in place; pass the object that holds the tuple"
            )
        set_expand_structure(obj, ".".join(path), type(holder)(rebuilt))
    elif isinstance(holder, MutableMapping):
        holder[_dict_key(holder, last)] = value
    elif isinstance(holder, MutableSequence):
        _child(holder, last, key)
        holder[int(last)] = value
    else:
        setattr(holder, last, value)


def _dict_key(mapping: Any, step: str) -> Any:
    return (
        int(step)
        if step not in mapping and step.lstrip("-").isdigit() and int(step) in mapping
        else step
    )


def _child(obj: Any, step: str, key: str) -> Any:
    try:
        if isinstance(obj, MutableMapping):
            return obj[_dict_key(obj, step)]
        if isinstance(obj, (MutableSequence, tuple)) and step.lstrip("-").isdigit():
            return obj[int(step)]
        return getattr(obj, step)
    except (KeyError, IndexError, AttributeError):
        raise WrongKey(
            f"no {step!r} in a {type(obj).__name__}, on the way of key {key!r}"
        ) from None


def tensors_in(tree: object) -> list[Tensor]:
    """Returns the tensors in ``tree``, nested lists, tuples, dicts and dataclasses, in order.

    >>> import megengine as mge
    >>> x, y = mge.Tensor(1.0), mge.Tensor(2.0)
    >>> [tensor.item() for tensor in tensors_in({"a": x, "b": [3, (y, x)]})]
    [1.0, 2.0, 1.0]
    """
    return [leaf for leaf in leaves(tree) if isinstance(leaf, Tensor)]


@contextlib.contextmanager
def kept_tensors(tensors: Iterable[Any]) -> Iterator[None]:
    """Restores ``tensors``, such as statistics of normalizations, when the block ends."""
    saved = [(tensor, tensor.detach()) for tensor in tensors]
    try:
        yield
    finally:
        for tensor, value in saved:
            if tensor.value_id() != value.value_id():
                tensor._reset(value)


@contextlib.contextmanager
def set_module_mode_safe(module: _M, training: bool = False) -> Iterator[_M]:
    """``with set_module_mode_safe(module, training=False) as module:`` sets the mode of ``module`` and of all its
    submodules, and gives every one its own former mode back at the end."""
    saved = [(child, child.training) for child in module.modules()]
    module.train(training)
    try:
        yield module
    finally:
        for child, was_training in saved:
            child.training = was_training
