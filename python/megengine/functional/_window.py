"""Windows of images, padding, and functions that move elements between channels and space."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import _core
from .._core import note_extent_read
from ..core import apply_const, ops
from ..core._telling import warn_of
from ..core.tensor.array_method import require_tensors
from ..core.tensor.quantized import keeps_quantized_dtype
from ..core.tensor.shapes import as_ints, as_pair, cut
from ..tensor import Tensor

Widths = int | Sequence[int] | Sequence[Sequence[int]]

IntPair = int | Sequence[int]  # one for both axes, or one each

_PAD_MODES = {"constant": "constant", "edge": "edge", "replicate": "edge", "reflect": "reflect"}


@keeps_quantized_dtype
def pad(
    src: Tensor,
    pad_width: Widths | None = None,
    mode: str = "constant",
    constant_value: float = 0.0,
    *,
    pad_witdth: Widths | None = None,
) -> Tensor:
    """Adds elements at both ends of each axis.

    Parameters
    ----------
    src : Tensor
        Tensor of any shape and dtype.
    pad_width : int, sequence of int, sequence of sequence of int or None
        Numbers of elements to add: one pair (before, after) per axis; axes without a pair keep
        their extent. A single pair or int is for the first axis.
    mode : str
        "constant" adds a constant; "edge" and "replicate" repeat the outermost element; "reflect"
        mirrors at it.
    constant_value : float
        Value of the added elements in the mode "constant".
    pad_witdth : int, sequence of int, sequence of sequence of int or None
        `pad_width` as MegEngine 1.8 spelt it; it goes with megjit 1.0.

    Returns
    -------
    Tensor
        The dtype of ``src``; each axis is longer by its pair.

    Raises
    ------
    ValueError
        For an unknown mode, a negative width or more pairs than axes.
    TypeError
        Without a width.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.pad(Tensor([[1, 2, 3]]), ((0, 0), (2, 1)), mode="reflect").numpy()
    array([[3, 2, 1, 2, 3, 2]], dtype=int32)
    >>> F.pad(Tensor([[1, 2, 3]]), (1, 0)).numpy()  # one pair: the first axis
    array([[0, 0, 0],
           [1, 2, 3]], dtype=int32)
    """
    require_tensors("pad", src)
    if pad_witdth is not None and pad_width is None:
        warn_of("functional.pad(pad_witdth=)", stacklevel=3)
        pad_width = pad_witdth
    if pad_width is None:
        raise TypeError("pad: pad_width is missing")
    kind = _PAD_MODES.get(str(mode).lower())
    if kind is None:
        raise ValueError(f"pad: mode {mode!r} is not one of {', '.join(_PAD_MODES)}")
    widths = as_widths(pad_width, src.ndim)
    before = tuple(w[0] for w in widths)
    after = tuple(w[1] for w in widths)
    _core.check_number(constant_value, src.dtype)
    return ops.pad(src, before=before, after=after, mode=kind, value=float(constant_value))


def pad_or_cut(x: Tensor, widths: Sequence[tuple[int, int]], mode: str, value: float) -> Tensor:
    """Pads as `pad`; negative widths cut, and the modes "wrap" and "circular" continue at the other
    end.
    """
    if any(width < 0 for pair in widths for width in pair):
        x = x[tuple(slice(max(-b, 0), n - max(-a, 0)) for (b, a), n in zip(widths, x._tuple_shape, strict=True))]
        widths = [(max(before, 0), max(after, 0)) for before, after in widths]
    if mode not in ("wrap", "circular"):
        return pad(x, widths, mode, value)
    for axis, (before, after) in enumerate(widths):
        if before or after:
            extent = x._tuple_shape[axis]
            places = np.arange(-before, extent + after) % extent
            x = ops.index_get(x, apply_const(places.astype(np.int32)), axes=(axis,))
    return x


def as_widths(pad_width: Any, ndim: int) -> list[tuple[int, ...]]:
    """One (before, after) pair per axis."""
    if isinstance(pad_width, (Tensor, np.ndarray)):
        pad_width = pad_width.tolist()
    if isinstance(pad_width, int) or (
        len(pad_width) == 2 and all(isinstance(w, int) for w in pad_width)
    ):
        pad_width = [as_pair(pad_width, "pad: pad_width")]
    widths = [as_pair(w, "pad: pad_width") for w in pad_width]
    if len(widths) > ndim:
        raise ValueError(f"pad: {len(widths)} pairs for a tensor with {ndim} axes")
    if any(v < 0 for w in widths for v in w):
        raise ValueError(f"pad: pad_width {pad_width} has a negative width")
    return widths + [(0, 0)] * (ndim - len(widths))


def _positions(extent: int, kernel: int, stride: int, dilation: int, axis: str) -> np.ndarray:
    """Returns [windows, kernel]: positions along one axis."""
    count = (extent - dilation * (kernel - 1) - 1) // stride + 1
    if count < 1:
        raise ValueError(
            f"window: a kernel of {kernel} (dilation {dilation}) exceeds the {axis} of {extent}"
        )
    return (np.arange(count)[:, None] * stride + np.arange(kernel)[None, :] * dilation).astype(
        np.int32
    )


def _pad_images(x: Tensor, padding: tuple[int, ...]) -> Tensor:
    if padding == (0, 0):
        return x
    widths = (0, 0) + padding
    return ops.pad(x, before=widths, after=widths, mode="constant", value=0.0)


def windows_of(
    inp: Tensor,
    kernel_size: IntPair,
    padding: IntPair = 0,
    stride: IntPair = 1,
    dilation: IntPair = 1,
) -> Tensor:
    """Returns the windows [n, c, oh, ow, kh, kw] of [n, c, h, w]; padding is zero."""
    kh, kw = as_pair(kernel_size, "window: kernel_size")
    sh, sw = as_pair(stride, "window: stride")
    dh, dw = as_pair(dilation, "window: dilation")
    x = _pad_images(inp, as_pair(padding, "window: padding"))
    h, w = x._tuple_shape[2:]
    rows = _positions(h, kh, sh, dh, "height")
    cols = _positions(w, kw, sw, dw, "width")
    return ops.index_get(
        x, apply_const(rows[:, None, :, None]), apply_const(cols[None, :, None, :]), axes=(2, 3)
    )


def sliding_window(
    inp: Tensor,
    kernel_size: IntPair,
    padding: IntPair = 0,
    stride: IntPair = 1,
    dilation: IntPair = 1,
) -> Tensor:
    """Collects the window at each position of images: [n, c, h, w] becomes [n, c, oh, ow, kh, kw].

    Parameters
    ----------
    inp : Tensor
        Tensor of shape [n, c, h, w].
    kernel_size, padding, stride, dilation : int or sequence of int
        Extent of a window, zeros added on every side, distance from one window to the next, and
        distance of a window's elements: each an int for both axes, or (height, width). Extents
        follow as in `conv2d`.

    Returns
    -------
    Tensor
        [n, c, oh, ow, kh, kw], the dtype of ``inp``.

    Raises
    ------
    ValueError
        For other shapes, or windows that do not fit.

    Examples
    --------
    >>> from megengine import functional as F
    >>> F.sliding_window(F.arange(6).reshape(1, 1, 2, 3), 2).numpy()[0, 0, 0, 1]  # row 0, column 1
    array([[1., 2.],
           [4., 5.]], dtype=float32)
    """
    require_tensors("sliding_window", inp)
    if inp.ndim != 4:
        raise ValueError(
            f"sliding_window: inp has shape {list(inp._tuple_shape)}, not [n, c, h, w]"
        )
    return windows_of(inp, kernel_size, padding, stride, dilation)


def sliding_window_transpose(
    inp: Tensor,
    output_size: IntPair,
    kernel_size: IntPair,
    padding: IntPair = 0,
    stride: IntPair = 1,
    dilation: IntPair = 1,
) -> Tensor:
    """Adds windows back into images: the adjoint of `sliding_window`.

    Parameters
    ----------
    inp : Tensor
        Tensor of shape [n, c, oh, ow, kh, kw].
    output_size : int or sequence of int
        (h, w) of the images, or one number for both.
    kernel_size, padding, stride, dilation : int or sequence of int
        Extent of a window, zeros around the images, distance from one window to the next, and
        distance of a window's elements: each an int for both axes, or (height, width).

    Returns
    -------
    Tensor
        [n, c, h, w]; pixels that several windows cover get the sum.

    Raises
    ------
    ValueError
        If `sliding_window` of such images gives windows of another shape.

    Examples
    --------
    >>> from megengine import functional as F
    >>> windows = F.sliding_window(F.ones((1, 1, 1, 4)), (1, 2))
    >>> F.sliding_window_transpose(windows, (1, 4), (1, 2)).numpy()
    array([[[[1., 2., 2., 1.]]]], dtype=float32)
    """
    require_tensors("sliding_window_transpose", inp)
    h, w = as_pair(output_size, "sliding_window_transpose: output_size")
    kh, kw = as_pair(kernel_size, "sliding_window_transpose: kernel_size")
    sh, sw = as_pair(stride, "sliding_window_transpose: stride")
    dh, dw = as_pair(dilation, "sliding_window_transpose: dilation")
    ph, pw = as_pair(padding, "sliding_window_transpose: padding")
    rows = _positions(h + 2 * ph, kh, sh, dh, "height")
    cols = _positions(w + 2 * pw, kw, sw, dw, "width")
    n, c = inp._tuple_shape[:2]
    if inp._tuple_shape[2:] != (len(rows), len(cols), kh, kw):
        raise ValueError(
            f"sliding_window_transpose: inp has shape {list(inp._tuple_shape)}\n"
            f"  why: an output of {h} by {w} has windows {[n, c, len(rows), len(cols), kh, kw]}"
        )
    note_extent_read(inp)
    zero = ops.full(shape=(n, c, h + 2 * ph, w + 2 * pw), value=0.0, dtype=inp.dtype.name, device=inp)
    index = apply_const(rows[:, None, :, None]), apply_const(cols[None, :, None, :])
    y = ops.index_add(zero, inp, *index, axes=(2, 3))
    if (ph, pw) == (0, 0):
        return y
    return ops.slice(y, begin=(0, 0, ph, pw), end=(n, c, ph + h, pw + w), step=(1, 1, 1, 1))


def unfold(
    inp: Tensor,
    kernel_size: IntPair,
    dilation: IntPair = 1,
    padding: IntPair = 0,
    stride: IntPair = 1,
) -> Tensor:
    """Collects the windows of images as columns of a matrix (im2col): [n, c, h, w] becomes
    [n, c * kh * kw, oh * ow].

    Parameters
    ----------
    inp : Tensor
        Tensor of shape [n, c, h, w].
    kernel_size, dilation, padding, stride : int or sequence of int
        Extent of a window, distance of its elements, zeros added on every side, and distance from
        one window to the next: each an int for both axes, or (height, width).

    Returns
    -------
    Tensor
        [n, c * kh * kw, oh * ow], the dtype of ``inp``.

    Raises
    ------
    ValueError
        For other shapes, or windows that do not fit.

    Examples
    --------
    >>> from megengine import functional as F
    >>> F.unfold(F.arange(6).reshape(1, 1, 2, 3), 2).numpy()
    array([[[0., 1.],
            [1., 2.],
            [3., 4.],
            [4., 5.]]], dtype=float32)
    """
    windows = sliding_window(inp, kernel_size, padding, stride, dilation)
    n, c, oh, ow, kh, kw = windows._tuple_shape
    return ops.reshape(ops.transpose(windows, perm=(0, 1, 4, 5, 2, 3)), shape=(n, c * kh * kw, oh * ow))


def fold(
    inp: Tensor,
    output_size: IntPair,
    kernel_size: IntPair,
    dilation: IntPair = 1,
    padding: IntPair = 0,
    stride: IntPair = 1,
) -> Tensor:
    """Adds columns back into images (col2im): the adjoint of `unfold`.

    Parameters
    ----------
    inp : Tensor
        Tensor of shape [n, c * kh * kw, oh * ow].
    output_size : int or sequence of int
        (h, w) of the images, or one number for both.
    kernel_size, dilation, padding, stride : int or sequence of int
        Extent of a window, distance of its elements, zeros around the images, and distance from one
        window to the next: each an int for both axes, or (height, width).

    Returns
    -------
    Tensor
        [n, c, h, w]; pixels that several windows cover get the sum.

    Raises
    ------
    ValueError
        If `unfold` of such images gives columns of another shape.

    Examples
    --------
    >>> from megengine import functional as F
    >>> F.fold(F.unfold(F.ones((1, 1, 1, 4)), (1, 2)), (1, 4), (1, 2)).numpy()
    array([[[[1., 2., 2., 1.]]]], dtype=float32)
    """
    require_tensors("fold", inp)
    size, kernel, gap, width, step = (as_pair(given, f"fold: {name}") for name, given in (
        ("output_size", output_size), ("kernel_size", kernel_size), ("dilation", dilation), ("padding", padding), ("stride", stride)))  # fmt: skip
    oh, ow = ((size[i] + 2 * width[i] - gap[i] * (kernel[i] - 1) - 1) // step[i] + 1 for i in range(2))
    area = kernel[0] * kernel[1]
    if inp.ndim != 3 or inp._tuple_shape[1] % area or inp._tuple_shape[2] != oh * ow:
        raise ValueError(
            f"fold: inp has shape {list(inp._tuple_shape)}\n"
            f"  why: images of {size[0]} by {size[1]} have columns [n, c * {area}, {max(oh, 0)} * {max(ow, 0)}]"
        )
    n, rows, _ = inp._tuple_shape
    windows = ops.transpose(ops.reshape(inp, shape=(n, rows // area, *kernel, oh, ow)), perm=(0, 1, 4, 5, 2, 3))
    return sliding_window_transpose(windows, size, kernel, width, step, gap)


def local_response_norm(
    inp: Tensor, kernel_size: int = 5, k: float = 2.0, alpha: float = 1e-4, beta: float = 0.75
) -> Tensor:
    """Divides each element by a power of the squares of its neighbouring channels:
    ``x / (k + alpha * sum(x ** 2)) ** beta``.

    Parameters
    ----------
    inp : Tensor
        Tensor of shape [n, c, h, w], float dtype.
    kernel_size : int
        Number of channels in the sum, odd, with the element's own channel in the middle. Channels
        beyond the first and the last count as 0.
    k, alpha, beta : float
        Constants of the formula.

    Returns
    -------
    Tensor
        The shape of ``inp``.

    Raises
    ------
    ValueError
        For an even ``kernel_size``.

    References
    ----------
    Krizhevsky et al., 2012, "ImageNet Classification with Deep Convolutional Neural Networks",
    where alpha also multiplies the plain sum.

    Examples
    --------
    >>> from megengine import functional as F
    >>> x = F.ones((1, 3, 1, 1))
    >>> F.local_response_norm(x, 3, k=2.0, alpha=1.0, beta=1.0).numpy().ravel()
    array([0.25, 0.2 , 0.25], dtype=float32)
    """
    require_tensors("local_response_norm", inp)
    if kernel_size % 2 == 0:
        raise ValueError(f"local_response_norm: kernel_size {kernel_size} is even; it must be odd")
    half = kernel_size // 2
    squares = ops.pad(
        ops.square(inp), before=(0, half, 0, 0), after=(0, half, 0, 0), mode="constant", value=0.0
    )
    total = None
    for i in range(kernel_size):
        part = cut(squares, 1, i, inp._tuple_shape[1] + i)
        total = part if total is None else ops.add(total, part)
    return ops.mul(inp, ops.pow(ops.add(ops.mul(total, alpha), k), -float(beta)))


def pixel_shuffle(inp: Tensor, upscale_factor: int) -> Tensor:
    """Moves channels into space: [..., c * r * r, h, w] becomes [..., c, h * r, w * r].

    Parameters
    ----------
    inp : Tensor
        Tensor of shape [..., c * r * r, h, w].
    upscale_factor : int
        The factor r of height and width.

    Returns
    -------
    Tensor
        [..., c, h * r, w * r].

    Raises
    ------
    ValueError
        Where the channels are not a multiple of r * r.

    References
    ----------
    Shi et al., 2016, "Real-Time Single Image and Video Super-Resolution Using an Efficient
    Sub-Pixel Convolutional Neural Network".

    Examples
    --------
    >>> from megengine import functional as F
    >>> F.pixel_shuffle(F.arange(4).reshape(1, 4, 1, 1), 2).numpy()
    array([[[[0., 1.],
             [2., 3.]]]], dtype=float32)
    """
    require_tensors("pixel_shuffle", inp)
    r = as_ints(upscale_factor, "pixel_shuffle")[0]
    *outer, c, h, w = inp._tuple_shape
    if c % (r * r):
        raise ValueError(f"pixel_shuffle: {c} channels are not a multiple of {r}**2")
    n = 1
    for extent in outer:
        n *= extent
    y = ops.transpose(
        ops.reshape(inp, shape=(n, c // (r * r), r, r, h, w)), perm=(0, 1, 4, 2, 5, 3)
    )
    return ops.reshape(y, shape=(*outer, c // (r * r), h * r, w * r))


def pixel_unshuffle(inp: Tensor, downscale_factor: int) -> Tensor:
    """Moves space into channels, the inverse of `pixel_shuffle`: [..., c, h * r, w * r] becomes
    [..., c * r * r, h, w].

    Parameters
    ----------
    inp : Tensor
        Tensor of shape [..., c, h * r, w * r].
    downscale_factor : int
        The factor r of height and width.

    Returns
    -------
    Tensor
        [..., c * r * r, h, w].

    Raises
    ------
    ValueError
        Where height or width is not a multiple of r.

    Examples
    --------
    >>> from megengine import functional as F
    >>> F.pixel_unshuffle(F.arange(4).reshape(1, 1, 2, 2), 2).shape
    (1, 4, 1, 1)
    """
    require_tensors("pixel_unshuffle", inp)
    r = as_ints(downscale_factor, "pixel_unshuffle")[0]
    *outer, c, h, w = inp._tuple_shape
    if h % r or w % r:
        raise ValueError(f"pixel_unshuffle: {h} by {w} pixels are not multiples of {r}")
    n = math.prod(outer)
    y = ops.transpose(ops.reshape(inp, shape=(n, c, h // r, r, w // r, r)), perm=(0, 1, 3, 5, 2, 4))
    return ops.reshape(y, shape=(*outer, c * r * r, h // r, w // r))
