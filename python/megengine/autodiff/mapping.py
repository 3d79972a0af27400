"""vmap: a function of one example becomes a function of a batch."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from .. import _core
from ..core import ops
from ..core._tree import Branch, branch_of, leaves, mapped
from ..tensor import Tensor
from ._batched import Batched, Level, mapping

__all__ = ["vmap"]

_Axes: TypeAlias = "int | None | tuple[_Axes, ...] | list[_Axes] | dict[str, _Axes]"


def vmap(function: Callable[..., Any], in_axes: _Axes = 0, out_axes: _Axes = 0) -> Callable[..., Any]:
    """Makes a function of one example compute a batch of examples: each operation runs once, with
    an axis more.

    Parameters
    ----------
    function : callable
        Function that takes and returns Tensors, also in lists, tuples and dicts, and has no state.
    in_axes : int, None, or a tuple or list of them
        Axis of each argument that counts the examples; None gives every example the whole argument.
        One int holds for all Tensors and arrays. A tuple has an entry for each argument, which may
        be a tree like the argument.
    out_axes : int, None, or a tree of them
        Axis of the results that counts the examples; None is for a result that is the same for all
        examples.

    Returns
    -------
    callable
        Function that takes what ``function`` takes, with the axis more; keyword arguments have it
        in front.

    Raises
    ------
    TypeError
        When it is called: for an operation that has no rule for a batch, for a function that writes a tensor from
        outside, draws random numbers or reads a value, and for axes that do not fit the arguments.
    ValueError
        When it is called: for batches of different sizes, or none.

    See Also
    --------
    jacobian : Derivatives of each element of a result.
    functional.scan : Goes over a batch one after the other.

    Notes
    -----
    The function runs once, with Tensors that have the shape of one example. It may call vmap,
    `jacobian` and `hessian` itself; a `GradManager` stands around vmap. These have rules:
    operations element by element, reductions, products, views, indices, softmax, norms, sorting,
    linear algebra, and convolution and pooling with the same weights for all examples.

    Examples
    --------
    >>> from megengine import Tensor, autodiff
    >>> rows, weights = Tensor([[1.0, 2.0], [3.0, 4.0]]), Tensor([10.0, 1.0])
    >>> autodiff.vmap(lambda row, w: (row * w).sum(), in_axes=(0, None))(rows, weights).tolist()
    [12.0, 34.0]
    """
    if not callable(function):
        raise TypeError(f"vmap: {function!r} is no function\n  fix: vmap(function)(*arguments)")

    @functools.wraps(function)
    def mapped(*args: Any, **kwargs: Any) -> Any:
        axes = tuple(in_axes) if isinstance(in_axes, (tuple, list)) else (in_axes,) * len(args)
        if len(axes) != len(args):
            raise TypeError(f"vmap: in_axes has {len(axes)} entries for {len(args)} arguments\n  fix: an int or None for each of them, or one int for all")
        given = [(value, axis, f"argument {i}") for i, (value, axis) in enumerate(zip(args, axes, strict=True))]
        given += [(value, 0, name) for name, value in kwargs.items()]
        fronts = [_front(*each) for each in given]
        with mapping(_size(fronts)) as level:
            examples = [_examples(level, each) for each in fronts]
            result = function(*examples[: len(args)], **dict(zip(kwargs, examples[len(args) :], strict=True)))
        return _results(level, result, out_axes)

    return mapped


class _Front:
    """A Tensor whose examples lie along its first axis; where it stands, for errors."""

    def __init__(self, value: Tensor, where: str) -> None:
        self.value, self.where = value, where


def _front(value: Any, axis: Any, where: str) -> Any:
    """Returns the argument with a `_Front` for each Tensor that has examples."""
    if axis is None:
        return value
    branch = branch_of(value)
    if branch is not None:
        parts = zip(branch.parts, _axes_of_parts(axis, branch, where), branch.named(where), strict=True)
        return branch.made_of([_front(*each) for each in parts])
    _check_axis(axis, where)
    if isinstance(value, np.ndarray):
        value = Tensor(value)
    if not isinstance(value, Tensor):
        return value
    return _Front(_moved(value, _axis_of(value, axis, where), 0), where)


def _check_axis(axis: Any, where: str) -> None:
    if not isinstance(axis, (int, np.integer)) or isinstance(axis, bool):
        raise TypeError(f"vmap: the axis of {where} is {axis!r}\n  fix: give an int, or None for what is the same for all examples")


def _axes_of_parts(axes: Any, branch: Branch, where: str) -> list[Any]:
    """An entry for each part; one int is that of all."""
    tree = branch_of(axes)
    if tree is None:
        return [axes] * len(branch.parts)
    if tree.names != branch.names or len(tree.parts) != len(branch.parts):
        raise TypeError(f"vmap: the axes of {where} are {axes!r}, for {branch.kind.__name__} of {len(branch.parts)}\n  fix: give an entry for each part, in the same containers, or one int")
    return tree.parts


def _axis_of(value: Tensor, axis: int, where: str, added: int = 0) -> int:
    rank = len(value._tuple_shape) + added
    if not -rank <= axis < rank:
        raise ValueError(f"vmap: {where} of shape {list(value._tuple_shape)} has no axis {axis} for the examples\n  fix: None for what is the same for all of them")
    return axis % rank


def _moved(value: Tensor, source: int, target: int) -> Tensor:
    if source == target:
        return value
    perm = [axis for axis in range(len(value._tuple_shape)) if axis != source]
    perm.insert(target, source)
    return ops.transpose(value, perm=tuple(perm))


def _size(trees: list[Any]) -> int:
    fronts = [leaf for leaf in leaves(trees, branch_of) if isinstance(leaf, _Front)]
    sizes = {front.value._tuple_shape[0] for front in fronts}
    if len(sizes) == 1:
        _core.note_extent_read(fronts[0].value, 0)
        return sizes.pop()
    told = ", ".join(f"{front.where} has {front.value._tuple_shape[0]}" for front in fronts[:4]) or "no argument has an axis of examples"
    raise ValueError(f"vmap: how many examples are there? {told}\n  fix: pass batches of one size, and in_axes=None for what is the same for all")


def _examples(level: Level, tree: Any) -> Any:
    return mapped(tree, lambda leaf: level.of(leaf.value) if isinstance(leaf, _Front) else leaf)


def _results(level: Level, result: Any, axis: Any, where: str = "the result") -> Any:
    branch = branch_of(result)
    if branch is not None:
        parts = zip(branch.parts, _axes_of_parts(axis, branch, where), branch.named(where), strict=True)
        return branch.made_of([_results(level, *each) for each in parts])
    if result is None:
        return None
    if not isinstance(result, (Tensor, bool, int, float, np.ndarray, np.generic)):
        raise TypeError(f"vmap: {where} is a {type(result).__name__}\n  fix: return Tensors, in lists, tuples and dicts")
    is_batched = isinstance(result, Batched) and result.level is level
    if axis is None and is_batched:
        raise ValueError(f"vmap: {where} differs from example to example, and its out_axes is None\n  fix: say where the axis of the examples is to lie")
    if axis is None:
        return result
    _check_axis(axis, where)
    value = level.value_of(result)
    return _moved(value, 0, _axis_of(result, axis, where, 1) if isinstance(result, Tensor) else 0)
