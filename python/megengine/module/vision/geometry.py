"""Flips, turns, crops, resampling and drawing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ... import functional as F
from ... import random
from ...tensor import Tensor
from ..module import Module
from ._images import as_float, like

__all__ = [
    "CropAndPad",
    "FillPoly",
    "Flip",
    "RandomHorizontalFlip",
    "RandomVerticalFlip",
    "Remap",
    "Resize",
    "Rot90",
    "Rotate",
]


class CropAndPad(Module):
    """Cuts off, or adds, a share of every side, and resizes to the old extent.

    Parameters
    ----------
    mode : str
        Interpolation, "bilinear" or "nearest".
    align_corners : bool
        Whether the centres of the corner pixels map onto each other, instead of their outer edges.

    Raises
    ------
    ValueError
        For another mode.

    Examples
    --------
    >>> import megengine as mge, megengine.module as M
    >>> x = mge.Tensor([[[[1.0, 2.0, 3.0, 4.0]]]])
    >>> M.CropAndPad("nearest")(x, (0.0, 0.0, 0.0, -0.5)).tolist()  # without the left half
    [[[[3.0, 3.0, 4.0, 4.0]]]]
    """

    def __init__(self, mode: str = "bilinear", align_corners: bool = False) -> None:
        super().__init__()
        if mode not in ("bilinear", "nearest"):
            raise ValueError(f"CropAndPad: mode {mode!r} is neither 'bilinear' nor 'nearest'")
        self.mode = mode
        self.align_corners = align_corners

    def forward(
        self,
        inp: Tensor,
        percent: float | Sequence[float] | Tensor,
        pad_val: float | Tensor | None = None,
    ) -> Tensor:
        """Returns the images ``inp`` (N, C, H, W), float or uint8, same shape and dtype.

        Parameters
        ----------
        inp : Tensor
            (N, C, H, W), float or uint8.
        percent : float, sequence of float or Tensor
            Share of the height or width to add on a side, or, below 0, to cut off: a number for all
            sides, four (top, right, bottom, left), or a Tensor (N, 4).
        pad_val : float, Tensor or None
            Value of the added pixels: a number, or a Tensor (N,) or (N, C); None is 0.

        Returns
        -------
        Tensor
            Cropped and padded, of the same shape and dtype.

        Raises
        ------
        ValueError
            For a Tensor of another shape.
        """
        n, c, height, width = inp._tuple_shape
        top, right, bottom, left = self._sides(percent, n)
        scale_y, start_y = self._axis(top, bottom, height)
        scale_x, start_x = self._axis(left, right, width)
        y = scale_y * np.arange(height, dtype=np.float32)[None, :, None] + start_y
        x = scale_x * np.arange(width, dtype=np.float32)[None, None, :] + start_x
        shape = (n, height, width)
        grid = F.stack([F.broadcast_to(x, shape), F.broadcast_to(y, shape)], -1)
        how = "linear" if self.mode == "bilinear" else "nearest"
        out = F.vision.remap(as_float(inp), grid, "replicate", interp_mode=how)
        inside = F.logical_and(_within(x, width), _within(y, height))
        mask = F.expand_dims(F.broadcast_to(inside, shape), 1).astype("float32")
        fill = 0.0 if pad_val is None else pad_val
        if isinstance(fill, Tensor):
            fill = as_float(fill).reshape(n, -1, 1, 1)
        return like(out * mask + (1.0 - mask) * fill, inp)

    @staticmethod
    def _sides(percent: float | Sequence[float] | Tensor, n: int) -> list[Tensor]:
        if isinstance(percent, Tensor):
            if percent._tuple_shape != (n, 4):
                raise ValueError(
                    f"CropAndPad: percent must be ({n}, 4), got {percent._tuple_shape}"
                )
            return [percent[:, i].reshape(n, 1, 1) for i in range(4)]
        sides = np.broadcast_to(np.asarray(percent, np.float32), (4,))
        return [Tensor(np.full((n, 1, 1), side, np.float32)) for side in sides]

    def _axis(self, before: Tensor, after: Tensor, size: int) -> tuple[Tensor, Tensor]:
        """Returns scale and start of an axis: input position = scale * output position + start."""
        extent = size * (1.0 + before + after)
        if self.align_corners:
            return (extent - 1.0) / max(size - 1, 1), -before * float(size)
        scale = extent / float(size)
        return scale, 0.5 * scale - 0.5 - before * float(size)


def _within(position: Tensor, size: int) -> Tensor:
    return F.logical_and(position >= -0.5, position <= size - 0.5)


class Flip(Module):
    """Mirrors images (N, H, W, C) top to bottom (vertical) and left to right (horizontal).

    Parameters
    ----------
    vertical, horizontal : bool
        Whether to mirror top to bottom, and whether to mirror left to right.

    Notes
    -----
    The order of axes is channels last.

    Examples
    --------
    >>> import megengine as mge, megengine.module as M
    >>> x = mge.Tensor([[1.0, 2.0], [3.0, 4.0]]).reshape(1, 2, 2, 1)
    >>> M.Flip(vertical=False)(x).reshape(2, 2).tolist()
    [[2.0, 1.0], [4.0, 3.0]]
    """

    def __init__(self, vertical: bool = True, horizontal: bool = True) -> None:
        super().__init__()
        self.vertical = vertical
        self.horizontal = horizontal

    def forward(self, inp: Tensor) -> Tensor:
        """Returns the images ``inp`` (N, H, W, C) mirrored, same shape and dtype.

        Parameters
        ----------
        inp : Tensor
            Tensor of shape (N, H, W, C).

        Returns
        -------
        Tensor
            Mirrored, of the same shape and dtype.
        """
        return F.vision.flip(inp, self.vertical, self.horizontal)


class _RandomFlip(Module):
    """Mirrors every image (N, H, W, C) with probability ``prob``."""

    _vertical = False

    def __init__(self, prob: float = 0.5) -> None:
        super().__init__()
        self.prob = prob

    def forward(self, inp: Tensor) -> Tensor:
        """Returns the images ``inp`` (N, H, W, C), some of them mirrored, same shape and dtype."""
        chosen = random.uniform(0.0, 1.0, size=(inp._tuple_shape[0],)) < self.prob
        mask = F.broadcast_to(chosen.reshape(-1, 1, 1, 1), inp._tuple_shape)
        return F.where(mask, F.vision.flip(inp, self._vertical, not self._vertical), inp)


class RandomHorizontalFlip(_RandomFlip):
    """Mirrors every image (N, H, W, C) left to right with probability ``prob``."""


class RandomVerticalFlip(_RandomFlip):
    """Mirrors every image (N, H, W, C) top to bottom with probability ``prob``."""

    _vertical = True


class Resize(Module):
    """Resizes images.

    Parameters
    ----------
    size : int or (int, int)
        (height, width), or an int for the shorter edge, which keeps the aspect ratio.
    format : str
        "NCHW" or "NHWC", order of the axes.
    imode : str
        "linear", "cubic", or "nearest"; ValueError for any other when called.

    Examples
    --------
    >>> import megengine as mge, megengine.module as M
    >>> x = mge.functional.ones((1, 3, 10, 20))
    >>> M.Resize((4, 6))(x).shape, M.Resize(5)(x).shape
    ((1, 3, 4, 6), (1, 3, 5, 10))
    """

    def __init__(
        self, size: int | tuple[int, int], format: str = "NCHW", imode: str = "linear"
    ) -> None:
        super().__init__()
        self.size = size
        self.format = format
        self.imode = imode

    def forward(self, inp: Tensor) -> Tensor:
        """Returns the images ``inp`` resized, in their dtype.

        Parameters
        ----------
        inp : Tensor
            Images, with axes as ``format`` says, float or uint8.

        Returns
        -------
        Tensor
            The images with the new height and width, in the same dtype.
        """
        mode = {"linear": "bilinear", "cubic": "bicubic"}.get(self.imode, self.imode)
        return F.vision.resize(inp, self.size, self.format, mode)


class Rot90(Module):
    """Turns images (N, H, W, C) by 90 degrees.

    Parameters
    ----------
    clockwise : bool
        Whether to turn clockwise; False turns counter-clockwise.

    Notes
    -----
    The order of axes is channels last.

    Examples
    --------
    >>> import megengine as mge, megengine.module as M
    >>> x = mge.Tensor([[1.0, 2.0], [3.0, 4.0]]).reshape(1, 2, 2, 1)
    >>> M.Rot90()(x).reshape(2, 2).tolist()
    [[3.0, 1.0], [4.0, 2.0]]
    """

    def __init__(self, clockwise: bool = True) -> None:
        super().__init__()
        self.clockwise = clockwise

    def forward(self, inp: Tensor) -> Tensor:
        """Returns the images ``inp`` (N, H, W, C) turned, (N, W, H, C), same dtype.

        Parameters
        ----------
        inp : Tensor
            Tensor of shape (N, H, W, C).

        Returns
        -------
        Tensor
            (N, W, H, C), the same dtype.
        """
        return F.vision.rot90(inp, self.clockwise)


class Rotate(Module):
    """Turns images about their centre; the extents stay, and pixels from outside are 0.

    Parameters
    ----------
    angle : float
        Angle in degrees, counter-clockwise.
    format : str
        "NCHW" or "NHWC", order of the axes.
    interp_mode : str
        "bilinear", or another of `functional.vision.warp_perspective`.

    Examples
    --------
    >>> import megengine as mge, megengine.module as M
    >>> x = mge.Tensor([[1.0, 2.0], [3.0, 4.0]]).reshape(1, 1, 2, 2)
    >>> M.Rotate(90.0)(x).reshape(2, 2).numpy().round(3).tolist()
    [[2.0, 4.0], [1.0, 3.0]]
    """

    def __init__(
        self, angle: float = 0.0, format: str = "NCHW", interp_mode: str = "bilinear"
    ) -> None:
        super().__init__()
        self.angle = angle
        self.format = format
        self.interp_mode = interp_mode

    def forward(self, inp: Tensor) -> Tensor:
        """Returns the images ``inp`` turned, same shape and dtype.

        Parameters
        ----------
        inp : Tensor
            Images, with axes as ``format`` says, float or uint8.

        Returns
        -------
        Tensor
            The result, of the same shape and dtype.
        """
        return F.vision.rotate(inp, self.angle, self.format, self.interp_mode)


class Remap(Module):
    """Reads each output pixel from a place in the input that maps give, between pixels too.

    Parameters
    ----------
    name : str or None
        Name of the module in dumped graphs; None takes the name of its attribute.

    Examples
    --------
    >>> import megengine as mge, megengine.module as M
    >>> x = mge.Tensor([[[[0.0, 10.0, 20.0]]]])
    >>> columns, rows = mge.Tensor([[[0.5, 2.0]]]), mge.Tensor([[[0.0, 0.0]]])
    >>> M.Remap()(x, columns, rows).tolist()
    [[[[5.0, 20.0]]]]
    """

    def forward(
        self,
        inp: Tensor,
        map_1: Tensor,
        map_2: Tensor,
        interpolation: str = "linear",
        borderMode: str = "replicate",
        borderValue: float = 0.0,
    ) -> Tensor:
        """Reads the images at column map_1 and row map_2.

        Parameters
        ----------
        inp : Tensor
            Tensor of shape (N, C, H, W).
        map_1, map_2 : Tensor
            (N, OH, OW), columns and rows in pixels.
        interpolation : str
            "linear", or another mode of `functional.vision.remap`.
        borderMode : str
            What lies outside of the image: "replicate", or another mode of
            `functional.vision.remap`.
        borderValue : float
            Value outside of the image for "constant".

        Returns
        -------
        Tensor
            (N, C, OH, OW).
        """
        grid = F.stack([map_1, map_2], -1)
        return F.vision.remap(inp, grid, borderMode, borderValue, interpolation)


class FillPoly(Module):
    """Fills polygons with a colour: pixels inside, or within half a pixel of an edge.

    Where the outline crosses itself, the even-odd rule says what is inside.

    Parameters
    ----------
    name : str or None
        Name of the module in dumped graphs; None takes the name of its attribute.

    Examples
    --------
    >>> import megengine as mge, megengine.module as M
    >>> triangle = mge.Tensor([[0.0, 0.0], [3.0, 3.0], [0.0, 3.0]])
    >>> M.FillPoly()(mge.functional.zeros((1, 1, 4, 4)), triangle, 1.0)[0, 0].sum(1).tolist()
    [1.0, 2.0, 3.0, 4.0]
    """

    def forward(self, img: Tensor, pts: Tensor, color: float | Sequence[float] | Tensor) -> Tensor:
        """Returns a copy of the images with the polygons filled, same shape and dtype.

        Parameters
        ----------
        img : Tensor
            (N, C, H, W), float or uint8.
        pts : Tensor
            Corners (x, y) in pixels, (P, 2) for all images or (N, P, 2).
        color : float, sequence of float or Tensor
            A number, or one for each channel.

        Returns
        -------
        Tensor
            A copy, of the same shape and dtype.

        Raises
        ------
        ValueError
            For points of another shape.
        """
        n, c, height, width = img._tuple_shape
        points = pts if isinstance(pts, Tensor) else Tensor(np.asarray(pts, np.float32))
        points = as_float(points)
        if points.ndim == 2:
            points = F.expand_dims(points, 0)
        if points.ndim != 3 or points._tuple_shape[2] != 2 or points._tuple_shape[0] not in (1, n):
            raise ValueError(f"FillPoly: pts must be (P, 2) or ({n}, P, 2), got {pts._tuple_shape}")
        mask = F.expand_dims(_inside(points, height, width), 1)
        if not isinstance(color, Tensor):
            color = Tensor(np.asarray(color, np.float32))
        color = as_float(color).reshape(1, -1, 1, 1)
        filled = mask * color + (1.0 - mask) * as_float(img)
        return like(F.broadcast_to(filled, (n, c, height, width)), img)


def _inside(points: Tensor, height: int, width: int) -> Tensor:
    """Returns (n, height, width): 1.0 for the pixels of polygons (n, P, 2) and 0.0 for others."""
    n, count, _ = points._tuple_shape
    ahead = F.roll(points, -1, 1)
    x1, y1, x2, y2 = (
        p[:, :, axis].reshape(n, count, 1, 1) for p in (points, ahead) for axis in (0, 1)
    )
    # Any: NumPy's types know nothing of an array that stands on the left of a Tensor.
    y: Any = np.arange(height, dtype=np.float32)[None, None, :, None]
    x: Any = np.arange(width, dtype=np.float32)[None, None, None, :]
    dx, dy = x2 - x1, y2 - y1
    # Edges that cross the row of the pixel to its right.
    spans = F.not_equal(y1 > y, y2 > y)
    level = F.where(F.equal(dy, 0.0), F.ones_like(dy), dy)
    crossing = x1 + (y - y1) * dx / level
    crossed = F.logical_and(spans, crossing > x).astype("float32")
    odd = F.sum(crossed, 1) % 2.0
    # Distance to the nearest point of each edge.
    length = F.maximum(dx * dx + dy * dy, 1e-12)
    along = F.clip(((x - x1) * dx + (y - y1) * dy) / length, 0.0, 1.0)
    distance = (x1 + along * dx - x) ** 2 + (y1 + along * dy - y) ** 2
    near = (F.min(distance, 1) <= 0.25).astype("float32")
    return F.maximum(odd, near)
