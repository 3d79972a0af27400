"""Mixing pairs of samples and their labels."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import functional as F
from ...tensor import Tensor
from ..module import Module
from ._images import Stream

__all__ = ["Cutmix", "Mixup"]


def _weigh(weight: Tensor, one: Tensor, other: Tensor) -> Tensor:
    weight = weight.reshape(-1, *(1,) * (one.ndim - 1))
    return weight * one + (1.0 - weight) * other


class Mixup(Module):
    """Weighted means of two batches: Zhang et al. 2018, "mixup: Beyond Empirical Risk Minimization".

    forward(data1, label1, data2, label2): returns (data, label), ``w * first + (1 - w) * second`` with
    w ~ Beta(beta, beta) for every sample. Labels are floats, such as one-hot vectors.
    """

    def __init__(self, beta: float, seed: int | None = None) -> None:
        super().__init__()
        self.beta_func = Stream(seed).beta
        self.beta = beta

    def sample(self, batch: int) -> Tensor:
        """Weights of the first batch: (batch,)."""
        shape = F.full((batch,), float(self.beta))
        return self.beta_func(shape, shape)

    def forward(
        self, data1: Tensor, label1: Tensor, data2: Tensor, label2: Tensor
    ) -> tuple[Tensor, Tensor]:
        weight = self.sample(data1._tuple_shape[0])
        return _weigh(weight, data1, data2), _weigh(weight, label1, label2)


class Cutmix(Module):
    """Pastes a box of the second batch into the first: Yun et al. 2019, "CutMix".

    forward(data1, label1, data2, label2): data (N, C, H, W); returns (data, label). The box has the share 1 - w of
    the area, w ~ Beta(beta, beta) for every sample, and a centre anywhere, so that it may be cut off at the border;
    labels are weighted with the share that is left.
    """

    def __init__(self, beta: float, seed: int | None = None) -> None:
        super().__init__()
        rng = Stream(seed)
        self.beta_func = rng.beta
        self.uniform_func = rng.uniform
        self.beta = beta

    def sample(self, batch: int) -> tuple[Tensor, Tensor, Tensor]:
        """w, and the centre of the box as shares of height and width: (batch,) each."""
        shape = F.full((batch,), float(self.beta))
        weight = self.beta_func(shape, shape)
        y, x = (self.uniform_func(0.0, 1.0, size=(batch,)) for _ in range(2))
        return weight, y, x

    def forward(
        self, data1: Tensor, label1: Tensor, data2: Tensor, label2: Tensor
    ) -> tuple[Tensor, Tensor]:
        n, _, height, width = data1._tuple_shape
        weight, y, x = (value.reshape(n, 1, 1, 1) for value in self.sample(n))
        share = F.sqrt(1.0 - weight)
        # Any: NumPy's types know nothing of an array that stands on the left of a Tensor.
        rows: Any = np.arange(height, dtype=np.float32)[None, None, :, None]
        cols: Any = np.arange(width, dtype=np.float32)[None, None, None, :]
        in_rows = F.abs(rows + 0.5 - y * float(height)) < share * (height / 2)
        in_cols = F.abs(cols + 0.5 - x * float(width)) < share * (width / 2)
        kept = 1.0 - F.logical_and(in_rows, in_cols).astype("float32")
        data = data1 * kept + data2 * (1.0 - kept)
        return data, _weigh(F.mean(kept, [1, 2, 3]), label1, label2)
