"""Adds at places that indices name, and reduces to them by extrema and products: `index_add`,
`scatter_add`, `scatter_reduce`, `bincount`. A place that occurs twice gets both values.
"""

import numpy as np
from numpy.typing import ArrayLike

from ..core import apply_const, ops
from ..core.tensor.array_method import as_tensor, require_tensors
from ..core.tensor.shapes import full_like, normalize_axis
from ..tensor import Tensor
from ._select import as_index, scatter_operands

__all__ = ["bincount", "index_add", "scatter_add", "scatter_reduce"]


def index_add(inp: Tensor, axis: int, index: Tensor, source: Tensor) -> Tensor:
    """Adds the slices of ``source`` to those of ``inp`` that ``index`` names: for axis 0
    ``out[index[i]] += source[i]``.

    Parameters
    ----------
    inp : Tensor
        Tensor of any shape but []; it is not changed.
    axis : int
        Axis of ``inp``; negative numbers count from the end.
    index : Tensor
        [n], integers; negative ones count from the end.
    source : Tensor
        The shape of ``inp`` with n elements along ``axis``; cast to inp's dtype.

    Returns
    -------
    Tensor
        The shape and dtype of ``inp``.

    Raises
    ------
    IndexError
        For an index that the axis does not have.
    TypeError
        If ``index`` does not hold integers.
    ValueError
        For shapes that do not fit.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.index_add(F.zeros(3), 0, Tensor([2, 0, 2]), Tensor([1.0, 5.0, 2.0])).numpy()
    array([5., 0., 3.], dtype=float32)
    """
    require_tensors("index_add", inp)
    shape = inp._tuple_shape
    axis = normalize_axis(axis, len(shape), "index_add")
    index = as_index(index, "index_add")
    source = source if isinstance(source, Tensor) else apply_const(np.asarray(source))
    wanted = (*shape[:axis], *index._tuple_shape, *shape[axis + 1 :])
    if index.ndim != 1 or source._tuple_shape != wanted:
        raise ValueError(
            f"index_add: source has shape {list(source._tuple_shape)}, index {list(index._tuple_shape)}, inp {list(shape)}\n"
            f"  fix: index must have one axis, and source inp's shape with as many elements along axis {axis}"
        )
    if source.dtype != inp.dtype:
        source = ops.cast(source, dtype=inp.dtype.name)
    return ops.index_add(inp, source, index, axes=(axis,))


def scatter_add(inp: Tensor, axis: int, index: Tensor, source: Tensor) -> Tensor:
    """Adds elements of ``source`` along ``axis``: ``out[index[i][j]][j] += source[i][j]`` for axis
    0, and likewise for other axes.

    Parameters
    ----------
    inp : Tensor
        Tensor of any shape; it is not changed, unlike by `scatter`.
    axis : int
        Axis of ``inp``; negative numbers count from the end.
    index : Tensor
        Integers, as many axes as inp, and along other axes than ``axis`` no larger.
    source : Tensor
        Values, at least as many along each axis as ``index`` has; they are cast to the dtype of
        ``inp``.

    Returns
    -------
    Tensor
        The shape and dtype of ``inp``.

    Raises
    ------
    IndexError
        For an index that the axis does not have.
    TypeError
        If ``index`` does not hold integers.
    ValueError
        For shapes that do not fit.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.scatter_add(F.ones((2, 3)), 1, Tensor([[2, 2], [0, 1]]), Tensor([[5.0, 6.0], [7.0, 8.0]])).numpy()
    array([[ 1.,  1., 12.],
           [ 8.,  9.,  1.]], dtype=float32)
    """
    axis, index, source = scatter_operands(inp, axis, index, source, "scatter_add")
    return ops.scatter_add(inp, index, source, axis=axis)


def scatter_reduce(inp: Tensor, axis: int, index: Tensor, source: Tensor, mode: str) -> Tensor:
    """Combines elements of ``inp`` with those of ``source`` that go to their places: for axis 0 and
    ``mode="max"`` ``out[index[i][j]][j] = max(out[index[i][j]][j], source[i][j])``.

    Equal extrema of a place share its gradient. The gradient of a product is right where factors
    are 0; its own gradient is not.

    Parameters
    ----------
    inp : Tensor
        Tensor of any shape with real numbers, not bool; it is not changed.
    axis : int
        Axis of ``inp``; negative numbers count from the end.
    index : Tensor
        Integers, as many axes as inp, and along other axes than ``axis`` no larger.
    source : Tensor
        Values, at least as many along each axis as ``index`` has; they are cast to the dtype of
        ``inp``.
    mode : str
        "max", "min" (NaN wins in both) or "prod".

    Returns
    -------
    Tensor
        The shape and dtype of ``inp``.

    Raises
    ------
    IndexError
        For an index that the axis does not have.
    TypeError
        If ``index`` does not hold integers, and for bool and complex tensors.
    ValueError
        For shapes that do not fit and for another mode.

    See Also
    --------
    scatter_add : Adds what goes to a place.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.scatter_reduce(F.zeros(3), 0, Tensor([2, 0, 2]), Tensor([5.0, -1.0, 7.0]), "max").numpy()
    array([0., 0., 7.], dtype=float32)
    """
    axis, index, source = scatter_operands(inp, axis, index, source, "scatter_reduce")
    return ops.scatter_reduce(inp, index, source, axis=axis, mode=mode)


def bincount(inp: Tensor, weights: Tensor | ArrayLike | None = None, minlength: int = 0, *, length: int | None = None) -> Tensor:
    """Counts how often each number from 0 on occurs, as NumPy does.

    Parameters
    ----------
    inp : Tensor
        [n], integers that are not negative.
    weights : Tensor, array_like or None
        Weight of each element, [n]; None is 1.
    minlength : int
        Smallest extent of the result.
    length : int or None
        Extent of the result. None takes the largest number plus 1, for which the host reads the
        values. With a length the host reads nothing, and a number of ``length`` or more is an
        error.

    Returns
    -------
    Tensor
        [max(inp.max() + 1, minlength)] or [length]; int32, or the dtype of ``weights``.

    Raises
    ------
    IndexError
        For a number that has no place in the result, and for a negative one.
    TypeError
        If ``inp`` does not hold integers.
    ValueError
        For shapes that do not fit, and for a length less than ``minlength``.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.bincount(Tensor([1, 3, 1, 0])).numpy()
    array([1, 2, 0, 1], dtype=int32)
    >>> F.bincount(Tensor([0, 1, 1]), weights=Tensor([0.5, 1.0, 2.0]), length=3).numpy()
    array([0.5, 3. , 0. ], dtype=float32)
    """
    require_tensors("bincount", inp)
    index = as_index(inp, "bincount")
    counted = full_like(index, 1.0, "int32") if weights is None else as_tensor(weights)
    if index.ndim != 1 or counted._tuple_shape != index._tuple_shape:
        raise ValueError(f"bincount: inp has shape {list(index._tuple_shape)}, weights {list(counted._tuple_shape)}; both must be vectors of one extent")
    if length is not None and length < minlength:
        raise ValueError(f"bincount: length {length} is less than minlength {minlength}")
    if length is None:
        largest = int(ops.reduce_max(index, axes=(0,), keepdims=False)) if index._tuple_shape[0] else -1
        length = max(largest + 1, minlength)
    index = ops.checked_label(index, classes=length, op="bincount")  # negative ones do not count from the end
    zeros = ops.full(shape=(length,), value=0.0, dtype=counted.dtype.name, device=index)
    return ops.index_add(zeros, counted, index, axes=(0,))
