"""Proxy: stands for a value that is not known while a program is traced; operations on it become
nodes.
"""

from __future__ import annotations

import dis
import operator
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from .._graph.unknown import Unknown
from ..core._origin import users_line
from ._watch import ARITHMETIC, COMPARISONS
from .node import Node

if TYPE_CHECKING:
    from .tracer import Tracer

__all__ = ["Attribute", "Proxy", "TraceError"]


class TraceError(ValueError):
    """The program asked for a value that only a run can give; the message names the node and the
    program's line.

    >>> from megengine import fx
    >>> try:
    ...     fx.symbolic_trace(lambda x: x if x.sum() > 0 else -x)
    ... except fx.TraceError as error:
    ...     print("the value is not known while tracing" in str(error))
    True
    """

    __module__ = "megengine.fx"  # where programs import it from, which tracebacks print


def unknown(proxy: Proxy, asked: str, fix: str) -> TraceError:
    """The error for asking a proxy for its value."""
    return TraceError(
        f"{asked} of {proxy.node.describe()}: the value is not known while tracing\n"
        f"  fix: {fix}\n"
        f"  at:  {users_line()}"
    )


class Proxy(Unknown):
    """Stands for a value of the program while it is traced: operations on it become nodes.

    Operators, methods, attributes and functions are recorded. Conditions, ``len`` and loops, which
    need the value, raise `TraceError`.

    Parameters
    ----------
    node : Node
        Node that makes the value.
    tracer : Tracer
        Tracer that records the program.

    Examples
    --------
    >>> from megengine import fx
    >>> def program(x):
    ...     print(type(x).__name__, x.node)
    ...     return x.sum() + 1
    >>> print(fx.symbolic_trace(program).code)
    Proxy x
    def forward(self, x):
        sum_1 = x.sum();  x = None
        add = sum_1 + 1;  sum_1 = None
        return add
    <BLANKLINE>
    """

    node: Node
    tracer: Tracer
    __hash__ = object.__hash__

    def __init__(self, node: Node, tracer: Tracer) -> None:
        self.__dict__["node"] = node
        self.__dict__["tracer"] = tracer

    def __repr__(self) -> str:
        return f"Proxy({self.node.name})"

    def __getattr__(self, name: str) -> Attribute:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(f"Proxy has no attribute {name!r}")
        return Attribute(self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        self.tracer.create_proxy("call_function", setattr, (self, name, value), {})

    def __deepcopy__(self, memo: dict[int, Any]) -> Proxy:
        return self

    def __call__(self, *args: Any, **kwargs: Any) -> Proxy:
        return self.tracer.create_proxy("call_method", "__call__", (self, *args), kwargs)

    def __setitem__(self, index: Any, value: Any) -> None:
        self.tracer.create_proxy("call_function", operator.setitem, (self, index, value), {})

    # -- what needs the value --------------------------------------------------------------------

    def __bool__(self) -> bool:
        return self.tracer.to_bool(self)

    def __iter__(self) -> Iterator[Proxy]:
        count = _unpacked_count(sys._getframe(1))
        if count is not None:
            indexed: Any = self  # operators are given to the class behind it
            return (indexed[index] for index in range(count))
        return self.tracer.iter(self)

    def keys(self) -> Any:
        """Asks the tracer for the keys, as ``**proxy`` does; `TraceError` unless a subclass
        answers.
        """
        return self.tracer.keys(self)

    def __len__(self) -> int:
        raise unknown(
            self,
            "len()",
            "call fx.wrap('len') at the top of the module, or pass the length in concrete_args",
        )

    def __format__(self, spec: str) -> str:
        if spec:
            raise unknown(self, "a formatted text", "print values in a run, not while tracing")
        return repr(self)

    def __round__(self, ndigits: int = 0) -> Any:
        return self._number()

    __trunc__ = __round__

    def _asked(self, what: str, fix: str) -> TraceError:
        return unknown(self, what, f"{fix}, or put the code into a leaf module")


class Attribute(Proxy):
    """``proxy.name``: the start of a method call, or else the value of an attribute."""

    def __init__(self, root: Proxy, name: str) -> None:
        self.__dict__.update(_root=root, _name=name, tracer=root.tracer)

    def __getattr__(self, name: str) -> Any:
        if name != "node":
            return super().__getattr__(name)
        made = self.tracer.create_proxy("call_function", getattr, (self._root, self._name), {})
        self.__dict__["node"] = made.node
        return made.node

    def __call__(self, *args: Any, **kwargs: Any) -> Proxy:
        return self.tracer.create_proxy("call_method", self._name, (self._root, *args), kwargs)


def _unpacked_count(frame: Any) -> int | None:
    """Returns the number of names that ``a, b = proxy`` assigns, if the caller runs such a
    statement.
    """
    code, place = frame.f_code.co_code, frame.f_lasti
    if 0 <= place < len(code) and dis.opname[code[place]] == "UNPACK_SEQUENCE":
        return code[place + 1]
    return None


def _unary(fn: Any) -> Any:
    return lambda self: self.tracer.create_proxy("call_function", fn, (self,), {})


def _binary(fn: Any) -> Any:
    return lambda self, other: self.tracer.create_proxy("call_function", fn, (self, other), {})


def _reflected(fn: Any) -> Any:
    return lambda self, other: self.tracer.create_proxy("call_function", fn, (other, self), {})


for _name in ARITHMETIC:
    _function = getattr(operator, f"{_name}_" if _name in ("and", "or") else _name)
    setattr(Proxy, f"__{_name}__", _binary(_function))
    setattr(Proxy, f"__r{_name}__", _reflected(_function))
    setattr(Proxy, f"__i{_name}__", _binary(getattr(operator, f"i{_name}")))
for _name in (*COMPARISONS, "getitem"):
    setattr(Proxy, f"__{_name}__", _binary(getattr(operator, _name)))
for _name in ("neg", "pos", "invert", "abs"):
    setattr(Proxy, f"__{_name}__", _unary(getattr(operator, _name)))
