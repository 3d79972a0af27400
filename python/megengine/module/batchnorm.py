"""Batch normalization: Ioffe & Szegedy 2015, "Batch Normalization"."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .. import functional as F
from ..tensor import Tensor
from . import init
from .normalization import _Norm

if TYPE_CHECKING:
    from ..distributed import Group

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

    _ranks: tuple[int, ...] = (2, 3, 4, 5)  # numbers of axes that inputs may have

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
                "track_running_stats must be initilized to True if freeze is True\n"
                f"  why: a frozen {type(self).__name__} normalizes by the running statistics"
            )
        shape = (1, num_features, 1, 1)
        self._make_affine(affine, shape)
        self.running_mean = Tensor(np.zeros(shape, np.float32)) if track_running_stats else None
        self.running_var = Tensor(np.ones(shape, np.float32)) if track_running_stats else None

    def reset_running_stats(self) -> None:
        """Sets the running mean to 0 and the running variance to 1."""
        if self.running_mean is not None and self.running_var is not None:
            init.zeros_(self.running_mean)
            init.ones_(self.running_var)

    def reset_parameters(self) -> None:
        """Sets the scale to 1, the shift to 0 and the running statistics to their initial
        values."""
        self.reset_running_stats()
        super().reset_parameters()

    def _check_input_ndim(self, inp: Tensor) -> None:
        if inp.ndim not in self._ranks:
            wanted = " or ".join(f"{rank}D" for rank in self._ranks)
            raise ValueError(
                f"expected {wanted} input (got {inp.ndim}D input)\n"
                f"  why: {type(self).__name__} was given one of shape {inp._tuple_shape}\n"
                "  fix: reshape the input, or use the BatchNorm of its rank"
            )

    def forward(self, inp: Tensor) -> Tensor:
        """Returns ``inp`` normalized, of the same shape.

        In training mode the running statistics are updated, too.

        Parameters
        ----------
        inp : Tensor
            Tensor of shape (N, num_features, ...), with the number of axes of the class.

        Returns
        -------
        Tensor
            The result, of the same shape.

        Raises
        ------
        ValueError
            For an input with another number of axes.
        AssertionError
            In eval mode, if track_running_stats was set to False after the layer was made.
        """
        self._check_input_ndim(inp)
        terms = self.running_mean, self.running_var, self.weight, self.bias
        if self.freeze:
            fixed = [None if term is None else term.detach() for term in terms]
            return F.batch_norm(inp, *fixed, training=False, eps=self.eps)
        if not self.track_running_stats and self.running_mean is not None:  # set later
            if not self.training:
                raise AssertionError(
                    f"{type(self).__name__}: eval mode needs the running statistics, and track_running_stats was set to False\n"
                    "  fix: set it to True, or give track_running_stats=False to the constructor"
                )
            terms = None, None, self.weight, self.bias
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
    """Normalizes (N, C) or (N, C, L) inputs over all axes but the channels, with statistics of the
    batch.

    Statistics and modes are those of `BatchNorm2d`.

    Parameters
    ----------
    num_features : int
        The number of channels, C.
    eps, momentum : float
        Number that is added to the variance, and weight of the old running statistics: ``momentum *
        old + (1 - momentum) * batch``.
    affine, track_running_stats, freeze : bool
        Whether to learn a weight and a bias, whether to keep running statistics, and whether to use
        these in training too, without updates and gradients.
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.

    Examples
    --------
    >>> import megengine as mge, megengine.module as M
    >>> bn = M.BatchNorm1d(1, eps=0.0)
    >>> bn(mge.Tensor([[1.0], [3.0]])).tolist()
    [[-1.0], [1.0]]
    """

    _ranks = (2, 3)


class BatchNorm2d(_BatchNorm):
    """Normalizes each channel of (N, C, H, W) inputs to mean 0 and variance 1, with statistics of
    the batch.

    ``y = (x - mean) / sqrt(var + eps) * weight + bias`` per channel. Training mode uses the batch's
    mean and biased variance and updates the running ones, whose variance is unbiased; `eval` mode
    uses the running ones.

    Parameters
    ----------
    num_features : int
        The number of channels, C.
    eps : float
        Added to the variance under the root.
    momentum : float
        Weight of the old running value in an update: ``running = momentum * running + (1 -
        momentum) * batch``. Many libraries give the weight of the new value instead.
    affine : bool
        Whether to learn a weight (ones at first) and a bias (zeros at first).
    track_running_stats : bool
        Whether to keep running statistics; without them `eval` mode uses the batch's statistics,
        too.
    freeze : bool
        Whether to use the running statistics in training too, without updates and gradients.
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.

    Raises
    ------
    AssertionError
        For freeze without track_running_stats.

    See Also
    --------
    SyncBatchNorm : Takes the statistics of all processes.
    GroupNorm : Does not depend on the batch.
    functional.batch_norm : The function.

    Notes
    -----
    weight, bias, running_mean and running_var have the shape (1, C, 1, 1), and (C,) in state dicts.

    References
    ----------
    Ioffe & Szegedy 2015, "Batch Normalization".

    Examples
    --------
    >>> import megengine as mge, megengine.module as M
    >>> bn = M.BatchNorm2d(1, momentum=0.5)
    >>> y = bn(mge.functional.full((2, 1, 4, 4), 6.0))
    >>> bn.running_mean.item(), bn.running_var.item()
    (3.0, 0.5)
    """

    _ranks = (4,)


class BatchNorm3d(_BatchNorm):
    """Normalizes (N, C, D, H, W) inputs over all axes but the channels, with statistics of the
    batch.

    Statistics and modes are those of `BatchNorm2d`.

    Parameters
    ----------
    num_features : int
        The number of channels, C.
    eps, momentum : float
        Number that is added to the variance, and weight of the old running statistics: ``momentum *
        old + (1 - momentum) * batch``.
    affine, track_running_stats, freeze : bool
        Whether to learn a weight and a bias, whether to keep running statistics, and whether to use
        these in training too, without updates and gradients.
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.

    Examples
    --------
    >>> import megengine as mge, megengine.module as M
    >>> M.BatchNorm3d(2)(mge.functional.ones((1, 2, 3, 4, 4))).shape
    (1, 2, 3, 4, 4)
    """

    _ranks = (5,)


class SyncBatchNorm(_BatchNorm):
    """Normalizes each channel with the statistics of the batches of all processes of a group.

    Inputs are (N, C, ...), 2-D to 5-D. Use it in data-parallel training when the batch of one
    process is too small for good statistics.

    Parameters
    ----------
    num_features : int
        The number of channels, C.
    eps, momentum : float
        Number that is added to the variance, and weight of the old running statistics: ``momentum *
        old + (1 - momentum) * batch``.
    affine, track_running_stats, freeze : bool
        Whether to learn a weight and a bias, whether to keep running statistics, and whether to use
        these in training too, without updates and gradients.
    group : Group or None
        The processes that share statistics, None for all; outside a process group the results are
        those of `BatchNorm2d`.
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.

    Examples
    --------
    >>> import megengine as mge, megengine.module as M
    >>> M.SyncBatchNorm(1, eps=0.0)(mge.Tensor([[1.0], [3.0]])).tolist()
    [[-1.0], [1.0]]
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float = 0.9,
        affine: bool = True,
        track_running_stats: bool = True,
        freeze: bool = False,
        group: Group | None = None,
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
        return F.nn.sync_batch_norm(
            inp, mean, var, weight, bias, training, self.momentum, self.eps, group=self.group
        )
