"""Deformable convolution (Zhu et al., 2018) and correlation of feature maps (Dosovitskiy et al.,
2015).
"""

from collections.abc import Sequence

import numpy as np

from ..core import apply_const, ops
from ..core.tensor.amp import to_low as _to_low
from ..core.tensor.array_method import require_tensors
from ..core.tensor.shapes import as_pair, cut
from ..tensor import Tensor
from ._conv import _check_modes
from ._sample import sample

IntPair = int | Sequence[int]  # one for both axes, or one each


def deformable_conv2d(
    inp: Tensor,
    weight: Tensor,
    offset: Tensor,
    mask: Tensor | None,
    bias: Tensor | None = None,
    stride: IntPair = 1,
    padding: IntPair = 0,
    dilation: IntPair = 1,
    groups: int = 1,
    conv_mode: str = "cross_correlation",
    compute_mode: str = "default",
) -> Tensor:
    """Convolves images with kernels whose taps are moved by ``offset`` and scaled by ``mask``.

    Parameters
    ----------
    inp : Tensor
        Tensor of shape [n, c, h, w], float dtype.
    weight : Tensor
        Kernels, [out, c, kh, kw], or [groups, out / groups, c / groups, kh, kw] if groups > 1.
    offset : Tensor
        Shift (y, x) in pixels for each of d groups of channels and each tap, [n, 2 * d * kh * kw,
        oh, ow]; d must divide c.
    mask : Tensor or None
        Factor of each tap, [n, d * kh * kw, oh, ow]; None scales nothing.
    bias : Tensor or None
        Added to each output channel, [1, out, 1, 1]; None adds none.
    stride, padding, dilation : int or sequence of int
        Pixels from one window to the next, zeros added on every side, and pixels from one element
        of a kernel to the next: each an int for both axes, or (height, width).
    groups : int
        Number of groups of channels; an output channel sees the input channels of its group only.
    conv_mode : str
        "cross_correlation", the only one.
    compute_mode : str
        "default" or "float32"; both accumulate in float32.

    Returns
    -------
    Tensor
        [n, out, oh, ow].

    Raises
    ------
    ValueError
        For shapes that do not fit.

    Notes
    -----
    Taps between pixels are interpolated linearly; pixels outside of the image are 0.

    References
    ----------
    Dai et al., 2017, "Deformable Convolutional Networks"; with a mask Zhu et al., 2018, "Deformable
    ConvNets v2".

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> x = Tensor([[[[1.0, 2.0, 4.0]]]])
    >>> offset = F.concat([F.zeros((1, 1, 1, 3)), F.full((1, 1, 1, 3), 0.5)], axis=1)
    >>> F.deformable_conv2d(x, F.ones((1, 1, 1, 1)), offset, None).numpy()  # half a pixel right
    array([[[[1.5, 3. , 2. ]]]], dtype=float32)
    """
    require_tensors("deformable_conv2d", inp, weight, offset)
    _check_modes(conv_mode, compute_mode)
    inp, weight, offset, mask, bias = _to_low(inp, weight, offset, mask, bias)
    shape = weight._tuple_shape if weight.ndim == 5 else (1,) + weight._tuple_shape
    g, oc, ic, kh, kw = shape
    n, c, _, _ = inp._tuple_shape
    if g != groups or g * ic != c:
        raise ValueError(
            f"deformable_conv2d: weight {list(weight._tuple_shape)} does not fit {c} channels, groups={groups}"
        )
    taps = kh * kw
    oh, ow = offset._tuple_shape[2:]
    parts = offset._tuple_shape[1] // (2 * taps)
    if offset._tuple_shape[1] != 2 * taps * parts or c % max(parts, 1):
        raise ValueError(
            f"deformable_conv2d: offset {list(offset._tuple_shape)} does not fit a {kh}x{kw} kernel"
        )
    base = _tap_places(
        (kh, kw),
        (oh, ow),
        as_pair(stride, "stride"),
        as_pair(padding, "padding"),
        as_pair(dilation, "dilation"),
    )
    places = ops.add(ops.reshape(offset, shape=(n, parts, taps, 2, oh, ow)), apply_const(base))
    by_part = [_columns_of_part(inp, places, mask, part, parts) for part in range(parts)]
    columns = by_part[0] if parts == 1 else ops.concat(*by_part, axis=1)  # [n, c, taps, oh, ow]
    columns = ops.reshape(columns, shape=(n, g, ic * taps, oh * ow))
    y = ops.matmul(ops.reshape(weight, shape=(1, g, oc, ic * taps)), columns)
    y = ops.reshape(y, shape=(n, g * oc, oh, ow))
    return y if bias is None else ops.add(y, bias)


def _tap_places(
    kernel: Sequence[int],
    out: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> np.ndarray:
    """Returns [1, 1, taps, 2, oh, ow]: (y, x) of each tap without offset."""
    rows = (
        np.arange(kernel[0])[:, None, None, None] * dilation[0]
        + np.arange(out[0])[None, None, :, None] * stride[0]
    )
    cols = (
        np.arange(kernel[1])[None, :, None, None] * dilation[1]
        + np.arange(out[1])[None, None, None, :] * stride[1]
    )
    both = np.stack(np.broadcast_arrays(rows - padding[0], cols - padding[1]), axis=2)
    return both.reshape(1, 1, kernel[0] * kernel[1], 2, *out).astype(np.float32)


def _columns_of_part(
    inp: Tensor, places: Tensor, mask: Tensor | None, part: int, parts: int
) -> Tensor:
    n, _, taps, _, oh, ow = places._tuple_shape
    c = inp._tuple_shape[1]
    y, x = (
        ops.reshape(
            ops.slice(
                places,
                begin=(0, part, 0, i, 0, 0),
                end=(n, part + 1, taps, i + 1, oh, ow),
                step=(1,) * 6,
            ),
            shape=(n, taps, oh, ow),
        )
        for i in (0, 1)
    )
    first, last = part * c // parts, (part + 1) * c // parts
    images = cut(inp, 1, first, last)
    values = sample(images, y, x, "constant")  # [n, taps, oh, ow, c]
    if mask is not None:
        own = cut(mask, 1, part * taps, (part + 1) * taps)
        values = ops.mul(values, ops.reshape(own, shape=(n, taps, oh, ow, 1)))
    return ops.transpose(values, perm=(0, 4, 1, 2, 3))


def correlation(
    data1: Tensor,
    data2: Tensor,
    kernel_size: int = 1,
    max_displacement: int = 1,
    stride1: int = 1,
    stride2: int = 1,
    pad_size: int = 0,
    is_multiply: bool = True,
) -> Tensor:
    """Compares patches of ``data1`` with displaced patches of ``data2``: the mean of their
    products.

    Parameters
    ----------
    data1, data2 : Tensor
        Tensor of shape [n, c, h, w], float dtype.
    kernel_size : int
        Extent of a patch, odd.
    max_displacement : int
        Largest displacement in pixels, along both axes.
    stride1 : int
        Pixels from one patch of ``data1`` to the next.
    stride2 : int
        Pixels from one displacement to the next.
    pad_size : int
        Zeros added on every side.
    is_multiply : bool
        Whether patches are multiplied; False takes absolute differences instead.

    Returns
    -------
    Tensor
        [n, k * k, oh, ow] for ``k = 2 * (max_displacement // stride2) + 1``, one channel per
        displacement, row by row.

    Raises
    ------
    ValueError
        For images that are smaller than a patch and its displacements.

    References
    ----------
    Dosovitskiy et al., 2015, "FlowNet: Learning Optical Flow with Convolutional Networks".

    Examples
    --------
    >>> from megengine import functional as F
    >>> x = F.arange(9).reshape(1, 1, 3, 3)
    >>> F.vision.correlation(x, x).numpy()[0, :, 0, 0].reshape(3, 3)  # the centre, 4, times each
    array([[ 0.,  4.,  8.],
           [12., 16., 20.],
           [24., 28., 32.]], dtype=float32)
    """
    require_tensors("correlation", data1, data2)
    n, c, _, _ = data1._tuple_shape
    pads = (0, 0, pad_size, pad_size)
    a, b = (ops.pad(d, before=pads, after=pads, mode="constant", value=0.0) for d in (data1, data2))
    h, w = a._tuple_shape[2:]
    radius = (kernel_size - 1) // 2
    border = max_displacement + radius
    oh, ow = -(-(h - 2 * border) // stride1), -(-(w - 2 * border) // stride1)
    if oh < 1 or ow < 1:
        raise ValueError(
            f"correlation: images of {h} by {w} with padding leave nothing inside a border of {border}"
        )
    steps = max_displacement // stride2
    shifts = [d * stride2 for d in range(-steps, steps + 1)]

    def patch(x: Tensor, dy: int, dx: int) -> Tensor:
        top, left = max_displacement + dy, max_displacement + dx
        bottom = top + (oh - 1) * stride1 + kernel_size
        right = left + (ow - 1) * stride1 + kernel_size
        return ops.slice(x, begin=(0, 0, top, left), end=(n, c, bottom, right), step=(1, 1, 1, 1))

    own = patch(a, 0, 0)
    maps = []
    for dy in shifts:
        for dx in shifts:
            other = patch(b, dy, dx)
            match = ops.mul(own, other) if is_multiply else ops.abs(ops.sub(own, other))
            match = ops.reduce_mean(match, axes=(1,), keepdims=True)
            if kernel_size > 1 or stride1 > 1:
                match = ops.avg_pool(
                    match,
                    kernel=(kernel_size,) * 2,
                    stride=(stride1,) * 2,
                    padding=(0, 0),
                    count_include_padding=True,
                )
            maps.append(match)
    return maps[0] if len(maps) == 1 else ops.concat(*maps, axis=1)
