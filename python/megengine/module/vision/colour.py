"""Noise and contrast."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ... import functional as F
from ...tensor import Tensor
from ..module import Module
from ._images import Stream, as_float, draw_range, like

__all__ = [
    "AdditiveElemwise",
    "AdditiveGaussianNoise",
    "AdditiveLaplaceNoise",
    "AdditivePoissonNoise",
    "LinearContrast",
]


class AdditiveElemwise(Module):
    """Adds noise to images (N, C, H, W); base of the layers that add one kind of it.

    Subclasses define ``sample``.

    Parameters
    ----------
    per_channel : bool
        Whether every channel has its own noise; False gives the channels of a pixel the same noise.
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.

    Notes
    -----
    uint8 results are rounded and clipped to [0, 255].

    Examples
    --------
    >>> import megengine as mge, megengine.module as M
    >>> class Brighten(M.AdditiveElemwise):
    ...     def sample(self, size):
    ...         return mge.functional.full(size, 200.0)
    >>> Brighten()(mge.Tensor([[[[10, 100]]]], dtype="uint8")).tolist()
    [[[[210, 255]]]]
    """

    def __init__(self, per_channel: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._per_channel = per_channel

    def forward(self, inp: Tensor) -> Tensor:
        """Returns the images ``inp`` (N, C, H, W), float or uint8, with noise, in their dtype.

        Parameters
        ----------
        inp : Tensor
            (N, C, H, W), float or uint8.

        Returns
        -------
        Tensor
            The images with noise, of the same shape and dtype.
        """
        size = inp._tuple_shape
        if not self._per_channel:
            size = (size[0], 1, *size[2:])
        return like(as_float(inp) + self.sample(size), inp)

    def sample(self, size: tuple[int, ...]) -> Tensor:
        """Returns noise of shape ``size``, float32.

        Parameters
        ----------
        size : tuple of int
            Shape of the noise, (N, C, H, W).

        Returns
        -------
        Tensor
            The noise, of shape ``size``, float32.

        Raises
        ------
        TypeError
            Unless a subclass defines it.
        """
        raise TypeError(f"{type(self).__name__} does not define sample(size)")

    @property
    def per_channel(self) -> bool:
        """Whether each channel has noise of its own."""
        return self._per_channel

    @per_channel.setter
    def per_channel(self, per_channel: bool) -> None:
        self._per_channel = per_channel


class _SeededNoise(AdditiveElemwise):
    """Noise from a random generator of its own, which setting ``seed`` starts anew."""

    def __init__(self, per_channel: bool, seed: int | None) -> None:
        super().__init__(per_channel)
        self.seed = seed

    @property
    def seed(self) -> int | None:
        """Seed of the stream."""
        return self._seed

    @seed.setter
    def seed(self, seed: int | None) -> None:
        self._seed = seed
        self.rng_func = Stream(seed)


class AdditiveLaplaceNoise(_SeededNoise):
    """Adds Laplace noise to images (N, C, H, W).

    Parameters
    ----------
    mean, std : float
        Mean and standard deviation of the noise, in units of the pixels; its scale is std /
        sqrt(2).
    per_channel : bool
        Whether every channel has its own noise; False gives the channels of a pixel the same noise.
    seed : int or None
        Seed of the draws, at least 0; None takes a random one.

    Examples
    --------
    >>> import megengine as mge, megengine.module as M
    >>> grey = mge.functional.full((1, 3, 4, 4), 128.0)
    >>> noisy = M.AdditiveLaplaceNoise(std=5.0, seed=1)(grey)
    >>> bool((noisy[:, 0] == noisy[:, 2]).numpy().all()), bool((noisy == grey).numpy().all())
    (True, False)
    """

    def __init__(
        self,
        mean: float = 0.0,
        std: float = 1.0,
        per_channel: bool = False,
        seed: int | None = None,
    ) -> None:
        super().__init__(per_channel, seed)
        self.mean = mean
        self.std = std
        self.finfo = np.finfo(np.float32)

    def sample(self, size: tuple[int, ...]) -> Tensor:
        """Returns Laplace noise of shape ``size``, float32.

        Parameters
        ----------
        size : tuple of int
            Shape of the noise, (N, C, H, W).

        Returns
        -------
        Tensor
            The noise, of shape ``size``, float32.
        """
        # The inverse of the distribution function at u + 1/2; eps keeps the logarithm finite.
        u = self.rng_func.uniform(-0.5, 0.5, size=size)
        tail = F.maximum(1.0 - 2.0 * F.abs(u), float(self.finfo.eps))
        return self.mean - (self.std / math.sqrt(2.0)) * F.sign(u) * F.log(tail)


class AdditivePoissonNoise(_SeededNoise):
    """Adds Poisson noise to images (N, C, H, W): whole numbers of mean and variance ``lam``.

    Parameters
    ----------
    lam : float
        The rate, above 0.
    per_channel : bool
        Whether every channel has its own noise; False gives the channels of a pixel the same noise.
    seed : int or None
        Seed of the draws, at least 0; None takes a random one.

    Examples
    --------
    >>> import megengine as mge, megengine.module as M
    >>> noisy = M.AdditivePoissonNoise(lam=4.0, seed=1)(mge.functional.zeros((1, 3, 4, 4)))
    >>> bool((noisy.numpy() >= 0).all()), bool((noisy.numpy() % 1 == 0).all())
    (True, True)
    """

    def __init__(
        self, lam: float = 1.0, per_channel: bool = False, seed: int | None = None
    ) -> None:
        super().__init__(per_channel, seed)
        self.lam = lam

    def sample(self, size: tuple[int, ...]) -> Tensor:
        """Returns Poisson noise of shape ``size``, float32.

        Parameters
        ----------
        size : tuple of int
            Shape of the noise, (N, C, H, W).

        Returns
        -------
        Tensor
            The noise, of shape ``size``, float32.
        """
        return self.rng_func.poisson(F.full(size, float(self.lam)))


class AdditiveGaussianNoise(_SeededNoise):
    """Adds normal noise to images (N, C, H, W).

    Parameters
    ----------
    mean, std : float
        Mean and standard deviation of the noise, in units of the pixels.
    per_channel : bool
        Whether every channel has its own noise; False gives the channels of a pixel the same noise.
    seed : int or None
        Seed of the draws, at least 0; None takes a random one.

    Examples
    --------
    >>> import megengine as mge, megengine.module as M
    >>> grey = mge.functional.full((1, 3, 4, 4), 128.0)
    >>> one, same = (M.AdditiveGaussianNoise(std=5.0, seed=1)(grey) for _ in range(2))
    >>> bool((one == same).numpy().all())
    True
    """

    def __init__(
        self,
        mean: float = 0.0,
        std: float = 1.0,
        per_channel: bool = False,
        seed: int | None = None,
    ) -> None:
        super().__init__(per_channel, seed)
        self.mean = mean
        self.std = std

    def sample(self, size: tuple[int, ...]) -> Tensor:
        """Returns normal noise of shape ``size``, float32.

        Parameters
        ----------
        size : tuple of int
            Shape of the noise, (N, C, H, W).

        Returns
        -------
        Tensor
            The noise, of shape ``size``, float32.
        """
        return self.rng_func.normal(self.mean, self.std, size=size)


class LinearContrast(Module):
    """Scales the distance of pixels from a middle value: ``centre + alpha * (x - centre)``.

    centre is 127 for uint8 images and 0 for float ones.

    Parameters
    ----------
    alpha : float or (float, float)
        Above 1 for more contrast: a factor, or (low, high) to draw from for every image.
    per_channel : bool
        Draw for every channel.
    seed : int or None
        Seed of the draws, at least 0; None takes a random one.

    Examples
    --------
    >>> import megengine as mge, megengine.module as M
    >>> M.LinearContrast(2.0)(mge.Tensor([[[[100, 127, 200]]]], dtype="uint8")).tolist()
    [[[[73, 127, 255]]]]
    """

    def __init__(
        self,
        alpha: float | tuple[float, float],
        per_channel: bool = False,
        seed: int | None = None,
    ) -> None:
        super().__init__()
        self.alpha = alpha
        self.seed = seed
        self.per_channel = per_channel
        self.rng_func = Stream(seed)

    def forward(self, inp: Tensor) -> Tensor:
        """Returns the images ``inp`` (N, C, H, W), float or uint8, same shape and dtype.

        Parameters
        ----------
        inp : Tensor
            (N, C, H, W), float or uint8.

        Returns
        -------
        Tensor
            The result, of the same shape and dtype.
        """
        n, c = inp._tuple_shape[:2]
        size = (n, c if self.per_channel else 1, 1, 1)
        alpha = draw_range(self.rng_func, self.alpha, size)
        centre = 127.0 if inp.dtype == np.uint8 else 0.0
        return like((as_float(inp) - centre) * alpha + centre, inp)
