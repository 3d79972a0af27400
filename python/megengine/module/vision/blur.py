"""Filters: blur, sharpening, embossing, dilation."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import functional as F
from ...tensor import Tensor
from ..module import Module
from ._images import BORDER_MODES, Stream, as_float, check_border, draw_range, like, pad_image

__all__ = ["ActiveBlur", "Dilation", "Emboss", "GaussianBlur", "Sharpen"]


def _filter(inp: Tensor, kernel: Tensor | _Constant, mode: str) -> Tensor:
    """Correlation of (N, C, H, W) with one kernel (kh, kw), or with one an image (N, kh, kw)."""
    n, c, height, width = inp._tuple_shape
    kh, kw = kernel._tuple_shape[-2:]
    rows, cols = ((kh - 1) // 2, kh // 2), ((kw - 1) // 2, kw // 2)
    padded = pad_image(inp, rows, cols, mode)
    total: Any = None  # a Tensor after the first element
    for i in range(kh):
        for j in range(kw):
            factor = kernel[..., i, j].reshape(-1, 1, 1, 1)
            part = padded[:, :, i : i + height, j : j + width] * factor
            total = part if total is None else total + part
    return total


class ActiveBlur(Module):
    """Filters every image with a kernel of its own; base of `Emboss` and `Sharpen`.

    Subclasses define ``get_kernel``. Images are (N, C, H, W), float or uint8; pixels beyond the
    border are mirrored, uint8 results are rounded and clipped to [0, 255].

    Parameters
    ----------
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.

    Examples
    --------
    >>> import megengine as mge, megengine.functional as F, megengine.module as M
    >>> class Mean(M.ActiveBlur):
    ...     def get_kernel(self, inp, c):
    ...         return F.full((inp.shape[0], 1, 2), 0.5)
    >>> Mean()(mge.Tensor([[[[0.0, 2.0, 6.0]]]])).tolist()
    [[[[1.0, 4.0, 4.0]]]]
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)

    def forward(self, inp: Tensor) -> Tensor:
        """Returns the images ``inp`` (N, C, H, W) filtered, same shape and dtype.

        Parameters
        ----------
        inp : Tensor
            Tensor of shape (N, C, H, W).

        Returns
        -------
        Tensor
            Filtered, of the same shape and dtype.
        """
        image = as_float(inp)
        return like(_filter(image, self.get_kernel(image, inp._tuple_shape[1]), "reflect_101"), inp)

    def get_kernel(self, inp: Tensor, c: int) -> Tensor:
        """Returns kernels (N, kh, kw), or one (kh, kw), for images ``inp`` of c channels.

        Parameters
        ----------
        inp : Tensor
            (N, C, H, W), float or uint8.
        c : int
            Number of channels of ``inp``.

        Returns
        -------
        Tensor
            (N, kh, kw), or one (kh, kw), float32.

        Raises
        ------
        TypeError
            Unless a subclass defines it.
        """
        raise TypeError(f"{type(self).__name__} does not define get_kernel(inp, c)")


class _Blend(ActiveBlur):
    """Computes (1 - alpha) * image + alpha * filtered; alpha: a number, or (low, high) to draw from
    for every image.
    """

    def __init__(self, alpha: float | tuple[float, float], seed: int | None) -> None:
        super().__init__()
        self.alpha = alpha
        self.rng_func = Stream(seed)
        self.seed = seed
        self.matrix_nochange = np.array([[0, 0, 0], [0, 1, 0], [0, 0, 0]], np.float32)

    def _blend(self, n: int, effect: Tensor) -> Tensor:
        alpha = draw_range(self.rng_func, self.alpha, (n, 1, 1))
        return (1.0 - alpha) * self.matrix_nochange + alpha * effect


class Emboss(_Blend):
    """Lights images from one side: shadows and highlights along the diagonal.

    Parameters
    ----------
    alpha : float or (float, float)
        Share of the embossed image in the result, from 0 (none of it) to 1: a number, or (low,
        high) to draw from for every image.
    strength : float or (float, float)
        Strength of the effect: a number, or (low, high) to draw from for every image.
    seed : int or None
        Seed of these draws, at least 0; None takes a random one.

    Notes
    -----
    Images are (N, C, H, W), float or uint8.

    Examples
    --------
    >>> import megengine as mge, megengine.module as M
    >>> flat = mge.functional.full((1, 1, 4, 4), 3.0)
    >>> bool((M.Emboss(alpha=0.0, strength=1.0)(flat) == flat).numpy().all())
    True
    """

    def __init__(
        self,
        alpha: float | tuple[float, float],
        strength: float | tuple[float, float],
        seed: int | None = None,
    ) -> None:
        super().__init__(alpha, seed)
        self.strength = strength
        self.matrix_effect = np.array([[-1, -1, 0], [-1, 0, 1], [0, 1, 1]], np.float32)

    def get_kernel(self, inp: Tensor, c: int) -> Tensor:
        """Returns kernels (N, 3, 3) for the images ``inp``.

        Parameters
        ----------
        inp : Tensor
            (N, C, H, W), float or uint8.
        c : int
            Number of channels of ``inp``.

        Returns
        -------
        Tensor
            (N, 3, 3), float32.
        """
        n = inp._tuple_shape[0]
        strength = draw_range(self.rng_func, self.strength, (n, 1, 1))
        # Any: NumPy's types know nothing of an array that stands on the left of a Tensor.
        base: Any = np.array([[-1, 0, 0], [0, 1, 0], [0, 0, 1]], np.float32)
        return self._blend(n, base + strength * self.matrix_effect)


class Sharpen(_Blend):
    """Emphasizes edges: each pixel weighs 8 + lightness, its eight neighbours -1 each.

    Parameters
    ----------
    alpha : float or (float, float)
        Share of the sharpened image in the result, from 0 (none of it) to 1: a number, or (low,
        high) to draw from for every image.
    lightness : float or (float, float)
        Weight of the pixel itself beyond that of its neighbours; 1 keeps flat areas. It is a
        number, or (low, high) to draw from for every image.
    seed : int or None
        Seed of these draws, at least 0; None takes a random one.

    Notes
    -----
    Images are (N, C, H, W), float or uint8.

    Examples
    --------
    >>> import megengine as mge, megengine.module as M
    >>> step = mge.Tensor([[[[0.0, 0.0, 1.0, 1.0]] * 4]])
    >>> M.Sharpen(alpha=1.0, lightness=1.0)(step)[0, 0, 1].tolist()
    [0.0, -3.0, 4.0, 1.0]
    """

    def __init__(
        self,
        alpha: float | tuple[float, float],
        lightness: float | tuple[float, float],
        seed: int | None = None,
    ) -> None:
        super().__init__(alpha, seed)
        self.lightness = lightness
        self.matrix_effect = np.array([[-1, -1, -1], [-1, 8, -1], [-1, -1, -1]], np.float32)

    def get_kernel(self, inp: Tensor, c: int) -> Tensor:
        """Returns kernels (N, 3, 3) for the images ``inp``.

        Parameters
        ----------
        inp : Tensor
            (N, C, H, W), float or uint8.
        c : int
            Number of channels of ``inp``.

        Returns
        -------
        Tensor
            (N, 3, 3), float32.
        """
        n = inp._tuple_shape[0]
        lightness = draw_range(self.rng_func, self.lightness, (n, 1, 1))
        return self._blend(n, lightness * self.matrix_nochange + self.matrix_effect)


def _gaussian(size: int, sigma: float) -> np.ndarray:
    """Weights of a window of ``size`` samples that sum to 1; sigma 0: 0.3 * ((size - 1) / 2 - 1) + 0.8."""
    if sigma <= 0:
        sigma = 0.3 * ((size - 1) * 0.5 - 1) + 0.8
    distance = np.arange(size) - (size - 1) / 2
    weights = np.exp(-0.5 * (distance / sigma) ** 2)
    return weights / weights.sum()


class GaussianBlur(Module):
    """Smooths images (N, C, H, W) with a Gaussian window.

    Parameters
    ----------
    kernel_size : int or (int, int)
        An odd int, or (height, width), in pixels.
    sigma_x, sigma_y : float
        Standard deviations along width and height, in pixels. 0 takes 0.3 * ((kernel_size - 1) / 2
        - 1) + 0.8, for sigma_y that of sigma_x if given.
    border_mode : str
        What lies beyond the border: REPLICATE, REFLECT, REFLECT_101 (mirrored with, and without,
        the border's pixel), WRAP, CONSTANT (0), TRANSPARENT or ISOLATED (as CONSTANT).

    Raises
    ------
    ValueError
        For an even kernel_size or another border_mode.

    Notes
    -----
    Weights sum to 1.

    Examples
    --------
    >>> import megengine as mge, megengine.module as M
    >>> flat = mge.functional.full((1, 1, 4, 4), 3.0)
    >>> M.GaussianBlur(3)(flat)[0, 0, 0].numpy().round(3).tolist()
    [3.0, 3.0, 3.0, 3.0]
    """

    def __init__(
        self,
        kernel_size: int | tuple[int, int],
        sigma_x: float = 0,
        sigma_y: float = 0,
        border_mode: str = "REPLICATE",
    ) -> None:
        super().__init__()
        self.kernel_size = (
            (kernel_size, kernel_size) if isinstance(kernel_size, int) else tuple(kernel_size)
        )
        if any(size < 1 or size % 2 == 0 for size in self.kernel_size):
            raise ValueError(f"GaussianBlur: kernel_size must be odd, got {kernel_size}")
        self.sigma_x = sigma_x
        self.sigma_y = sigma_y
        self.border_mode = check_border(border_mode).upper()

    def forward(self, inp: Tensor) -> Tensor:
        """Returns the images ``inp`` (N, C, H, W), float or uint8, smoothed, in their dtype.

        Parameters
        ----------
        inp : Tensor
            (N, C, H, W), float or uint8.

        Returns
        -------
        Tensor
            Smoothed, of the same shape and dtype.
        """
        height, width = self.kernel_size
        column = _gaussian(height, self.sigma_y or self.sigma_x).astype(np.float32)
        row = _gaussian(width, self.sigma_x).astype(np.float32)
        mode = self.border_mode.lower()
        blurred = _filter(as_float(inp), _Constant(column[:, None]), mode)
        return like(_filter(blurred, _Constant(row[None, :]), mode), inp)


class _Constant:
    """Holds a kernel of plain numbers, which a trace takes as constants."""

    def __init__(self, values: np.ndarray) -> None:
        self.values = values
        self._tuple_shape = values.shape

    def __getitem__(self, index: Any) -> _Constant:
        return _Constant(self.values[index])

    def reshape(self, *shape: int) -> np.ndarray:
        return self.values.reshape(*shape)


class Dilation(Module):
    """Grows bright areas: each pixel becomes the maximum over a neighbourhood.

    Parameters
    ----------
    iterations : int
        Number of times that the images are dilated.
    border_type : str
        What lies beyond the border: BORDER_CONSTANT, or another name of `BorderModes`.
    border_value : float
        Value of pixels beyond the border for BORDER_CONSTANT.

    Raises
    ------
    ValueError
        For another border_type.

    Examples
    --------
    >>> import numpy as np
    >>> import megengine as mge, megengine.module as M
    >>> M.Dilation()(mge.Tensor([[[[0.0, 0.0, 1.0, 0.0]]]]), np.ones((1, 3))).tolist()
    [[[[0.0, 1.0, 1.0, 1.0]]]]
    """

    BorderModes = tuple(f"BORDER_{name}" for name in BORDER_MODES)

    def __init__(
        self,
        iterations: int = 1,
        border_type: str = "BORDER_CONSTANT",
        border_value: float = 0.0,
    ) -> None:
        super().__init__()
        self.iterations = iterations
        self.border_type = check_border(border_type)
        self.border_value = border_value

    def forward(self, inp: Tensor, kernel: Tensor | np.ndarray) -> Tensor:
        """Returns the images ``inp`` (N, C, H, W), float or uint8, dilated; same shape and dtype.

        Parameters
        ----------
        inp : Tensor
            (N, C, H, W), float or uint8.
        kernel : Tensor or numpy.ndarray
            (kh, kw), anchored at its centre; the neighbourhood is where it is not 0.

        Returns
        -------
        Tensor
            The result, of the same shape and dtype.

        Raises
        ------
        ValueError
            For a kernel of another rank, or all zeros.
        """
        mask = kernel.numpy() if isinstance(kernel, Tensor) else np.asarray(kernel)
        if mask.ndim != 2 or not mask.any():
            raise ValueError(
                f"Dilation: mask must be a kernel (kh, kw) with an element above 0, got {mask}"
            )
        kh, kw = mask.shape
        height, width = inp._tuple_shape[2:]
        rows, cols = (kh // 2, (kh - 1) // 2), (kw // 2, (kw - 1) // 2)
        image = as_float(inp)
        for _ in range(self.iterations):
            padded = pad_image(image, rows, cols, self.border_type, self.border_value)
            reached: Any = None  # a Tensor after the first element
            for i, j in np.argwhere(mask != 0).tolist():
                shifted = padded[:, :, i : i + height, j : j + width]
                reached = shifted if reached is None else F.maximum(reached, shifted)
            image = reached
        return like(image, inp)
