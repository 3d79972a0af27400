"""Names of a package that are loaded when a program first asks for one."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import Any


def names_of(package: str, later: dict[str, str], missing: Callable[[str], Any]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """A ``__getattr__`` and a ``__dir__`` for ``package``.

    later: submodule -> the names that it defines; "" stands for submodules themselves. missing:
    raises the error for other names.
    """
    homes = {name: f".{home}" if home else f".{name}" for home, names in later.items() for name in names.split()}
    modules = set(later.get("", "").split())

    def __getattr__(name: str) -> Any:
        if name not in homes:
            return missing(name)
        found: Any = importlib.import_module(homes[name], package)
        if name not in modules:
            found = getattr(found, name)
        setattr(sys.modules[package], name, found)
        return found

    def __dir__() -> list[str]:
        return sorted({*vars(sys.modules[package]), *homes})

    return __getattr__, __dir__
