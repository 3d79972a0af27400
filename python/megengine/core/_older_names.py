"""The door to `_compat`: names that older programs import are looked up there if no other module
has them.

`install` adds a last finder for paths of modules, and looks names up that the engine's own modules
lack. Until a
name is missing, nothing of `_compat` is loaded; nothing else of the engine knows it.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

_PACKAGE = __name__.partition(".")[0]
# Modules of ours below which `_compat` has a name.
PLACES = (
    "", "core", "core.ops", "core.tensor", "core.tensor.array_method", "distributed", "distributed.helper", "functional", "functional.elemwise", "jit", "jit.tracing",
    "module", "module.module", "module.qat", "module.quantized", "quantization", "quantization.quantize", "utils",
)  # fmt: skip


def _compat() -> Any:
    return importlib.import_module(f"{_PACKAGE}._compat")


def paths() -> list[str]:
    """The modules of older programs, for files that name them."""
    return [f"{_PACKAGE}.{path}" for path in _compat().paths()]


class _Finder:
    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        return _compat().find_spec(name) if name.startswith(f"{_PACKAGE}.") else None


def ask_for_names(module: ModuleType) -> None:
    """Names that neither ``module`` nor its own ``__getattr__`` has are those of `_compat`."""

    def unknown(name: str) -> Any:
        raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}", name=name, obj=module)

    own: Callable[[str], Any] = vars(module).get("__getattr__", unknown)

    def __getattr__(name: str) -> Any:
        try:
            return own(name)
        except AttributeError:
            if name.startswith("__") or not _compat().knows(path := f"{module.__name__}.{name}"):
                raise
        setattr(module, name, found := _compat().find(path))
        return found

    vars(module)["__getattr__"] = __getattr__


def install() -> None:
    """Lets older programs find the modules that they import, from this call on."""
    sys.meta_path.append(_Finder)
    for place in PLACES:
        ask_for_names(importlib.import_module(f"{_PACKAGE}.{place}".rstrip(".")))
