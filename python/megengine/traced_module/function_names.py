"""Names of functions, which files hold in place of functions."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, NamedTuple

from .. import random
from .._files import admitted


class UnknownFunction:
    """A function that a file names and this program does not have; calling it raises AttributeError."""

    def __init__(self, name: FunctionName) -> None:
        self.name = name
        self.__module__, self.__qualname__ = name
        self.__name__ = name.qualname.rpartition(".")[2]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise AttributeError(
            f"the traced module calls {self.name.module}.{self.name.qualname}, which cannot be found\n"
            "  fix: import or define it before loading, or register a loader that replaces it"
        )


class FunctionName(NamedTuple):
    """The module of a function, and its name there."""

    module: str
    qualname: str

    @classmethod
    def of(cls, function: Callable[..., Any]) -> FunctionName:
        """The name of ``function``. AssertionError for one that no module holds."""
        if isinstance(function, UnknownFunction):
            return function.name
        name = getattr(function, "__name__", "")
        if getattr(function, "__self__", None) is not None and function == getattr(random, name, 0):
            return cls("megengine.random", name)
        found = cls(function.__module__, function.__qualname__)
        if "<" in found.qualname:
            raise AssertionError(
                f"{found.module}.{found.qualname} cannot be saved: it is not at the top of its module\n"
                "  fix: define it with `def` at the top of a module"
            )
        return found

    def find(self) -> Callable[..., Any]:
        """The function, or an `UnknownFunction`. ModelFileError while a file is read that may not name it."""
        admission = admitted.active()
        if admission is not None:
            found: Any = admission.by_definition(*self)
            if callable(found):
                return found
            if not str(self.module).startswith("megengine."):
                raise admitted.refused(f"{self.module}.{self.qualname}")
            return UnknownFunction(self)
        try:
            found = importlib.import_module(self.module)
            for key in self.qualname.split("."):
                found = getattr(found, key)
        except (ImportError, AttributeError):
            return UnknownFunction(self)
        return found
