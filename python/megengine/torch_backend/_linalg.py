"""ATen operators of matrices: triangular and other systems, LU and QR factors, inverses, determinants, and weight norm.

Gradients of torch's other decompositions consist of these. Eigenvalues and singular values are torch's, for the signs of
vectors are open; so are Cholesky factors, which tell what failed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from .. import functional as F
from ..core import ops
from ..tensor import Tensor
from ._forms import Unsupported


def _checked(*tensors: Tensor) -> None:
    for each in tensors:
        if each.dtype != np.float32:
            raise Unsupported(f"of matrices of {each.dtype}")


def _turned(x: Tensor) -> Tensor:
    return F.swapaxes(x, -1, -2)


def _stacked(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Both with the axes in front that they have together."""
    front = np.broadcast_shapes(a._tuple_shape[:-2], b._tuple_shape[:-2])
    return F.broadcast_to(a, (*front, *a._tuple_shape[-2:])), F.broadcast_to(b, (*front, *b._tuple_shape[-2:]))


def solve_triangular(a: Tensor, b: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False) -> Tensor:
    _checked(a, b)
    if not left:
        return _turned(solve_triangular(_turned(a), _turned(b), upper=not upper, unitriangular=unitriangular))
    a, b = _stacked(a, b)
    return ops.solve_triangular(a, b, upper=int(upper), unit=int(unitriangular))


def triangular_solve(b: Tensor, a: Tensor, upper: bool = True, transpose: bool = False, unitriangular: bool = False) -> tuple[Tensor, Tensor]:
    """(the solution, a)."""
    given, upper = (_turned(a), not upper) if transpose else (a, upper)
    return solve_triangular(given, b, upper=upper, unitriangular=unitriangular), a


def cholesky_solve(b: Tensor, factor: Tensor, upper: bool = False) -> Tensor:
    lower = _turned(factor) if upper else factor
    return solve_triangular(_turned(lower), solve_triangular(lower, b, upper=False), upper=True)


def cholesky_inverse(factor: Tensor, upper: bool = False) -> Tensor:
    return cholesky_solve(F.broadcast_to(F.eye(factor._tuple_shape[-1]), factor._tuple_shape), factor, upper)


# -- by elimination, whose pivots are LAPACK's


def _lu(x: Tensor, check_errors: bool) -> tuple[Tensor, ...]:
    _checked(x)
    if check_errors:
        raise Unsupported("that raises for a pivot of 0")
    if x._tuple_shape[-1] != x._tuple_shape[-2]:
        raise Unsupported("of matrices that are not square")
    if not x.size:
        raise Unsupported("of nothing")
    return ops.lu(x)


def _first_zero(lu: Tensor) -> Tensor:
    """Which pivot is 0, counted from 1; 0 where none is."""
    is_zero = (_diagonal(lu) == 0).astype("int32")
    return (F.argmax(is_zero, axis=-1) + 1) * F.max(is_zero, axis=-1)


def _diagonal(x: Tensor) -> Tensor:
    n = x._tuple_shape[-1]
    return F.sum(F.where(F.eye(n) > 0, x, F.zeros(())), axis=-1)


def _solved(lu: Tensor, pivots: Tensor, b: Tensor, adjoint: bool) -> Tensor:
    """Solves a x = b, or the transposed system."""
    exchanged = F.one_hot(ops.exchanged_rows(pivots), lu._tuple_shape[-1]).astype("float32")  # times b gives the exchanged rows
    if adjoint:
        lower = solve_triangular(_turned(lu), b, upper=False)
        return F.matmul(_turned(exchanged), solve_triangular(_turned(lu), lower, upper=True, unitriangular=True))
    return solve_triangular(lu, solve_triangular(lu, F.matmul(exchanged, b), upper=False, unitriangular=True), upper=True)


def solve_ex(a: Tensor, b: Tensor, *, left: bool = True, check_errors: bool = False) -> tuple[Tensor, ...]:
    """(the solution, both triangles, the pivots, which of them is 0)."""
    _checked(b)
    is_vector = b.ndim == 1 or (b.ndim == a.ndim - 1 and b._tuple_shape == a._tuple_shape[:-1])
    lu, pivots = _lu(a, check_errors)
    y = lu_solve(lu, pivots, F.expand_dims(b, -1) if is_vector else b, left=left or is_vector)
    return F.squeeze(y, -1) if is_vector else y, lu, pivots, _first_zero(lu)


def lu_solve(lu: Tensor, pivots: Tensor, b: Tensor, *, left: bool = True, adjoint: bool = False) -> Tensor:
    _checked(lu, b)
    return _solved(lu, pivots, b, adjoint) if left else _turned(_solved(lu, pivots, _turned(b), not adjoint))


def lu_factor_ex(x: Tensor, *, pivot: bool = True, check_errors: bool = False) -> tuple[Tensor, ...]:
    """(both triangles, the pivots, which of them is 0)."""
    if not pivot:
        raise Unsupported("without pivots")
    lu, pivots = _lu(x, check_errors)
    return lu, pivots, _first_zero(lu)


def inv_ex(x: Tensor, *, check_errors: bool = False) -> tuple[Tensor, Tensor]:
    """(the inverse, which pivot is 0)."""
    lu, pivots = _lu(x, check_errors)
    return _solved(lu, pivots, F.broadcast_to(F.eye(x._tuple_shape[-1]), x._tuple_shape), adjoint=False), _first_zero(lu)


# torch factorises the transposed matrix where a matrix is contiguous, and the gradient that was traced counts on that: the caller tells it.
BY_ORDER_OF_MEMORY = {"_linalg_det", "_linalg_slogdet"}


def _sign_of(pivots: Tensor) -> Tensor:
    """-1 for an odd number of exchanges of rows, else 1."""
    count = F.sum((pivots != F.arange(1, pivots._tuple_shape[-1] + 1, dtype="int32")).astype("int32"), axis=-1)
    return (1 - 2 * (count % 2)).astype("float32")


def det(x: Tensor, *, is_contiguous: bool) -> tuple[Tensor, ...]:
    """(the determinant, both triangles, the pivots)."""
    lu, pivots = _lu(_turned(x) if is_contiguous else x, check_errors=False)
    return _sign_of(pivots) * F.prod(_diagonal(lu), axis=-1), lu, pivots


def slogdet(x: Tensor, *, is_contiguous: bool) -> tuple[Tensor, ...]:
    """(the determinant's sign, the logarithm of its size, both triangles, the pivots)."""
    lu, pivots = _lu(_turned(x) if is_contiguous else x, check_errors=False)
    diagonal = _diagonal(lu)
    return _sign_of(pivots) * F.prod(F.sign(diagonal), axis=-1), F.sum(F.log(F.abs(diagonal)), axis=-1), lu, pivots


def qr(x: Tensor, mode: Literal["reduced", "complete", "r"] = "reduced") -> tuple[Tensor, ...]:
    _checked(x)
    if mode == "r":
        raise Unsupported("without the first factor")
    return tuple(F.linalg.qr(x, mode))


# -- weight norm


def weight_norm_backward(dw: Tensor, v: Tensor, g: Tensor, norms: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """The gradients of v and g (Salimans and Kingma 2016, "Weight normalization", equation 3)."""
    dg = _over_others(dw * v, dim) / norms
    return (g / norms) * (dw - v * (dg / norms)), dg


def _over_others(x: Tensor, dim: int) -> Tensor:
    return F.sum(x, axis=[axis for axis in range(x.ndim) if axis != dim % x.ndim], keepdims=True)


ROWS: dict[str, Callable[..., Any]] = {
    "linalg_solve_triangular": solve_triangular, "triangular_solve": triangular_solve,
    "cholesky_solve": cholesky_solve, "cholesky_inverse": cholesky_inverse,
    "_linalg_solve_ex": solve_ex, "linalg_lu_factor_ex": lu_factor_ex, "linalg_lu_solve": lu_solve,
    "linalg_inv_ex": inv_ex, "_linalg_det": det, "_linalg_slogdet": slogdet,
    "linalg_qr": qr,
    "_weight_norm_interface_backward": weight_norm_backward,
}  # fmt: skip
