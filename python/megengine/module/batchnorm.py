"""Batch normalization: Ioffe & Szegedy 2015, "Batch Normalization"."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import functional as F
from ..tensor import Tensor
from . import init
from .normalization import _Norm

__all__ = ["BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "SyncBatchNorm"]


class _BatchNorm(_Norm):
    """Normalizes every channel (axis 1) over all other axes, then scales and shifts it.

    y = (x - mean) / sqrt(var + eps) * weight + bias. weight, bias, running_mean and running_var have the
    shape (1, num_features, 1, 1); they are 1-D in state dicts.
    eps: under the root. momentum: weight of the OLD running value in an update.
    affine: has weight and bias. track_running_stats: keeps running statistics, which eval mode uses (the
    variance is the unbiased one); without, the batch's own statistics always serve.
    freeze: use the running statistics in training too, and neither update nor differentiate anything.
    """

    _repr_facts = (
        "{0.num_features}, eps={0.eps}, momentum={0.momentum}, affine={0.affine}, "
        "track_running_stats={0.track_running_stats}"
    )

    _ranks: tuple[int, ...] = (2, 3, 4, 5)  # of the inputs

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float = 0.9,
        affine: bool = True,
        track_running_stats: bool = True,
        freeze: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.num_features = num_features
        self.eps = eps
        self.momentum = momentum
        self.track_running_stats = track_running_stats
        self.freeze = freeze
        if freeze and not track_running_stats:
            raise AssertionError(
                f"{type(self).__name__}: freeze=True needs track_running_stats=True: "
                "the running statistics are what it is frozen to"
            )
        shape = (1, num_features, 1, 1)
        self._make_affine(affine, shape)
        self.running_mean = Tensor(np.zeros(shape, np.float32)) if track_running_stats else None
        self.running_var = Tensor(np.ones(shape, np.float32)) if track_running_stats else None

    def reset_running_stats(self) -> None:
        """Running mean to 0, running variance to 1."""
        if self.running_mean is not None and self.running_var is not None:
            init.zeros_(self.running_mean)
            init.ones_(self.running_var)

    def reset_parameters(self) -> None:
        """Scale to 1, shift to 0, running statistics to their start."""
        self.reset_running_stats()
        super().reset_parameters()

    def _check_input_ndim(self, inp: Tensor) -> None:
        if inp.ndim not in self._ranks:
            wanted = " or ".join(f"{rank}-D" for rank in self._ranks)
            raise ValueError(
                f"{type(self).__name__} takes {wanted} inputs, got one of shape {inp._tuple_shape}\n"
                "  fix: reshape the input, or use the BatchNorm of its rank"
            )

    def forward(self, inp: Tensor) -> Tensor:
        """inp: (N, num_features, ...). Returns the same shape. ValueError for a wrong rank."""
        self._check_input_ndim(inp)
        terms = self.running_mean, self.running_var, self.weight, self.bias
        if self.freeze:
            fixed = [None if term is None else term.detach() for term in terms]
            return F.batch_norm(inp, *fixed, training=False, eps=self.eps)
        return self._batch_norm(inp, *terms, self.training or not self.track_running_stats)

    def _batch_norm(
        self,
        inp: Tensor,
        mean: Tensor | None,
        var: Tensor | None,
        weight: Tensor | None,
        bias: Tensor | None,
        training: bool,
    ) -> Tensor:
        return F.batch_norm(
            inp, mean, var, weight, bias, training=training, momentum=self.momentum, eps=self.eps
        )


class BatchNorm1d(_BatchNorm):
    """Batch normalization of (N, C) or (N, C, L) inputs."""

    _ranks = (2, 3)


class BatchNorm2d(_BatchNorm):
    """Batch normalization of (N, C, H, W) inputs."""

    _ranks = (4,)


class BatchNorm3d(_BatchNorm):
    """Batch normalization of (N, C, D, H, W) inputs."""

    _ranks = (5,)


class SyncBatchNorm(_BatchNorm):
    """Batch normalization with the statistics of all processes of ``group``; inputs (N, C, ...).

    group: processes that share statistics, None for all. The same as BatchNorm outside a process group.
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float = 0.9,
        affine: bool = True,
        track_running_stats: bool = True,
        freeze: bool = False,
        group: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, freeze, **kwargs)
        self.group = group

    def _batch_norm(
        self,
        inp: Tensor,
        mean: Tensor | None,
        var: Tensor | None,
        weight: Tensor | None,
        bias: Tensor | None,
        training: bool,
    ) -> Tensor:
        options = {} if self.group is None else {"group": self.group}
        return F.nn.sync_batch_norm(
            inp, mean, var, weight, bias, training, self.momentum, self.eps, **options
        )
