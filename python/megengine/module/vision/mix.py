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
    """Blends two batches, and their labels, by a random weight for each pair of samples.

    ``w * first + (1 - w) * second``, with w drawn from Beta(beta, beta).

    Parameters
    ----------
    beta : float
        Both parameters of the Beta distribution, above 0; small values give weights near 0 and 1.
    seed : int or None
        Seed of the draws, at least 0; None takes a random one.

    References
    ----------
    Zhang et al. 2018, "mixup: Beyond Empirical Risk Minimization".

    Examples
    --------
    >>> import megengine as mge, megengine.functional as F, megengine.module as M
    >>> mix, zeros, ones = M.Mixup(beta=1.0, seed=1), F.zeros((4, 3, 2, 2)), F.ones((4, 3, 2, 2))
    >>> data, label = mix(zeros, mge.Tensor([[1.0, 0.0]] * 4), ones, mge.Tensor([[0.0, 1.0]] * 4))
    >>> data.shape, label.sum(1).numpy().round(3).tolist()
    ((4, 3, 2, 2), [1.0, 1.0, 1.0, 1.0])
    """

    def __init__(self, beta: float, seed: int | None = None) -> None:
        super().__init__()
        self.beta_func = Stream(seed).beta
        self.beta = beta

    def sample(self, batch: int) -> Tensor:
        """Returns the weights of the first batch, (batch,), float32.

        Parameters
        ----------
        batch : int
            The number of samples.

        Returns
        -------
        Tensor
            (batch,), float32.
        """
        shape = F.full((batch,), float(self.beta))
        return self.beta_func(shape, shape)

    def forward(
        self, data1: Tensor, label1: Tensor, data2: Tensor, label2: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Returns the blended (data, label).

        Parameters
        ----------
        data1 : Tensor
            First batch, of shape (N, ...).
        label1 : Tensor
            (N, ...), floats such as one-hot vectors.
        data2 : Tensor
            Second batch, of the shape of ``data1``.
        label2 : Tensor
            (N, ...), floats such as one-hot vectors.

        Returns
        -------
        data : Tensor
            The data, of the shape of ``data1``.
        label : Tensor
            The labels, of the shape of ``label1``.
        """
        weight = self.sample(data1._tuple_shape[0])
        return _weigh(weight, data1, data2), _weigh(weight, label1, label2)


class Cutmix(Module):
    """Pastes a random box of the second batch into the first, and blends the labels by area.

    The box has the share 1 - w of the area, w drawn from Beta(beta, beta) for every sample, and its
    centre anywhere, so that it may be cut off at the border; the first label weighs what is left.

    Parameters
    ----------
    beta : float
        Both parameters of the Beta distribution, above 0.
    seed : int or None
        Seed of the draws, at least 0; None takes a random one.

    References
    ----------
    Yun et al. 2019, "CutMix: Regularization Strategy to Train Strong Classifiers".

    Examples
    --------
    >>> import megengine as mge, megengine.functional as F, megengine.module as M
    >>> mix, zeros, ones = M.Cutmix(beta=1.0, seed=1), F.zeros((4, 3, 8, 8)), F.ones((4, 3, 8, 8))
    >>> data, label = mix(zeros, F.zeros((4, 1)), ones, F.ones((4, 1)))
    >>> bool((F.mean(data, [1, 2, 3]) == label[:, 0]).numpy().all())
    True
    """

    def __init__(self, beta: float, seed: int | None = None) -> None:
        super().__init__()
        rng = Stream(seed)
        self.beta_func = rng.beta
        self.uniform_func = rng.uniform
        self.beta = beta

    def sample(self, batch: int) -> tuple[Tensor, Tensor, Tensor]:
        """Draws the weights, and the centres of the boxes.

        Parameters
        ----------
        batch : int
            The number of samples.

        Returns
        -------
        (Tensor, Tensor, Tensor)
            (batch,) each: w, and the centre as shares of height and width.
        """
        shape = F.full((batch,), float(self.beta))
        weight = self.beta_func(shape, shape)
        y, x = (self.uniform_func(0.0, 1.0, size=(batch,)) for _ in range(2))
        return weight, y, x

    def forward(
        self, data1: Tensor, label1: Tensor, data2: Tensor, label2: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Returns (data, label) with the boxes pasted.

        Parameters
        ----------
        data1 : Tensor
            Tensor of shape (N, C, H, W).
        label1 : Tensor
            (N, ...), floats such as one-hot vectors.
        data2 : Tensor
            Tensor of shape (N, C, H, W).
        label2 : Tensor
            (N, ...), floats such as one-hot vectors.

        Returns
        -------
        data : Tensor
            The data, of the shape of ``data1``.
        label : Tensor
            The labels, of the shape of ``label1``.
        """
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
