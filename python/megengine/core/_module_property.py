"""Live properties of a module: ``config.async_level = 1`` runs a setter."""

import sys
import types
from collections.abc import Callable
from typing import Any


def add_properties(module_name: str, properties: dict[str, property]) -> None:
    """Gives the module ``module_name`` the properties ``{name: property}``."""
    module = sys.modules[module_name]
    base = type(module)
    if not issubclass(base, types.ModuleType):
        raise AssertionError("issubclass(base, types.ModuleType) does not hold")
    module.__class__ = type(base.__name__, (base,), dict(properties))


def attribute_of(state: Callable[[], object], field: str, check: Callable[[Any], Any] = lambda value: value) -> property:
    """Property of a module that reads and writes ``state().field``; ``check(value)`` may replace the value."""

    def write(module: types.ModuleType, value: Any) -> None:
        setattr(state(), field, check(value))

    return property(lambda module: getattr(state(), field), write)
