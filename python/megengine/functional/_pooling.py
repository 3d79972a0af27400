"""Pooling: the largest element or the mean of each window of lines and images."""

from collections.abc import Sequence
from typing import Any

from ..core import OperandError, ops
from ..core.tensor.array_method import require_tensors
from ..core.tensor.quantized import keeps_quantized_dtype
from ..core.tensor.shapes import IntsLike, Shape, as_pair
from ..tensor import Tensor
from . import _moving_window as moving

Sizes = int | Sequence[int]  # one for all axes, or one each


def _pool_args(kernel_size: IntsLike, stride: IntsLike | None, padding: IntsLike, rank: int, op: str) -> dict[str, Any]:
    kernel = as_pair(kernel_size, f"{op}: kernel_size", rank)
    return {
        "kernel": kernel,
        "stride": kernel if stride is None else as_pair(stride, f"{op}: stride", rank),
        "padding": as_pair(padding, f"{op}: padding", rank),
    }


def _rounded_up(inp: Tensor, args: dict[str, Any]) -> list[moving.Window]:
    """Returns the windows of ceil_mode."""
    return moving.windows_of(inp._tuple_shape[2:], args["kernel"], args["stride"], (1,) * (inp.ndim - 2), args["padding"] * 2, "NOTSET", 1)


def _check(inp: Tensor, rank: int, op: str) -> None:
    """Raises OperandError for other axes than [n, c, spatial...]; an op would take images for lines
    of another batch.
    """
    require_tensors(op, inp)
    if inp.ndim != rank + 2:
        axes = "[n, c, l]" if rank == 1 else "[n, c, h, w]"
        raise OperandError(f"{op}: inp has shape {list(inp._tuple_shape)}, not {axes}\n  fix: F.expand_dims(x, 0) makes a batch of one")


def _max_pool(inp: Tensor, args: dict[str, Any], ceil_mode: bool) -> Tensor:
    return moving.max_pool(inp, _rounded_up(inp, args)) if ceil_mode else ops.max_pool(inp, **args)


def _avg_pool(inp: Tensor, args: dict[str, Any], mode: str, ceil_mode: bool, op: str) -> Tensor:
    kind = str(mode).lower()
    if kind not in ("average", "average_count_exclude_padding"):
        raise ValueError(f"{op}: mode {mode!r} is neither 'average' nor 'average_count_exclude_padding'")
    if ceil_mode:
        return moving.avg_pool(inp, _rounded_up(inp, args), kind == "average")
    return ops.avg_pool(inp, **args, count_include_padding=kind == "average")


@keeps_quantized_dtype
def max_pool1d(
    inp: Tensor, kernel_size: Sizes, stride: Sizes | None = None, padding: Sizes = 0, ceil_mode: bool = False
) -> Tensor:
    """Takes the largest element of each window of lines.

    Parameters
    ----------
    inp : Tensor
        Tensor of shape [n, c, l], float dtype.
    kernel_size : int or sequence of int
        Number of elements of a window.
    stride : int, sequence of int or None
        Elements from one window to the next; None takes ``kernel_size``.
    padding : int or sequence of int
        Number of elements added at both ends; they are never the largest.
    ceil_mode : bool
        Whether ol is rounded up: a last window that begins within the line or its padding may reach
        beyond it.

    Returns
    -------
    Tensor
        [n, c, ol], ``ol = (l + 2 * padding - kernel) // stride + 1``.

    Raises
    ------
    ValueError
        For an ``inp`` with other axes.

    Examples
    --------
    >>> from megengine import functional as F
    >>> F.max_pool1d(F.arange(6).reshape(1, 1, 6), 3, stride=2).numpy()
    array([[[2., 4.]]], dtype=float32)
    """
    _check(inp, 1, "max_pool1d")
    return _max_pool(inp, _pool_args(kernel_size, stride, padding, 1, "max_pool1d"), ceil_mode)


@keeps_quantized_dtype
def avg_pool1d(
    inp: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    mode: str = "average_count_exclude_padding",
    ceil_mode: bool = False,
) -> Tensor:
    """Takes the mean of each window of lines.

    Parameters
    ----------
    inp : Tensor
        Tensor of shape [n, c, l], float dtype.
    kernel_size : int or sequence of int
        Number of elements of a window.
    stride : int, sequence of int or None
        Elements from one window to the next; None takes ``kernel_size``.
    padding : int or sequence of int
        Number of elements added at both ends.
    mode : str
        "average_count_exclude_padding" leaves padding out of the mean, "average" counts it as
        zeros.
    ceil_mode : bool
        Whether ol is rounded up: a last window that begins within the line or its padding may reach
        beyond it.

    Returns
    -------
    Tensor
        [n, c, ol], ``ol = (l + 2 * padding - kernel) // stride + 1``.

    Raises
    ------
    ValueError
        For an ``inp`` with other axes, or another mode.

    Examples
    --------
    >>> from megengine import functional as F
    >>> F.avg_pool1d(F.arange(6).reshape(1, 1, 6), 3, stride=2).numpy()
    array([[[1., 3.]]], dtype=float32)
    """
    _check(inp, 1, "avg_pool1d")
    return _avg_pool(inp, _pool_args(kernel_size, stride, padding, 1, "avg_pool1d"), mode, ceil_mode, "avg_pool1d")


@keeps_quantized_dtype
def max_pool2d(
    inp: Tensor, kernel_size: Sizes, stride: Sizes | None = None, padding: Sizes = 0, ceil_mode: bool = False
) -> Tensor:
    """Takes the largest element of each window of images.

    Parameters
    ----------
    inp : Tensor
        Images, [n, c, h, w], float dtype.
    kernel_size : int or sequence of int
        Extent of a window in pixels: an int for both axes, or (height, width).
    stride : int, sequence of int or None
        Pixels from one window to the next: an int or (height, width); None takes ``kernel_size``.
    padding : int or sequence of int
        Pixels added on every side: an int, or (height, width). They are never the largest.
    ceil_mode : bool
        Whether oh is rounded up: a last window that begins within the image or its padding may
        reach beyond it.

    Returns
    -------
    Tensor
        [n, c, oh, ow], ``oh = (h + 2 * padding - kernel) // stride + 1``, and likewise ow.

    Raises
    ------
    TypeError
        For an ``inp`` of another dtype.

    See Also
    --------
    avg_pool2d : Takes the mean of each window.
    adaptive_max_pool2d : Takes the size of the result instead of the window's.
    module.MaxPool2d : The layer.

    Examples
    --------
    >>> from megengine import functional as F
    >>> F.max_pool2d(F.arange(16).reshape(1, 1, 4, 4), 2).numpy()
    array([[[[ 5.,  7.],
             [13., 15.]]]], dtype=float32)
    """
    _check(inp, 2, "max_pool2d")
    return _max_pool(inp, _pool_args(kernel_size, stride, padding, 2, "max_pool2d"), ceil_mode)


@keeps_quantized_dtype
def avg_pool2d(
    inp: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    mode: str = "average_count_exclude_padding",
    ceil_mode: bool = False,
) -> Tensor:
    """Takes the mean of each window of images.

    Parameters
    ----------
    inp : Tensor
        Images, [n, c, h, w], float dtype.
    kernel_size : int or sequence of int
        Extent of a window in pixels: an int for both axes, or (height, width).
    stride : int, sequence of int or None
        Pixels from one window to the next: an int or (height, width); None takes ``kernel_size``.
    padding : int or sequence of int
        Pixels added on every side: an int, or (height, width).
    mode : str
        "average_count_exclude_padding" leaves padding out of the mean, "average" counts it as
        zeros.
    ceil_mode : bool
        Whether oh is rounded up: a last window that begins within the image or its padding may
        reach beyond it. Pixels beyond the padding never count.

    Returns
    -------
    Tensor
        [n, c, oh, ow], ``oh = (h + 2 * padding - kernel) // stride + 1``, and likewise ow.

    Raises
    ------
    TypeError
        For an ``inp`` of another dtype.
    ValueError
        For another mode.

    See Also
    --------
    max_pool2d : Takes the largest element of each window.
    adaptive_avg_pool2d : Takes the size of the result instead of the window's.
    module.AvgPool2d : The layer.

    Examples
    --------
    >>> from megengine import functional as F
    >>> x = F.ones((1, 1, 1, 2))
    >>> F.avg_pool2d(x, (1, 2), padding=(0, 1)).numpy()
    array([[[[1., 1.]]]], dtype=float32)
    >>> F.avg_pool2d(x, (1, 2), padding=(0, 1), mode="average").numpy()
    array([[[[0.5, 0.5]]]], dtype=float32)
    """
    _check(inp, 2, "avg_pool2d")
    return _avg_pool(inp, _pool_args(kernel_size, stride, padding, 2, "avg_pool2d"), mode, ceil_mode, "avg_pool2d")


@keeps_quantized_dtype
def adaptive_max_pool1d(inp: Tensor, oshp: Sizes | Tensor) -> Tensor:
    """Takes the largest element of each of ol windows of lines of any length.

    Parameters
    ----------
    inp : Tensor
        Tensor of shape [n, c, l], float dtype.
    oshp : int, sequence of int or Tensor
        The number of windows, ol. They are those of `adaptive_max_pool2d`, along one axis.

    Returns
    -------
    Tensor
        [n, c, ol], the dtype of ``inp``.

    Raises
    ------
    ValueError
        For an ``inp`` with other axes.

    Examples
    --------
    >>> from megengine import functional as F
    >>> F.adaptive_max_pool1d(F.arange(5).reshape(1, 1, 5), 2).numpy()
    array([[[2., 4.]]], dtype=float32)
    """
    _check(inp, 1, "adaptive_max_pool1d")
    return _adaptive_max_pool(inp, as_pair(oshp, "adaptive_max_pool1d: oshp", 1))


@keeps_quantized_dtype
def adaptive_avg_pool1d(inp: Tensor, oshp: Sizes | Tensor) -> Tensor:
    """Averages ol windows of lines of any length.

    Parameters
    ----------
    inp : Tensor
        Tensor of shape [n, c, l], float dtype.
    oshp : int, sequence of int or Tensor
        The number of windows, ol. They are those of `adaptive_max_pool2d`, along one axis.

    Returns
    -------
    Tensor
        [n, c, ol], the dtype of ``inp``.

    Raises
    ------
    ValueError
        For an ``inp`` with other axes.

    Examples
    --------
    >>> from megengine import functional as F
    >>> F.adaptive_avg_pool1d(F.arange(5).reshape(1, 1, 5), 2).numpy()
    array([[[1., 3.]]], dtype=float32)
    """
    _check(inp, 1, "adaptive_avg_pool1d")
    return _adaptive_avg_pool(inp, as_pair(oshp, "adaptive_avg_pool1d: oshp", 1))


@keeps_quantized_dtype
def adaptive_max_pool2d(inp: Tensor, oshp: Sizes | Tensor) -> Tensor:
    """Takes the largest element of each of oh by ow windows of images of any size.

    Parameters
    ----------
    inp : Tensor
        Tensor of shape [n, c, h, w], float dtype.
    oshp : int, sequence of int or Tensor
        (oh, ow), or one number for both. Windows are ``h // oh`` rows apart and ``h - (oh - 1) * (h
        // oh)`` rows high, so they overlap where oh does not divide h; likewise for columns. In
        images smaller than oshp, window i goes from ``floor(i * h / oh)`` to ``ceil((i + 1) * h /
        oh)``.

    Returns
    -------
    Tensor
        [n, c, oh, ow], the dtype of ``inp``.

    Examples
    --------
    >>> from megengine import functional as F
    >>> F.adaptive_max_pool2d(F.arange(5).reshape(1, 1, 1, 5), (1, 2)).numpy()
    array([[[[2., 4.]]]], dtype=float32)
    """
    _check(inp, 2, "adaptive_max_pool2d")
    return _adaptive_max_pool(inp, as_pair(oshp, "adaptive_max_pool2d: oshp"))


@keeps_quantized_dtype
def adaptive_avg_pool2d(inp: Tensor, oshp: Sizes | Tensor) -> Tensor:
    """Averages images of any size over oh by ow windows.

    Parameters
    ----------
    inp : Tensor
        Tensor of shape [n, c, h, w], float dtype.
    oshp : int, sequence of int or Tensor
        (oh, ow), or one number for both. The windows are those of `adaptive_max_pool2d`.

    Returns
    -------
    Tensor
        [n, c, oh, ow], the dtype of ``inp``.

    Examples
    --------
    >>> from megengine import functional as F
    >>> F.adaptive_avg_pool2d(F.arange(5).reshape(1, 1, 1, 5), (1, 2)).numpy()
    array([[[[1., 3.]]]], dtype=float32)
    """
    _check(inp, 2, "adaptive_avg_pool2d")
    return _adaptive_avg_pool(inp, as_pair(oshp, "adaptive_avg_pool2d: oshp"))


def _adaptive_max_pool(inp: Tensor, output: Shape) -> Tensor:
    windows = _windows_for(inp, output)
    return ops.max_pool(inp, **windows) if windows else ops.adaptive_max_pool(inp, output=output)


def _adaptive_avg_pool(inp: Tensor, output: Shape) -> Tensor:
    windows = _windows_for(inp, output)
    if windows:
        return ops.avg_pool(inp, **windows, count_include_padding=False)
    return ops.adaptive_avg_pool(inp, output=output)


def _windows_for(inp: Tensor, output: Shape) -> dict[str, Any] | None:
    """Returns overlapping windows that give results of size ``output``; None if the adaptive ops
    have the same windows, or inputs are smaller.
    """
    pairs = list(zip(inp._tuple_shape[2:], output, strict=True))
    if any(o < 1 or n < o for n, o in pairs) or all(n % o == 0 for n, o in pairs):
        return None
    stride = tuple(n // o for n, o in pairs)
    kernel = tuple(n - (o - 1) * step for (n, o), step in zip(pairs, stride, strict=True))
    return {"kernel": kernel, "stride": stride, "padding": (0,) * len(pairs)}
