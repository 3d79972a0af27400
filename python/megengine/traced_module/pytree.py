"""Arguments and results as trees: leaves that are traced, constants, and the arrangement of both."""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, cast

import numpy as np

from .._files import admitted
from .._graph.tree import Value
from ..core._tree import PLAIN, Branch, opened
from ..core.op_objects import OpDef
from ..core.qparams import LSQParams, QParams
from ..core.tensor.dtype import QuantDtypeMeta
from ..device import Device
from ..module import Module
from ..random import RNG
from ..tensor import Tensor

__all__ = [
    "ArgsIndex", "LeafDef", "SUPPORTED_LEAF_CLS", "SUPPORTED_LEAF_TYPE", "SUPPORTED_TYPE", "TreeDef",
    "USER_REGISTERED_CONTAINER_TYPE", "USER_REGISTERED_LEAF_TYPE", "register_supported_type",
    "qparams_flatten", "qparams_unflatten", "tree_flatten",
]  # fmt: skip


class ArgsIndex:
    """Place of an argument: its position and, for one passed by keyword, its name."""

    def __init__(self, index: int = 0, name: str = "") -> None:
        self.index = index
        self.name = name

    def __repr__(self) -> str:
        return self.name or f"arg_{self.index}"


class Container(NamedTuple):
    """Two functions: one takes a container apart into (items, auxiliary data), the other puts it
    together.
    """

    flatten: Callable[[Any], tuple[Sequence[Any], Any]]
    unflatten: Callable[[Sequence[Any], Any], Any]


SUPPORTED_TYPE: dict[type, Container] = {}
SUPPORTED_LEAF_CLS = [Module, Value, np.dtype, np.generic, np.ndarray, Device, RNG, QuantDtypeMeta, OpDef]
SUPPORTED_LEAF_TYPE = {int, float, bool, complex, str, bytes, type(None), type(Ellipsis), type, Tensor}  # fmt: skip
USER_REGISTERED_LEAF_TYPE: list[type] = []
USER_REGISTERED_CONTAINER_TYPE: list[type] = []


def register_supported_type(
    type: type,  # noqa: A002 (the documented name)
    flatten_fn: Callable[[Any], tuple[Sequence[Any], Any]] | None = None,
    unflatten_fn: Callable[[Sequence[Any], Any], Any] | None = None,
) -> None:
    """Makes a type known to traced modules, for arguments and results.

    Without functions its objects are constants.

    Parameters
    ----------
    type : type
        Type to register: a container if both functions are given, else a constant.
    flatten_fn : callable or None
        Function that takes an object and returns a pair of a list of items and auxiliary data.
    unflatten_fn : callable or None
        Function that takes the items and the auxiliary data and returns the object again.

    Raises
    ------
    AssertionError
        For one function without the other.

    Examples
    --------
    >>> import dataclasses, megengine as mge, megengine.module as M, megengine.traced_module as tm
    >>> @dataclasses.dataclass
    ... class Pair:
    ...     left: mge.Tensor
    ...     right: mge.Tensor
    >>> tm.register_supported_type(Pair, lambda p: ([p.left, p.right], None), lambda x, _: Pair(*x))
    >>> class Sum(M.Module):
    ...     def forward(self, pair):
    ...         return pair.left + pair.right
    >>> pair = Pair(mge.tensor(1.0), mge.tensor(2.0))
    >>> tm.trace_module(Sum(), pair)(pair).item()
    3.0
    """
    if (flatten_fn is None) != (unflatten_fn is None):
        raise AssertionError(
            f"register_supported_type({type.__name__}): flatten_fn and unflatten_fn go together\n"
            "  fix: give both for a container, neither for a constant"
        )
    admitted.register(type)
    if flatten_fn is None or unflatten_fn is None:
        USER_REGISTERED_LEAF_TYPE.append(type)
        SUPPORTED_LEAF_TYPE.add(type)
    else:
        USER_REGISTERED_CONTAINER_TYPE.append(type)
        SUPPORTED_TYPE[type] = Container(flatten_fn, unflatten_fn)


def _taken_apart(value: Any) -> tuple[list[Any], tuple[Any, ...] | None]:
    branch = cast(Branch, opened(value))
    return branch.parts, branch.names if isinstance(value, dict) else None


def _native(kind: type) -> Container:
    """Returns the `Container` of a class that `core._tree` opens; the keys of a dict are its
    auxiliary data.
    """
    return Container(_taken_apart, lambda items, keys: Branch(kind, keys, []).made_of(list(items)))


for _kind in (list, tuple, dict, OrderedDict, slice):
    SUPPORTED_TYPE[_kind] = _native(_kind)


def qparams_flatten(inp: QParams) -> tuple[list[Any], tuple[Any, ...]]:
    """The tensors of ``inp``, and the rest."""
    names = [name for name in ("scale", "zero_point", "grad_scale") if hasattr(inp, name)]
    return [getattr(inp, name) for name in names], (inp.mode, inp.dtype_meta, *names)


def qparams_unflatten(
    qparam_type: type[QParams], inp: Sequence[Any], aux_data: tuple[Any, ...]
) -> QParams:
    """Returns the object that `qparams_flatten` took apart."""
    mode, dtype_meta, *names = aux_data
    return qparam_type(mode, dtype_meta, **dict(zip(names, inp, strict=True)))


for _type in (QParams, LSQParams):
    SUPPORTED_TYPE[_type] = Container(qparams_flatten, functools.partial(qparams_unflatten, _type))


def container_of(kind: type) -> Container | None:
    """Returns the `Container` of a class; None for leaves."""
    if kind not in SUPPORTED_TYPE and issubclass(kind, tuple) and hasattr(kind, "_fields"):
        return _native(kind)
    return SUPPORTED_TYPE.get(kind)


def _leaf_type(value: Any) -> type:
    return Tensor if isinstance(value, (Tensor, Value)) else type(value)


def _is_leaf(value: Any) -> bool:
    kind = type(value)
    return (
        kind in SUPPORTED_LEAF_TYPE
        or isinstance(value, (Tensor, type, *SUPPORTED_LEAF_CLS))
        or (callable(value) and hasattr(value, "__qualname__"))
    )


def _is_const_leaf(value: Any) -> bool:
    return not isinstance(value, (Tensor, Value))


def tree_flatten(
    values: object,
    leaf_type: Callable[[Any], type] = _leaf_type,
    is_leaf: Callable[[Any], bool] = _is_leaf,
    is_const_leaf: Callable[[Any], bool] = _is_const_leaf,
) -> tuple[list[Any], TreeDef]:
    """Returns (leaves that are not constants, arrangement with the constants in it).

    AssertionError for an object of a type that is neither a container nor a leaf.
    """
    kind = PLAIN.get(type(values), type(values))
    container = container_of(kind)
    if container is None:
        if not is_leaf(values):
            raise AssertionError(
                f"a traced module cannot take or return an object of type {type(values).__name__}\n"
                f"  fix: megengine.traced_module.register_supported_type({type(values).__name__}, ...)"
            )
        leaf = LeafDef(leaf_type(values))
        if is_const_leaf(values):
            leaf.const_val, leaf.num_leaves = values, 0
            return [], leaf
        return [values], leaf
    items, aux = container.flatten(values)
    leaves, children = [], []
    for item in items:
        found, child = tree_flatten(item, leaf_type, is_leaf, is_const_leaf)
        leaves += found
        children.append(child)
    return leaves, TreeDef(kind, aux, children)


class TreeDef:
    """A container: its type, auxiliary data (keys of a dict, ...) and the children's arrangements."""

    def __init__(self, type: type, aux_data: Any, children_defs: Iterable[TreeDef]) -> None:  # noqa: A002
        self.type = type
        self.aux_data = aux_data
        self.children_defs = list(children_defs)
        self.num_leaves: int = sum(child.num_leaves for child in self.children_defs)

    def unflatten(self, leaves: Iterable[Any]) -> Any:
        """The object with ``leaves`` in the places of those that tree_flatten gave."""
        rest = iter(leaves)
        items = [child.unflatten(rest) for child in self.children_defs]
        return cast(Container, container_of(self.type)).unflatten(items, self.aux_data)

    def _key(self) -> tuple[Any, ...]:
        return self.type, repr(self.aux_data), tuple(self.children_defs)

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self._key() == other._key()

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        return f"{self.type.__name__}[{', '.join(map(repr, self.children_defs))}]"


class LeafDef(TreeDef):
    """A leaf: a place for a tensor, or a constant."""

    def __init__(self, type: type) -> None:  # noqa: A002
        super().__init__(type, None, [])
        self.num_leaves = 1
        self.const_val: Any = None

    def unflatten(self, leaves: Iterable[Any]) -> Any:
        return next(iter(leaves)) if self.num_leaves else self.const_val

    def _key(self) -> tuple[Any, ...]:
        if isinstance(self.const_val, np.ndarray):
            return self.type, self.const_val.dtype.str, self.const_val.tobytes()
        return self.type, self.num_leaves, _hashable(self.const_val)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    def __repr__(self) -> str:
        return self.type.__name__ if self.num_leaves else repr(self.const_val)


def _hashable(value: Any) -> Any:
    try:
        hash(value)
    except TypeError:
        return repr(value)
    return value
