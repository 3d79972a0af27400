"""Reductions, sorting, linear algebra. `axis` may be an int or a sequence; negatives count from the
end.
"""

from collections.abc import Callable, Sequence
from typing import Literal, overload

import numpy as np

from ..core import convert_inputs, ops
from ..core.no_effect import no_effect
from ..core.tensor import products
from ..core.tensor.array_method import as_tensor, require_tensors
from ..core.tensor.shapes import as_int, normalize_axes, normalize_axis, reduce, taken
from ..tensor import Tensor

__all__ = [
    "argmax", "argmin", "argsort", "cross", "dot", "isinf", "isnan", "matinv", "matmul", "max",
    "mean", "min", "norm", "normalize", "prod", "sign", "sort", "std", "sum", "svd", "topk", "var",
]  # fmt: skip

Axis = int | Sequence[int] | None


def isnan(inp: Tensor) -> Tensor:
    """Whether each element is not a number, as bool."""
    return ops.isnan(inp)


def isinf(inp: Tensor) -> Tensor:
    """Whether each element is infinite, as bool."""
    return ops.isinf(inp)


def sign(x: Tensor) -> Tensor:
    """-1, 0 or 1."""
    return ops.sign(x)


def sum(inp: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Sum over ``axis`` (all axes when None, which takes no keepdims: AssertionError). bool sums to
    int32.
    """
    return reduce(as_tensor(inp), ops.reduce_sum, axis, keepdims, "sum")


def prod(inp: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Product over ``axis``."""
    return reduce(as_tensor(inp), ops.reduce_prod, axis, keepdims, "prod")


def mean(inp: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Mean over ``axis``, computed and returned in float32."""
    return reduce(as_tensor(inp), ops.reduce_mean, axis, keepdims, "mean")


def min(inp: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Smallest element over ``axis``."""
    return reduce(as_tensor(inp), ops.reduce_min, axis, keepdims, "min")


def max(inp: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Largest element over ``axis``."""
    return reduce(as_tensor(inp), ops.reduce_max, axis, keepdims, "max")


def var(inp: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Biased variance over ``axis``: mean of the squared distance to the mean."""
    return products.var(as_tensor(inp), axis, keepdims)


def std(inp: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Square root of `var`."""
    return ops.sqrt(var(inp, axis, keepdims))


def norm(
    inp: Tensor, ord: float | None = None, axis: int | None = None, keepdims: bool = False
) -> Tensor:
    """Vector norm along ``axis``, ``sum(|x| ** ord) ** (1 / ord)``; ord None is 2, inf and -inf are
    max and min.

    TypeError without axis for a tensor that is not 1-d.
    >>> from megengine import Tensor
    >>> norm(Tensor([3.0, 4.0])).item()
    5.0
    """
    inp = as_tensor(inp)
    if axis is None:
        if inp.ndim != 1:
            raise TypeError(f"norm: axis is required for a tensor with {inp.ndim} axes")
        axis = 0
    if ord is None or ord == 2:
        return ops.sqrt(reduce(ops.square(inp), ops.reduce_sum, axis, keepdims, "norm"))
    magnitude = ops.abs(inp)
    if ord == np.inf:
        return reduce(magnitude, ops.reduce_max, axis, keepdims, "norm")
    if ord == -np.inf:
        return reduce(magnitude, ops.reduce_min, axis, keepdims, "norm")
    if ord == 0:
        nonzero = ops.cast(ops.not_equal(inp, 0), dtype="float32")
        return reduce(nonzero, ops.reduce_sum, axis, keepdims, "norm")
    if ord == 1:
        return reduce(magnitude, ops.reduce_sum, axis, keepdims, "norm")
    total = reduce(ops.pow(magnitude, float(ord)), ops.reduce_sum, axis, keepdims, "norm")
    return ops.pow(total, 1.0 / ord)


def normalize(
    inp: Tensor, ord: float | None = None, axis: int | None = None, eps: float = 1e-12
) -> Tensor:
    """``inp / max(norm(inp), eps)`` along ``axis``."""
    return ops.true_div(inp, ops.maximum(norm(inp, ord, axis, keepdims=axis is not None), eps))


def _arg(op: Callable[..., Tensor], inp: Tensor, axis: Axis, keepdims: bool, name: str) -> Tensor:
    inp = as_tensor(inp)
    if axis is None:
        assert not keepdims, f"{name}: keepdims needs an axis"
        inp = ops.reshape(inp, shape=(inp.size,))
        return op(inp, axis=0, keepdims=False)
    if isinstance(axis, (list, tuple)):
        for one in sorted(normalize_axes(axis, inp.ndim, name), reverse=True):
            inp = op(inp, axis=one, keepdims=bool(keepdims))
        return inp
    return op(inp, axis=normalize_axis(axis, inp.ndim, name), keepdims=bool(keepdims))


def argmin(inp: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """int32 index of the smallest element along ``axis`` (of the flattened tensor when None); the
    first of ties. Of several axes the last comes first, and the next is searched in its indices.
    """
    return _arg(ops.argmin, inp, axis, keepdims, "argmin")


def argmax(inp: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """int32 index of the largest element along ``axis`` (of the flattened tensor when None); the
    first of ties. Of several axes the last comes first, and the next is searched in its indices.
    """
    return _arg(ops.argmax, inp, axis, keepdims, "argmax")


def sort(inp: Tensor, descending: bool = False, dim: int = -1) -> tuple[Tensor, Tensor]:
    """Sorted values and their int32 indices along ``dim``; equal elements keep their order."""
    require_tensors("sort", inp)
    axis = normalize_axis(dim, inp.ndim, "sort")
    values, indices = ops.sort(inp, axis=axis, descending=bool(descending))
    return values, indices


def argsort(inp: Tensor, descending: bool = False) -> Tensor:
    """int32 indices that sort the last axis."""
    return sort(inp, descending)[1]


def topk(
    inp: Tensor, k: int, descending: bool = True, kth_only: bool = False, no_sort: bool = False
) -> tuple[Tensor, Tensor]:
    """The ``k`` largest (smallest when not descending) of the last axis, sorted, and their int32
    indices; all of them where there are fewer.

    kth_only: just the k-th. no_sort: any order would do; they are sorted anyway. ValueError for k < 1.
    """
    require_tensors("topk", inp)
    no_effect("topk", "the elements are sorted in any case", no_sort=no_sort)
    k = as_int(k, "topk: k")
    if inp.ndim == 0:
        raise ValueError("topk: a 0-d tensor has no axis")
    axis = inp.ndim - 1
    extent = inp._tuple_shape[axis]
    if k < 1 or extent == 0:
        raise ValueError(f"topk: k = {k} for an axis of {extent} elements")
    k = k if k < extent else extent
    values, indices = ops.topk(inp, k=k, axis=axis, descending=bool(descending))
    if kth_only:
        return taken(values, axis, k - 1), taken(indices, axis, k - 1)
    return values, indices


def matinv(inp: Tensor) -> Tensor:
    """Inverse of the square matrices in the last two axes. RuntimeError for a singular one."""
    return ops.matinv(inp)


def check_compute_mode(where: str, mode: str) -> None:
    """ValueError for one that is unknown; both that there are add in float32."""
    if mode.lower() not in ("default", "float32"):
        raise ValueError(f"{where}: compute_mode {mode!r} is neither 'default' nor 'float32'")


def matmul(
    inp1: Tensor,
    inp2: Tensor,
    transpose_a: bool = False,
    transpose_b: bool = False,
    compute_mode: str = "default",
) -> Tensor:
    """Matrix product of the last two axes; leading axes broadcast. 1-d operands are a row and a
    column.

    compute_mode "float32" accumulates in float32, as "default" does.
    >>> from megengine import Tensor
    >>> matmul(Tensor([[1.0, 2.0]]), Tensor([[3.0], [4.0]])).numpy()
    array([[11.]], dtype=float32)
    """
    check_compute_mode("matmul", compute_mode)
    return products.matmul(as_tensor(inp1), as_tensor(inp2), transpose_a, transpose_b)


def dot(inp1: Tensor, inp2: Tensor) -> Tensor:
    """Scalar product of two vectors, 0-d. AssertionError for other ranks."""
    inp1, inp2 = as_tensor(inp1), as_tensor(inp2)
    assert inp1.ndim <= 1 and inp2.ndim <= 1, (
        f"dot: vectors only, got {inp1.ndim}-d and {inp2.ndim}-d; use matmul"
    )
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
    """U, S, Vh with ``inp = U @ diag(S) @ Vh`` for the matrices in the last two axes; S falls. Only
    S without compute_uv.
    """
    u, s, vh = ops.svd(inp, full_matrices=bool(full_matrices))
    return (u, s, vh) if compute_uv else s


def cross(
    a: Tensor, b: Tensor, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: int | None = None
) -> Tensor:
    """Cross product of 3-vectors along ``axisa`` of a and ``axisb`` of b, put at ``axisc``; axis
    sets all three.
    """
    if axis is not None:
        axisa = axisb = axisc = axis
    a, b = convert_inputs(a, b)
    xs = _components(a, axisa, "a")
    ys = _components(b, axisb, "b")
    parts = []
    for i in range(3):
        j, k = (i + 1) % 3, (i + 2) % 3
        parts.append(ops.sub(ops.mul(xs[j], ys[k]), ops.mul(xs[k], ys[j])))
    shape = parts[0]._tuple_shape
    at = normalize_axis(axisc, len(shape) + 1, "cross")
    parts = [ops.reshape(p, shape=shape[:at] + (1,) + shape[at:]) for p in parts]
    return ops.concat(*parts, axis=at)


def _components(x: Tensor, axis: int, name: str) -> list[Tensor]:
    shape = x._tuple_shape
    axis = normalize_axis(axis, len(shape), "cross")
    if shape[axis] != 3:
        raise ValueError(f"cross: axis {axis} of {name} has {shape[axis]} elements, not 3")
    return [taken(x, axis, i) for i in range(3)]
