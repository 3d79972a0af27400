"""Values, which calls make, and trees of arguments: tuples, lists, dicts and slices, with values
and constants at the leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from ..core import _tree
from ..core._tree import PLAIN, Branch


class Value:
    """The result of a call: it has a ``name`` and ``readers``, the calls that read it, in order of
    first use.
    """

    name: str = ""

    def __init__(self) -> None:
        self.readers: dict[Any, None] = {}  # calls of the face
        super().__init__()

    @property
    def users(self) -> Any:
        """`readers`, as the face shows them."""
        return self.readers

    def replace_all_uses(
        self, new: Value, only: Callable[[Any], bool] = lambda user: True
    ) -> list[Any]:
        """Makes all users for which ``only`` holds read another value.

        Parameters
        ----------
        new : Node
            Value to read instead.
        only : callable
            Function of a user that tells whether it is changed.

        Returns
        -------
        list of Node
            The users that were changed.
        """
        changed = [user for user in self.readers if only(user)]
        for user in changed:
            user.replace_input(self, new)
        return changed

    def describe(self) -> str:
        """Its name, for messages."""
        return repr(self.name)

    def __copy__(self) -> NoReturn:
        raise TypeError(f"{self.describe()}: a node is part of its graph\n  fix: copy or save its graph, as a part of its module")

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        """Returns the copy of the value while its graph is being copied."""
        return memo[id(self)] if id(self) in memo else self.__copy__()


def _refuse(self: Any, *args: Any, **kwargs: Any) -> Any:
    raise TypeError(
        f"{type(self).__name__}: arguments of a node cannot be changed in place, its users would not be "
        "told\n  fix: assign a new tree to node.args or node.kwargs, or use node.update_arg"
    )


class FrozenList(list[Any]):
    """A list in the arguments of a call. TypeError when changed in place."""

    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse
    append = extend = insert = pop = remove = clear = reverse = sort = _refuse

    def __reduce__(self) -> tuple[Any, ...]:
        return FrozenList, (tuple(self),)


class FrozenDict(dict[Any, Any]):
    """A dict in the arguments of a call. TypeError when changed in place."""

    __setitem__ = __delitem__ = __ior__ = _refuse
    pop = popitem = clear = update = setdefault = _refuse

    def __reduce__(self) -> tuple[Any, ...]:
        return FrozenDict, (tuple(self.items()),)


_FROZEN: dict[type, type] = {list: FrozenList, FrozenList: FrozenList, tuple: tuple, dict: FrozenDict, FrozenDict: FrozenDict}
PLAIN |= {FrozenList: list, FrozenDict: dict}


def opened(tree: Any) -> Branch | None:
    """A container of arguments, a plain one in the place of one of another class; None for a leaf."""
    if not isinstance(tree, (tuple, list, dict, slice)):
        return None
    branch = _tree.opened(tree)
    if branch is None or branch.kind is slice or hasattr(branch.kind, "_fields"):
        return branch
    return branch._replace(kind=next(kind for kind in (tuple, list, dict) if isinstance(tree, kind)))


def map_leaves(tree: Any, fn: Callable[[Any], Any]) -> Any:
    """A new tree with ``fn(leaf)`` for each leaf. Containers become plain tuples, lists and dicts."""
    return _tree.mapped(tree, fn, opened)


def map_values(tree: Any, fn: Callable[[Any], Any]) -> Any:
    """`map_leaves` that touches values only."""
    return map_leaves(tree, lambda leaf: fn(leaf) if isinstance(leaf, Value) else leaf)


def freeze(tree: Any) -> Any:
    """The same tree with lists and dicts that cannot be changed in place."""
    return _tree.mapped(tree, lambda leaf: leaf, opened, _FROZEN)


def leaves(tree: Any) -> Iterator[Any]:
    """Every leaf of ``tree``, from left to right."""
    return _tree.leaves(tree, opened)


def values_in(tree: Any) -> Iterator[Any]:
    """Every value in ``tree``, from left to right, as often as it stands there."""
    return (leaf for leaf in leaves(tree) if isinstance(leaf, Value))


def tree_text(tree: Any, leaf: Callable[[Any], str], key: Callable[[Any], str] = str) -> str:
    """A tree as Python writes it, with ``leaf`` of its leaves and ``key`` of the keys of dicts."""
    text = container_text(tree, lambda item: tree_text(item, leaf, key), key)
    return leaf(tree) if text is None else text


def container_text(tree: Any, text: Callable[[Any], str], key_text: Callable[[Any], str] = str) -> str | None:
    """A container as Python writes it, with ``text`` of its items; None for a leaf."""
    if isinstance(tree, tuple):
        return "(" + ", ".join(map(text, tree)) + ("," if len(tree) == 1 else "") + ")"
    if isinstance(tree, list):
        return "[" + ", ".join(map(text, tree)) + "]"
    if isinstance(tree, dict):
        return "{" + ", ".join(f"{key_text(key)}: {text(item)}" for key, item in tree.items()) + "}"
    if isinstance(tree, slice):
        return f"slice({text(tree.start)}, {text(tree.stop)}, {text(tree.step)})"
    return None
