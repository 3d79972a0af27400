"""Normalization of each sample for itself.

Sources: Ba et al. 2016, "Layer Normalization"; Wu & He 2018, "Group Normalization"; Ulyanov et al. 2016,
"Instance Normalization". All: y = (x - mean) / sqrt(var + eps) * weight + bias, with the biased variance.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import functional as F
from ..tensor import Parameter, Tensor
from . import init
from .module import Module

__all__ = ["GeneralNorm", "GroupNorm", "InstanceNorm", "LayerNorm", "RMSNorm"]


class _Norm(Module):
    """Base with a weight (ones at first) and a bias (zeros) of one shape; both are None with
    affine=False.
    """

    _flat_state = True

    def _make_affine(self, affine: bool, shape: tuple[int, ...]) -> None:
        self.affine = affine
        self.weight = Parameter(np.ones(shape, np.float32)) if affine else None
        self.bias = Parameter(np.zeros(shape, np.float32)) if affine else None

    def reset_parameters(self) -> None:
        """Sets the scale to 1 and the shift to 0."""
        if self.weight is not None and self.bias is not None:
            init.ones_(self.weight)
            init.zeros_(self.bias)


class GroupNorm(_Norm):
    """Normalizes each sample of (N, C, ...) over groups of channels and all following axes.

    Parameters
    ----------
    num_groups : int
        Number of groups, which must divide num_channels.
    num_channels : int
        The number of channels, C.
    eps : float
        Added to the biased variance.
    affine : bool
        Whether there are a weight (ones at first) and a bias (zeros) per channel, (C,).
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.

    Raises
    ------
    ValueError
        Unless num_groups divides num_channels.

    References
    ----------
    Wu & He 2018, "Group Normalization".

    Examples
    --------
    >>> import megengine as mge, megengine.module as M
    >>> norm = M.GroupNorm(num_groups=2, num_channels=4, eps=0.0)
    >>> norm(mge.Tensor([[1.0, 3.0, 10.0, 30.0]])).tolist()
    [[-1.0, 1.0, -1.0, 1.0]]
    """

    _repr_facts = "groups={0.num_groups}, channels={0.num_channels}, eps={0.eps}, affine={0.affine}"

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if num_groups < 1 or num_channels % num_groups:
            raise ValueError(
                f"GroupNorm: {num_channels} channels cannot be split into {num_groups} equal groups\n"
                "  fix: choose num_groups among the divisors of num_channels"
            )
        self.num_groups = num_groups
        self.num_channels = num_channels
        self.eps = eps
        self._make_affine(affine, (num_channels,))

    def forward(self, x: Tensor) -> Tensor:
        """Returns ``x`` (N, C, ...) normalized, of the same shape.

        Parameters
        ----------
        x : Tensor
            Tensor of shape (N, C, ...).

        Returns
        -------
        Tensor
            The result, of the same shape.
        """
        return F.nn.group_norm(x, self.num_groups, self.affine, self.weight, self.bias, self.eps)


class InstanceNorm(_Norm):
    """Normalizes every channel of every sample of (N, C, ...) over its own pixels.

    Parameters
    ----------
    num_channels : int
        The number of channels, C.
    eps : float
        Added to the biased variance.
    affine : bool
        Whether there are a weight (ones at first) and a bias (zeros) per channel, (C,).
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.

    References
    ----------
    Ulyanov et al. 2016, "Instance Normalization: The Missing Ingredient for Fast Stylization".

    Examples
    --------
    >>> import megengine as mge, megengine.module as M
    >>> norm = M.InstanceNorm(num_channels=2, eps=0.0)
    >>> norm(mge.Tensor([[[[1.0, 3.0]], [[10.0, 30.0]]]])).tolist()
    [[[[-1.0, 1.0]], [[-1.0, 1.0]]]]
    """

    _repr_facts = "channels={0.num_channels}, eps={0.eps}, affine={0.affine}"

    def __init__(
        self, num_channels: int, eps: float = 1e-05, affine: bool = True, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.num_channels = num_channels
        self.eps = eps
        self._make_affine(affine, (num_channels,))

    def forward(self, x: Tensor) -> Tensor:
        """Returns ``x`` (N, C, ...) normalized, of the same shape.

        Parameters
        ----------
        x : Tensor
            Tensor of shape (N, C, ...).

        Returns
        -------
        Tensor
            The result, of the same shape.
        """
        return F.nn.instance_norm(x, self.affine, self.weight, self.bias, self.eps)


class LayerNorm(_Norm):
    """Normalizes each sample over its last axes.

    Parameters
    ----------
    normalized_shape : int or sequence of int
        Extents of the last axes, which are normalized together; an int is the last axis alone.
    eps : float
        Added to the biased variance.
    affine : bool
        Whether there are a weight (ones at first) and a bias (zeros) of shape normalized_shape.
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.

    See Also
    --------
    RMSNorm : Leaves out the mean and the bias.
    GroupNorm : Normalizes groups of channels.
    functional.layer_norm : The function.

    References
    ----------
    Ba et al. 2016, "Layer Normalization".

    Examples
    --------
    >>> import megengine as mge, megengine.module as M
    >>> M.LayerNorm(2, eps=0.0)(mge.Tensor([[1.0, 3.0], [10.0, 30.0]])).tolist()
    [[-1.0, 1.0], [-1.0, 1.0]]
    """

    _repr_facts = "normalized_shape={0.normalized_shape}, eps={0.eps}, affine={0.affine}"

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-05,
        affine: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.normalized_shape = _as_shape(normalized_shape)
        self.eps = eps
        self._make_affine(affine, self.normalized_shape)

    def forward(self, x: Tensor) -> Tensor:
        """Returns ``x`` (..., *normalized_shape) normalized, of the same shape.

        Parameters
        ----------
        x : Tensor
            Tensor of shape (..., *normalized_shape).

        Returns
        -------
        Tensor
            The result, of the same shape.
        """
        return F.nn.layer_norm(
            x, self.normalized_shape, self.affine, self.weight, self.bias, self.eps
        )


class GeneralNorm(_Norm):
    """Normalizes over any axes, which need not be the last ones.

    Parameters
    ----------
    normalized_shape : int, sequence of int or None
        Extents of the normalized axes; None only with affine=False.
    normalized_axis : int or sequence of int
        The axes, as many as there are extents.
    eps : float
        Added to the biased variance.
    affine : bool
        Whether there are a weight (ones at first) and a bias (zeros) of shape normalized_shape.
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.

    Raises
    ------
    AssertionError
        For other extents than axes, and for None with affine.

    Examples
    --------
    >>> import megengine as mge, megengine.module as M
    >>> norm = M.GeneralNorm(2, normalized_axis=0, eps=0.0)
    >>> norm(mge.Tensor([[1.0, 10.0], [3.0, 30.0]])).tolist()
    [[-1.0, -1.0], [1.0, 1.0]]
    """

    _repr_facts = (
        "normalized_shape={0.normalized_shape}, normalized_axis={0.normalized_axis}, eps={0.eps}, "
        "affine={0.affine}"
    )

    _flat_state = False

    def __init__(
        self,
        normalized_shape: int | Sequence[int] | None = None,
        normalized_axis: int | Sequence[int] = 0,
        eps: float = 1e-5,
        affine: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if affine and normalized_shape is None:
            raise AssertionError(
                "GeneralNorm: affine=True needs normalized_shape, the shape of weight"
            )
        self.eps = eps
        shape = () if normalized_shape is None else _as_shape(normalized_shape)
        self.normalized_shape = None if normalized_shape is None else shape
        self.normalized_axis = _as_shape(normalized_axis)
        if affine and len(shape) != len(self.normalized_axis):
            raise AssertionError(
                f"GeneralNorm: {len(self.normalized_axis)} axes {self.normalized_axis} but "
                f"{len(shape)} sizes {shape}"
            )
        self._make_affine(affine, shape)

    def forward(self, x: Tensor) -> Tensor:
        """Returns ``x`` normalized, of the same shape.

        Parameters
        ----------
        x : Tensor
            Any shape that has normalized_shape on its axes.

        Returns
        -------
        Tensor
            The result, of the same shape.

        Raises
        ------
        ValueError
            For another shape.
        """
        y = F.nn.general_norm(x, self.normalized_axis, self.affine, self.weight, self.bias, self.eps)
        found = tuple(x._tuple_shape[axis] for axis in self.normalized_axis)
        if self.normalized_shape is not None and found != self.normalized_shape:
            raise ValueError(
                f"GeneralNorm: inp has shape {list(x._tuple_shape)}, which is {list(found)} and not {list(self.normalized_shape)} "
                f"on normalized_axis {list(self.normalized_axis)}"
            )
        return y


class RMSNorm(Module):
    """Divides each sample by the root of its mean square over the last axes.

    Parameters
    ----------
    normalized_shape : int or sequence of int
        Extents of the last axes, which are normalized together; an int is the last axis alone.
    eps : float or None
        Added to the mean square; None is float32's machine epsilon.
    affine : bool
        Whether there is a weight (ones at first) of shape normalized_shape.
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.

    References
    ----------
    Zhang & Sennrich 2019, "Root Mean Square Layer Normalization".

    Examples
    --------
    >>> import megengine as mge, megengine.module as M
    >>> M.RMSNorm(1)(mge.Tensor([[-3.0], [40.0]])).numpy().round(3).tolist()
    [[-1.0], [1.0]]
    """

    _repr_facts = "normalized_shape={0.normalized_shape}, eps={0.eps}, affine={0.affine}"

    def __init__(
        self, normalized_shape: int | Sequence[int], eps: float | None = None, affine: bool = True, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.normalized_shape = _as_shape(normalized_shape)
        self.eps = eps
        self.affine = affine
        self.weight = Parameter(np.ones(self.normalized_shape, np.float32)) if affine else None

    def reset_parameters(self) -> None:
        """Sets the scale to 1."""
        if self.weight is not None:
            init.ones_(self.weight)

    def forward(self, x: Tensor) -> Tensor:
        """Returns ``x`` (..., *normalized_shape) normalized, of the same shape.

        Parameters
        ----------
        x : Tensor
            Tensor of shape (..., *normalized_shape).

        Returns
        -------
        Tensor
            The result, of the same shape and dtype.

        Raises
        ------
        ValueError
            For a shape that does not end in normalized_shape.
        """
        return F.rms_norm(x, self.normalized_shape, self.weight, self.eps)


def _as_shape(sizes: int | Sequence[int]) -> tuple[int, ...]:
    given: Any = sizes
    return (int(given),) if np.ndim(given) == 0 else tuple(int(size) for size in given)
