"""Operators that arrange elements: shapes, slices, padding, reductions over axes, products of matrices."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ... import functional as F
from ...core import ops
from ...functional._select import triangle
from ...functional._window import pad_or_cut
from ...fx._intercept import wrap_maker
from ...tensor import Tensor
from .._proto import held_as
from ._table import axis_of, counterpart, dtype_of, ints, is_float, number
from .elementwise import divide

_MOST = 2**31 - 1  # the largest int32


@counterpart("Reshape", plain=(1,))
def reshape(x: Tensor, shape: Tensor | Sequence[int], *, allowzero: int = 0) -> Tensor:
    """Reshapes; 0 keeps an extent, unless allowzero; -1 is inferred."""
    extents: list[Any] = list(ints(shape))
    if not allowzero:
        extents = [x.shape[place] if extent == 0 else extent for place, extent in enumerate(extents)]
    if -1 in extents:
        rest = math.prod(extent for extent in extents if extent != -1)
        extents[extents.index(-1)] = x.size // rest if rest else 0
    return F.reshape(x, tuple(extents))


@counterpart("Shape")
def shape_of(x: Tensor, *, start: int = 0, end: int | None = None) -> Tensor:
    found = _extents(x)
    return found if start == 0 and end is None else found[start:end]


@counterpart("Size")
def size_of(x: Tensor) -> Tensor:
    return F.prod(_extents(x))


def _extents(x: Tensor) -> Tensor:
    shape: Any = x.shape  # a recording notes the tensor that these extents belong to
    return shape.astype("int64") if isinstance(shape, Tensor) else Tensor(shape, dtype="int64")


@wrap_maker
def constant(values: float | Sequence[object], dtype: str) -> Tensor:
    """Makes a constant of numbers that sizes are computed from, nested like its axes."""
    return Tensor(np.array(values), dtype=dtype)


@counterpart("Transpose")
def transpose(x: Tensor, *, perm: Sequence[int] | None = None) -> Tensor:
    return F.transpose(x, tuple(range(x.ndim))[::-1] if perm is None else tuple(perm)) if x.ndim else x


@counterpart("Squeeze", plain=(1,))
def squeeze(x: Tensor, axes: Tensor | Sequence[int] | None = None) -> Tensor:
    return F.squeeze(x, None if axes is None else ints(axes))


@counterpart("Unsqueeze", plain=(1,))
def unsqueeze(x: Tensor, axes: Tensor | Sequence[int]) -> Tensor:
    return F.expand_dims(x, ints(axes))


@counterpart("Flatten")
def flatten(x: Tensor, *, axis: int = 1) -> Tensor:
    """Reshapes to two axes: all axes before ``axis``, and the others."""
    axis = axis if axis >= 0 else axis + x.ndim
    return F.reshape(x, (math.prod(x.shape[:axis]), math.prod(x.shape[axis:])))


@counterpart("Concat")
def concat(*xs: Tensor, axis: int) -> Tensor:
    return F.concat(list(xs), axis=axis_of(axis, xs[0].ndim))


@counterpart("Split", plain=(1,), counts_results=True)
def split(x: Tensor, split: Tensor | Sequence[int] | None = None, *, axis: int = 0, num_outputs: int | None = None, results: int = 1) -> list[Tensor]:
    axis = axis_of(axis, x.ndim)
    if split is None:
        size: Any = -(-x.shape[axis] // (num_outputs or results))
        split = [size] * ((num_outputs or results) - 1)
        extent: Any = x.shape[axis]
        split = [*split, extent - sum(split)]
    parts, begin = [], 0
    for size in ints(split):
        parts.append(x[(slice(None),) * axis + (slice(begin, begin + size),)])
        begin += size
    if begin != x.shape[axis]:
        raise ValueError(f"Split: parts of {ints(split)} for an axis of {x.shape[axis]} elements")
    return parts


@counterpart("Slice", plain=(1, 2, 3, 4))
def slice_(x: Tensor, starts: Tensor | Sequence[int], ends: Tensor | Sequence[int], axes: Tensor | Sequence[int] | None = None, steps: Tensor | Sequence[int] | None = None) -> Tensor:
    starts, ends = ints(starts), ints(ends)
    axes = range(len(starts)) if axes is None else ints(axes)
    steps = [1] * len(starts) if steps is None else ints(steps)
    cut = [slice(None)] * x.ndim
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        start, end = (max(-_MOST, min(_MOST, place)) for place in (start, end))
        cut[axis_of(axis, x.ndim)] = slice(*slice(start, end, step).indices(x.shape[axis]))
        if step < 0 and cut[axis_of(axis, x.ndim)].stop < 0:
            cut[axis_of(axis, x.ndim)] = slice(cut[axis_of(axis, x.ndim)].start, None, step)
    return x[tuple(cut)] if cut else x


@counterpart("Expand", plain=(1,))
def expand(x: Tensor, shape: Tensor | Sequence[int]) -> Tensor:
    return F.broadcast_to(x, np.broadcast_shapes(x._tuple_shape, ints(shape)))


@counterpart("Tile", plain=(1,))
def tile(x: Tensor, repeats: Tensor | Sequence[int]) -> Tensor:
    return F.tile(x, ints(repeats)) if x.ndim else x


@counterpart("Pad", plain=(1, 2, 3))
def pad(x: Tensor, pads: Tensor | Sequence[int], value: Tensor | float | None = None, axes: Tensor | Sequence[int] | None = None, *, mode: str = "constant") -> Tensor:
    """Pads; negative widths cut."""
    widths = ints(pads)
    named = range(x.ndim) if axes is None else [axis_of(axis, x.ndim) for axis in ints(axes)]
    pairs = [(0, 0)] * x.ndim
    for axis, before, after in zip(named, widths, widths[len(widths) // 2 :], strict=False):
        pairs[axis] = before, after
    return pad_or_cut(x, pairs, mode, 0 if value is None else number(value))


@counterpart("ConstantOfShape", plain=(0,))
def constant_of_shape(shape: Tensor | Sequence[int], *, value: np.ndarray | None = None) -> Tensor:
    filled = np.zeros(1, np.float32) if value is None else np.asarray(value).reshape(1)
    filler = Tensor(filled, dtype=held_as(filled.dtype.name))
    return F.broadcast_to(F.reshape(filler, (1,) * len(ints(shape))), ints(shape))


@counterpart("Range", plain=(0, 1, 2))
def arange(start: Tensor | float, limit: Tensor | float, delta: Tensor | float) -> Tensor:
    """Computes a range; at least one argument is a Tensor, with the dtype of the others."""
    given = next(value for value in (start, limit, delta) if isinstance(value, Tensor))
    computed: Any = (np.float64 if given.dtype.name == "float64" else np.float32) if is_float(given) else np.int64
    return Tensor(np.arange(number(start), number(limit), number(delta), dtype=computed), dtype=given.dtype)


@counterpart("EyeLike")
def eye_like(x: Tensor, *, dtype: int | None = None, k: int = 0) -> Tensor:
    rows, columns = x._tuple_shape
    return Tensor(np.eye(rows, columns, k=k, dtype=np.float32)).astype(x.dtype if dtype is None else dtype_of(dtype))


@counterpart("Trilu", plain=(1,))
def trilu(x: Tensor, k: Tensor | int = 0, *, upper: int = 1) -> Tensor:
    return triangle(x, int(number(0 if k is None else k)), bool(upper))


@counterpart("DepthToSpace")
def depth_to_space(x: Tensor, *, blocksize: int, mode: str = "DCR") -> Tensor:
    n, c, h, w = x._tuple_shape
    b, rest = blocksize, c // blocksize**2
    if mode == "DCR":
        y = F.transpose(F.reshape(x, (n, b, b, rest, h, w)), (0, 3, 4, 1, 5, 2))
    else:
        y = F.transpose(F.reshape(x, (n, rest, b, b, h, w)), (0, 1, 4, 2, 5, 3))
    return F.reshape(y, (n, rest, h * b, w * b))


@counterpart("SpaceToDepth")
def space_to_depth(x: Tensor, *, blocksize: int, mode: str = "DCR") -> Tensor:
    n, c, h, w = x._tuple_shape
    b = blocksize
    order = (0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4)
    y = F.transpose(F.reshape(x, (n, c, h // b, b, w // b, b)), order)
    return F.reshape(y, (n, c * b * b, h // b, w // b))


# -- reductions -----------------------------------------------------------------------------------


def _reduction(op: str, reduce: Callable[..., Tensor]) -> None:
    """Reduces over axes that are an attribute (up to opset 17) or an input; without any, over all
    of them.
    """

    def reduction(
        x: Tensor, axes: Tensor | Sequence[int] | None = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0
    ) -> Tensor:
        found = () if axes is None else ints(axes)
        if not found and noop_with_empty_axes:
            return reduce(x, (), 1)
        wanted = tuple(sorted({axis_of(axis, x.ndim) for axis in found})) if found else tuple(range(x.ndim))
        return reduce(x, wanted, keepdims)

    reduction.__name__ = reduction.__qualname__ = f"reduce_{op[6:].lower()}"
    globals()[reduction.__name__] = reduction  # graphs that call it are saved by its name
    counterpart(op, plain=(1,))(reduction)


def _plain(op: Callable[..., Tensor]) -> Callable[..., Tensor]:
    return lambda x, axes, keepdims: op(x, axes=axes, keepdims=int(keepdims)).astype(x.dtype)


_sum, _max, _min = _plain(ops.reduce_sum), _plain(ops.reduce_max), _plain(ops.reduce_min)


def _extreme(op: Callable[..., Tensor], is_max: bool) -> Callable[..., Tensor]:
    def reduce(x: Tensor, axes: tuple[int, ...], keepdims: int) -> Tensor:
        if x.size:
            return op(x, axes, keepdims)
        shape: list[Any] = [1 if a in axes else n for a, n in enumerate(x.shape) if keepdims or a not in axes]
        if x.dtype.kind == "b":
            return F.full(tuple(shape), not is_max, dtype="bool")
        bounds = (-math.inf, math.inf) if is_float(x) else (int(np.iinfo(x.dtype).min), int(np.iinfo(x.dtype).max))
        return F.full(tuple(shape), bounds[0 if is_max else 1], dtype=x.dtype)

    return reduce


def _mean(x: Tensor, axes: tuple[int, ...], keepdims: int) -> Tensor:
    """Computes means; quotients of integers are rounded towards 0."""
    if is_float(x):
        return _plain(ops.reduce_mean)(x, axes, keepdims)
    count = math.prod(x.shape[axis] for axis in axes)
    return divide(_sum(x.astype("int64"), axes, keepdims), count).astype(x.dtype)


def _log_sum_exp(x: Tensor, axes: tuple[int, ...], keepdims: int) -> Tensor:
    if not x.size or not axes:
        return F.log(_sum(F.exp(x), axes, keepdims))
    return F.logsumexp(x, axes, bool(keepdims))


for _op, _reduce in {
    "ReduceSum": _sum, "ReduceMean": _mean, "ReduceProd": _plain(ops.reduce_prod),
    "ReduceMax": _extreme(_max, True), "ReduceMin": _extreme(_min, False),
    "ReduceL1": lambda x, *how: _sum(F.abs(x), *how), "ReduceL2": lambda x, *how: F.sqrt(_sum(F.square(x), *how)).astype(x.dtype),
    "ReduceSumSquare": lambda x, *how: _sum(F.square(x), *how),
    "ReduceLogSum": lambda x, *how: F.log(_sum(x, *how)), "ReduceLogSumExp": _log_sum_exp,
}.items():  # fmt: skip
    _reduction(_op, _reduce)


@counterpart("CumSum", plain=(1,))
def cumsum(x: Tensor, axis: Tensor | int, *, exclusive: int = 0, reverse: int = 0) -> Tensor:
    axis = axis_of(int(number(axis)), x.ndim)
    return ops.cumsum(x, axis=axis, exclusive=exclusive, reverse=reverse)


@counterpart("CumProd", plain=(1,))
def cumprod(x: Tensor, axis: Tensor | int, *, exclusive: int = 0, reverse: int = 0) -> Tensor:
    axis = axis_of(int(number(axis)), x.ndim)
    lines = [x[(slice(None),) * axis + (slice(i, i + 1),)] for i in range(x.shape[axis])]
    lines = lines[::-1] if reverse else lines
    product, products = F.ones_like(lines[0]), []
    for line in lines:
        products.append(product)
        product = product * line
    products = products if exclusive else [*products[1:], product]
    return F.concat(products[::-1] if reverse else products, axis=axis)


# -- products -------------------------------------------------------------------------------------


@counterpart("MatMul")
def matmul(a: Tensor, b: Tensor) -> Tensor:
    if a.ndim == 1 and b.ndim == 1:
        return F.sum(a * b)
    return _product(a, b)


def _product(a: Tensor, b: Tensor) -> Tensor:
    """Multiplies matrices; those of 64 bits, which GPUs do not have, as sums of element-wise products."""
    if a.dtype.name not in ("int64", "float64"):
        return F.matmul(a, b)
    if b.ndim == 1:
        return F.sum(a * b, axis=-1)
    rows = F.expand_dims(a, -1) * (F.expand_dims(b, -3) if a.ndim > 1 else b)
    return F.sum(rows, axis=-2)


@counterpart("Gemm")
def gemm(
    a: Tensor, b: Tensor, c: Tensor | None = None, *, alpha: float = 1.0, beta: float = 1.0, transA: int = 0, transB: int = 0
) -> Tensor:
    if a.dtype.name in ("int64", "float64"):
        y = _product(F.transpose(a, (1, 0)) if transA else a, F.transpose(b, (1, 0)) if transB else b)
    else:
        y = F.matmul(a, b, transpose_a=bool(transA), transpose_b=bool(transB))
    y = y if alpha == 1 else (y * alpha).astype(y.dtype)
    if c is None:
        return y
    return y + (c if beta == 1 else (c * beta).astype(c.dtype))


@counterpart("Einsum")
def einsum(*xs: Tensor, equation: str) -> Tensor:
    equation = equation.replace(" ", "")
    is_product = len(xs) > 1 and xs[0].dtype.name == "float64"
    return _sum_of_products(equation, xs) if is_product else F.einsum(equation, *xs)


def _sum_of_products(equation: str, xs: Sequence[Tensor]) -> Tensor:
    """Computes Einsum without matrix products, which GPUs do not have for float64."""
    given, arrow, result = equation.partition("->")
    terms = given.split(",")
    if "..." in equation or any(len(set(term)) < len(term) for term in terms):
        raise TypeError("Einsum: does not compute float64 with ellipses or diagonals")
    if not arrow:
        result = "".join(label for label in sorted(set(given) - {","}) if given.count(label) == 1)
    labels = result + "".join(sorted(set(given) - set(result) - {","}))
    product: Any = None
    for term, x in zip(terms, xs, strict=True):
        own = [label for label in labels if label in term]
        lined = F.transpose(x, tuple(term.index(label) for label in own)) if x.ndim else x
        extents = dict(zip(own, lined._tuple_shape, strict=True))
        lined = F.reshape(lined, tuple(extents.get(label, 1) for label in labels))
        product = lined if product is None else product * lined
    summed = tuple(range(len(result), len(labels)))
    return F.sum(product, axis=summed) if summed else product


@counterpart("Det")
def determinant(x: Tensor) -> Tensor:
    """Computes determinants by Gaussian elimination with the largest pivot of each column."""
    *batch, n, _ = x._tuple_shape
    rows = F.reshape(x, (-1, n, n))
    result = F.ones((rows.shape[0],))
    for step in range(n):
        places = F.argmax(F.abs(rows[:, :, 0]), axis=1)
        swapped = (places > 0).astype("float32")
        chosen = F.nn.one_hot(places, n - step).astype("float32")
        pivot = F.matmul(F.expand_dims(chosen, 1), rows)[:, 0]
        rows = rows + F.expand_dims(chosen, 2) * F.expand_dims(rows[:, 0] - pivot, 1)  # row 0 takes the pivot's place
        head = pivot[:, :1]
        result = result * head[:, 0] * (1 - 2 * swapped)
        safe = F.where(F.equal(head, 0), F.ones_like(head), head)
        factors = rows[:, 1:, :1] / F.expand_dims(safe, 1)
        rows = (rows[:, 1:] - factors * F.expand_dims(pivot, 1))[:, :, 1:]
    return F.reshape(result, tuple(batch))
