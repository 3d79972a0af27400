"""Selecting elements by masks and index tensors."""

from typing import Literal, overload

import numpy as np
from numpy.typing import ArrayLike

from .. import core
from .._core import note_extent_read
from ..core import apply_const, ops
from ..core.tensor.array_method import require_tensors
from ..core.tensor.indexing import as_places
from ..core.tensor.shapes import normalize_axis, taken
from ..tensor import Tensor

__all__ = ["cond_take", "diag", "gather", "non_zero", "scatter", "tril", "triu", "where"]

Operand = Tensor | int | float | bool


@overload
def where(mask: Tensor) -> tuple[Tensor, ...]: ...
@overload
def where(mask: Tensor, x: Operand, y: Operand) -> Tensor: ...
def where(
    mask: Tensor, x: Operand | None = None, y: Operand | None = None
) -> Tensor | tuple[Tensor, ...]:
    """Chooses elements of ``x`` where the mask is true and of ``y`` elsewhere.

    Parameters
    ----------
    mask : Tensor
        Any shape, dtype bool.
    x, y : Tensor, number or None
        Tensors or numbers whose shapes broadcast with the mask and each other. None for both
        returns the indices of the mask's true elements.

    Returns
    -------
    Tensor or tuple of Tensor
        The broadcast shape and the promoted dtype; with the mask alone the int32 indices of its
        true elements, one vector per axis.

    Raises
    ------
    TypeError
        Unless mask is a Tensor.
    ValueError
        Unless mask is bool.

    See Also
    --------
    cond_take : Picks the elements where a mask is true.
    non_zero : Finds the indices of such elements.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> x = Tensor([1.0, -2.0, 3.0])
    >>> F.where(x > 0, x, 0.0).numpy()
    array([1., 0., 3.], dtype=float32)
    >>> F.where(x > 0)[0].numpy()
    array([0, 2], dtype=int32)
    """
    if not isinstance(mask, Tensor):
        raise TypeError(f"mask must be a tensor, where got {type(mask).__name__}")
    if mask.dtype != np.bool_:
        raise ValueError(
            f"mask must be bool, where got {mask.dtype}\n  fix: compare first, as in where(m != 0, x, y)"
        )
    if x is None and y is None:
        return non_zero(mask, as_tuple=True)
    if x is None or y is None:
        raise TypeError("where: give both x and y, or neither")
    if (
        not isinstance(x, Tensor)
        and not isinstance(y, Tensor)
        and not np.isscalar(x)
        and not np.isscalar(y)
    ):
        raise TypeError(
            f"where: x is {type(x).__name__} and y is {type(y).__name__}; make one of them a Tensor"
        )
    if not (isinstance(x, Tensor) and isinstance(y, Tensor) and x.dtype == y.dtype):
        x, y = core.convert_inputs(x, y)
    return ops.where(mask, x, y)


def triangle(x: Tensor, diagonal: int, upper: bool) -> Tensor:
    """Sets the elements below the diagonal of the last two axes, or above it, to zero."""
    rows, columns = x._tuple_shape[-2:]
    note_extent_read(x, x.ndim - 2)
    note_extent_read(x, x.ndim - 1)
    lower = np.tri(
        rows, columns, max(-rows, min(columns, diagonal - 1 if upper else diagonal)), dtype=bool
    )
    zero = ops.full(shape=(), value=0.0, dtype=x.dtype.name, device=x)
    return ops.where(apply_const(~lower if upper else lower), x, zero)


def tril(inp: Tensor, k: int = 0) -> Tensor:
    """Keeps the elements on and below the ``k``-th diagonal of matrices; those above become 0.

    Parameters
    ----------
    inp : Tensor
        Tensor of shape [..., m, n], any dtype.
    k : int
        Number of the diagonal: 0 is the main one, 1 the one above it, -1 the one below.

    Returns
    -------
    Tensor
        The shape and dtype of ``inp``.

    Raises
    ------
    ValueError
        For a tensor with fewer than 2 axes.

    Examples
    --------
    >>> from megengine import functional as F
    >>> F.tril(F.ones((2, 3), dtype="int32")).numpy()
    array([[1, 0, 0],
           [1, 1, 0]], dtype=int32)
    """
    return triangle(_matrices(inp, "tril"), k, upper=False)


def triu(inp: Tensor, k: int = 0) -> Tensor:
    """Keeps the elements on and above the ``k``-th diagonal of matrices; those below become 0.

    Parameters
    ----------
    inp : Tensor
        Tensor of shape [..., m, n], any dtype.
    k : int
        Number of the diagonal: 0 is the main one, 1 the one above it, -1 the one below.

    Returns
    -------
    Tensor
        The shape and dtype of ``inp``.

    Raises
    ------
    ValueError
        For a tensor with fewer than 2 axes.

    Examples
    --------
    >>> from megengine import functional as F
    >>> F.triu(F.ones((2, 3), dtype="int32"), k=1).numpy()
    array([[0, 1, 1],
           [0, 0, 1]], dtype=int32)
    """
    return triangle(_matrices(inp, "triu"), k, upper=True)


def _matrices(inp: Tensor, op: str) -> Tensor:
    require_tensors(op, inp)
    if inp.ndim < 2:
        raise ValueError(f"{op}: a tensor of shape {list(inp._tuple_shape)}; a matrix has two axes")
    return inp


def cond_take(mask: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """Picks the elements of ``x`` where the mask is true, and returns their indices.

    Parameters
    ----------
    mask : Tensor
        Any shape, dtype bool.
    x : Tensor
        The shape of ``mask``.

    Returns
    -------
    values : Tensor
        [n], the elements of ``x`` where the mask is true.
    places : Tensor
        [n], int32: their indices into the flattened x.

    Raises
    ------
    TypeError
        Unless both are Tensors.
    ValueError
        For another dtype or shape of the mask.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> x = Tensor([[1.0, -2.0], [3.0, -4.0]])
    >>> values, places = F.cond_take(x < 0, x)
    >>> values.numpy(), places.numpy()
    (array([-2., -4.], dtype=float32), array([1, 3], dtype=int32))
    """
    for name, value in (("mask", mask), ("x", x)):
        if not isinstance(value, Tensor):
            raise TypeError(f"{name} must be a tensor, cond_take got {type(value).__name__}")
    if mask.dtype != np.bool_:
        raise ValueError(f"cond_take: mask is {mask.dtype}, not bool")
    if mask._tuple_shape != x._tuple_shape:
        raise ValueError(
            f"cond_take: mask has shape {list(mask._tuple_shape)}, x {list(x._tuple_shape)}"
        )
    values, places = ops.mask_select(x, mask)
    return values, places


@overload
def non_zero(condition: Tensor, as_tuple: Literal[False] = False) -> Tensor: ...
@overload
def non_zero(condition: Tensor, as_tuple: Literal[True]) -> tuple[Tensor, ...]: ...
def non_zero(condition: Tensor, as_tuple: bool = False) -> Tensor | tuple[Tensor, ...]:
    """Finds the indices of the elements that are not 0, or true, in row-major order.

    Parameters
    ----------
    condition : Tensor
        Any shape and dtype.
    as_tuple : bool
        Whether to return one vector per axis.

    Returns
    -------
    Tensor or tuple of Tensor
        Int32 [found, ndim]; with as_tuple one vector of [found] per axis.

    Raises
    ------
    TypeError
        Unless condition is a Tensor.

    See Also
    --------
    where : Chooses between two tensors by a mask.
    cond_take : Returns the elements, too.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.non_zero(Tensor([[0, 5], [7, 0]])).numpy()
    array([[0, 1],
           [1, 0]], dtype=int32)
    """
    if not isinstance(condition, Tensor):
        raise TypeError(f"non_zero: {type(condition).__name__} is not a Tensor")
    mask = condition if condition.dtype == np.bool_ else ops.not_equal(condition, 0)
    found = ops.nonzero(mask)
    if not as_tuple:
        return found
    return tuple(taken(found, 1, k) for k in range(found._tuple_shape[1]))


def as_index(index: ArrayLike, op: str) -> Tensor:
    if not isinstance(index, Tensor):
        index = apply_const(np.asarray(index, np.int32))
    if index.dtype.kind not in "iu":
        raise TypeError(f"{op}: index is {index.dtype}, not an integer dtype")
    return as_places(index)


def _check_index(inp: Tensor, index: Tensor, axis: int, op: str) -> None:
    shape, own = inp._tuple_shape, index._tuple_shape
    if len(shape) != len(own):
        raise ValueError(f"The index tensor must have same dimensions as input tensor, But the input dims:{len(shape)}, the index dims:{len(own)}\n  why: {op} takes an index for each place of the result")
    if any(i > n for a, (i, n) in enumerate(zip(own, shape, strict=False)) if a != axis):
        raise ValueError(
            f"{op}: index {list(own)} is larger than {list(shape)} outside axis {axis}"
        )


def gather(inp: Tensor, axis: int, index: Tensor) -> Tensor:
    """Picks elements along ``axis``: ``out[i][j] = inp[index[i][j]][j]`` for axis 0, and likewise
    for other axes.

    Parameters
    ----------
    inp : Tensor
        Any shape and dtype.
    axis : int
        Axis of ``inp``; negative numbers count from the end.
    index : Tensor
        Integers, as many axes as inp, and along other axes than ``axis`` no larger.

    Returns
    -------
    Tensor
        The shape of ``index`` and the dtype of ``inp``.

    Raises
    ------
    IndexError
        For an index that the axis does not have.
    ValueError
        For an index whose shape does not fit inp.
    TypeError
        If ``index`` does not hold integers.

    See Also
    --------
    scatter : Writes elements to such places.
    indexing_one_hot : Picks one element along an axis.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> x = Tensor([[1, 2, 3], [4, 5, 6]])
    >>> F.gather(x, 1, Tensor([[2, 2], [0, 1]])).numpy()
    array([[3, 3],
           [4, 5]], dtype=int32)
    """
    require_tensors("gather", inp)
    axis = normalize_axis(axis, inp.ndim, "gather")
    index = as_index(index, "gather")
    _check_index(inp, index, axis, "gather")
    return ops.gather(inp, index, axis=axis)


def scatter_operands(inp: Tensor, axis: int, index: ArrayLike, source: ArrayLike, op: str) -> tuple[int, Tensor, Tensor]:
    """Returns the axis counted from the front, the places, and their elements in inp's dtype."""
    require_tensors(op, inp)
    axis = normalize_axis(axis, inp.ndim, op)
    index = as_index(index, op)
    _check_index(inp, index, axis, op)
    source = source if isinstance(source, Tensor) else apply_const(np.asarray(source))
    if source._tuple_shape != index._tuple_shape:
        if (
            any(i > n for i, n in zip(index._tuple_shape, source._tuple_shape, strict=False))
            or source.ndim != index.ndim
        ):
            raise ValueError(
                f"{op}: index {list(index._tuple_shape)} does not fit source {list(source._tuple_shape)}"
            )
        source = ops.slice(
            source, begin=(0,) * index.ndim, end=index._tuple_shape, step=(1,) * index.ndim
        )
    return axis, index, source if source.dtype == inp.dtype else ops.cast(source, dtype=inp.dtype.name)


def scatter(inp: Tensor, axis: int, index: Tensor, source: Tensor) -> Tensor:
    """Replaces elements of ``inp`` along ``axis``, in place: ``inp[index[i][j]][j] = source[i][j]``
    for axis 0, and likewise for other axes.

    Parameters
    ----------
    inp : Tensor
        Tensor of any shape; it is changed.
    axis : int
        Axis of ``inp``; negative numbers count from the end.
    index : Tensor
        Integers, as many axes as inp, and along other axes than ``axis`` no larger; where an index
        occurs twice, the last one wins.
    source : Tensor
        Values, at least as many along each axis as ``index`` has; they are cast to the dtype of
        ``inp``.

    Returns
    -------
    Tensor
        ``inp`` itself.

    Raises
    ------
    IndexError
        For an index that the axis does not have.
    ValueError
        For shapes that do not fit.

    See Also
    --------
    scatter_add : Adds where an index occurs twice, and returns a new tensor.
    gather : Reads elements from such places.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.scatter(F.zeros((2, 3)), 1, Tensor([[2], [0]]), Tensor([[7.0], [8.0]])).numpy()
    array([[0., 0., 7.],
           [8., 0., 0.]], dtype=float32)
    """
    axis, index, source = scatter_operands(inp, axis, index, source, "scatter")
    inp._reset(ops.scatter(inp, index, source, axis=axis))
    return inp


def diag(inp: Tensor, k: int = 0) -> Tensor:
    """Returns the k-th diagonal of a matrix, or the matrix that has a vector there and zeros
    elsewhere.

    Parameters
    ----------
    inp : Tensor
        Vector [n] or matrix [m, n].
    k : int
        Number of the diagonal: 0 is the main one, 1 the one above it, -1 the one below.

    Returns
    -------
    Tensor
        The diagonal of a matrix [m, n], with at most min(m, n) elements; or a matrix [n + abs(k), n
        + abs(k)] for a vector [n].

    Raises
    ------
    ValueError
        For another number of axes.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.diag(Tensor([[1, 2], [3, 4]])).numpy()
    array([1, 4], dtype=int32)
    >>> F.diag(Tensor([5]), k=1).numpy()
    array([[0, 5],
           [0, 0]], dtype=int32)
    """
    require_tensors("diag", inp)
    shape = inp._tuple_shape
    note_extent_read(inp)
    if len(shape) == 1:
        n = shape[0] + abs(k)
        rows = np.arange(shape[0], dtype=np.int32) + max(-k, 0)
        zero = ops.full(shape=(n, n), value=0.0, dtype=inp.dtype.name, device=inp)
        return ops.index_set(
            zero, inp, apply_const(rows), apply_const(rows + np.int32(k)), axes=(0, 1)
        )
    if len(shape) != 2:
        raise ValueError(f"diag: a tensor with {len(shape)} axes; 1 or 2 are possible")
    count = max(0, min(shape[0] + min(k, 0), shape[1] - max(k, 0)))
    rows = np.arange(count, dtype=np.int32) + max(-k, 0)
    return ops.index_get(inp, apply_const(rows), apply_const(rows + np.int32(k)), axes=(0, 1))
