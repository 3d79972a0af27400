"""Discrete Fourier transforms, with the names and arguments of NumPy's and torch's ``fft``.

Numbers are complex64; real input is float32, or what is cast to it. Without a norm the transform is
a plain sum, and the inverse is divided by the number of elements. A gradient of complex numbers is
d/d real + i d/d imag, as in torch. For tensors of a GPU the host computes them.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from .._core import note_extent_read
from ..core import apply_const, ops
from ..core.tensor.array_method import require_tensors
from ..core.tensor.dtype import dtype_name
from ..core.tensor.shapes import as_ints, cut, full_like, normalize_axes, normalize_axis
from ..device import Device
from ..tensor import Tensor
from ._creation import on
from .tensor import roll

__all__ = [
    "fft", "fft2", "fftfreq", "fftn", "fftshift", "ifft", "ifft2", "ifftn", "ifftshift", "irfft", "irfft2", "irfftn",
    "rfft", "rfft2", "rfftfreq", "rfftn",
]  # fmt: skip

Axes = int | Sequence[int] | None


def _scale(norm: str | None, n: int, inverse: bool, op: str) -> float:
    """Returns the factor of a transform of ``n`` elements."""
    if norm not in (None, "backward", "ortho", "forward"):
        raise ValueError(f"{op}: norm {norm!r} is not one of 'backward', 'ortho', 'forward'")
    if norm == "ortho":
        return n**-0.5
    return 1.0 / n if inverse != (norm == "forward") else 1.0


def _resized(x: Tensor, axis: int, n: int | None, op: str) -> Tensor:
    """Returns ``n`` elements along ``axis``: cut, or followed by zeros."""
    extent = x._tuple_shape[axis]
    if n is None or n == extent:
        return x
    if n < 1:
        raise ValueError(f"{op}: {n} elements cannot be transformed; give at least 1")
    if n < extent:
        return cut(x, axis, 0, n)
    note_extent_read(x)
    shape = (*x._tuple_shape[:axis], n - extent, *x._tuple_shape[axis + 1 :])
    return ops.concat(x, ops.full(shape=shape, value=0.0, dtype=x.dtype.name, device=x), axis=axis)


def _last(x: Tensor, axis: int) -> Tensor:
    """Exchanges ``axis`` and the last one."""
    perm = list(range(x.ndim))
    perm[axis], perm[-1] = perm[-1], perm[axis]
    return x if axis == x.ndim - 1 else ops.transpose(x, perm=tuple(perm))


def _real(x: Tensor, op: str) -> Tensor:
    require_tensors(op, x)
    if x.dtype.kind == "c":
        raise TypeError(f"{op}: {x.dtype} numbers are not real\n  fix: use {op.replace('r', '', 1)}, or real(x)")
    return x if x.dtype == np.float32 else ops.cast(x, dtype="float32")


def _complex(x: Tensor, op: str) -> Tensor:
    if getattr(x, "dtype", None) == np.complex64:
        return x
    x = _real(x, op)
    return ops.complex(x, full_like(x, 0.0, "float32"))


def _along(x: Tensor, n: int | None, axis: int, norm: str | None, inverse: bool, op: str) -> Tensor:
    axis = normalize_axis(axis, x.ndim, op)
    x = _last(_resized(x, axis, n, op), axis)
    scale = _scale(norm, x._tuple_shape[-1], inverse, op)
    return _last(ops.fft(x, inverse=inverse, scale=scale), axis)


def fft(inp: Tensor, n: int | None = None, axis: int = -1, norm: str | None = None) -> Tensor:
    """Computes the discrete Fourier transform along ``axis``: ``out[k] = sum(inp[t] * exp(-2j * pi *
    k * t / n))``.

    Parameters
    ----------
    inp : Tensor
        Any shape but [], real or complex.
    n : int or None
        Number of elements that are transformed: more are cut off, fewer are followed by zeros. None
        takes all.
    axis : int
        Axis of ``inp``; negative numbers count from the end.
    norm : str or None
        "backward" (the default) divides the inverse by n, "forward" divides this transform by n,
        "ortho" divides both by sqrt(n).

    Returns
    -------
    Tensor
        The shape of ``inp`` with n elements along ``axis``, complex64.

    Raises
    ------
    ValueError
        For another norm, and for an axis without elements.

    See Also
    --------
    ifft : The inverse.
    rfft : Takes half of the time and the memory for real numbers.
    fftn : Transforms several axes.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.fft.fft(Tensor([1.0, 0.0, 0.0, 0.0])).numpy()
    array([1.+0.j, 1.+0.j, 1.+0.j, 1.+0.j], dtype=complex64)
    """
    return _along(_complex(inp, "fft"), n, axis, norm, False, "fft")


def ifft(inp: Tensor, n: int | None = None, axis: int = -1, norm: str | None = None) -> Tensor:
    """Computes the inverse of `fft`.

    Parameters
    ----------
    inp : Tensor
        Any shape but [], real or complex.
    n : int or None
        Number of elements that are transformed: more are cut off, fewer are followed by zeros. None
        takes all.
    axis : int
        Axis that is transformed; negative ones count from the end.
    norm : str or None
        "backward" (the default) divides this inverse by the number of elements n, "forward" divides
        the transform by n, "ortho" divides both by sqrt(n).

    Returns
    -------
    Tensor
        The shape of ``inp`` with n elements along ``axis``, complex64.

    Raises
    ------
    ValueError
        For another norm, and for an axis without elements.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.fft.ifft(F.fft.fft(Tensor([1.0, 2.0, 3.0, 4.0]))).numpy().real.round(4)
    array([1., 2., 3., 4.], dtype=float32)
    """
    return _along(_complex(inp, "ifft"), n, axis, norm, True, "ifft")


def rfft(inp: Tensor, n: int | None = None, axis: int = -1, norm: str | None = None) -> Tensor:
    """Computes `fft` of real numbers: the frequencies from 0 to n / 2, of which the others are the
    conjugates.

    Parameters
    ----------
    inp : Tensor
        Any shape but [], real.
    n : int or None
        Number of elements that are transformed: more are cut off, fewer are followed by zeros. None
        takes all.
    axis : int
        Axis that is transformed; negative ones count from the end.
    norm : str or None
        "backward" (the default) divides the inverse by n, "forward" divides this transform by n,
        "ortho" divides both by sqrt(n).

    Returns
    -------
    Tensor
        The shape of ``inp`` with ``n // 2 + 1`` elements along ``axis``, complex64.

    Raises
    ------
    ValueError
        For another norm, and for an axis without elements.
    TypeError
        For complex numbers.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.fft.rfft(Tensor([1.0, 2.0, 3.0, 4.0])).numpy()
    array([10.+0.j, -2.+2.j, -2.+0.j], dtype=complex64)
    """
    x = _real(inp, "rfft")
    axis = normalize_axis(axis, x.ndim, "rfft")
    x = _last(_resized(x, axis, n, "rfft"), axis)
    return _last(ops.rfft(x, twice=0, scale=_scale(norm, x._tuple_shape[-1], False, "rfft")), axis)


def irfft(inp: Tensor, n: int | None = None, axis: int = -1, norm: str | None = None) -> Tensor:
    """Computes the inverse of `rfft`.

    Parameters
    ----------
    inp : Tensor
        Frequencies from 0 on, in any shape but []. The imaginary part of the first one does not
        count, nor that of the last one if n is even.
    n : int or None
        Number of elements of the result; None is ``2 * (m - 1)`` for m frequencies.
    axis : int
        Axis that is transformed; negative ones count from the end.
    norm : str or None
        "backward" (the default) divides this inverse by the number of elements n, "forward" divides
        the transform by n, "ortho" divides both by sqrt(n).

    Returns
    -------
    Tensor
        The shape of ``inp`` with n elements along ``axis``, float32.

    Raises
    ------
    ValueError
        For another norm, and for an axis without elements.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.fft.irfft(F.fft.rfft(Tensor([1.0, 2.0, 3.0, 4.0, 5.0])), n=5).numpy().round(4)
    array([1., 2., 3., 4., 5.], dtype=float32)
    """
    x = _complex(inp, "irfft")
    axis = normalize_axis(axis, x.ndim, "irfft")
    n = 2 * (x._tuple_shape[axis] - 1) if n is None else n
    if n < 1:
        raise ValueError(f"irfft: {n} elements cannot be computed; give n, at least 1")
    x = _last(_resized(x, axis, n // 2 + 1, "irfft"), axis)
    return _last(ops.irfft(x, n=n, twice=1, scale=_scale(norm, n, True, "irfft")), axis)


def _axes_of(x: Tensor, s: Axes, axes: Axes, op: str) -> list[tuple[int | None, int]]:
    """Returns (elements, axis) of each one that is transformed."""
    sizes: Any = None if s is None else as_ints(s, f"{op}: s")
    if axes is None:
        found: Any = range(x.ndim - len(sizes), x.ndim) if sizes else range(x.ndim)
    else:
        found = [normalize_axis(axis, x.ndim, op) for axis in as_ints(axes, f"{op}: axes")]
    if sizes is not None and len(sizes) != len(found):
        raise ValueError(f"{op}: {len(sizes)} sizes for {len(found)} axes")
    return [*zip(sizes or [None] * len(found), found, strict=True)]


def fftn(inp: Tensor, s: Axes = None, axes: Axes = None, norm: str | None = None) -> Tensor:
    """Computes `fft` along several axes.

    Parameters
    ----------
    inp : Tensor
        Any shape but [], real or complex.
    s : int, sequence of int or None
        Number of elements that are transformed along each axis: more are cut off, fewer are
        followed by zeros. None takes all.
    axes : int, sequence of int or None
        Axes that are transformed. None takes the last ones, as many as ``s`` has sizes, or all
        without ``s``.
    norm : str or None
        "backward" (the default) divides the inverse by the number of elements n, "forward" divides
        this transform by n, "ortho" divides both by sqrt(n).

    Returns
    -------
    Tensor
        The shape of ``inp`` with these sizes, complex64.

    Raises
    ------
    ValueError
        For another norm, and sizes that do not fit the axes.

    Examples
    --------
    >>> from megengine import functional as F
    >>> F.fft.fftn(F.ones((2, 2))).numpy()
    array([[4.+0.j, 0.+0.j],
           [0.+0.j, 0.+0.j]], dtype=complex64)
    """
    x = _complex(inp, "fftn")
    for n, axis in _axes_of(x, s, axes, "fftn"):
        x = _along(x, n, axis, norm, False, "fftn")
    return x


def ifftn(inp: Tensor, s: Axes = None, axes: Axes = None, norm: str | None = None) -> Tensor:
    """Computes the inverse of `fftn`.

    Parameters
    ----------
    inp : Tensor
        Any shape but [], real or complex.
    s : int, sequence of int or None
        Number of elements that are transformed along each axis: more are cut off, fewer are
        followed by zeros. None takes all.
    axes : int, sequence of int or None
        Axes that are transformed. None takes the last ones, as many as ``s`` has sizes, or all
        without ``s``.
    norm : str or None
        "backward" (the default) divides this inverse by the number of elements n, "forward" divides
        the transform by n, "ortho" divides both by sqrt(n).

    Returns
    -------
    Tensor
        The shape of ``inp`` with these sizes, complex64.

    Raises
    ------
    ValueError
        For another norm, and sizes that do not fit the axes.

    Examples
    --------
    >>> from megengine import functional as F
    >>> F.fft.ifftn(F.ones((2, 2))).numpy().real
    array([[1., 0.],
           [0., 0.]], dtype=float32)
    """
    x = _complex(inp, "ifftn")
    for n, axis in _axes_of(x, s, axes, "ifftn"):
        x = _along(x, n, axis, norm, True, "ifftn")
    return x


def rfftn(inp: Tensor, s: Axes = None, axes: Axes = None, norm: str | None = None) -> Tensor:
    """Computes `rfft` along the last of several axes, then `fft` along the others.

    Parameters
    ----------
    inp : Tensor
        Any shape but [], real.
    s : int, sequence of int or None
        Number of elements that are transformed along each axis: more are cut off, fewer are
        followed by zeros. None takes all.
    axes : int, sequence of int or None
        Axes that are transformed. None takes the last ones, as many as ``s`` has sizes, or all
        without ``s``.
    norm : str or None
        "backward" (the default) divides the inverse by the number of elements n, "forward" divides
        this transform by n, "ortho" divides both by sqrt(n).

    Returns
    -------
    Tensor
        The shape of ``inp`` with the sizes ``s``, of which the last one becomes ``s // 2 + 1``,
        complex64.

    Raises
    ------
    ValueError
        For another norm, and sizes that do not fit the axes.
    TypeError
        For complex numbers.

    Examples
    --------
    >>> from megengine import functional as F
    >>> F.fft.rfftn(F.ones((2, 6))).shape
    (2, 4)
    """
    x = _real(inp, "rfftn")
    *others, (n, axis) = _axes_of(x, s, axes, "rfftn")
    y = rfft(x, n, axis, norm)
    for n, axis in others:
        y = _along(y, n, axis, norm, False, "rfftn")
    return y


def irfftn(inp: Tensor, s: Axes = None, axes: Axes = None, norm: str | None = None) -> Tensor:
    """Computes the inverse of `rfftn`.

    Parameters
    ----------
    inp : Tensor
        Frequencies, as `rfftn` returns them.
    s : int, sequence of int or None
        Sizes of the result. None takes those of ``inp``, and ``2 * (m - 1)`` for the last axis,
        which has m frequencies.
    axes : int, sequence of int or None
        Axes that are transformed. None takes the last ones, as many as ``s`` has sizes, or all
        without ``s``.
    norm : str or None
        "backward" (the default) divides this inverse by the number of elements n, "forward" divides
        the transform by n, "ortho" divides both by sqrt(n).

    Returns
    -------
    Tensor
        The shape of ``inp`` with the sizes ``s``, float32.

    Raises
    ------
    ValueError
        For another norm, and sizes that do not fit the axes.

    Examples
    --------
    >>> from megengine import functional as F
    >>> F.fft.irfftn(F.fft.rfftn(F.ones((2, 6)))).shape
    (2, 6)
    """
    x = _complex(inp, "irfftn")
    *others, (n, axis) = _axes_of(x, s, axes, "irfftn")
    for size, other in others:
        x = _along(x, size, other, norm, True, "irfftn")
    return irfft(x, n, axis, norm)


def fft2(inp: Tensor, s: Axes = None, axes: Axes = (-2, -1), norm: str | None = None) -> Tensor:
    """Computes `fftn` along two axes, by default the last ones.

    Parameters
    ----------
    inp : Tensor
        Tensor with at least two axes, real or complex.
    s : int, sequence of int or None
        Number of elements that are transformed along each axis: more are cut off, fewer are
        followed by zeros. None takes all.
    axes : int, sequence of int or None
        The two axes that are transformed.
    norm : str or None
        "backward" (the default) divides the inverse by the number of elements n, "forward" divides
        this transform by n, "ortho" divides both by sqrt(n).

    Returns
    -------
    Tensor
        The shape of ``inp`` with the sizes ``s``, complex64.

    Examples
    --------
    >>> from megengine import functional as F
    >>> F.fft.fft2(F.ones((3, 4, 6))).shape
    (3, 4, 6)
    """
    return fftn(inp, s, axes, norm)


def ifft2(inp: Tensor, s: Axes = None, axes: Axes = (-2, -1), norm: str | None = None) -> Tensor:
    """Computes the inverse of `fft2`.

    Parameters
    ----------
    inp : Tensor
        Tensor with at least two axes, real or complex.
    s : int, sequence of int or None
        Number of elements that are transformed along each axis: more are cut off, fewer are
        followed by zeros. None takes all.
    axes : int, sequence of int or None
        The two axes that are transformed.
    norm : str or None
        "backward" (the default) divides this inverse by the number of elements n, "forward" divides
        the transform by n, "ortho" divides both by sqrt(n).

    Returns
    -------
    Tensor
        The shape of ``inp`` with the sizes ``s``, complex64.

    Examples
    --------
    >>> from megengine import functional as F
    >>> F.fft.ifft2(F.ones((3, 4, 6))).shape
    (3, 4, 6)
    """
    return ifftn(inp, s, axes, norm)


def rfft2(inp: Tensor, s: Axes = None, axes: Axes = (-2, -1), norm: str | None = None) -> Tensor:
    """Computes `rfftn` along two axes, by default the last ones.

    Parameters
    ----------
    inp : Tensor
        Tensor with at least two axes, real.
    s : int, sequence of int or None
        Number of elements that are transformed along each axis: more are cut off, fewer are
        followed by zeros. None takes all.
    axes : int, sequence of int or None
        The two axes that are transformed.
    norm : str or None
        "backward" (the default) divides the inverse by the number of elements n, "forward" divides
        this transform by n, "ortho" divides both by sqrt(n).

    Returns
    -------
    Tensor
        The shape of ``inp`` with the sizes ``s``, of which the last one becomes ``s // 2 + 1``,
        complex64.

    Examples
    --------
    >>> from megengine import functional as F
    >>> F.fft.rfft2(F.ones((3, 4, 6))).shape
    (3, 4, 4)
    """
    return rfftn(inp, s, axes, norm)


def irfft2(inp: Tensor, s: Axes = None, axes: Axes = (-2, -1), norm: str | None = None) -> Tensor:
    """Computes the inverse of `rfft2`.

    Parameters
    ----------
    inp : Tensor
        Frequencies, as `rfft2` returns them.
    s : int, sequence of int or None
        Sizes of the result. None takes those of ``inp``, and ``2 * (m - 1)`` for the last axis,
        which has m frequencies.
    axes : int, sequence of int or None
        The two axes that are transformed.
    norm : str or None
        "backward" (the default) divides this inverse by the number of elements n, "forward" divides
        the transform by n, "ortho" divides both by sqrt(n).

    Returns
    -------
    Tensor
        The shape of ``inp`` with the sizes ``s``, float32.

    Examples
    --------
    >>> from megengine import functional as F
    >>> F.fft.irfft2(F.fft.rfft2(F.ones((3, 4, 6)))).shape
    (3, 4, 6)
    """
    return irfftn(inp, s, axes, norm)


def fftfreq(n: int, d: float = 1.0, *, dtype: DTypeLike = "float32", device: str | Device | None = None) -> Tensor:
    """Returns the frequencies of `fft`: 0, 1 and so on, then the negative ones, divided by ``n *
    d``.

    Parameters
    ----------
    n : int
        Number of elements that are transformed.
    d : float
        The distance between two of them.
    dtype : DTypeLike
        Data type of the result.
    device : str, Device or None
        None means the default device.

    Returns
    -------
    Tensor
        [n].

    Examples
    --------
    >>> from megengine import functional as F
    >>> F.fft.fftfreq(4, d=0.25).numpy()
    array([ 0.,  1., -2., -1.], dtype=float32)
    """
    return on(device, apply_const(np.fft.fftfreq(n, d).astype(dtype_name(dtype))))


def rfftfreq(n: int, d: float = 1.0, *, dtype: DTypeLike = "float32", device: str | Device | None = None) -> Tensor:
    """Returns the frequencies of `rfft`: 0, 1 and so on, divided by ``n * d``.

    Parameters
    ----------
    n : int
        Number of elements that are transformed.
    d : float
        The distance between two of them.
    dtype : DTypeLike
        Data type of the result.
    device : str, Device or None
        None means the default device.

    Returns
    -------
    Tensor
        [n // 2 + 1].

    Examples
    --------
    >>> from megengine import functional as F
    >>> F.fft.rfftfreq(4, d=0.25).numpy()
    array([0., 1., 2.], dtype=float32)
    """
    return on(device, apply_const(np.fft.rfftfreq(n, d).astype(dtype_name(dtype))))


def fftshift(inp: Tensor, axes: Axes = None) -> Tensor:
    """Moves frequency 0 to the middle.

    Parameters
    ----------
    inp : Tensor
        Any shape, as `fft` or `fftfreq` gives it.
    axes : int, sequence of int or None
        Axes that are moved; None moves all.

    Returns
    -------
    Tensor
        The shape and dtype of ``inp``.

    Examples
    --------
    >>> from megengine import functional as F
    >>> F.fft.fftshift(F.fft.fftfreq(4)).numpy()
    array([-0.5 , -0.25,  0.  ,  0.25], dtype=float32)
    """
    return _shifted(inp, axes, 0, "fftshift")


def ifftshift(inp: Tensor, axes: Axes = None) -> Tensor:
    """Undoes `fftshift`.

    Parameters
    ----------
    inp : Tensor
        Frequencies, a tensor of any shape.
    axes : int, sequence of int or None
        Axes that are moved; None moves all.

    Returns
    -------
    Tensor
        The shape and dtype of ``inp``.

    Examples
    --------
    >>> from megengine import functional as F
    >>> F.fft.ifftshift(F.fft.fftshift(F.fft.fftfreq(5))).numpy()
    array([ 0. ,  0.2,  0.4, -0.4, -0.2], dtype=float32)
    """
    return _shifted(inp, axes, 1, "ifftshift")


def _shifted(x: Tensor, axes: Axes, more: int, op: str) -> Tensor:
    require_tensors(op, x)
    moved = range(x.ndim) if axes is None else normalize_axes(axes, x.ndim, op)
    return roll(x, [(x._tuple_shape[axis] + more) // 2 for axis in moved], [*moved])
