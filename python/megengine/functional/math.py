"""Reductions, sorting, linear algebra. `axis` may be an int or a sequence; negatives count from the
end.
"""

import builtins
from collections.abc import Callable, Sequence
from typing import Literal, overload

import numpy as np

from .. import core
from ..core import ops
from ..core._telling import no_effect
from ..core.tensor import products
from ..core.tensor.amp import to_high as _to_high
from ..core.tensor.array_method import as_tensor, require_tensors
from ..core.tensor.shapes import (
    as_int,
    normalize_axes,
    normalize_axis,
    reduce,
    taken,
    with_new_axis,
)
from ..tensor import Tensor
from ._length import length

__all__ = [
    "all", "any", "argmax", "argmin", "argsort", "cross", "dot", "isinf", "isnan", "matinv", "matmul", "max",
    "mean", "min", "norm", "normalize", "prod", "sign", "sort", "std", "sum", "svd", "topk", "var",
]  # fmt: skip

Axis = int | Sequence[int] | None


def isnan(inp: Tensor) -> Tensor:
    """Tells which elements are NaN (not a number).

    Parameters
    ----------
    inp : Tensor
        Any shape and dtype.

    Returns
    -------
    Tensor
        The shape of ``inp``, bool.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> x = Tensor([1.0, float("nan"), float("inf")])
    >>> F.isnan(x).numpy()  # x == x cannot tell: NaN equals nothing
    array([False,  True, False])
    """
    return ops.isnan(inp)


def isinf(inp: Tensor) -> Tensor:
    """Tells which elements are infinite, of either sign.

    Parameters
    ----------
    inp : Tensor
        Any shape and dtype.

    Returns
    -------
    Tensor
        The shape of ``inp``, bool.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.isinf(Tensor([1.0, float("nan"), -float("inf")])).numpy()
    array([False, False,  True])
    """
    return ops.isinf(inp)


def sign(x: Tensor) -> Tensor:
    """Computes the sign of each element: -1, 0 or 1; NaN stays NaN.

    Parameters
    ----------
    x : Tensor
        Any shape and dtype.

    Returns
    -------
    Tensor
        The shape and dtype of ``x``.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.sign(Tensor([-2.5, 0.0, 7.0])).numpy()
    array([-1.,  0.,  1.], dtype=float32)
    """
    return ops.sign(x)


def any(inp: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Tells whether an element along ``axis`` is not 0.

    Parameters
    ----------
    inp : Tensor
        Any shape and dtype; NaN is not 0.
    axis : int, sequence of int or None
        Axes that are reduced, one or several; negative ones count from the end. None reduces all.
    keepdims : bool
        Whether the reduced axes stay in the result with size 1.

    Returns
    -------
    Tensor
        The shape of `sum`, dtype bool; False without elements.

    Notes
    -----
    An argument that is neither a tensor nor an array goes to Python's own ``any``, whose name a
    star import hides.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> x = Tensor([[0.0, 2.0], [0.0, 0.0]])
    >>> F.any(x > 1).item(), F.any(x, axis=1).tolist()
    (True, [True, False])
    """
    if not isinstance(inp, (Tensor, np.ndarray)):
        return builtins.any(inp)
    return ops.not_equal(reduce(ops.not_equal(as_tensor(inp), 0), ops.reduce_sum, axis, keepdims, "any"), 0)


def all(inp: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Tells whether no element along ``axis`` is 0.

    Parameters
    ----------
    inp : Tensor
        Any shape and dtype.
    axis : int, sequence of int or None
        Axes that are reduced, one or several; negative ones count from the end. None reduces all.
    keepdims : bool
        Whether the reduced axes stay in the result with size 1.

    Returns
    -------
    Tensor
        The shape of `sum`, dtype bool; True without elements.

    Notes
    -----
    An argument that is neither a tensor nor an array goes to Python's own ``all``, whose name a
    star import hides.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> x = Tensor([[1.0, 2.0], [0.0, 1.0]])
    >>> F.all(x >= 0).item(), F.all(x, axis=1).tolist()
    (True, [True, False])
    """
    if not isinstance(inp, (Tensor, np.ndarray)):
        return builtins.all(inp)
    return ops.equal(reduce(ops.equal(as_tensor(inp), 0), ops.reduce_sum, axis, keepdims, "all"), 0)


def sum(inp: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Adds up the elements along ``axis``.

    Parameters
    ----------
    inp : Tensor
        Tensor of any shape. The sum of bool is int32; other dtypes stay, so small integers may wrap
        around.
    axis : int, sequence of int or None
        Axes that are reduced, one or several; negative ones count from the end. None reduces all.
    keepdims : bool
        Whether the reduced axes stay in the result with size 1.

    Returns
    -------
    Tensor
        The shape of ``inp`` without ``axis``.

    Raises
    ------
    AssertionError
        For ``keepdims`` without an axis.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> x = Tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> F.sum(x).item(), F.sum(x, axis=0).numpy().tolist()
    (10.0, [4.0, 6.0])
    >>> F.sum(x > 1).numpy()  # how many
    array(3, dtype=int32)
    """
    return reduce(as_tensor(inp), ops.reduce_sum, axis, keepdims, "sum")


def prod(inp: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Multiplies the elements along ``axis``.

    Parameters
    ----------
    inp : Tensor
        Any shape and dtype.
    axis : int, sequence of int or None
        Axes that are reduced, one or several; negative ones count from the end. None reduces all.
    keepdims : bool
        Whether the reduced axes stay in the result with size 1.

    Returns
    -------
    Tensor
        The shape of ``inp`` without ``axis``; the dtype as in `sum`.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.prod(Tensor([[1.0, 2.0], [3.0, 4.0]]), axis=1).numpy()
    array([ 2., 12.], dtype=float32)
    """
    return reduce(as_tensor(inp), ops.reduce_prod, axis, keepdims, "prod")


def mean(inp: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Computes the mean along ``axis``, in float32.

    Parameters
    ----------
    inp : Tensor
        Any shape and dtype.
    axis : int, sequence of int or None
        Axes that are reduced, one or several; negative ones count from the end. None reduces all.
    keepdims : bool
        Whether the reduced axes stay in the result with size 1.

    Returns
    -------
    Tensor
        The shape of ``inp`` without ``axis``, in float32 for every dtype of ``inp``.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.mean(Tensor([[1, 2], [3, 4]]), axis=1).numpy()  # of integers
    array([1.5, 3.5], dtype=float32)
    """
    return reduce(as_tensor(inp), ops.reduce_mean, axis, keepdims, "mean")


def min(inp: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Finds the smallest element along ``axis``; NaN where there is one.

    Parameters
    ----------
    inp : Tensor
        Any shape and dtype.
    axis : int, sequence of int or None
        Axes that are reduced, one or several; negative ones count from the end. None reduces all.
    keepdims : bool
        Whether the reduced axes stay in the result with size 1.

    Returns
    -------
    Tensor
        The shape of ``inp`` without ``axis``, and its dtype.

    Raises
    ------
    ValueError
        For an empty axis.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.min(Tensor([[1.0, 5.0], [4.0, 3.0]]), axis=1).numpy()
    array([1., 3.], dtype=float32)
    """
    return reduce(as_tensor(inp), ops.reduce_min, axis, keepdims, "min")


def max(inp: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Finds the largest element along ``axis``; NaN where there is one.

    Parameters
    ----------
    inp : Tensor
        Any shape and dtype.
    axis : int, sequence of int or None
        Axes that are reduced, one or several; negative ones count from the end. None reduces all.
    keepdims : bool
        Whether the reduced axes stay in the result with size 1.

    Returns
    -------
    Tensor
        The shape of ``inp`` without ``axis``, and its dtype.

    Raises
    ------
    ValueError
        For an empty axis.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.max(Tensor([[1.0, 5.0], [4.0, 3.0]]), axis=1, keepdims=True).numpy()
    array([[5.],
           [4.]], dtype=float32)
    """
    return reduce(as_tensor(inp), ops.reduce_max, axis, keepdims, "max")


def var(inp: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Computes the biased variance along ``axis``, the mean squared distance from the mean, in
    float32.

    Parameters
    ----------
    inp : Tensor
        Any shape and dtype.
    axis : int, sequence of int or None
        Axes that are reduced, one or several; negative ones count from the end. None reduces all.
    keepdims : bool
        Whether the reduced axes stay in the result with size 1.

    Returns
    -------
    Tensor
        The shape of ``inp`` without ``axis``, in float32 for every dtype of ``inp``.

    See Also
    --------
    std : The square root of it.
    mean : The mean that distances are taken from.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.var(Tensor([1.0, 3.0])).item()  # divided by 2, not by 1
    1.0
    """
    return products.var(as_tensor(inp), axis, keepdims)


def std(inp: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Computes the biased standard deviation along ``axis``: the square root of `var`.

    Parameters
    ----------
    inp : Tensor
        Any shape and dtype.
    axis : int, sequence of int or None
        Axes that are reduced, one or several; negative ones count from the end. None reduces all.
    keepdims : bool
        Whether the reduced axes stay in the result with size 1.

    Returns
    -------
    Tensor
        The shape of ``inp`` without ``axis``, in float32 for every dtype of ``inp``.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.std(Tensor([[1.0, 3.0], [0.0, 80.0]]), axis=1).numpy()
    array([ 1., 40.], dtype=float32)
    """
    return ops.norm_root(var(inp, axis, keepdims))


def norm(
    inp: Tensor, ord: float | None = None, axis: int | None = None, keepdims: bool = False
) -> Tensor:
    """Computes the vector norm along ``axis``, ``sum(|x| ** ord) ** (1 / ord)``.

    Parameters
    ----------
    inp : Tensor
        Any shape; integers compute in float32.
    ord : float or None
        Order of the norm. None is 2; inf and -inf take the largest and the smallest magnitude, 0
        counts the elements that are not 0.
    axis : int or None
        Axis along which norms are taken; None takes ``inp`` as one vector.
    keepdims : bool
        Whether ``axis`` stays in the result with size 1.

    Returns
    -------
    Tensor
        The shape of ``inp`` without ``axis``, a float dtype.

    Raises
    ------
    TypeError
        For ``axis`` None and an ``inp`` that is not 1-d.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> x = Tensor([3.0, -4.0])
    >>> F.norm(x).item(), F.norm(x, ord=1).item(), F.norm(x, ord=float("inf")).item()
    (5.0, 7.0, 4.0)
    """
    inp = _to_high(as_tensor(inp))
    y = _norm(inp, ord, axis, keepdims)
    return y if ord == 0 else _like(y, inp)  # float16 may not hold the number of elements


def _norm(inp: Tensor, ord: float | None, axis: int | None, keepdims: bool) -> Tensor:
    if axis is None:
        if inp.ndim != 1:
            raise TypeError(f"axis is required unless input is a vector\n  why: norm got a tensor with {inp.ndim} axes\n  fix: give the axis, or flatten the tensor first")
        axis = 0
    return length(inp, ord, lambda op, x: reduce(x, op, axis, keepdims, "norm"))


def _like(y: Tensor, x: Tensor) -> Tensor:
    """Casts a float32 result to the dtype of half-precision operands."""
    return ops.cast(y, dtype=x.dtype.name) if x.dtype.name in ("float16", "bfloat16") else y


def normalize(
    inp: Tensor, ord: float | None = None, axis: int | None = None, eps: float = 1e-12
) -> Tensor:
    """Divides ``inp`` by its norm along ``axis``, or by ``eps`` where the norm is less.

    Parameters
    ----------
    inp : Tensor
        Any shape, float dtype.
    ord : float or None
        Order of the norm, as in `norm`: None is 2, inf the largest magnitude.
    axis : int or None
        Axis along which norms are taken; None takes ``inp`` as one vector.
    eps : float
        Norms below this number count as this number.

    Returns
    -------
    Tensor
        The shape of ``inp``.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.normalize(Tensor([[0.0, 4.0], [0.0, 0.0]]), axis=1).numpy()
    array([[0., 1.],
           [0., 0.]], dtype=float32)
    """
    inp = _to_high(as_tensor(inp))
    lengths = ops.maximum(_norm(inp, ord, axis, keepdims=axis is not None), eps)
    return _like(ops.true_div(inp, lengths), inp)


def _arg(op: Callable[..., Tensor], inp: Tensor, axis: Axis, keepdims: bool, name: str) -> Tensor:
    inp = as_tensor(inp)
    if axis is None:
        if keepdims:
            raise AssertionError(f"{name}: keepdims needs an axis")
        inp = ops.reshape(inp, shape=(inp.size,))
        return op(inp, axis=0, keepdims=False)
    if isinstance(axis, (list, tuple)):
        for one in sorted(normalize_axes(axis, inp.ndim, name), reverse=True):
            inp = op(inp, axis=one, keepdims=bool(keepdims))
        return inp
    return op(inp, axis=normalize_axis(axis, inp.ndim, name), keepdims=bool(keepdims))


def argmin(inp: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Finds the index of the smallest element along ``axis``, the first one of equals; NaN counts
    as smallest.

    Parameters
    ----------
    inp : Tensor
        Tensor of any shape and dtype.
    axis : int, sequence of int or None
        Axis that is searched; None searches the flattened tensor. With several axes, the last one
        is searched first, and each next one in the indices found.
    keepdims : bool
        Whether ``axis`` stays in the result with size 1.

    Returns
    -------
    Tensor
        Indices along ``axis``, int32; the shape of ``inp`` without it.

    Raises
    ------
    AssertionError
        For ``keepdims`` without an axis.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> x = Tensor([[5.0, 1.0], [4.0, 6.0]])
    >>> F.argmin(x, axis=1).numpy(), F.argmin(x).item()
    (array([1, 0], dtype=int32), 1)
    """
    return _arg(ops.argmin, inp, axis, keepdims, "argmin")


def argmax(inp: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Finds the index of the largest element along ``axis``, the first one of equals; NaN counts as
    largest.

    Parameters
    ----------
    inp : Tensor
        Tensor of any shape and dtype.
    axis : int, sequence of int or None
        Axis that is searched; None searches the flattened tensor. With several axes, the last one
        is searched first, and each next one in the indices found.
    keepdims : bool
        Whether ``axis`` stays in the result with size 1.

    Returns
    -------
    Tensor
        Indices along ``axis``, int32; the shape of ``inp`` without it.

    Raises
    ------
    AssertionError
        For ``keepdims`` without an axis.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> x = Tensor([[5.0, 1.0], [4.0, 6.0]])
    >>> F.argmax(x, axis=1).numpy(), F.argmax(x).item()
    (array([0, 1], dtype=int32), 3)
    """
    return _arg(ops.argmax, inp, axis, keepdims, "argmax")


def sort(inp: Tensor, descending: bool = False, dim: int = -1) -> tuple[Tensor, Tensor]:
    """Sorts along ``dim``; equal elements keep their order.

    Parameters
    ----------
    inp : Tensor
        Tensor of any shape and dtype.
    descending : bool
        Whether the largest comes first.
    dim : int
        The axis that is sorted; negative ones count from the end.

    Returns
    -------
    values : Tensor
        The shape and dtype of ``inp``.
    indices : Tensor
        The shape of ``inp``, int32: where the values stood.

    See Also
    --------
    argsort : Returns the indices alone.
    topk : Finds only the largest or the smallest elements.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> values, indices = F.sort(Tensor([20, 10, 30]))
    >>> values.numpy(), indices.numpy()
    (array([10, 20, 30], dtype=int32), array([1, 0, 2], dtype=int32))
    """
    require_tensors("sort", inp)
    axis = normalize_axis(dim, inp.ndim, "sort")
    values, indices = ops.sort(inp, axis=axis, descending=bool(descending))
    return values, indices


def argsort(inp: Tensor, descending: bool = False) -> Tensor:
    """Finds the int32 indices that sort the last axis; equal elements keep their order.

    Parameters
    ----------
    inp : Tensor
        Tensor of any shape and dtype.
    descending : bool
        Whether the largest comes first.

    Returns
    -------
    Tensor
        The shape of ``inp``, int32.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.argsort(Tensor([20, 10, 30]), descending=True).numpy()
    array([2, 0, 1], dtype=int32)
    """
    return sort(inp, descending)[1]


def topk(
    inp: Tensor, k: int, descending: bool = True, kth_only: bool = False, no_sort: bool = False
) -> tuple[Tensor, Tensor]:
    """Finds the ``k`` largest elements of the last axis, sorted, and their indices.

    Parameters
    ----------
    inp : Tensor
        Tensor with at least one axis.
    k : int
        Number of elements; where there are fewer, all are returned. Below 0, the ``-k`` elements of
        the other end, in the other order.
    descending : bool
        Whether to find the largest; False finds the smallest, in rising order.
    kth_only : bool
        Whether to return the k-th element alone, without the axis.
    no_sort : bool
        Has no effect, the elements are always sorted.

    Returns
    -------
    values : Tensor
        [..., k], the dtype of ``inp``; without the last axis if ``kth_only``.
    indices : Tensor
        The same shape, int32.

    Raises
    ------
    ValueError
        For k = 0, an empty axis or a 0-d inp.

    See Also
    --------
    sort : Sorts all elements.
    argmax : Finds the largest element alone.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> values, indices = F.topk(Tensor([20, 40, 10, 30]), 2)
    >>> values.numpy(), indices.numpy()
    (array([40, 30], dtype=int32), array([1, 3], dtype=int32))
    """
    require_tensors("topk", inp)
    no_effect("topk", "the elements are sorted in any case", no_sort=no_sort)
    k = as_int(k, "topk: k")
    if inp.ndim == 0:
        raise ValueError("topk: a 0-d tensor has no axis")
    axis = inp.ndim - 1
    extent = inp._tuple_shape[axis]
    if k == 0 or extent == 0:
        raise ValueError(f"topk: k = {k} for an axis of {extent} elements")
    descending = bool(descending) == (k > 0)
    k = builtins.min(builtins.abs(k), extent)
    values, indices = ops.topk(inp, k=k, axis=axis, descending=descending)
    if kth_only:
        return taken(values, axis, k - 1), taken(indices, axis, k - 1)
    return values, indices


def matinv(inp: Tensor) -> Tensor:
    """Computes the inverse of the square matrices in the last two axes.

    Parameters
    ----------
    inp : Tensor
        [..., n, n], float32 or integers, which compute in float32.

    Returns
    -------
    Tensor
        The shape of ``inp``, float32.

    Raises
    ------
    RuntimeError
        For a singular matrix.
    ValueError
        For matrices that are not square.
    TypeError
        For another dtype.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.matinv(Tensor([[0.0, 2.0], [4.0, 0.0]])).numpy()
    array([[0.  , 0.25],
           [0.5 , 0.  ]], dtype=float32)
    """
    return ops.matinv(inp)


def check_compute_mode(where: str, mode: str) -> None:
    """Raises ValueError for one that is unknown; both modes add in float32."""
    if mode.lower() not in ("default", "float32"):
        raise ValueError(f"{where}: compute_mode {mode!r} is neither 'default' nor 'float32'")


def matmul(
    inp1: Tensor,
    inp2: Tensor,
    transpose_a: bool = False,
    transpose_b: bool = False,
    compute_mode: str = "default",
) -> Tensor:
    """Multiplies the matrices in the last two axes.

    Parameters
    ----------
    inp1 : Tensor
        Matrices, [..., m, k].
    inp2 : Tensor
        [..., k, n]; leading axes broadcast. A 1-d inp1 counts as a row, a 1-d inp2 as a column, and
        the result lacks that axis.
    transpose_a, transpose_b : bool
        Whether to exchange the last two axes of inp1 and of inp2 first.
    compute_mode : str
        "default" or "float32"; both accumulate in float32.

    Returns
    -------
    Tensor
        [..., m, n] in the promoted dtype, int32 for int8.

    Raises
    ------
    ValueError
        For sizes that do not fit or a 0-d operand.

    See Also
    --------
    dot : The scalar product of two vectors.
    einsum : Sums products over any axes.
    linear : Multiplies by a transposed weight and adds a bias.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> x = Tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> F.matmul(x, x, transpose_b=True).numpy()
    array([[ 5., 11.],
           [11., 25.]], dtype=float32)
    >>> F.matmul(F.ones((8, 1, 2, 3)), F.ones((5, 3, 4))).shape
    (8, 5, 2, 4)
    """
    check_compute_mode("matmul", compute_mode)
    return products.matmul(as_tensor(inp1), as_tensor(inp2), transpose_a, transpose_b)


def dot(inp1: Tensor, inp2: Tensor) -> Tensor:
    """Computes the scalar product of two vectors, a 0-d tensor.

    Parameters
    ----------
    inp1, inp2 : Tensor
        [n] each; a 0-d one multiplies every element of the other.

    Returns
    -------
    Tensor
        0-d: the sum of the products.

    Raises
    ------
    AssertionError
        For an operand with more than one axis.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.dot(Tensor([1.0, 2.0]), Tensor([3.0, 4.0])).item()
    11.0
    """
    inp1, inp2 = as_tensor(inp1), as_tensor(inp2)
    if not inp1.ndim <= 1 or not inp2.ndim <= 1:
        raise AssertionError(f"Input tensors for dot must be 1-dimensional or scalar\n  why: dot got {inp1.ndim}-d and {inp2.ndim}-d\n  fix: use matmul")
    product = ops.mul(inp1, inp2)
    return ops.reduce_sum(product, axes=tuple(range(product.ndim)), keepdims=False)


@overload
def svd(
    inp: Tensor, full_matrices: bool = False, compute_uv: Literal[True] = True
) -> tuple[Tensor, Tensor, Tensor]: ...
@overload
def svd(inp: Tensor, full_matrices: bool = False, *, compute_uv: Literal[False]) -> Tensor: ...
def svd(
    inp: Tensor, full_matrices: bool = False, compute_uv: bool = True
) -> Tensor | tuple[Tensor, Tensor, Tensor]:
    """Computes the singular value decomposition ``inp = U @ diag(S) @ Vh`` of the matrices in the
    last two axes.

    Parameters
    ----------
    inp : Tensor
        [..., m, n], float32 or integers, which compute in float32.
    full_matrices : bool
        Whether U is [..., m, m] and Vh [..., n, n], rather than [..., m, r] and [..., r, n] for r =
        min(m, n).
    compute_uv : bool
        False returns S alone.

    Returns
    -------
    Tensor or (Tensor, Tensor, Tensor)
        U, S and Vh of the shapes above, or S alone: [..., r], the largest first.

    Raises
    ------
    TypeError
        For another dtype.

    Notes
    -----
    Signs of singular vectors are arbitrary.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> u, s, vh = F.svd(Tensor([[0.0, 2.0], [4.0, 0.0], [0.0, 0.0]]))
    >>> u.shape, s.numpy().round(4), vh.shape
    ((3, 2), array([4., 2.], dtype=float32), (2, 2))
    """
    u, s, vh = ops.svd(inp, full_matrices=bool(full_matrices))
    return (u, s, vh) if compute_uv else s


def cross(
    a: Tensor, b: Tensor, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: int | None = None
) -> Tensor:
    """Computes the cross product of vectors with three elements.

    Parameters
    ----------
    a, b : Tensor
        Tensors with 3 elements along ``axisa`` of a and ``axisb`` of b; other axes broadcast.
    axisa, axisb : int
        The axis of ``a`` and of ``b`` that the vectors lie along.
    axisc : int
        The axis of the result that the vectors lie along.
    axis : int or None
        Takes the place of axisa, axisb and axisc unless it is None.

    Returns
    -------
    Tensor
        The broadcast shape and the promoted dtype.

    Raises
    ------
    ValueError
        For an axis that does not have 3 elements.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.cross(Tensor([1, 0, 0]), Tensor([[0, 1, 0], [0, 0, 1]])).numpy()
    array([[ 0,  0,  1],
           [ 0, -1,  0]], dtype=int32)
    """
    if axis is not None:
        axisa = axisb = axisc = axis
    a, b = core.convert_inputs(a, b)
    xs = _components(a, axisa, "a")
    ys = _components(b, axisb, "b")
    parts = []
    for i in range(3):
        j, k = (i + 1) % 3, (i + 2) % 3
        parts.append(ops.sub(ops.mul(xs[j], ys[k]), ops.mul(xs[k], ys[j])))
    shape = parts[0]._tuple_shape
    at = normalize_axis(axisc, len(shape) + 1, "cross")
    parts = [with_new_axis(p, at) for p in parts]
    return ops.concat(*parts, axis=at)


def _components(x: Tensor, axis: int, name: str) -> list[Tensor]:
    shape = x._tuple_shape
    axis = normalize_axis(axis, len(shape), "cross")
    if shape[axis] != 3:
        raise ValueError(f"cross: axis {axis} of {name} has {shape[axis]} elements, not 3")
    return [taken(x, axis, i) for i in range(3)]
