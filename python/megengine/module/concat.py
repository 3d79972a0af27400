"""Concatenation as a module, so that quantization can see it."""

from __future__ import annotations

from collections.abc import Iterable

from .. import functional as F
from ..tensor import Tensor
from .module import Module

__all__ = ["Concat"]


class Concat(Module):
    """Joins tensors along an axis, as a module that quantization can replace.

    >>> import megengine as mge, megengine.module as M
    >>> M.Concat()([mge.Tensor([1.0]), mge.Tensor([2.0, 3.0])]).tolist()
    [1.0, 2.0, 3.0]
    """

    def forward(self, inps: Iterable[Tensor], axis: int = 0) -> Tensor:
        """Return ``inps`` joined along ``axis`` (0 by default); other extents must be equal."""
        return F.concat(inps, axis)
