"""Fourier transforms. ONNX holds complex numbers as a last axis of two reals, and real ones as a
last axis of one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ... import functional as F
from ...core import ops
from ...tensor import Tensor
from ._table import axis_of, counterpart, dtype_of, number


def _numbers(x: Tensor) -> Tensor:
    """Returns real or complex numbers without the last axis."""
    if x.shape[-1] not in (1, 2):
        raise ValueError(f"a last axis of {x.shape[-1]} elements; real numbers have 1, complex ones 2")
    return x[..., 0] if x.shape[-1] == 1 else ops.complex(x[..., 0], x[..., 1])


def _parts(x: Tensor) -> Tensor:
    return F.stack([F.real(x), F.imag(x)], axis=-1)


@counterpart("DFT", plain=(1, 2))
def dft(x: Tensor, length: Tensor | int | None = None, place: Tensor | int | None = None, *, axis: int = -2, inverse: int = 0, onesided: int = 0) -> Tensor:
    """Computes a Fourier transform. place: the axis, if it is an input."""
    along = axis_of(axis if place is None else int(number(place)), x.ndim)
    if along == x.ndim - 1:
        raise ValueError("DFT along the axis of real and imaginary parts")
    n, values = None if length is None else int(number(length)), _numbers(x)
    if inverse and onesided:
        return F.expand_dims(F.fft.irfft(values, n, along), -1)
    if inverse:
        return _parts(F.fft.ifft(values, n, along))
    return _parts(F.fft.rfft(values, n, along) if onesided else F.fft.fft(values, n, along))


@counterpart("STFT", plain=(1, 3))
def stft(x: Tensor, step: Tensor | int, window: Tensor | None = None, length: Tensor | int | None = None, *, onesided: int = 1) -> Tensor:
    """Transforms of frames, each ``step`` behind the one before."""
    signal = x if x.ndim == 2 else _numbers(x)  # onnxruntime takes it without the last axis, too
    count, step = int(x.shape[1]), int(number(step))
    size = int(number(length)) if length is not None else int(window.shape[0]) if window is not None else count
    if step < 1 or size < 1:
        raise ValueError(f"STFT: frames of {size} elements, {step} apart")
    frames = max((count - size) // step + 1, 0)
    places: Sequence[Sequence[int]] | np.ndarray = np.arange(frames)[:, None] * step + np.arange(size)
    parts = signal[:, Tensor(places, dtype="int32")]
    if window is not None:
        parts = parts * window
    return _parts(F.fft.rfft(parts) if onesided else F.fft.fft(parts))


@counterpart("MelWeightMatrix", plain=(0, 1, 2, 3, 4))
def mel_weight_matrix(
    bins: Tensor | int, length: Tensor | int, rate: Tensor | int, low: Tensor | float, high: Tensor | float, *, output_datatype: int = 1
) -> Tensor:
    """Returns [length // 2 + 1, bins]: the share of each frequency in each band, a triangle on the
    scale of O'Shaughnessy, 1987.
    """
    count, size = int(number(bins)), int(number(length))
    ends = [2595 * np.log10(1 + number(edge) / 700) for edge in (low, high)]
    mels = ends[0] + np.arange(count + 2) * (ends[1] - ends[0]) / (count + 2)
    edges = ((size + 1) * 700 * (10 ** (mels / 2595) - 1) // number(rate)).astype(int)
    places, (first, middle, last) = np.arange(size // 2 + 1)[:, None], (edges[k : count + k] for k in range(3))
    rising = np.where(middle > first, (places - first) / np.maximum(middle - first, 1), 1.0)
    falling = (last - places) / np.maximum(last - middle, 1)
    weights = np.where((places >= first) & (places <= middle), rising, 0.0)
    weights = np.where((places >= middle) & (places < last), falling, weights)
    return Tensor(weights, dtype=dtype_of(output_datatype))
