"""Position-sensitive region pooling with offsets: Dai et al. 2017, "Deformable Convolutional Networks"."""

from __future__ import annotations

from typing import Any

from .. import functional as F
from ..tensor import Tensor
from .module import Module

__all__ = ["DeformablePSROIPooling"]


class DeformablePSROIPooling(Module):
    """Pools boxes of feature maps into fixed grids, each bin shifted by an offset.

    Parameters
    ----------
    no_trans : bool
        Whether to ignore the offsets.
    part_size : int
        Height and width of the grid of offsets.
    pooled_h, pooled_w : int
        Height and width of the result.
    sample_per_part : int
        Samples per bin along each axis.
    spatial_scale : float
        Pixels of the feature map per pixel of the boxes' coordinates.
    trans_std : float
        Factor that the offsets are multiplied by.
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.

    References
    ----------
    Dai et al. 2017, "Deformable Convolutional Networks".

    Examples
    --------
    >>> import megengine as mge, megengine.functional as F, megengine.module as M
    >>> pool = M.DeformablePSROIPooling(True, 2, 2, 2, sample_per_part=2, spatial_scale=1.0)
    >>> box = mge.Tensor([[0.0, 1.0, 1.0, 5.0, 5.0]])
    >>> pool(F.full((1, 3, 8, 8), 7.0), box, F.zeros((1, 2, 2, 2))).shape
    (1, 3, 2, 2)
    """

    def __init__(
        self,
        no_trans: bool,
        part_size: int,
        pooled_h: int,
        pooled_w: int,
        sample_per_part: int,
        spatial_scale: float,
        trans_std: float = 0.1,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.no_trans = no_trans
        self.part_size = part_size
        self.pooled_h = pooled_h
        self.pooled_w = pooled_w
        self.sample_per_part = sample_per_part
        self.spatial_scale = spatial_scale
        self.trans_std = trans_std

    def forward(self, inp: Tensor, rois: Tensor, trans: Tensor) -> Tensor:
        """Returns the pooled boxes, (K, C, pooled_h, pooled_w).

        Parameters
        ----------
        inp : Tensor
            Tensor of shape (N, C, H, W).
        rois : Tensor
            (K, 5), index of the image in the batch, x1, y1, x2, y2.
        trans : Tensor
            (K, 2 * classes, part_size, part_size), offsets x and y in box extents; channels are
            split evenly among the classes.

        Returns
        -------
        Tensor
            (K, C, pooled_h, pooled_w).
        """
        return F.deformable_psroi_pooling(
            inp,
            rois,
            trans,
            self.no_trans,
            self.part_size,
            self.pooled_h,
            self.pooled_w,
            self.sample_per_part,
            self.spatial_scale,
            self.trans_std,
        )
