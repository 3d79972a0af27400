"""ATen operators of matrices: triangles, systems of equations, inverses and determinants, and weight norm.

Eigenvalues and singular values are torch's: which sign a vector has is open.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .. import functional as F
from ..core import ops
from ..tensor import Tensor
from ._forms import Unsupported

# torch's operations tell by their last result which matrix failed; ours raise. A graph that reads that result is torch's (`_partition`).
TELLING = {"linalg_cholesky_ex", "linalg_inv_ex"}


def _checked(*tensors: Tensor) -> None:
    for each in tensors:
        if each.dtype != np.float32:
            raise Unsupported(f"of matrices of {each.dtype}")


def _turned(x: Tensor) -> Tensor:
    return F.swapaxes(x, -1, -2)


def _no_failure(x: Tensor) -> Tensor:
    return F.zeros(x._tuple_shape[:-2], dtype="int32")


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


def cholesky_ex(x: Tensor, *, upper: bool = False, check_errors: bool = False) -> tuple[Tensor, Tensor]:
    """(the triangle, zeros): the triangle of a matrix that has none raises."""
    _checked(x)
    factor = F.linalg.cholesky(_turned(x) if upper else x)
    return _turned(factor) if upper else factor, _no_failure(x)


def cholesky(x: Tensor, upper: bool = False) -> Tensor:
    return cholesky_ex(x, upper=upper)[0]


def cholesky_solve(b: Tensor, factor: Tensor, upper: bool = False) -> Tensor:
    lower = _turned(factor) if upper else factor
    return solve_triangular(_turned(lower), solve_triangular(lower, b, upper=False), upper=True)


def cholesky_inverse(factor: Tensor, upper: bool = False) -> Tensor:
    return cholesky_solve(F.broadcast_to(F.eye(factor._tuple_shape[-1]), factor._tuple_shape), factor, upper)


def inv_ex(x: Tensor, *, check_errors: bool = False) -> tuple[Tensor, Tensor]:
    """(the inverse, zeros): that of a singular matrix raises."""
    _checked(x)
    return F.matinv(x), _no_failure(x)


# -- by elimination, whose pivots are LAPACK's


def _lu(x: Tensor) -> tuple[Tensor, Tensor]:
    _checked(x)
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
    lu, pivots = _lu(a)
    y = lu_solve(lu, pivots, F.expand_dims(b, -1) if is_vector else b, left=left or is_vector)
    return F.squeeze(y, -1) if is_vector else y, lu, pivots, _first_zero(lu)


def lu_solve(lu: Tensor, pivots: Tensor, b: Tensor, *, left: bool = True, adjoint: bool = False) -> Tensor:
    _checked(lu, b)
    return _solved(lu, pivots, b, adjoint) if left else _turned(_solved(lu, pivots, _turned(b), not adjoint))


def _sign(pivots: Tensor) -> Tensor:
    """-1 for an odd number of exchanges, else 1."""
    is_exchanged = pivots != Tensor(np.arange(1, pivots._tuple_shape[-1] + 1, dtype=np.int32))
    return (1 - 2 * (F.sum(is_exchanged.astype("int32"), axis=-1) % 2)).astype("float32")


def det(x: Tensor) -> tuple[Tensor, ...]:
    """(the determinant, both triangles, the pivots)."""
    lu, pivots = _lu(x)
    return F.prod(_diagonal(lu), axis=-1) * _sign(pivots), lu, pivots


def slogdet(x: Tensor) -> tuple[Tensor, ...]:
    """(the sign, the logarithm of the magnitude, both triangles, the pivots)."""
    lu, pivots = _lu(x)
    diagonal = _diagonal(lu)
    return F.prod(F.sign(diagonal), axis=-1) * _sign(pivots), F.sum(F.log(F.abs(diagonal)), axis=-1), lu, pivots


def qr(x: Tensor, mode: str = "reduced") -> tuple[Tensor, Tensor]:
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
    "linalg_cholesky_ex": cholesky_ex, "cholesky": cholesky, "cholesky_solve": cholesky_solve, "cholesky_inverse": cholesky_inverse,
    "linalg_inv_ex": inv_ex, "_linalg_solve_ex": solve_ex, "linalg_lu_solve": lu_solve, "_linalg_det": det, "_linalg_slogdet": slogdet,
    "linalg_qr": qr,
    "_weight_norm_interface_backward": weight_norm_backward,
}  # fmt: skip
