"""Images: resizing, warping, regions, colours."""

import math as _math
from collections.abc import Iterable

import numpy as np

from .._core import note_extent_read as _note_extent_read
from ..core import apply_const as _apply_const
from ..core import ops as _ops
from ..core.tensor.array_method import require_tensors as _require_tensors
from ..core.tensor.indexing import as_places as _as_places
from ..core.tensor.shapes import as_pair as _as_pair
from ..core.tensor.shapes import taken as _taken
from ..tensor import Tensor
from ._colour import cvt_color
from ._deform import correlation
from ._grid_sample import grid_sample
from ._resize import interpolate, resize
from ._roi import batched_nms, nms, roi_align, roi_pooling
from ._sample import back_to_dtype as _back_to_dtype
from ._sample import check_border as _check_border
from ._sample import check_interpolation as _check_interpolation
from ._sample import grid as _grid
from ._sample import sample as _sample
from ._sample import to_nchw as _to_nchw

__all__ = [
    "batched_nms", "correlation", "cvt_color", "grid_sample", "interpolate", "nms", "nvof", "remap", "roi_align",
    "roi_pooling", "warp_affine", "warp_perspective", "flip", "rotate", "rot90", "resize",
]  # fmt: skip


def remap(
    inp: Tensor,
    map_xy: Tensor,
    border_mode: str = "replicate",
    scalar: float = 0.0,
    interp_mode: str = "linear",
) -> Tensor:
    """Samples images at given positions: ``out[n, c, i, j] = inp[n, c, y, x]`` for (x, y) =
    map_xy[n, i, j].

    Parameters
    ----------
    inp : Tensor
        [n, c, h, w]; integer images are rounded and clipped to their dtype.
    map_xy : Tensor
        [n, oh, ow, 2], float32, in pixels; (0, 0) is the centre of the first one.
    border_mode : str
        What lies outside of the image: "replicate", "reflect", "reflect_101", "wrap", or
        "constant".
    scalar : float
        Value outside of the image for "constant".
    interp_mode : str
        "nearest", "linear", "area" (as linear), "cubic" or "lanczos4".

    Returns
    -------
    Tensor
        [n, c, oh, ow]; gradients flow to both tensors.

    Raises
    ------
    ValueError
        For an unknown mode or shapes that do not fit.

    See Also
    --------
    functional.vision.grid_sample : Takes places between -1 and 1.
    warp_perspective : Computes the places from matrices.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> x = Tensor([[[[10.0, 20.0], [30.0, 40.0]]]])
    >>> places = Tensor([[[[1.0, 0.0], [0.5, 0.5], [-9.0, 0.0]]]])
    >>> F.vision.remap(x, places).numpy()
    array([[[[20., 25., 10.]]]], dtype=float32)
    >>> F.vision.remap(x, places, border_mode="constant").numpy()
    array([[[[20., 25.,  0.]]]], dtype=float32)
    """
    _require_tensors("remap", inp, map_xy)
    border, interp = _check_border(border_mode, "remap"), _check_interpolation(interp_mode, "remap")
    n, *_, two = (*map_xy._tuple_shape, 0, 0)[:2] if map_xy.ndim != 4 else map_xy._tuple_shape
    if map_xy.ndim != 4 or inp.ndim != 4 or two != 2 or n != inp._tuple_shape[0]:
        raise ValueError(
            f"remap: map_xy {list(map_xy._tuple_shape)} is not [n, h, w, 2] with the n of the images {list(inp._tuple_shape)}"
        )
    x, y = (_taken(map_xy, 3, i) for i in (0, 1))
    return _back_to_dtype(_to_nchw(_sample(inp, y, x, border, scalar, interp)), inp.dtype)


def warp_perspective(
    inp: Tensor,
    mat: Tensor,
    out_shape: tuple[int, int] | int | Tensor,
    mat_idx: Iterable[int] | Tensor | None = None,
    border_mode: str = "replicate",
    border_val: float = 0.0,
    format: str = "NCHW",
    interp_mode: str = "linear",
) -> Tensor:
    """Warps images by projective maps: the pixel (x, y) of the result is read at (u / d, v / d),
    where ``(u, v, d) = mat @ (x, y, 1)``.

    Parameters
    ----------
    inp : Tensor
        [n, c, h, w], or [n, h, w, c] for format "NHWC".
    mat : Tensor
        [n, 3, 3], float32, from pixels of the result to pixels of inp.
    out_shape : (int, int), int or Tensor
        Extents (h, w) of the result, or one number for both.
    mat_idx : iterable of int, Tensor or None
        Index of the image that each matrix reads; None: the i-th matrix reads the i-th image.
    border_mode : str
        What lies outside of the image: "replicate", "reflect", "reflect_101", "wrap", or
        "constant".
    border_val : float
        Value outside of the image for "constant".
    format : str
        Order of the axes: "NCHW" or "NHWC".
    interp_mode : str
        "nearest", "linear", "area" (as linear), "cubic" or "lanczos4".

    Returns
    -------
    Tensor
        [n, c, oh, ow] or [n, oh, ow, c], as ``format`` says, the dtype of ``inp``.

    Raises
    ------
    ValueError
        For an unknown mode or format, or shapes that do not fit.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> x = Tensor([[[[1.0, 2.0], [3.0, 4.0]]]])
    >>> swap = Tensor([[[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]])  # x and y
    >>> F.vision.warp_perspective(x, swap, (2, 2)).numpy()
    array([[[[1., 3.],
             [2., 4.]]]], dtype=float32)
    """
    _require_tensors("warp_perspective", inp, mat)
    border, interp = (
        _check_border(border_mode, "warp_perspective"),
        _check_interpolation(interp_mode, "warp_perspective"),
    )
    nhwc = _is_nhwc(format, "warp_perspective")
    images = _to_nchw(inp) if nhwc else inp
    if mat.ndim != 3 or mat._tuple_shape[1:] != (3, 3):
        raise ValueError(f"warp_perspective: mat has shape {list(mat._tuple_shape)}, not [n, 3, 3]")
    h, w = _as_pair(out_shape, "warp_perspective: out_shape")
    batch = None
    if mat_idx is not None:
        batch = (
            mat_idx if isinstance(mat_idx, Tensor) else _apply_const(np.asarray(mat_idx, np.int32))
        )
        batch = _as_places(batch)
    if mat._tuple_shape[0] != (
        images._tuple_shape[0] if batch is None else _math.prod(batch._tuple_shape)
    ):
        raise ValueError(
            f"warp_perspective: {mat._tuple_shape[0]} matrices for {images._tuple_shape[0]} images"
        )
    y, x = _project(mat, h, w)
    out = _back_to_dtype(_sample(images, y, x, border, border_val, interp, batch), inp.dtype)
    return out if nhwc else _to_nchw(out)


def _is_nhwc(format: str, op: str) -> bool:
    if format.upper() in ("NCHW", "DEFAULT"):
        return False
    if format.upper() != "NHWC":
        raise ValueError(f"{op}: format {format!r} is neither 'NCHW' nor 'NHWC'")
    return True


def _project(mat: Tensor, h: int, w: int) -> tuple[Tensor, Tensor]:
    """Returns the rows and columns, [n, h, w], to which the matrices map the output pixels."""
    n = mat._tuple_shape[0]
    rows, cols = _grid(h, w)
    m = [
        [
            _ops.reshape(
                _ops.slice(mat, begin=(0, i, j), end=(n, i + 1, j + 1), step=(1, 1, 1)),
                shape=(n, 1, 1),
            )
            for j in range(3)
        ]
        for i in range(3)
    ]
    u, v, d = (_ops.add(_ops.add(_ops.mul(cols, r[0]), _ops.mul(rows, r[1])), r[2]) for r in m)
    return _ops.true_div(v, d), _ops.true_div(u, d)


def warp_affine(
    inp: Tensor,
    mat: Tensor,
    out_shape: tuple[int, int] | int | Tensor,
    border_mode: str = "replicate",
    border_val: float = 0.0,
    format: str = "NHWC",
    interp_mode: str = "linear",
) -> Tensor:
    """Warps images by affine maps: the pixel (x, y) of the result is read at ``mat @ (x, y, 1)``.

    Parameters
    ----------
    inp : Tensor
        [n, h, w, c], or [n, c, h, w] for format "NCHW": the default differs from
        `warp_perspective`'s.
    mat : Tensor
        [n, 2, 3], float32, from pixels of the result to pixels of inp.
    out_shape : (int, int), int or Tensor
        Extents (h, w) of the result, or one number for both.
    border_mode : str
        What lies outside of the image: "replicate", "reflect", "reflect_101", "wrap", or
        "constant".
    border_val : float
        Value outside of the image for "constant".
    format : str
        Order of the axes: "NHWC" or "NCHW".
    interp_mode : str
        "nearest", "linear", "area" (as linear), "cubic" or "lanczos4".

    Returns
    -------
    Tensor
        [n, oh, ow, c] or [n, c, oh, ow], as ``format`` says, the dtype of ``inp``.

    See Also
    --------
    warp_perspective : Takes 3 by 3 matrices.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> x = Tensor([[[[1.0, 2.0, 3.0]]]])
    >>> shift = Tensor([[[1.0, 0.0, 1.0], [0.0, 1.0, 0.0]]])  # to the left by one pixel
    >>> F.vision.warp_affine(x, shift, (1, 3), border_mode="constant", format="NCHW").numpy()
    array([[[[2., 3., 0.]]]], dtype=float32)
    """
    _require_tensors("warp_affine", inp, mat)
    n = mat._tuple_shape[0]
    if mat._tuple_shape[1:] == (2, 3):
        last = np.broadcast_to(np.array([[[0, 0, 1]]], np.float32), (n, 1, 3))
        mat = _ops.concat(mat, _apply_const(np.ascontiguousarray(last)), axis=1)
    return warp_perspective(
        inp,
        mat,
        out_shape,
        border_mode=border_mode,
        border_val=border_val,
        format=format,
        interp_mode=interp_mode,
    )


def flip(inp: Tensor, vertical: bool = True, horizontal: bool = True) -> Tensor:
    """Mirrors images top to bottom and left to right.

    Parameters
    ----------
    inp : Tensor
        Tensor of shape [n, h, w, c], any dtype.
    vertical, horizontal : bool
        Whether to mirror along height and width.

    Returns
    -------
    Tensor
        The shape and dtype of ``inp``.

    Examples
    --------
    >>> from megengine import functional as F
    >>> x = F.arange(4).reshape(1, 2, 2, 1)
    >>> F.vision.flip(x, horizontal=False).numpy()[0, :, :, 0]
    array([[2., 3.],
           [0., 1.]], dtype=float32)
    """
    _require_tensors("flip", inp)
    n, h, w, c = inp._tuple_shape
    begin, end, step = [0, 0, 0, 0], [n, h, w, c], [1, 1, 1, 1]
    for axis, wanted in ((1, vertical), (2, horizontal)):
        if wanted:
            begin[axis], end[axis], step[axis] = end[axis] - 1, -1, -1
    return _ops.slice(inp, begin=tuple(begin), end=tuple(end), step=tuple(step))


def rot90(inp: Tensor, clockwise: bool = True) -> Tensor:
    """Turns images by 90 degrees.

    Parameters
    ----------
    inp : Tensor
        Tensor of shape [n, h, w, c], any dtype.
    clockwise : bool
        Whether to turn clockwise; False turns counter-clockwise.

    Returns
    -------
    Tensor
        [n, w, h, c].

    Examples
    --------
    >>> from megengine import functional as F
    >>> x = F.arange(4).reshape(1, 2, 2, 1)
    >>> F.vision.rot90(x).numpy()[0, :, :, 0]
    array([[2., 0.],
           [3., 1.]], dtype=float32)
    """
    _require_tensors("rot90", inp)
    return flip(_ops.transpose(inp, perm=(0, 2, 1, 3)), vertical=not clockwise, horizontal=clockwise)


def rotate(
    inp: Tensor, angle: float = 0.0, format: str = "NCHW", interp_mode: str = "bilinear"
) -> Tensor:
    """Turns images counter-clockwise about their centre.

    Parameters
    ----------
    inp : Tensor
        [n, c, h, w], or [n, h, w, c] for format "NHWC".
    angle : float
        Angle in degrees, counter-clockwise.
    format : str
        Order of the axes: "NCHW" or "NHWC".
    interp_mode : str
        "nearest", "linear", "area" (as linear), "cubic" or "lanczos4".

    Returns
    -------
    Tensor
        The shape of ``inp``; pixels from outside are 0.

    Raises
    ------
    ValueError
        For an unknown format or mode.

    Examples
    --------
    >>> from megengine import functional as F
    >>> x = F.arange(9).reshape(1, 1, 3, 3)
    >>> F.vision.rotate(x, 90.0).numpy().round(2)[0, 0]
    array([[2., 5., 8.],
           [1., 4., 7.],
           [0., 3., 6.]], dtype=float32)
    """
    _require_tensors("rotate", inp)
    nhwc = _is_nhwc(format, "rotate")
    n, h, w = (inp._tuple_shape[i] for i in ((0, 1, 2) if nhwc else (0, 2, 3)))
    turn = np.deg2rad(angle)
    cos, sin = np.cos(turn), np.sin(turn)
    cx, cy = (w - 1) / 2, (h - 1) / 2
    mat = np.array(
        [[cos, -sin, cx - cos * cx + sin * cy], [sin, cos, cy - sin * cx - cos * cy], [0, 0, 1]]
    )
    _note_extent_read(inp, 0)
    mats = _apply_const(np.ascontiguousarray(np.broadcast_to(mat.astype(np.float32), (n, 3, 3))))
    return warp_perspective(
        inp,
        mats,
        (h, w),
        border_mode="constant",
        border_val=0.0,
        format=format,
        interp_mode=interp_mode,
    )


def nvof(src: Tensor, precision: int = 1) -> Tensor:
    """Computes the optical flow of video with the optical flow engine of a GPU.

    Parameters
    ----------
    src : Tensor
        [n, t, h, w, 4], uint8.
    precision : int
        0, 1 or 2.

    Returns
    -------
    Tensor
        The flow; no supported device computes it today.

    Raises
    ------
    RuntimeError
        On every device that is supported today: none has the engine.
    AssertionError
        For another shape of ``src``.
    ValueError
        For another precision.

    Examples
    --------
    >>> from megengine import functional as F
    >>> F.vision.nvof(F.zeros((1, 2, 8, 8, 4), dtype="uint8", device="cpu0"))
    Traceback (most recent call last):
        ...
    RuntimeError: nvof: device cpu0:0 has no optical flow engine
      fix: correlate feature maps instead, with megengine.functional.vision.correlation
    """
    if src.ndim != 5 or src._tuple_shape[4] != 4:
        raise AssertionError(f"nvof: src has shape {list(src._tuple_shape)}, not [n, t, h, w, 4]")
    if precision not in (0, 1, 2):
        raise ValueError(f"nvof: precision {precision!r} is not 0, 1 or 2")
    raise RuntimeError(
        f"nvof: device {src.device} has no optical flow engine\n"
        "  fix: correlate feature maps instead, with megengine.functional.vision.correlation"
    )
