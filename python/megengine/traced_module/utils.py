"""Attributes by dotted paths, through modules, lists, tuples and dicts."""

from __future__ import annotations

from typing import Any

from ..fx.node import attribute_at
from ..module._reach import set_expand_structure


def get_subattr(module: object, target: str) -> Any:
    """Returns the object at the dotted path ``target``, such as ``layers.0.weight``; "" is
    ``module``. AttributeError if there is none.
    """
    return attribute_at(module, target)


def assign_attr(obj: object, module: object, target: str) -> None:
    """Put ``obj`` at ``target`` in ``module``."""
    set_expand_structure(module, target, obj)
