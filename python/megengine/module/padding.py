"""Padding."""

from __future__ import annotations

from collections.abc import Sequence

from .. import functional as F
from ..tensor import Tensor
from .module import Module

__all__ = ["Pad"]


class Pad(Module):
    """Adds elements around a tensor of up to 7 axes.

    Parameters
    ----------
    pad_width : sequence of sequence of int
        Pairs (before, after) of numbers of elements, one pair for each axis.
    mode : str
        "constant", "edge" or "replicate" (the border's value), or "reflect" (mirrored, without the
        border); ValueError for another one when called.
    constant_val : float
        Value of the added elements in the mode "constant".
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.

    Examples
    --------
    >>> import megengine as mge, megengine.module as M
    >>> M.Pad([(2, 1)], mode="reflect")(mge.Tensor([1.0, 2.0, 3.0])).tolist()
    [3.0, 2.0, 1.0, 2.0, 3.0, 2.0]
    """

    _repr_facts = "pad_width={0.pad_width}, mode={0.mode}, constant_val={0.pad_val}"

    def __init__(
        self,
        pad_width: Sequence[Sequence[int]],
        mode: str = "constant",
        constant_val: float = 0.0,
        **kwargs: str,
    ) -> None:
        super().__init__(**kwargs)
        self.pad_width = pad_width
        self.mode = mode
        self.pad_val = constant_val

    def forward(self, src: Tensor) -> Tensor:
        """Returns ``src`` with the elements added, of the same dtype.

        Parameters
        ----------
        src : Tensor
            Any shape of up to 7 axes.

        Returns
        -------
        Tensor
            Tensor with the elements added, in the same dtype.
        """
        return F.nn.pad(src, self.pad_width, self.mode, self.pad_val)
