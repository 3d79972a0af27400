"""Class indices: embedding, one-hot, picking along an axis."""

import warnings

from ..autodiff._lookups import looked_up
from ..core import ops
from ..core._origin import users_level
from ..core.tensor.array_method import as_tensor
from ..core.tensor.indexing import as_places
from ..core.tensor.shapes import normalize_axis
from ..tensor import Tensor


def one_hot(inp: Tensor, num_classes: int) -> Tensor:
    """Writes each class index as a vector that is 1 at the index and 0 elsewhere, on a new last
    axis.

    Parameters
    ----------
    inp : Tensor
        Any shape, integer dtype.
    num_classes : int
        Number of classes, which is the extent of the new axis.

    Returns
    -------
    Tensor
        [*inp.shape, num_classes], the dtype of ``inp``.

    Raises
    ------
    IndexError
        For an index outside of the classes.
    ValueError
        For another dtype.
    TypeError
        If ``inp`` is not a Tensor.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.one_hot(Tensor([0, 2]), 3).numpy()
    array([[1, 0, 0],
           [0, 0, 1]], dtype=int32)
    """
    if not isinstance(inp, Tensor):
        raise TypeError(f"one_hot: {type(inp).__name__} is not a Tensor")
    return ops.one_hot(inp, num_classes=int(num_classes), dtype=inp.dtype.name)


def embedding(
    inp: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float | None = None,
    sparse: bool = False,
) -> Tensor:
    """Looks up rows of ``weight`` by their indices.

    Parameters
    ----------
    inp : Tensor
        Any shape, integer dtype.
    weight : Tensor
        The table, [num, dim].
    padding_idx : int or None
        Index of a row that gets no gradient, such as that of padding; negative numbers count from
        the end.
    max_norm, norm_type : float or None
        Must be None: other values are not supported.
    sparse : bool
        Whether to keep the gradient of an attached ``weight`` as the rows that were looked up, as
        an `autodiff.RowGradient`.

    Returns
    -------
    Tensor
        [*inp.shape, dim]; gradients of rows that are read more than once add up.

    Raises
    ------
    IndexError
        For an index outside of [-num, num).
    ValueError
        For a padding_idx outside of [-num, num), and for max_norm or norm_type, which are not
        supported. With ``sparse``, for a weight that is computed from attached tensors.

    See Also
    --------
    embedding_bag : Reduces the rows of each bag to one.
    module.Embedding : The layer, which holds the table.
    one_hot : Writes indices as vectors.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> table = Tensor([[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]])
    >>> F.embedding(Tensor([2, 0]), table).numpy()
    array([[4., 5.],
           [0., 1.]], dtype=float32)
    """
    for name, given in (("max_norm", max_norm), ("norm_type", norm_type)):
        if given is not None:
            raise ValueError(f"embedding: {name} is not supported; leave it None")
    if (found := as_tensor(inp)).dtype.name.startswith(("float", "bfloat")):
        warnings.warn(f"embedding: {found.dtype.name} indices are truncated to integers; pass inp.astype('int32')", stacklevel=users_level())
    places = as_places(found)
    rows = looked_up(weight, places) if sparse else ops.index_get(weight, places, axes=(0,))
    if padding_idx is None:
        return rows
    first = row_of_padding(padding_idx, weight._tuple_shape[0], "embedding")
    is_padding = ops.logical_or(ops.equal(places, first), ops.equal(places, first - weight._tuple_shape[0]))
    is_padding = ops.reshape(is_padding, shape=(*places._tuple_shape, *(1,) * (weight.ndim - 1)))
    return ops.where(is_padding, ops.stop_gradient(rows), rows)


def row_of_padding(padding_idx: int, num: int, op: str) -> int:
    """Returns ``padding_idx`` counted from the front. ValueError for a row that a table of ``num``
    rows lacks.
    """
    if not -num <= padding_idx < num:
        raise ValueError(f"{op}: padding_idx is {padding_idx}, and the table has {num} rows")
    return padding_idx % num


def indexing_one_hot(src: Tensor, index: Tensor, axis: int = 1, keepdims: bool = False) -> Tensor:
    """Picks one element of ``src`` along ``axis`` at each position of the other axes.

    Parameters
    ----------
    src : Tensor
        Tensor of any shape and dtype.
    index : Tensor
        Integers, of the shape of ``src`` without ``axis``.
    axis : int
        Axis of ``inp``; negative numbers count from the end.
    keepdims : bool
        Whether ``axis`` stays in the result with size 1.

    Returns
    -------
    Tensor
        The shape of ``index``, or with ``axis`` of size 1; the dtype of ``src``.

    Raises
    ------
    IndexError
        For an index that the axis does not have.
    TypeError
        If ``inp`` is not a Tensor.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> scores = Tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    >>> F.indexing_one_hot(scores, Tensor([2, 0])).numpy()  # the score of each row's class
    array([3., 4.], dtype=float32)
    """
    if not isinstance(src, Tensor):
        raise TypeError(f"indexing_one_hot: {type(src).__name__} is not a Tensor")
    shape = src._tuple_shape
    axis = normalize_axis(axis, len(shape), "indexing_one_hot")
    outer = shape[:axis] + (1,) + shape[axis + 1 :]
    index = as_places(as_tensor(index))
    picked = ops.gather(src, ops.reshape(index, shape=outer), axis=axis)
    return picked if keepdims else ops.reshape(picked, shape=shape[:axis] + shape[axis + 1 :])
