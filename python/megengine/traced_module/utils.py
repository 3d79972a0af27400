"""Attributes by dotted paths, through modules, lists, tuples and dicts."""

from __future__ import annotations

from typing import Any

from ..fx.node import attribute_at
from ..module._reach import set_expand_structure


def get_subattr(module: object, target: str) -> Any:
    """What ``module`` holds at ``target``, such as ``conv_bn.1`` or ``layers.0.weight``; "" is the module itself. AttributeError for nothing."""
    return attribute_at(module, target)


def assign_attr(obj: object, module: object, target: str) -> None:
    """Put ``obj`` at ``target`` in ``module``."""
    set_expand_structure(module, target, obj)
