"""Linear algebra with the names and arguments of NumPy's and torch's ``linalg``, over the matrices in the last two axes.

Kernels compute in float64 and give float32; integers are cast to float32. Gradients follow the
formulas, to any order. GPUs compute inverses; for the other functions the host computes.
"""

from typing import Literal, NamedTuple

import numpy as np

from .._core import note_extent_read
from ..core import apply_const, ops
from ..core.tensor.array_method import require_tensors
from ..core.tensor.shapes import as_int, broadcast_to
from ..tensor import Tensor
from .math import matinv, matmul, svd

__all__ = [
    "cholesky", "det", "eigh", "eigvalsh", "inv", "lstsq", "matrix_power", "pinv", "qr", "slogdet", "solve", "svd", "svdvals",
]  # fmt: skip


class Eigen(NamedTuple):
    """Eigenvalues, and eigenvectors as columns."""

    eigenvalues: Tensor
    eigenvectors: Tensor


class QR(NamedTuple):
    """Orthonormal columns, and an upper triangle."""

    Q: Tensor
    R: Tensor


class SignAndLogarithm(NamedTuple):
    """Determinants, as their sign and the logarithm of their magnitude."""

    sign: Tensor
    logabsdet: Tensor


def inv(inp: Tensor) -> Tensor:
    """Computes the inverse of square matrices: `matinv` under NumPy's name.

    Parameters
    ----------
    inp : Tensor
        Square matrices, [..., n, n].

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

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.linalg.inv(Tensor([[0.0, 2.0], [4.0, 0.0]])).numpy()
    array([[0.  , 0.25],
           [0.5 , 0.  ]], dtype=float32)
    """
    return matinv(inp)


def solve(a: Tensor, b: Tensor) -> Tensor:
    """Solves ``a @ x = b``, by elimination with row pivots.

    Parameters
    ----------
    a : Tensor
        Square matrices, [..., n, n].
    b : Tensor
        Right sides: [n], or [..., n, k]; axes in front broadcast.

    Returns
    -------
    Tensor
        The solution x: [..., n] for a vector, else [..., n, k], float32.

    Raises
    ------
    RuntimeError
        For a singular matrix.
    ValueError
        For shapes that do not fit.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.linalg.solve(Tensor([[2.0, 0.0], [0.0, 4.0]]), Tensor([1.0, 1.0])).numpy()
    array([0.5 , 0.25], dtype=float32)
    """
    require_tensors("solve", a, b)
    is_vector = b.ndim == 1
    if is_vector:
        b = ops.reshape(b, shape=(b.size, 1))
    outer = np.broadcast_shapes(a._tuple_shape[:-2], b._tuple_shape[:-2])
    a, b = (broadcast_to(x, (*outer, *x._tuple_shape[-2:])) for x in (a, b))
    x = ops.solve(a, b)
    return ops.reshape(x, shape=x._tuple_shape[:-1]) if is_vector else x


def lstsq(a: Tensor, b: Tensor) -> Tensor:
    """Finds the ``x`` with the smallest sum of squares of ``a @ x - b``; of several, the shortest.

    Parameters
    ----------
    a : Tensor
        Matrices, [..., m, n].
    b : Tensor
        Right sides: [m] or [..., m, k].

    Returns
    -------
    Tensor
        The solution x: [..., n] for a vector, else [..., n, k], float32. NumPy and torch return a
        tuple whose first item it is.

    Raises
    ------
    ValueError
        For shapes that do not fit.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> t = Tensor([[0.0, 1.0], [1.0, 1.0], [2.0, 1.0]])
    >>> F.linalg.lstsq(t, Tensor([1.0, 3.0, 5.0])).numpy().round(4)  # slope and offset
    array([2., 1.], dtype=float32)
    """
    return matmul(pinv(a), b)


def cholesky(inp: Tensor) -> Tensor:
    """Computes the lower triangle L of symmetric, positive definite matrices: ``inp = L @ L.T``.

    Parameters
    ----------
    inp : Tensor
        Matrices, [..., n, n]; elements above the diagonal are not read.

    Returns
    -------
    Tensor
        The shape of ``inp``, float32.

    Raises
    ------
    RuntimeError
        For a matrix that is not positive definite.
    ValueError
        For matrices that are not square.

    Notes
    -----
    The gradient is symmetric, like that of torch.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.linalg.cholesky(Tensor([[4.0, 2.0], [2.0, 5.0]])).numpy()
    array([[2., 0.],
           [1., 2.]], dtype=float32)
    """
    return ops.cholesky(inp)


def qr(inp: Tensor, mode: Literal["reduced", "complete", "r"] = "reduced") -> QR | Tensor:
    """Computes the QR decomposition ``inp = Q @ R``: Q has orthonormal columns, R is an upper
    triangle.

    Parameters
    ----------
    inp : Tensor
        Matrices, [..., m, n].
    mode : str
        "reduced" gives Q with r = min(m, n) columns, "complete" gives m columns, "r" gives R of
        "reduced" alone.

    Returns
    -------
    QR or Tensor
        Q [..., m, r] and R [..., r, n], float32, a named tuple; or R.

    Raises
    ------
    ValueError
        For another mode.
    RuntimeError
        For the gradient if there are more columns than rows, or if the mode is "complete" and
        matrices are not square.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> q, r = F.linalg.qr(Tensor([[3.0, 1.0], [4.0, 2.0]]))
    >>> r.numpy().round(4)
    array([[-5. , -2.2],
           [ 0. ,  0.4]], dtype=float32)
    """
    if mode not in ("reduced", "complete", "r"):
        raise ValueError(f"qr: mode {mode!r} is not one of 'reduced', 'complete', 'r'")
    found = QR(*ops.qr(inp, complete=mode == "complete"))
    return found.R if mode == "r" else found


def eigh(inp: Tensor) -> Eigen:
    """Computes eigenvalues and eigenvectors of symmetric matrices: ``inp @ v[:, i] = w[i] * v[:, i]``.

    Parameters
    ----------
    inp : Tensor
        Matrices, [..., n, n]; elements above the diagonal are not read.

    Returns
    -------
    Eigen
        The eigenvalues w, [..., n], rising, and the eigenvectors as columns, [..., n, n], float32:
        a named tuple.

    Raises
    ------
    ValueError
        For matrices that are not square.
    RuntimeError
        For infinite and NaN elements.

    Notes
    -----
    Signs of eigenvectors are arbitrary. Gradients through them hold for distinct eigenvalues, and
    are symmetric.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> w, v = F.linalg.eigh(Tensor([[2.0, 1.0], [1.0, 2.0]]))
    >>> w.numpy().round(4), v.shape
    (array([1., 3.], dtype=float32), (2, 2))
    """
    return Eigen(*ops.eigh(inp))


def eigvalsh(inp: Tensor) -> Tensor:
    """Computes the eigenvalues of symmetric matrices, as `eigh`.

    Parameters
    ----------
    inp : Tensor
        Matrices, [..., n, n]; elements above the diagonal are not read.

    Returns
    -------
    Tensor
        [..., n], rising, float32.

    Raises
    ------
    ValueError
        For matrices that are not square.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.linalg.eigvalsh(Tensor([[2.0, 1.0], [1.0, 2.0]])).numpy().round(4)
    array([1., 3.], dtype=float32)
    """
    return ops.eigh(inp)[0]


def slogdet(inp: Tensor) -> SignAndLogarithm:
    """Computes the sign of determinants and the logarithm of their magnitude, which neither
    overflows nor underflows.

    Parameters
    ----------
    inp : Tensor
        Square matrices, [..., n, n].

    Returns
    -------
    SignAndLogarithm
        Named tuple of two tensors [...], float32; 0 and -inf for a singular matrix.

    Raises
    ------
    ValueError
        For matrices that are not square.
    RuntimeError
        For the gradient of a singular matrix.

    Examples
    --------
    >>> from megengine import functional as F
    >>> sign, logarithm = F.linalg.slogdet(-100.0 * F.eye(101))
    >>> sign.item(), round(logarithm.item(), 2)
    (-1.0, 465.12)
    """
    return SignAndLogarithm(*ops.slogdet(inp))


def det(inp: Tensor) -> Tensor:
    """Computes determinants.

    Parameters
    ----------
    inp : Tensor
        Square matrices, [..., n, n].

    Returns
    -------
    Tensor
        [...], float32.

    Raises
    ------
    ValueError
        For matrices that are not square.
    RuntimeError
        For the gradient of a singular matrix.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> round(F.linalg.det(Tensor([[1.0, 2.0], [3.0, 4.0]])).item(), 4)
    -2.0
    """
    sign, logarithm = ops.slogdet(inp)
    return ops.mul(sign, ops.exp(logarithm))


def svdvals(inp: Tensor) -> Tensor:
    """Computes singular values, as `svd`.

    Parameters
    ----------
    inp : Tensor
        Matrices, [..., m, n].

    Returns
    -------
    Tensor
        [..., min(m, n)], the largest first, float32.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.linalg.svdvals(Tensor([[0.0, 2.0], [4.0, 0.0]])).numpy().round(4)
    array([4., 2.], dtype=float32)
    """
    return ops.svd(inp, full_matrices=False)[1]


def pinv(inp: Tensor, rcond: float | None = None) -> Tensor:
    """Computes the pseudo-inverse of matrices, by their singular values (Moore and Penrose).

    Parameters
    ----------
    inp : Tensor
        Matrices, [..., m, n].
    rcond : float or None
        Singular values up to this share of the largest one count as 0; None is ``max(m, n) *
        1.2e-7``.

    Returns
    -------
    Tensor
        [..., n, m], float32.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.linalg.pinv(Tensor([[2.0, 0.0], [0.0, 4.0], [0.0, 0.0]])).numpy().round(4)
    array([[0.5 , 0.  , 0.  ],
           [0.  , 0.25, 0.  ]], dtype=float32)
    """
    u, s, vh = ops.svd(inp, full_matrices=False)
    if rcond is None:
        rcond = max(inp._tuple_shape[-2:]) * float(np.finfo(np.float32).eps)
    largest = ops.reduce_max(s, axes=(s.ndim - 1,), keepdims=True)
    counts = ops.greater(s, ops.mul(largest, rcond))
    inverse = ops.where(counts, ops.reciprocal(ops.where(counts, s, 1.0)), 0.0)
    scaled = ops.mul(u, ops.reshape(inverse, shape=(*s._tuple_shape[:-1], 1, s._tuple_shape[-1])))
    return ops.matmul(vh, scaled, transpose_a=True, transpose_b=True)


def matrix_power(inp: Tensor, n: int) -> Tensor:
    """Multiplies square matrices by themselves, ``n`` factors in all, by repeated squaring.

    Parameters
    ----------
    inp : Tensor
        Square matrices, [..., k, k].
    n : int
        Number of factors: 0 gives the identity; negative numbers are powers of the inverse.

    Returns
    -------
    Tensor
        The shape of ``inp``.

    Raises
    ------
    ValueError
        For matrices that are not square.
    RuntimeError
        For a negative power of a singular matrix.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.linalg.matrix_power(Tensor([[1.0, 1.0], [0.0, 1.0]]), 5).numpy()
    array([[1., 5.],
           [0., 1.]], dtype=float32)
    """
    require_tensors("matrix_power", inp)
    shape, n = inp._tuple_shape, as_int(n, "matrix_power: n")
    if len(shape) < 2 or shape[-1] != shape[-2]:
        raise ValueError(f"matrix_power: a tensor of shape {list(shape)}; give square matrices")
    if n < 0:
        inp, n = matinv(inp), -n
    result = None
    while n:
        if n % 2:
            result = inp if result is None else matmul(result, inp)
        n //= 2
        inp = matmul(inp, inp) if n else inp
    if result is None:
        note_extent_read(inp)
        return broadcast_to(ops.cast(apply_const(np.eye(shape[-1], dtype=np.float32)), dtype=inp.dtype.name), shape)
    return result
