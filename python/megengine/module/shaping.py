"""Layers that change shapes: axes joined and split, images resized."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import functional as F
from ..core.tensor.shapes import normalize_axis
from ..tensor import Tensor
from .module import Module

__all__ = ["Flatten", "Unflatten", "Upsample"]


class Flatten(Module):
    """Joins axes into one, by default all but the batch: (N, ...) to (N, features).

    Parameters
    ----------
    start_axis, end_axis : int
        The first and the last axis that are joined; negative ones count from the end.
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.

    Examples
    --------
    >>> import megengine as mge, megengine.module as M
    >>> M.Flatten()(mge.functional.ones((2, 3, 4, 5))).shape
    (2, 60)
    """

    _repr_facts = "start_axis={0.start_axis}, end_axis={0.end_axis}"

    def __init__(self, start_axis: int = 1, end_axis: int = -1, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.start_axis = start_axis
        self.end_axis = end_axis

    def forward(self, inputs: Tensor) -> Tensor:
        """Returns the elements of ``inputs`` with the axes joined.

        Parameters
        ----------
        inputs : Tensor
            Any shape that has these axes.

        Returns
        -------
        Tensor
            The same elements.
        """
        return F.flatten(inputs, self.start_axis, self.end_axis)


class Unflatten(Module):
    """Splits an axis into several: the inverse of `Flatten`.

    Parameters
    ----------
    axis : int
        The axis that is split; negative ones count from the end.
    sizes : sequence of int
        The extents that take its place; one may be -1.
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.

    Examples
    --------
    >>> import megengine as mge, megengine.module as M
    >>> M.Unflatten(1, (3, -1))(mge.functional.ones((2, 60))).shape
    (2, 3, 20)
    """

    _repr_facts = "axis={0.axis}, sizes={0.sizes}"

    def __init__(self, axis: int, sizes: Sequence[int], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.axis = axis
        self.sizes = tuple(sizes)

    def forward(self, inputs: Tensor) -> Tensor:
        """Returns the elements of ``inputs`` with the axis split.

        Parameters
        ----------
        inputs : Tensor
            Any shape that has the axis.

        Returns
        -------
        Tensor
            The same elements.

        Raises
        ------
        ValueError
            If there is no such axis, or if the product of the extents is not that of the axis.
        """
        shape: Any = inputs.shape
        axis = normalize_axis(self.axis, inputs.ndim, "Unflatten")
        before, behind = ([shape[at] for at in places] for places in (range(axis), range(axis + 1, inputs.ndim)))
        return inputs.reshape(*before, *self.sizes, *behind)


class Upsample(Module):
    """Resizes the spatial axes of (N, C, ...) to a size, or by a factor.

    Parameters
    ----------
    size : int, sequence of int or None
        The new extents, or one for all axes.
    scale_factor : float, sequence of float or None
        Factors of the extents, whose products are rounded down, or one factor for all axes.
    mode : str
        "nearest", "linear", "bilinear", "bicubic" or "trilinear", as in
        `functional.vision.interpolate`, where "bilinear" is the default.
    align_corners : bool or None
        True maps the centres of the corner pixels to each other, False the corners of the images;
        None for "bicubic" and "nearest".
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.

    Raises
    ------
    ValueError
        Unless exactly one of size and scale_factor is given.

    Examples
    --------
    >>> import megengine as mge, megengine.module as M
    >>> M.Upsample(scale_factor=2)(mge.Tensor([[[[1.0, 2.0]]]])).tolist()
    [[[[1.0, 1.0, 2.0, 2.0], [1.0, 1.0, 2.0, 2.0]]]]
    """

    _repr_facts = "size={0.size}, scale_factor={0.scale_factor}, mode={0.mode}, align_corners={0.align_corners}"

    def __init__(
        self,
        size: int | Sequence[int] | None = None,
        scale_factor: float | Sequence[float] | None = None,
        mode: str = "nearest",
        align_corners: bool | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if (size is None) == (scale_factor is None):
            raise ValueError(f"Upsample: size={size} and scale_factor={scale_factor}\n  fix: give exactly one of them")
        self.size = size
        self.scale_factor = scale_factor
        self.mode = mode
        self.align_corners = align_corners

    def forward(self, inputs: Tensor) -> Tensor:
        """Returns ``inputs`` (N, C, ...) resized, of the same dtype.

        Parameters
        ----------
        inputs : Tensor
            (N, C, ...), with as many spatial axes as the mode has.

        Returns
        -------
        Tensor
            (N, C, ...), with the new extents.

        Raises
        ------
        ValueError
            For another number of axes, or an unknown mode.
        """
        return F.vision.interpolate(inputs, self.size, self.scale_factor, self.mode, self.align_corners)
