"""Resizing of images."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..core import apply_const, ops
from ..core.tensor.amp import to_high as _to_high
from ..core.tensor.array_method import require_tensors
from ..core.tensor.shapes import as_int, as_ints, as_pair, in_order_of
from ..tensor import Tensor
from ._sample import back_to_dtype, cubic_taps, to_nchw, to_nhwc

_RANKS = {"linear": 3, "bilinear": 4, "trilinear": 5, "bicubic": 4, "nearest": 4}


def interpolate(
    inp: Tensor,
    size: int | Sequence[int] | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "bilinear",
    align_corners: bool | None = None,
) -> Tensor:
    """Resizes the spatial axes of ``inp`` to ``size`` or by ``scale_factor``.

    Parameters
    ----------
    inp : Tensor
        [n, c, l], [n, c, h, w] or [n, c, d, h, w], of an integer or a float dtype.
    size : int, sequence of int or None
        The extents of the result, or one for all axes.
    scale_factor : float, sequence of float or None
        Factors of the extents, whose products are rounded down, or one factor for all axes.
    mode : str
        "linear" (3-d inp), "bilinear", "bicubic", "nearest" (4-d) or "trilinear" (5-d).
    align_corners : bool or None
        True maps the centres of corner pixels to each other, otherwise the corners of the images;
        None for "bicubic" and "nearest".

    Returns
    -------
    Tensor
        Tensor with the new extents, in the dtype of ``inp``; integers are rounded.

    Raises
    ------
    ValueError
        Unless exactly one of size and scale_factor is given, and for a mode that does not fit.

    See Also
    --------
    functional.vision.resize : Keeps the aspect ratio, if one edge is given.
    functional.remap : Reads each pixel from a given place.

    References
    ----------
    Keys, 1981, "Cubic Convolution Interpolation for Digital Image Processing", with a = -0.75
    ("bicubic").

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> x = Tensor([[[[0.0, 3.0]]]])
    >>> F.vision.interpolate(x, size=(1, 4)).numpy()
    array([[[[0.  , 0.75, 2.25, 3.  ]]]], dtype=float32)
    >>> F.vision.interpolate(x, size=(1, 4), align_corners=True).numpy()
    array([[[[0., 1., 2., 3.]]]], dtype=float32)
    """
    require_tensors("interpolate", inp)
    inp = _to_high(inp)
    kind = str(mode).lower()
    if kind not in _RANKS:
        raise ValueError(f"unsupported interpolate mode: {mode}\n  fix: use one of {', '.join(_RANKS)}")
    if kind in ("bicubic", "nearest"):
        if align_corners is not None:
            raise ValueError(
                "align_corners option can only be set in the bilinear/linear interpolating mode\n"
                f"  why: the mode is {kind}; linear, bilinear and trilinear have it"
            )
    if inp.ndim != _RANKS[kind]:
        raise ValueError(
            f"interpolate: mode {kind} takes {_RANKS[kind]} axes, inp has shape {list(inp._tuple_shape)}\n"
            "  fix: axes are [n, c, ...]: one spatial axis for linear, two for bilinear, bicubic and nearest, three for trilinear; F.expand_dims(x, 0) makes a batch of one"
        )
    out = _out_size(inp._tuple_shape[2:], size, scale_factor)
    x = ops.cast(inp, dtype="float32") if inp.dtype.kind in "iu" and kind != "nearest" else inp
    return in_order_of(inp, back_to_dtype(resize_axes(x, out, kind, bool(align_corners)), inp.dtype))


def resize_axes(inp: Tensor, out: Sequence[int], kind: str, align_corners: bool) -> Tensor:
    """Resizes the spatial axes of ``inp`` to ``out``, one after the other, as all modes are
    separable.
    """
    y = inp
    for axis, extent in enumerate(out, start=2):
        y = _resize_axis(y, axis, extent, kind, align_corners)
    return ops.identity(inp) if y is inp else y


def _resize_axis(x: Tensor, axis: int, out: int, kind: str, align_corners: bool) -> Tensor:
    extent = x._tuple_shape[axis]
    if out == extent:
        return x
    if kind == "nearest":
        return _pick(x, axis, np.arange(out) * extent // out)
    if align_corners:
        place = np.arange(out) * ((extent - 1) / max(out - 1, 1))
    else:
        place = (np.arange(out) + 0.5) * (extent / out) - 0.5
        if kind != "bicubic":
            place = np.clip(place, 0, extent - 1)
    base = np.floor(place)
    y: Any = None  # a Tensor after the first tap
    for offset, weight in _taps(place - base, kind):
        index = np.clip(base.astype(np.int64) + offset, 0, extent - 1)
        shape = [out if a == axis else 1 for a in range(x.ndim)]
        weights = apply_const(weight.reshape(shape).astype(np.float32))
        if x.dtype.name != "float32":
            weights = ops.cast(weights, dtype=x.dtype.name)
        picked = _pick(x, axis, index)
        y = ops.mul(picked, weights) if y is None else ops.fma3(picked, weights, y)
    return y


def _pick(x: Tensor, axis: int, index: np.ndarray) -> Tensor:
    return ops.index_get(x, apply_const(index.astype(np.int32)), axes=(axis,))


def _taps(t: np.ndarray, kind: str) -> list[tuple[int, np.ndarray]]:
    """Returns (offset from the floor, weight) of each element that counts."""
    return cubic_taps(t) if kind == "bicubic" else [(0, 1 - t), (1, t)]


def _out_size(spatial: tuple[int, ...], size: Any, scale_factor: Any) -> tuple[int, ...]:
    n = len(spatial)
    if (size is None) == (scale_factor is None):
        rule = "must be None when size is provided" if size is not None else "must not be None when size is None"
        raise ValueError(f"scale_factor {rule}\n  why: interpolate got size={size} and scale_factor={scale_factor}\n  fix: give exactly one of them")
    if size is not None:
        out = as_pair(size, "interpolate: size", n)
    else:
        scales = (
            [float(s) for s in scale_factor]
            if isinstance(scale_factor, (list, tuple))
            else [float(scale_factor)]
        )
        if len(scales) == 1:
            scales *= n
        if len(scales) != n:
            raise ValueError(f"interpolate: {len(scales)} scale factors for {n} spatial axes")
        out = tuple(int(extent * scale) for extent, scale in zip(spatial, scales, strict=False))
    if any(extent < 1 for extent in out):
        raise ValueError(f"interpolate: {list(spatial)} would become {list(out)}, which is empty\n  fix: each extent of the result must be at least 1")
    return out


def resize(
    inp: Tensor,
    size: int | Sequence[int],
    format: str = "NCHW",
    imode: str = "bilinear",
    max_size: int | None = None,
) -> Tensor:
    """Resizes images to ``size``, or by their shorter edge.

    Parameters
    ----------
    inp : Tensor
        [n, c, h, w], or [n, h, w, c] for format "NHWC", an integer or a float dtype.
    size : int or sequence of int
        Extents (h, w), or one number for the shorter edge; the longer edge then keeps the aspect
        ratio.
    format : str
        Order of the axes: "NCHW" or "NHWC".
    imode : str
        "bilinear", "bicubic" or "nearest", as in `interpolate`.
    max_size : int or None
        Largest length of the longer edge in pixels; None is no limit.

    Returns
    -------
    Tensor
        Tensor with the new height and width, in the dtype of ``inp``.

    Raises
    ------
    ValueError
        For an unknown format or imode.

    See Also
    --------
    functional.vision.interpolate : Resizes lines and volumes, too, and by a factor.

    Examples
    --------
    >>> from megengine import functional as F
    >>> x = F.ones((1, 100, 200, 3), dtype="uint8")
    >>> F.vision.resize(x, 50, format="NHWC").shape
    (1, 50, 100, 3)
    >>> F.vision.resize(x, 50, format="NHWC", max_size=80).shape
    (1, 40, 80, 3)
    """
    require_tensors("resize", inp)
    nhwc = format.upper() == "NHWC"
    if not nhwc and format.upper() != "NCHW":
        raise ValueError(f"resize: format {format!r} is neither 'NCHW' nor 'NHWC'")
    kind = {"linear": "bilinear", "cubic": "bicubic"}.get(imode.lower(), imode.lower())
    images = to_nchw(inp) if nhwc else inp
    extents = as_ints(size, "resize: size")
    if len(extents) == 1:
        h, w = images._tuple_shape[2:]
        short, long = min(h, w), max(h, w)
        new_short, new_long = extents[0], int(extents[0] * long / short)
        if max_size is not None and new_long > as_int(max_size, "resize: max_size"):
            new_short, new_long = int(max_size * new_short / new_long), int(max_size)
        extents = (new_short, new_long) if h <= w else (new_long, new_short)
    out = interpolate(images, size=extents, mode=kind)
    return to_nhwc(out) if nhwc else out
