"""Names of ops and variables while a graph is being built: scopes, and unique op names."""

from __future__ import annotations

from typing import Any

from ..core import scopes


class _Scopes(type):
    @property
    def scopes(cls) -> list[str]:
        """The scopes that this thread, or context, is in; outermost first."""
        return scopes.current()


class AutoNaming(metaclass=_Scopes):
    """Registers scopes, a stack of strings for each thread, and names of operations and variables."""

    c_ops: list[Any] = []
    name2ops: dict[str, list[Any]] = {}
    handle2names: dict[int, str] = {}
    __cls_attributes__ = {"scopes", "c_ops", "name2ops", "handle2names"}

    push_scope = staticmethod(scopes.push)
    pop_scope = staticmethod(scopes.pop)
    get_scope = staticmethod(scopes.path)

    @classmethod
    def clear(cls) -> None:
        """Forgets everything."""
        for name in cls.__cls_attributes__:
            getattr(cls, name).clear()

    @classmethod
    def gen_name(cls, x: Any) -> str:
        """Names an object inside the present scope.

        Parameters
        ----------
        x : object
            A string, or an object with a ``name``; other objects get the name of their class.

        Returns
        -------
        str
            Scopes and name, with dots between.
        """
        name = x if isinstance(x, str) else getattr(x, "name", None) or type(x).__name__
        scope = scopes.path()
        return f"{scope}.{name}" if scope else name

    @classmethod
    def record_var_name(cls, handle: int, name: str) -> None:
        """Keeps the name of a variable.

        Parameters
        ----------
        handle : int
            Number of the variable.
        name : str
            Name of the variable.
        """
        cls.handle2names[handle] = name

    @classmethod
    def get_var_name(cls, handle: int) -> str | None:
        """Tells the name of a variable.

        Parameters
        ----------
        handle : int
            Number of the variable.

        Returns
        -------
        str or None
            None when none was recorded.
        """
        return cls.handle2names.get(handle)

    @classmethod
    def record_opnode(cls, op: Any) -> None:
        """Keeps an op, and renames it if another op has its name.

        Parameters
        ----------
        op : object
            Operation with a ``name`` that can be set.
        """
        ops = cls.name2ops.setdefault(op.name, [])
        if not any(known is op for known in ops):
            ops.append(op)

    @classmethod
    def remove_duplicate_names(cls) -> None:
        """Renames ops of equal name to ``name[0]``, ``name[1]``, ... in order of recording."""
        for name, ops in cls.name2ops.items():
            if len(ops) > 1:
                for index, op in enumerate(ops):
                    op.name = f"{name}[{index}]"
        cls.name2ops.clear()
