"""Names of CPUs: one place, but a tensor is called as the program called its device ("cpu1:0"), and so are results.

In: tensors that were put on such a device. Out: the same name on what is made of them. As long as there is a tensor with
such a name, calls of functions, operators and methods of tensors look at the names of their operands; else nothing is exchanged.
Operands of two names are not an error here, for they lie in one place: the first name counts.
"""

from __future__ import annotations

import functools
import itertools
import types
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from ..._core import Tensor as _Tensor

if TYPE_CHECKING:
    from ...tensor import Tensor

_Named = TypeVar("_Named", bound="Tensor")

def named(x: _Named, device: str) -> _Named:
    """``x``, which the program put on ``device``."""
    from ...device import name_on_host

    name_as(x, name_on_host(device))
    return x


def name_as(x: Tensor, name: str | None) -> None:
    """Name a tensor; as long as it lives, operands are looked at."""
    if name and not x._host_name:
        for exchange in _exchanges():
            exchange.__enter__()
            weakref.finalize(x, exchange.__exit__).atexit = False
    x._host_name = name


def _name_among(values: Iterable[Any]) -> str | None:
    for value in values:
        if isinstance(value, _Tensor):
            if value._host_name:  # type: ignore[attr-defined]  # every tensor is a megengine.Tensor
                return value._host_name  # type: ignore[attr-defined]  # as above
        elif isinstance(value, (tuple, list)) and (name := _name_among(value)):
            return name
    return None


def _name_parts(result: Any, name: str) -> None:
    """Name the tensors of a result; those that the program put somewhere have theirs."""
    if isinstance(result, _Tensor):
        if result._host_name is None:  # type: ignore[attr-defined]  # as above
            name_as(result, name)  # type: ignore[arg-type]  # as above
    elif isinstance(result, (tuple, list)):
        for part in result:
            _name_parts(part, name)


def _handle(
    fn: Callable[..., Any], original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    result = original(*args, **kwargs)
    name = _name_among(itertools.chain(args, kwargs.values()))
    if name:
        _name_parts(result, name)
    return result


def _functions() -> Iterator[types.FunctionType]:
    from ... import functional
    from ...functional._recorded import MODULES
    from .array_method import ArrayMethodMixin

    for holder in (functional, *MODULES, ArrayMethodMixin):
        for value in vars(holder).values():
            if isinstance(value, types.FunctionType) and value.__module__.startswith("megengine."):
                yield value


def _operators() -> Iterator[tuple[type, str, Any]]:
    from ...tensor import Tensor

    for name, own in vars(_Tensor).items():
        is_operator = isinstance(own, types.WrapperDescriptorType) and name != "__hash__"
        if is_operator or name in ("detach", "to_mkldnn", "to_dense"):
            yield Tensor, name, _following_operands(getattr(Tensor, name))
        elif name in ("_reset", "_assign"):
            yield Tensor, name, _taking_the_name(getattr(Tensor, name))


def _following_operands(operation: Callable[..., Any]) -> Callable[..., Any]:
    def operator(*operands: Any) -> Any:
        return _handle(operation, operation, operands, {})

    return operator


def _taking_the_name(rebind: Callable[..., Any]) -> Callable[..., Any]:
    def operator(self: Tensor, other: Tensor) -> None:
        rebind(self, other)
        if other._host_name is not None:
            name_as(self, other._host_name)

    return operator


@functools.cache
def _exchanges() -> tuple[Any, Any]:
    from ..._graph.redirect import Exchange, Redirection

    return Redirection(_functions(), _handle), Exchange(_operators)
