"""Observers: modules that watch a tensor and find the range to quantize it with.

They return what they are given. They watch while enabled, which `train` and `eval` switch. Scales and zero points are those of
the range with 0, so that 0 is exact.
"""

from __future__ import annotations

import abc
from typing import Any, Self

import numpy as np

from .. import functional as F
from ..core.qparams import QParams, QuantMode, create_qparams, dtype_meta_of
from ..core.tensor.dtype import QuantDtypeMeta
from ..distributed import functional as dist
from ..module.module import Module
from ..tensor import Tensor
from .utils import QParamsModuleMixin

__all__ = [
    "ExponentialMovingAverageObserver",
    "HistogramObserver",
    "MinMaxObserver",
    "Observer",
    "PassiveObserver",
    "SyncExponentialMovingAverageObserver",
    "SyncMinMaxObserver",
]


_LARGEST = float(np.finfo(np.float32).max)


class Switched(Module):
    """A module that works for a quantized dtype while it is enabled. dtype: its kind, or its name
    (ValueError for an unknown one).
    """

    def __init__(self, dtype: str | QuantDtypeMeta, enable: bool, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.dtype = dtype_meta_of(dtype)
        self.qmin = self.dtype.qmin
        self.qmax = self.dtype.qmax
        self.enabled = enable

    def enable(self) -> None:
        """Turns it on: an observer watches, a fake quantizer rounds."""
        self.enabled = True

    def disable(self) -> None:
        """Turns it off: an observer stops watching, a fake quantizer passes its input on
        unchanged."""
        self.enabled = False


class Observer(Switched, QParamsModuleMixin):
    """Base of observers: modules that watch tensors and find the range to quantize them with.

    An observer returns what it is given. It watches while enabled, which `train` and `eval` switch.
    Scale and zero point are those of the range extended to 0, so that 0 is exact.

    Parameters
    ----------
    dtype : str or QuantDtypeMeta
        Kind of quantized dtype, or its name such as "qint8".
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.

    Raises
    ------
    ValueError
        For an unknown dtype.

    Examples
    --------
    >>> import megengine as mge, megengine.quantization as Q
    >>> observer = Q.MinMaxObserver()
    >>> x = observer(mge.Tensor([1.0, 2.0]))
    >>> x = observer.eval()(mge.Tensor([100.0]))  # not watched
    >>> observer.min_val.item(), observer.max_val.item()
    (1.0, 2.0)
    """

    _watches_in_training = True

    def __init__(self, dtype: str | QuantDtypeMeta, **kwargs: Any) -> None:
        super().__init__(dtype, True, **kwargs)

    def train(self, mode: bool = True, recursive: bool = True) -> Self:
        """Sets ``training``, and watches in training mode only.

        Parameters
        ----------
        mode, recursive : bool
            True for training, False for evaluation; and whether to set it in the modules below,
            too.

        Returns
        -------
        Self
            The observer itself.
        """
        self.enabled = mode
        return super().train(mode, recursive)

    @abc.abstractmethod
    def forward(self, x: Tensor) -> Tensor:
        """Watches ``x`` and returns it.

        Parameters
        ----------
        x : Tensor
            Tensor of any shape, float32.

        Returns
        -------
        Tensor
            ``x`` itself.
        """


class MinMaxObserver(Observer):
    """Watches the smallest and the largest value so far.

    Parameters
    ----------
    mode : QuantMode
        Symmetric, with the scale 2 * max(|min|, |max|) / (qmax - qmin), or asymmetric, with (max -
        min) / (qmax - qmin) and a zero point.
    eps : float
        Smallest scale; a smaller one is replaced by this number.
    dtype : str or QuantDtypeMeta
        Kind of quantized dtype, or its name.
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.

    Raises
    ------
    ValueError
        For an unknown dtype.

    Notes
    -----
    ``min_val`` and ``max_val`` are 0-D Tensors, float32's largest number and its negative before
    the first value. NaN is left out.

    Examples
    --------
    >>> import megengine as mge, megengine.quantization as Q
    >>> observer = Q.MinMaxObserver(Q.QuantMode.ASYMMERTIC, dtype="quint8")
    >>> x = observer(mge.Tensor([-1.0, 254.0]))
    >>> qparams = observer.get_qparams()
    >>> qparams.scale.item(), qparams.zero_point.item()
    (1.0, 1.0)
    """

    def __init__(
        self,
        mode: QuantMode = QuantMode.SYMMERTIC,
        eps: float = 0.00001,
        dtype: str | QuantDtypeMeta = "qint8",
        **kwargs: Any,
    ) -> None:
        super().__init__(dtype, **kwargs)
        self.mode = mode
        self.min_val = Tensor(_LARGEST)
        self.max_val = Tensor(-_LARGEST)
        self.scale_limit = eps

    def get_qparams(self) -> QParams:
        """Returns the quantization parameters for the range seen so far."""
        return self._qparams_of(self.min_val, self.max_val)

    def _qparams_of(self, low: Tensor, high: Tensor) -> QParams:
        levels = self.qmax - self.qmin
        low, high, zero_point = F.minimum(low, 0.0), F.maximum(high, 0.0), None
        if self.mode == QuantMode.SYMMERTIC:
            scale = F.maximum(F.maximum(-low, high) / (levels / 2), self.scale_limit)
            if self.dtype.is_unsigned:
                zero_point = Tensor(float(self.qmin + (levels + 1) // 2))
        else:
            scale = F.maximum((high - low) / levels, self.scale_limit)
            zero_point = F.clip(self.qmin - F.round(low / scale), self.qmin, self.qmax)
        return create_qparams(self.mode, self.dtype, scale, zero_point)

    def _range_of(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the smallest and largest value of ``x`` without NaN, which would hide all later
        values.
        """
        is_nan = F.isnan(x)
        return F.where(is_nan, _LARGEST, x).min(), F.where(is_nan, -_LARGEST, x).max()

    def forward(self, x_orig: Tensor) -> Tensor:
        """Widens the range by the values of ``x_orig``, while enabled, and returns it.

        Parameters
        ----------
        x_orig : Tensor
            Tensor of any shape, float32.

        Returns
        -------
        Tensor
            ``x_orig`` itself.
        """
        if self.enabled:
            low, high = self._range_of(x_orig.detach())
            self.min_val[...] = F.minimum(self.min_val, low)
            self.max_val[...] = F.maximum(self.max_val, high)
        return x_orig


class _SyncRange(MinMaxObserver):
    """The range over all processes of the group."""

    def _range_of(self, x: Tensor) -> tuple[Tensor, Tensor]:
        low, high = super()._range_of(x)
        return dist.all_reduce_min(low), dist.all_reduce_max(high)


class SyncMinMaxObserver(_SyncRange):
    """Watches the smallest and the largest value that any process has seen.

    Arguments are those of `MinMaxObserver`; without a process group it acts the same.

    Parameters
    ----------
    mode : QuantMode
        Symmetric, with 0 as the middle of the range, or asymmetric, with a zero point.
    eps : float
        Smallest scale; a smaller one is replaced by this number.
    dtype : str or QuantDtypeMeta
        Kind of quantized dtype, or its name such as "qint8".
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.

    Examples
    --------
    >>> import megengine as mge, megengine.quantization as Q
    >>> observer = Q.SyncMinMaxObserver()
    >>> x = observer(mge.Tensor([-255.0, 100.0]))
    >>> observer.get_qparams().scale.item()
    2.0
    """


class ExponentialMovingAverageObserver(MinMaxObserver):
    """Watches moving averages of the smallest and largest values of batches.

    Parameters
    ----------
    momentum : float
        Weight of the old average, in [0, 1]; the first batch counts in full.
    mode : QuantMode
        Symmetric, with 0 as the middle of the range, or asymmetric, with a zero point.
    eps : float
        Smallest scale; a smaller one is replaced by this number.
    dtype : str or QuantDtypeMeta
        Kind of quantized dtype, or its name such as "qint8".
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.

    Examples
    --------
    >>> import megengine as mge, megengine.quantization as Q
    >>> observer = Q.ExponentialMovingAverageObserver(momentum=0.5)
    >>> for largest in (4.0, 8.0):
    ...     x = observer(mge.Tensor([0.0, largest]))
    >>> observer.max_val.item()
    6.0
    """

    def __init__(
        self,
        momentum: float = 0.9,
        mode: QuantMode = QuantMode.SYMMERTIC,
        eps: float = 0.00001,
        dtype: str | QuantDtypeMeta = "qint8",
        **kwargs: Any,
    ) -> None:
        super().__init__(mode, eps, dtype, **kwargs)
        self.momentum = Tensor(float(momentum))
        self.runtime_momentum = Tensor(0.0)

    def set_momentum(self, momentum: float) -> None:
        """Sets the weight of the old average, ``momentum``, from now on.

        Parameters
        ----------
        momentum : float
            New weight of the old average, in [0, 1].
        """
        self.momentum[...] = float(momentum)

    def forward(self, x_orig: Tensor) -> Tensor:
        """Moves the averages by the values of ``x_orig``, while enabled, and returns it.

        Parameters
        ----------
        x_orig : Tensor
            Tensor of any shape, float32.

        Returns
        -------
        Tensor
            ``x_orig`` itself.
        """
        if self.enabled:
            low, high = self._range_of(x_orig.detach())
            old, has_values = self.runtime_momentum, low <= high
            self.min_val[...] = F.where(has_values, self.min_val * old + low * (1.0 - old), self.min_val)
            self.max_val[...] = F.where(has_values, self.max_val * old + high * (1.0 - old), self.max_val)
            self.runtime_momentum[...] = F.where(has_values, self.momentum, old)
        return x_orig


class SyncExponentialMovingAverageObserver(_SyncRange, ExponentialMovingAverageObserver):
    """Watches moving averages of the smallest and largest values in the batches of all processes.

    Arguments are those of `ExponentialMovingAverageObserver`; without a process group it acts the
    same.

    Parameters
    ----------
    momentum : float
        Weight of the old average, in [0, 1]; the first batch counts in full.
    mode : QuantMode
        Symmetric, with 0 as the middle of the range, or asymmetric, with a zero point.
    eps : float
        Smallest scale; a smaller one is replaced by this number.
    dtype : str or QuantDtypeMeta
        Kind of quantized dtype, or its name such as "qint8".
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.

    Examples
    --------
    >>> import megengine as mge, megengine.quantization as Q
    >>> observer = Q.SyncExponentialMovingAverageObserver()
    >>> x = observer(mge.Tensor([-2.0, 4.0]))
    >>> observer.min_val.item(), observer.max_val.item()
    (-2.0, 4.0)
    """


class HistogramObserver(MinMaxObserver):
    """Chooses a part of the range seen so far for which the squared error of quantization is small.

    Unlike `MinMaxObserver` it cuts off rare outliers. It reads values on the host: use it outside
    `jit.trace`.

    Parameters
    ----------
    bins : int
        Number of bins of the histogram.
    upsample_rate : int
        Number of finer cells per bin, by which old counts move to new bins when the range grows; it
        grows to whole cells, evenly on both sides.
    mode : QuantMode
        Symmetric, with 0 as the middle of the range, or asymmetric, with a zero point.
    eps : float
        Smallest scale; a smaller one is replaced by this number.
    dtype : str or QuantDtypeMeta
        Kind of quantized dtype, or its name such as "qint8".
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.

    Examples
    --------
    >>> import megengine.functional as F, megengine.quantization as Q
    >>> x = F.concat([F.linspace(-1.0, 1.0, 100000), F.full((1,), 10.0)])
    >>> observers = Q.MinMaxObserver(), Q.HistogramObserver()
    >>> for observer in observers:
    ...     x = observer(x)
    >>> [round(127 * observer.get_qparams().scale.item()) for observer in observers]
    [10, 1]
    """

    def __init__(
        self,
        bins: int = 2048,
        upsample_rate: int = 128,
        mode: QuantMode = QuantMode.SYMMERTIC,
        eps: float = 0.00001,
        dtype: str | QuantDtypeMeta = "qint8",
        **kwargs: Any,
    ) -> None:
        super().__init__(mode, eps, dtype, **kwargs)
        self.bins = bins
        self.upsample_rate = upsample_rate
        self.dst_nbins = self.qmax - self.qmin + 1
        self.histogram = Tensor(np.zeros(bins, np.float32))

    def get_qparams(self) -> QParams:
        """Returns the quantization parameters of the chosen range."""
        low, high = float(self.min_val), float(self.max_val)
        counts = self.histogram.numpy().astype(np.float64)
        if low == high or not counts.any():
            return super().get_qparams()
        width = (high - low) / self.bins
        first, last = self._best_bins(counts, width)
        return self._qparams_of(Tensor(low + width * first), Tensor(low + width * (last + 1)))

    def _best_bins(self, counts: np.ndarray, width: float) -> tuple[int, int]:
        """Returns the first and last bin of the range. Each step drops a share of 1e-5 of the
        values at the end where that drops more bins, as long as the error falls; one step is always
        made.
        """
        sums, share = np.cumsum(counts), 1e-5
        first, last = 0, self.bins - 1
        alpha, beta, least = 0.0, 1.0, np.inf
        while alpha < beta:
            left = max(first, min(last, int(np.searchsorted(sums, (alpha + share) * sums[-1]))))
            right = int(np.searchsorted(sums, (beta - share) * sums[-1], "right")) - 1
            right = min(last, max(first, right))
            if left - first > last - right:
                alpha, wanted = alpha + share, (left, last)
            else:
                beta, wanted = beta - share, (first, right)
            if wanted == (first, last):
                continue
            error = self._error(counts, width, *wanted)
            if error > least:
                break
            least, (first, last) = error, wanted
        return first, last

    def _error(self, counts: np.ndarray, width: float, first: int, last: int) -> float:
        """Squared error when the bins from first to last are quantized, values spread over a bin evenly."""
        step = width * (last - first + 1) / self.dst_nbins
        begin = (np.arange(self.bins) - first) * width
        end = begin + width
        level_of_begin, level_of_end = (
            np.clip(np.floor(place / step), 0, self.dst_nbins - 1) for place in (begin, end)
        )

        # integrates the squared distance from the centre of a level
        def integral(a: Any, b: Any) -> Any:
            return (b**3 - a**3) / 3

        from_begin = begin - (level_of_begin + 0.5) * step
        to_end = end - (level_of_end + 0.5) * step
        whole = (level_of_end - level_of_begin - 1) * integral(-step / 2, step / 2)
        several = integral(from_begin, step / 2) + whole + integral(-step / 2, to_end)
        one = integral(from_begin, to_end)
        errors = np.where(level_of_begin == level_of_end, one, several)
        return float((errors * counts / width).sum())

    def sideeffect_forward(self, x_orig: Tensor) -> None:
        """Adds the values of ``x_orig`` to the histogram, widening its range where needed.

        Parameters
        ----------
        x_orig : Tensor
            Tensor of any shape, float32.
        """
        values = x_orig.detach().numpy().astype(np.float64).ravel()
        values = values[~np.isnan(values)]
        if not values.size:
            return
        old_low, old_high = float(self.min_val), float(self.max_val)
        low, high = min(old_low, values.min()), max(old_high, values.max())
        counts = self.histogram.numpy()
        if (low, high) != (old_low, old_high) and counts.any():
            cell = (old_high - old_low) / (self.bins * self.upsample_rate)
            # the number of cells of one new bin
            cells = int(np.ceil((high - low) / (self.bins * cell)))
            surplus = cells * self.bins * cell - (high - low)
            low, high = low - surplus / 2, high + surplus / 2
            moved = np.zeros(self.bins * cells)
            start = round((old_low - low) / cell)
            fine = np.repeat(counts / self.upsample_rate, self.upsample_rate)
            moved[start : start + fine.size] = fine
            counts = moved.reshape(self.bins, cells).sum(axis=1)
        if low < high:
            counts = counts + np.histogram(values, self.bins, (low, high))[0]
        self.histogram[...] = counts.astype(np.float32)
        self.min_val[...], self.max_val[...] = float(low), float(high)

    def forward(self, x_orig: Tensor) -> Tensor:
        """Counts the values of ``x_orig``, while enabled, and returns it.

        Parameters
        ----------
        x_orig : Tensor
            Tensor of any shape, float32.

        Returns
        -------
        Tensor
            ``x_orig`` itself.
        """
        if self.enabled:
            self.sideeffect_forward(x_orig)
        return x_orig


class PassiveObserver(Observer):
    """Holds quantization parameters that are set from outside, and watches nothing.

    Parameters
    ----------
    dtype : str or QuantDtypeMeta
        Kind of quantized dtype, or its name such as "qint8".
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.

    Notes
    -----
    Setting ``scale`` changes the scale in use (ValueError unless positive); ``orig_scale`` keeps
    the scale that `set_qparams` gave.

    Examples
    --------
    >>> import megengine as mge, megengine.quantization as Q
    >>> observer = Q.PassiveObserver("qint8")
    >>> observer.set_qparams(Q.create_qparams(dtype_meta="qint8", scale=mge.Tensor(0.5)))
    >>> observer.scale = 0.25
    >>> observer.scale.item(), observer.orig_scale.item()
    (0.25, 0.5)
    """

    def __init__(self, dtype: str | QuantDtypeMeta, **kwargs: Any) -> None:
        super().__init__(dtype, **kwargs)
        self.qparams: QParams | None = None
        self.orig_scale: Tensor | None = None

    @property
    def scale(self) -> Tensor:
        """The scale in use, a 0-D Tensor. ValueError when set to a number that is not positive."""
        return self._scale()

    @scale.setter
    def scale(self, value: Tensor | float) -> None:
        if not np.all(np.asarray(value) > 0):
            raise ValueError(f"PassiveObserver.scale: {value!r} is not positive")
        self._scale()[...] = value

    def _scale(self) -> Tensor:
        scale = self.get_qparams().scale
        if scale is None:  # set_qparams gave one
            raise AssertionError("scale is not None does not hold")
        return scale

    def get_qparams(self) -> QParams:
        """Returns the parameters that were set. ValueError before that."""
        if self.qparams is None:
            raise ValueError(
                "PassiveObserver has no quantization parameters\n  fix: call set_qparams, or reset_qconfig of a "
                "model whose observers have seen data"
            )
        return self.qparams

    def set_qparams(self, qparams: QParams) -> None:
        """Takes over ``qparams``; their scale is kept in ``orig_scale`` too.

        Parameters
        ----------
        qparams : QParams
            Quantization parameters of the same quantized dtype.

        Raises
        ------
        ValueError
            For another dtype.
        """
        if qparams.dtype_meta != self.dtype:
            raise ValueError(f"PassiveObserver of {self.dtype.name} cannot take {qparams!r}")
        scale = Tensor(np.asarray(qparams.scale, np.float32))
        self.qparams = create_qparams(qparams.mode, self.dtype, scale, qparams.zero_point)
        self.orig_scale = Tensor(scale.numpy())

    def forward(self, x: Tensor) -> Tensor:
        """Returns ``x``.

        Parameters
        ----------
        x : Tensor
            Tensor of any shape, float32.

        Returns
        -------
        Tensor
            ``x`` itself.
        """
        return x
