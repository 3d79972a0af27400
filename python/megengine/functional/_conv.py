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

_conv = ops.conv
_add = ops.add


def _check_modes(conv_mode: str, compute_mode: str) -> None:
    if conv_mode.lower() != "cross_correlation":
        raise ValueError(f"conv: conv_mode {conv_mode!r}; only 'cross_correlation' is possible")
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


def _convolve(
    inp: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: IntsLike,
    padding: IntsLike,
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
    y = _conv(
        inp,
        weight,
        stride=as_pair(stride, f"{op}: stride", n),
        padding=as_pair(padding, f"{op}: padding", n),
        dilation=as_pair(dilation, f"{op}: dilation", n),
        groups=groups,
    )
    if bias is not None:
        y = _add(y, bias)
    return y


def conv1d(
    inp: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int = 1,
    padding: int = 0,
    dilation: int = 1,
    groups: int = 1,
    conv_mode: str = "cross_correlation",
    compute_mode: str = "default",
) -> Tensor:
    """inp [n, c, l], weight [out, in, k] or [groups, out/groups, in/groups, k], bias broadcasts to
    the result.
    """
    _check_modes(conv_mode, compute_mode)
    return _convolve(inp, weight, bias, stride, padding, dilation, groups, 3, "conv1d")


def conv2d(
    inp: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: IntPair = 1,
    padding: IntPair = 0,
    dilation: IntPair = 1,
    groups: int = 1,
    conv_mode: str = "cross_correlation",
    compute_mode: str = "default",
) -> Tensor:
    """inp [n, c, h, w], weight [out, in, kh, kw] or [groups, out/groups, in/groups, kh, kw], bias
    [1, out, 1, 1].

    >>> import megengine.functional as F
    >>> F.conv2d(F.ones((1, 1, 3, 3)), F.ones((1, 1, 2, 2)), stride=1).numpy()[0, 0]
    array([[4., 4.],
           [4., 4.]], dtype=float32)
    """
    if conv_mode != "cross_correlation" or compute_mode != "default":
        _check_modes(conv_mode, compute_mode)
    return _convolve(inp, weight, bias, stride, padding, dilation, groups, 4, "conv2d")


def conv3d(
    inp: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: IntTriple = 1,
    padding: IntTriple = 0,
    dilation: IntTriple = 1,
    groups: int = 1,
    conv_mode: str = "cross_correlation",
) -> Tensor:
    """inp [n, c, d, h, w], weight [out, in, kd, kh, kw] or with a leading group axis."""
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
    assert all(e < step or e == 0 for e, step in zip(extra, s, strict=False)), (
        f"{op}: output_padding {extra} must be smaller than stride {s}"
    )
    extents, kernel = inp._tuple_shape[2:], weight._tuple_shape[2:]
    out = tuple(
        (extents[i] - 1) * s[i] - 2 * p[i] + d[i] * (kernel[i] - 1) + 1 + extra[i] for i in range(n)
    )
    y = ops.conv_backward_data(
        inp, weight, stride=s, padding=p, dilation=d, groups=groups, input_shape=out
    )
    return y if bias is None else _add(y, bias)


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
    """Transposed convolution: weight [in, out, kh, kw] or [groups, in/groups, out/groups, kh, kw].

    Output extent: ``(in - 1) * stride - 2 * padding + dilation * (kernel - 1) + 1 +
    output_padding``. AssertionError unless output_padding < stride.
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
    """Transposed convolution over three axes: weight [in, out, kd, kh, kw] or with a leading group
    axis.
    """
    return _transposed(
        inp, weight, bias, stride, padding, output_padding, dilation, groups, 5, "conv_transpose3d"
    )


def linear(
    inp: Tensor, weight: Tensor, bias: Tensor | None = None, compute_mode: str = "default"
) -> Tensor:
    """``inp @ weight.T + bias`` over the last axis: inp [..., in], weight [out, in], bias [out]."""
    if _amp.get().enabled:
        inp, weight, bias = _to_low(inp, weight, bias)
    y = matmul(inp, weight, transpose_b=True, compute_mode=compute_mode)
    return y if bias is None else _add(y, bias)


def local_conv2d(
    inp: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: IntPair = 1,
    padding: IntPair = 0,
    dilation: IntPair = 1,
    conv_mode: str = "cross_correlation",
) -> Tensor:
    """Convolution with its own weights at each place: weight [groups, oh, ow, in/groups, kh, kw,
    out/groups].
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
    return y if bias is None else _add(y, bias)


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
    """Convolution that sums only inputs whose region is the output's: rin [n, h, w], rout [n, oh,
    ow] region ids.
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
    return y if bias is None else _add(y, bias)
