"""What calls make, and trees of arguments: tuples, lists, dicts and slices, with values and constants at the leaves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any


class Value:
    """What a call makes: it has a ``name`` and ``readers``, the calls that read it, in order of first use."""

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


def rebuild(tree: Any, each: Callable[[Any], Any], make_list: type, make_dict: type) -> Any:
    """``tree`` with ``each`` of the children of its top container; the leaf itself otherwise."""
    if isinstance(tree, tuple):
        items = [each(item) for item in tree]
        return type(tree)(*items) if hasattr(tree, "_fields") else tuple(items)
    if isinstance(tree, list):
        return make_list([each(item) for item in tree])
    if isinstance(tree, dict):
        return make_dict({key: each(item) for key, item in tree.items()})
    if isinstance(tree, slice):
        return slice(each(tree.start), each(tree.stop), each(tree.step))
    return tree


def map_leaves(tree: Any, fn: Callable[[Any], Any]) -> Any:
    """A new tree with ``fn(leaf)`` for each leaf. Containers become plain tuples, lists and dicts."""
    if isinstance(tree, (tuple, list, dict, slice)):
        return rebuild(tree, lambda item: map_leaves(item, fn), list, dict)
    return fn(tree)


def map_values(tree: Any, fn: Callable[[Any], Any]) -> Any:
    """`map_leaves` that touches values only."""
    return map_leaves(tree, lambda leaf: fn(leaf) if isinstance(leaf, Value) else leaf)


def freeze(tree: Any) -> Any:
    """The same tree with lists and dicts that cannot be changed in place."""
    if isinstance(tree, (tuple, list, dict)):
        return rebuild(tree, freeze, FrozenList, FrozenDict)
    return tree


def leaves(tree: Any) -> Iterator[Any]:
    """Every leaf of ``tree``, from left to right."""
    if isinstance(tree, slice):
        tree = (tree.start, tree.stop, tree.step)
    elif isinstance(tree, dict):
        tree = tree.values()
    elif not isinstance(tree, (tuple, list)):
        yield tree
        return
    for item in tree:
        yield from leaves(item)


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
