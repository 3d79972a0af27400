"""Attributes by dotted paths, through modules, lists, tuples and dicts."""

from __future__ import annotations

from typing import Any

from ..utils.module_utils import set_expand_structure


def step(obj: Any, key: str) -> Any:
    """What ``obj``, a module or a container, holds at ``key``."""
    if isinstance(obj, (list, tuple)):
        return obj[int(key)]
    if isinstance(obj, dict):
        return obj[key]
    return getattr(obj, key)


def get_subattr(module: Any, target: str) -> Any:
    """What ``module`` holds at ``target``, such as ``conv_bn.1`` or ``layers.0.weight``; "" is the module itself."""
    for key in target.split(".") if target else ():
        module = step(module, key)
    return module


def assign_attr(obj: Any, module: Any, target: str) -> None:
    """Put ``obj`` at ``target`` in ``module``."""
    set_expand_structure(module, target, obj)
