"""Names of ops and variables while a graph is being built: scopes, and unique op names."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

from .. import _core

recording: ContextVar[bool] = ContextVar("naming", default=False)  # a call is recorded for dump: modules enter their scopes


_scopes: ContextVar[list[str] | None] = ContextVar("scopes", default=None)


class _Scopes(type):
    @property
    def scopes(cls) -> list[str]:
        """The scopes that this thread, or context, is in; outermost first."""
        if (found := _scopes.get()) is None:
            _scopes.set(found := [])
        return found


class AutoNaming(metaclass=_Scopes):
    """Register of scopes (a stack of strings, for each thread its own), and of the process's op names and names of variables."""

    c_ops: list[Any] = []
    name2ops: dict[str, list[Any]] = {}
    handle2names: dict[int, str] = {}
    __cls_attributes__ = {"scopes", "c_ops", "name2ops", "handle2names"}

    @classmethod
    @contextlib.contextmanager
    def scope_of(cls, module: Any) -> Iterator[None]:
        """The scope of one module call: its own name, or the attribute path that its parent holds it by.

        The top module counts only if it was named. Operations issued inside and the module's tensors
        get the scope's path before their names.
        """
        cls.push_scope(module.name or module._short_name)
        try:
            path = cls.get_scope()
            _core.set_scope(path)
            for name, value in vars(module).items():
                if isinstance(value, _core.Tensor):
                    name = value.name or name  # type: ignore[attr-defined]  # a megengine.Tensor
                    _core.set_name(value, f"{path}.{name}" if path else name)
            yield
        finally:
            cls.pop_scope()
            _core.set_scope(cls.get_scope())

    @classmethod
    def clear(cls) -> None:
        """Forget everything."""
        for name in cls.__cls_attributes__:
            getattr(cls, name).clear()

    @classmethod
    def push_scope(cls, scope: str | None) -> None:
        """Enter a scope; an empty one is allowed and leaves names as they are."""
        _scopes.set([*cls.scopes, scope or ""])

    @classmethod
    def pop_scope(cls) -> None:
        """Leave the innermost scope. Raises RuntimeError when there is none."""
        if not cls.scopes:
            raise RuntimeError("pop_scope without a push_scope before it")
        _scopes.set(cls.scopes[:-1])

    @classmethod
    def get_scope(cls) -> str:
        """The scopes joined by dots; "" outside of all."""
        return ".".join(scope for scope in cls.scopes if scope)

    @classmethod
    def gen_name(cls, x: Any) -> str:
        """Name of ``x`` (an object with a ``name``, or a string) inside the present scope."""
        name = x if isinstance(x, str) else getattr(x, "name", None) or type(x).__name__
        scope = cls.get_scope()
        return f"{scope}.{name}" if scope else name

    @classmethod
    def record_var_name(cls, handle: int, name: str) -> None:
        """Remember the name of the variable with this handle."""
        cls.handle2names[handle] = name

    @classmethod
    def get_var_name(cls, handle: int) -> str | None:
        """The remembered name, or None."""
        return cls.handle2names.get(handle)

    @classmethod
    def record_opnode(cls, op: Any) -> None:
        """Remember an op, to be renamed if another one has its name."""
        ops = cls.name2ops.setdefault(op.name, [])
        if not any(known is op for known in ops):
            ops.append(op)

    @classmethod
    def remove_duplicate_names(cls) -> None:
        """Rename ops of equal name to ``name[0]``, ``name[1]``, ... in order of recording."""
        for name, ops in cls.name2ops.items():
            if len(ops) > 1:
                for index, op in enumerate(ops):
                    op.name = f"{name}[{index}]"
        cls.name2ops.clear()
