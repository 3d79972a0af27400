"""Linear maps over channels and windows. Weights with groups have a leading group axis.

Output extent of a convolution: ``(in + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1``.
"""

from collections.abc import Sequence

from ..core import ops
from ..core.tensor.amp import state as _amp
from ..core.tensor.amp import to_low as _to_low
from ..core.tensor.array_method import require_tensors
from ..core.tensor.shapes import IntsLike, as_pair
from ..tensor import Tensor
from ._window import windows_of
from .math import check_compute_mode, matmul

IntPair = int | Sequence[int]  # one for both axes, or one each
IntTriple = int | Sequence[int]


def _check_modes(conv_mode: str, compute_mode: str) -> None:
    if conv_mode.lower() != "cross_correlation":
        raise ValueError(f"conv: conv_mode {conv_mode!r}; only 'cross_correlation' is supported")
    check_compute_mode("conv", compute_mode)


def _ungrouped(weight: Tensor, groups: int, ndim: int, op: str) -> Tensor:
    """[g, a, b, k...] as [g * a, b, k...], the form the ops take."""
    shape = weight._tuple_shape
    if len(shape) == ndim and groups == 1:
        return weight
    if len(shape) != ndim + 1 or shape[0] != groups:
        raise ValueError(
            f"{op}: weight of shape {list(shape)} for groups={groups}\n"
            f"  fix: give {ndim + 1} axes, the first of {groups} groups, then out, in and kernel of one group"
            if groups != 1
            else f"{op}: weight of shape {list(shape)}\n  fix: give {ndim} axes, as out, in, kernel"
        )
    return ops.reshape(weight, shape=(shape[0] * shape[1],) + shape[2:])


def same_padding(kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int], op: str) -> list[tuple[int, int]]:
    """Returns (before, after) of each axis that keep its extent; after is one more where a kernel
    is even. ValueError for a stride.
    """
    if any(step != 1 for step in stride):
        raise ValueError(f"{op}: padding='same' keeps extents, and a stride of {tuple(stride)} does not\n  fix: give the padding in numbers")
    widths = [d * (k - 1) for k, d in zip(kernel, dilation, strict=True)]
    return [(width // 2, width - width // 2) for width in widths]


def _padded(inp: Tensor, padding: str, kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int], op: str) -> tuple[Tensor, tuple[int, ...]]:
    """The input, and the padding that is left to the op, the same on both sides."""
    none = (0,) * len(kernel)
    if padding == "valid":
        return inp, none
    if padding != "same":
        raise ValueError(f"{op}: padding {padding!r} is neither 'same' nor 'valid'; give one of these, or numbers")
    before, after = zip(*same_padding(kernel, stride, dilation, op), strict=True)
    if before == after:
        return inp, before
    return ops.pad(inp, before=(0, 0, *before), after=(0, 0, *after), mode="constant", value=0.0), none


def _convolve(
    inp: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: IntsLike,
    padding: IntsLike | str,
    dilation: IntsLike,
    groups: int,
    ndim: int,
    op: str,
) -> Tensor:
    require_tensors(op, inp, weight)
    if _amp.get().enabled:
        inp, weight, bias = _to_low(inp, weight, bias)
    if groups != 1 or weight.ndim != ndim:
        weight = _ungrouped(weight, groups, ndim, op)
    n = ndim - 2
    stride, dilation = as_pair(stride, f"{op}: stride", n), as_pair(dilation, f"{op}: dilation", n)
    if isinstance(padding, str):
        inp, padding = _padded(inp, padding, weight._tuple_shape[2:], stride, dilation, op)
    padding = as_pair(padding, f"{op}: padding", n)
    y = ops.conv(inp, weight, stride=stride, padding=padding, dilation=dilation, groups=groups)
    if bias is not None:
        y = ops.add(y, bias)
    return y


def conv1d(
    inp: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int = 1,
    padding: int | str = 0,
    dilation: int = 1,
    groups: int = 1,
    conv_mode: str = "cross_correlation",
    compute_mode: str = "default",
) -> Tensor:
    """Slides the kernels ``weight`` over sequences (a cross-correlation: kernels are not flipped).

    Parameters
    ----------
    inp : Tensor
        Tensor of shape [n, c, l], float dtype.
    weight : Tensor
        Kernels, [out, c, k], or [groups, out / groups, c / groups, k] if groups > 1.
    bias : Tensor or None
        None, or a tensor that broadcasts to the result, such as [1, out, 1].
    stride : int
        Distance from one window to the next.
    padding : int or str
        Zeros added at both ends: an int, or "same", which keeps l for a stride of 1, or "valid",
        which is 0.
    dilation : int
        Distance from one element of a kernel to the next.
    groups : int
        Number of groups of channels; an output channel sees the input channels of its group only.
    conv_mode : str
        "cross_correlation", the only one.
    compute_mode : str
        "default" or "float32"; both accumulate in float32.

    Returns
    -------
    Tensor
        [n, out, ol], ``ol = (l + 2 * padding - dilation * (k - 1) - 1) // stride + 1``.

    Raises
    ------
    ValueError
        For shapes that do not fit.

    See Also
    --------
    conv2d : Convolves images.
    module.Conv1d : The layer, which holds the kernels.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.conv1d(Tensor([[[1.0, 2.0, 4.0, 8.0]]]), Tensor([[[-1.0, 1.0]]])).numpy()
    array([[[1., 2., 4.]]], dtype=float32)
    """
    _check_modes(conv_mode, compute_mode)
    return _convolve(inp, weight, bias, stride, padding, dilation, groups, 3, "conv1d")


def conv2d(
    inp: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: IntPair = 1,
    padding: IntPair | str = 0,
    dilation: IntPair = 1,
    groups: int = 1,
    conv_mode: str = "cross_correlation",
    compute_mode: str = "default",
) -> Tensor:
    """Slides the kernels ``weight`` over images (a cross-correlation: kernels are not flipped).

    Parameters
    ----------
    inp : Tensor
        Tensor of shape [n, c, h, w], float dtype.
    weight : Tensor
        Kernels, [out, c, kh, kw], or [groups, out / groups, c / groups, kh, kw] if groups > 1.
    bias : Tensor or None
        Added to each output channel, [1, out, 1, 1]; None adds none.
    stride : int or sequence of int
        Pixels from one window to the next: an int for both axes, or (height, width).
    padding : int, sequence of int or str
        Zeros added on both sides of each axis: an int, or (height, width). "same" keeps the
        extents, for a stride of 1; where a kernel is even it adds one more below and to the right.
        "valid" is 0.
    dilation : int or sequence of int
        Pixels from one element of a kernel to the next: an int, or (height, width).
    groups : int
        Number of groups of channels; an output channel sees the input channels of its group only.
    conv_mode : str
        "cross_correlation", the only one.
    compute_mode : str
        "default" or "float32"; both accumulate in float32.

    Returns
    -------
    Tensor
        [n, out, oh, ow], ``oh = (h + 2 * padding - dilation * (kh - 1) - 1) // stride + 1``, and
        likewise ow.

    Raises
    ------
    ValueError
        For shapes that do not fit each other, another conv_mode than "cross_correlation", and
        "same" with a stride.
    TypeError
        Unless inp and weight are Tensors.

    See Also
    --------
    module.Conv2d : The layer, which holds the kernels.
    conv_transpose2d : The adjoint, which enlarges images.
    deformable_conv2d : Moves and weighs the elements of a kernel.
    local_conv2d : Has a kernel for each position.

    Examples
    --------
    >>> from megengine import functional as F
    >>> F.conv2d(F.ones((1, 1, 3, 3)), F.ones((1, 1, 2, 2)), padding=1, stride=2).numpy()
    array([[[[1., 2.],
             [2., 4.]]]], dtype=float32)
    >>> depthwise = F.ones((8, 1, 1, 3, 3))  # 8 groups of 1 channel each
    >>> F.conv2d(F.ones((1, 8, 32, 32)), depthwise, padding=1, groups=8).shape
    (1, 8, 32, 32)
    """
    if conv_mode != "cross_correlation" or compute_mode != "default":
        _check_modes(conv_mode, compute_mode)
    return _convolve(inp, weight, bias, stride, padding, dilation, groups, 4, "conv2d")


def conv3d(
    inp: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: IntTriple = 1,
    padding: IntTriple | str = 0,
    dilation: IntTriple = 1,
    groups: int = 1,
    conv_mode: str = "cross_correlation",
) -> Tensor:
    """Slides the kernels ``weight`` over volumes (a cross-correlation: kernels are not flipped).

    Parameters
    ----------
    inp : Tensor
        Tensor of shape [n, c, d, h, w], float dtype.
    weight : Tensor
        Kernels, [out, c, kd, kh, kw], or [groups, out / groups, c / groups, kd, kh, kw] if groups >
        1.
    bias : Tensor or None
        Added to each output channel, [1, out, 1, 1, 1]; None adds none.
    stride : int or sequence of int
        Voxels from one window to the next: an int for all axes, or (depth, height, width).
    padding : int, sequence of int or str
        Zeros added on both sides of each axis: an int, or (depth, height, width). "same" keeps the
        extents, for a stride of 1; "valid" is 0.
    dilation : int or sequence of int
        Voxels from one element of a kernel to the next: an int, or (depth, height, width).
    groups : int
        Number of groups of channels; an output channel sees the input channels of its group only.
    conv_mode : str
        "cross_correlation", the only one.

    Returns
    -------
    Tensor
        [n, out, od, oh, ow], extents as in `conv2d`.

    Raises
    ------
    ValueError
        For shapes that do not fit.

    Examples
    --------
    >>> from megengine import functional as F
    >>> F.conv3d(F.ones((1, 2, 4, 8, 8)), F.ones((5, 2, 3, 3, 3)), padding=(0, 1, 1)).shape
    (1, 5, 2, 8, 8)
    """
    _check_modes(conv_mode, "default")
    return _convolve(inp, weight, bias, stride, padding, dilation, groups, 5, "conv3d")


def _transposed(
    inp: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: IntsLike,
    padding: IntsLike,
    output_padding: IntsLike,
    dilation: IntsLike,
    groups: int,
    ndim: int,
    op: str,
) -> Tensor:
    require_tensors(op, inp, weight)
    if _amp.get().enabled:
        inp, weight, bias = _to_low(inp, weight, bias)
    n = ndim - 2
    weight = _ungrouped(weight, groups, ndim, op)
    s, p = as_pair(stride, f"{op}: stride", n), as_pair(padding, f"{op}: padding", n)
    d, extra = (
        as_pair(dilation, f"{op}: dilation", n),
        as_pair(output_padding, f"{op}: output_padding", n),
    )
    if not all(e < step or e == 0 for e, step in zip(extra, s, strict=False)):
        raise AssertionError(f"{op}: output_padding {extra} must be smaller than stride {s}")
    extents, kernel = inp._tuple_shape[2:], weight._tuple_shape[2:]
    out = tuple(
        (extents[i] - 1) * s[i] - 2 * p[i] + d[i] * (kernel[i] - 1) + 1 + extra[i] for i in range(n)
    )
    y = ops.conv_backward_data(
        inp, weight, stride=s, padding=p, dilation=d, groups=groups, input_shape=out
    )
    return y if bias is None else ops.add(y, bias)


def conv_transpose1d(
    inp: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    output_padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
) -> Tensor:
    """Spreads each element of a line over a kernel's window and adds up the overlaps: the adjoint of
    `conv1d`.

    Parameters
    ----------
    inp : Tensor
        Tensor of shape [n, c, l], float dtype.
    weight : Tensor
        [c, out, k], or with a leading axis of groups as in `conv_transpose2d`.
    bias : Tensor or None
        None or [1, out, 1].
    stride, padding, output_padding, dilation : int or sequence of int
        Distance of the windows of two neighbouring input elements, elements cut off at both ends of
        the result, elements added at its end, and distance of a kernel's elements.
    groups : int
        Number of groups of channels; an output channel sees the input channels of its group only.

    Returns
    -------
    Tensor
        [n, out, ol], ol as oh in `conv_transpose2d`.

    Raises
    ------
    AssertionError
        Unless output_padding is 0 or less than stride.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.conv_transpose1d(Tensor([[[1.0, 2.0]]]), F.ones((1, 1, 3)), stride=2).numpy()
    array([[[1., 1., 3., 2., 2.]]], dtype=float32)
    """
    return _transposed(
        inp, weight, bias, stride, padding, output_padding, dilation, groups, 3, "conv_transpose1d"
    )


def conv_transpose2d(
    inp: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: IntPair = 1,
    padding: IntPair = 0,
    output_padding: IntPair = 0,
    dilation: IntPair = 1,
    groups: int = 1,
    conv_mode: str = "cross_correlation",
    compute_mode: str = "default",
) -> Tensor:
    """Spreads each pixel over a kernel's window and adds up the overlaps: the adjoint of `conv2d`,
    also called deconvolution, which enlarges images if stride > 1.

    Parameters
    ----------
    inp : Tensor
        Tensor of shape [n, c, h, w], float dtype.
    weight : Tensor
        [c, out, kh, kw], or [groups, c / groups, out / groups, kh, kw] if groups > 1.
    bias : Tensor or None
        Added to each output channel, [1, out, 1, 1]; None adds none.
    stride, padding, output_padding, dilation : int or sequence of int
        Distance of the windows of two neighbouring input pixels, pixels cut off on every side of
        the result, rows and columns added at its bottom and right, and distance of a kernel's
        elements: each an int for both axes, or (height, width).
    groups : int
        Number of groups of channels; an output channel sees the input channels of its group only.
    conv_mode : str
        "cross_correlation", the only one.
    compute_mode : str
        "default" or "float32"; both accumulate in float32.

    Returns
    -------
    Tensor
        [n, out, oh, ow], ``oh = (h - 1) * stride - 2 * padding + dilation * (kh - 1) + 1 +
        output_padding``, and likewise ow.

    Raises
    ------
    AssertionError
        Unless each output_padding is 0 or less than stride.

    See Also
    --------
    conv2d : The convolution whose adjoint this is.
    module.ConvTranspose2d : The layer, which holds the kernels.
    functional.vision.interpolate : Enlarges images without kernels.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.conv_transpose2d(Tensor([[[[1.0, 2.0]]]]), F.ones((1, 1, 1, 3)), stride=2).numpy()
    array([[[[1., 1., 3., 2., 2.]]]], dtype=float32)
    """
    _check_modes(conv_mode, compute_mode)
    return _transposed(
        inp, weight, bias, stride, padding, output_padding, dilation, groups, 4, "conv_transpose2d"
    )


def conv_transpose3d(
    inp: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: IntTriple = 1,
    padding: IntTriple = 0,
    output_padding: IntTriple = 0,
    dilation: IntTriple = 1,
    groups: int = 1,
) -> Tensor:
    """Spreads each voxel over a kernel's window and adds up the overlaps: the adjoint of `conv3d`.

    Parameters
    ----------
    inp : Tensor
        Tensor of shape [n, c, d, h, w], float dtype.
    weight : Tensor
        [c, out, kd, kh, kw], or with a leading axis of groups as in `conv_transpose2d`.
    bias : Tensor or None
        None or [1, out, 1, 1, 1].
    stride, padding, output_padding, dilation : int or sequence of int
        Distance of the windows of two neighbouring input voxels, voxels cut off on every side of
        the result, layers added at its end, and distance of a kernel's elements: each an int for
        all axes, or (depth, height, width).
    groups : int
        Number of groups of channels; an output channel sees the input channels of its group only.

    Returns
    -------
    Tensor
        [n, out, od, oh, ow], extents as in `conv_transpose2d`.

    Raises
    ------
    AssertionError
        Unless each output_padding is 0 or less than stride.

    Examples
    --------
    >>> from megengine import functional as F
    >>> F.conv_transpose3d(F.ones((1, 2, 4, 4, 4)), F.ones((2, 3, 2, 2, 2)), stride=2).shape
    (1, 3, 8, 8, 8)
    """
    return _transposed(
        inp, weight, bias, stride, padding, output_padding, dilation, groups, 5, "conv_transpose3d"
    )


def linear(
    inp: Tensor, weight: Tensor, bias: Tensor | None = None, compute_mode: str = "default"
) -> Tensor:
    """Computes ``inp @ weight.T + bias`` over the last axis.

    Parameters
    ----------
    inp : Tensor
        Tensor of shape [..., in].
    weight : Tensor
        Matrix of shape [out, in].
    bias : Tensor or None
        Vector that is added, [out]; None adds none.
    compute_mode : str
        "default" or "float32"; both accumulate in float32.

    Returns
    -------
    Tensor
        [..., out] in the promoted dtype.

    Raises
    ------
    ValueError
        If the last axes of inp and weight differ in size.

    See Also
    --------
    module.Linear : The layer, which holds weight and bias.
    matmul : Multiplies matrices without a bias.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.linear(Tensor([[1.0, 2.0]]), Tensor([[1.0, 0.0], [0.0, 10.0], [1.0, 1.0]])).numpy()
    array([[ 1., 20.,  3.]], dtype=float32)
    """
    if _amp.get().enabled:
        inp, weight, bias = _to_low(inp, weight, bias)
    y = matmul(inp, weight, transpose_b=True, compute_mode=compute_mode)
    return y if bias is None else ops.add(y, bias)


def bilinear(inp1: Tensor, inp2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Computes ``inp1 @ weight[o] @ inp2 + bias[o]`` for each output o, over the last axes.

    Parameters
    ----------
    inp1 : Tensor
        First operand, [..., in1].
    inp2 : Tensor
        [..., in2], with the other extents of ``inp1``.
    weight : Tensor
        One matrix for each output, [out, in1, in2].
    bias : Tensor or None
        Added to each output, [out]; None adds none.

    Returns
    -------
    Tensor
        [..., out].

    Raises
    ------
    ValueError
        For shapes that do not fit.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.bilinear(Tensor([[1.0, 2.0]]), Tensor([[3.0]]), F.ones((1, 2, 1))).numpy()
    array([[9.]], dtype=float32)
    """
    require_tensors("bilinear", inp1, inp2, weight)
    if weight.ndim != 3 or inp1._tuple_shape[:-1] != inp2._tuple_shape[:-1] or (inp1._tuple_shape[-1:] + inp2._tuple_shape[-1:]) != weight._tuple_shape[1:]:
        raise ValueError(
            f"bilinear: inp1 {list(inp1._tuple_shape)}, inp2 {list(inp2._tuple_shape)} and weight {list(weight._tuple_shape)} do not fit\n"
            "  fix: give [..., in1], [..., in2] and [out, in1, in2]"
        )
    out, first, second = weight._tuple_shape
    outer = inp1._tuple_shape[:-1]
    rows = matmul(inp1, ops.reshape(ops.transpose(weight, perm=(1, 0, 2)), shape=(first, out * second)))
    rows = ops.reshape(rows, shape=(*outer, out, second))
    y = ops.reduce_sum(ops.mul(rows, ops.reshape(inp2, shape=(*outer, 1, second))), axes=(inp1.ndim,), keepdims=False)
    return y if bias is None else ops.add(y, bias)


def local_conv2d(
    inp: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: IntPair = 1,
    padding: IntPair = 0,
    dilation: IntPair = 1,
    conv_mode: str = "cross_correlation",
) -> Tensor:
    """Convolves images with a separate kernel for each position of the result (a locally connected
    layer).

    Parameters
    ----------
    inp : Tensor
        Tensor of shape [n, c, h, w].
    weight : Tensor
        Tensor of shape [groups, oh, ow, c / groups, kh, kw, out / groups].
    bias : Tensor or None
        None, or a tensor that broadcasts to the result.
    stride, padding, dilation : int or sequence of int
        Pixels from one window to the next, zeros added on every side, and pixels from one element
        of a kernel to the next: each an int for both axes, or (height, width).
    conv_mode : str
        "cross_correlation", the only one.

    Returns
    -------
    Tensor
        [n, out, oh, ow].

    Raises
    ------
    ValueError
        If the extents of weight are not those that `conv2d` gives.

    Examples
    --------
    >>> from megengine import functional as F
    >>> weight = F.arange(4).reshape(1, 2, 2, 1, 1, 1, 1)  # one 1x1 kernel for each pixel
    >>> F.local_conv2d(F.ones((1, 1, 2, 2)), weight).numpy()
    array([[[[0., 1.],
             [2., 3.]]]], dtype=float32)
    """
    require_tensors("local_conv2d", inp, weight)
    _check_modes(conv_mode, "default")
    groups, oh, ow, ic, kh, kw, oc = weight._tuple_shape
    columns = windows_of(inp, (kh, kw), padding, stride, dilation)  # [n, c, oh, ow, kh, kw]
    n, c = columns._tuple_shape[:2]
    if columns._tuple_shape[2:4] != (oh, ow) or c != groups * ic:
        raise ValueError(
            f"local_conv2d: weight {list(weight._tuple_shape)} does not fit inp {list(inp._tuple_shape)}"
        )
    columns = ops.reshape(columns, shape=(n, groups, ic, oh, ow, kh * kw))
    columns = ops.transpose(columns, perm=(1, 3, 4, 0, 2, 5))  # [g, oh, ow, n, ic, k]
    columns = ops.reshape(columns, shape=(groups * oh * ow, n, ic * kh * kw))
    y = ops.matmul(columns, ops.reshape(weight, shape=(groups * oh * ow, ic * kh * kw, oc)))
    y = ops.transpose(ops.reshape(y, shape=(groups, oh, ow, n, oc)), perm=(3, 0, 4, 1, 2))
    y = ops.reshape(y, shape=(n, groups * oc, oh, ow))
    return y if bias is None else ops.add(y, bias)


def region_restricted_conv(
    inp: Tensor,
    weight: Tensor,
    rin: Tensor,
    rout: Tensor,
    bias: Tensor | None = None,
    stride: IntPair = 1,
    padding: IntPair = 0,
    dilation: IntPair = 1,
    groups: int = 1,
    conv_mode: str = "cross_correlation",
    compute_mode: str = "default",
) -> Tensor:
    """Convolves images, but adds up only those inputs that lie in the same region as the output.

    Parameters
    ----------
    inp : Tensor
        Tensor of shape [n, c, h, w].
    weight : Tensor
        Kernels, [out, c, kh, kw], or [groups, out / groups, c / groups, kh, kw] if groups > 1.
    rin : Tensor
        Number of the region of each input pixel, [n, h, w].
    rout : Tensor
        Number of the region of each output pixel, [n, oh, ow].
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

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> regions = Tensor([[[1, 1, 2, 2]]])  # the left half and the right half
    >>> x = Tensor([[[[1.0, 2.0, 3.0, 4.0]]]])
    >>> kernel = F.ones((1, 1, 1, 3))
    >>> F.region_restricted_conv(x, kernel, regions, regions, padding=(0, 1)).numpy()
    array([[[[3., 3., 7., 7.]]]], dtype=float32)
    """
    require_tensors("region_restricted_conv", inp, weight, rin, rout)
    _check_modes(conv_mode, compute_mode)
    shape = weight._tuple_shape if weight.ndim == 5 else (1,) + weight._tuple_shape
    g, oc, ic, kh, kw = shape
    if g != groups:
        raise ValueError(
            f"region_restricted_conv: weight {list(weight._tuple_shape)} for groups={groups}"
        )
    columns = windows_of(inp, (kh, kw), padding, stride, dilation)  # [n, c, oh, ow, kh, kw]
    n, _, oh, ow = columns._tuple_shape[:4]
    regions = ops.reshape(rin, shape=(n, 1) + rin._tuple_shape[-2:])
    regions = windows_of(ops.cast(regions, dtype="float32"), (kh, kw), padding, stride, dilation)
    same = ops.equal(
        regions, ops.cast(ops.reshape(rout, shape=(n, 1, oh, ow, 1, 1)), dtype="float32")
    )
    columns = ops.mul(columns, ops.cast(same, dtype=columns.dtype.name))
    columns = ops.transpose(
        ops.reshape(columns, shape=(n, g, ic, oh * ow, kh * kw)), perm=(0, 1, 2, 4, 3)
    )
    columns = ops.reshape(columns, shape=(n, g, ic * kh * kw, oh * ow))
    y = ops.matmul(ops.reshape(weight, shape=(1, g, oc, ic * kh * kw)), columns)
    y = ops.reshape(y, shape=(n, g * oc, oh, ow))
    return y if bias is None else ops.add(y, bias)
