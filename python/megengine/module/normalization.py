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

__all__ = ["GeneralNorm", "GroupNorm", "InstanceNorm", "LayerNorm"]


class _Norm(Module):
    """weight (ones at first) and bias (zeros) of one shape; both None with affine=False."""

    _flat_state = True

    def _make_affine(self, affine: bool, shape: tuple[int, ...]) -> None:
        self.affine = affine
        self.weight = Parameter(np.ones(shape, np.float32)) if affine else None
        self.bias = Parameter(np.zeros(shape, np.float32)) if affine else None

    def reset_parameters(self) -> None:
        """Scale to 1, shift to 0."""
        if self.weight is not None and self.bias is not None:
            init.ones_(self.weight)
            init.zeros_(self.bias)


class GroupNorm(_Norm):
    """Normalizes (N, C, ...) over each of ``num_groups`` groups of channels and all axes behind.

    weight, bias: (num_channels,). ValueError when the groups do not divide the channels.
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
                f"GroupNorm: {num_channels} channels cannot be cut into {num_groups} equal groups\n"
                "  fix: choose num_groups among the divisors of num_channels"
            )
        self.num_groups = num_groups
        self.num_channels = num_channels
        self.eps = eps
        self._make_affine(affine, (num_channels,))

    def forward(self, x: Tensor) -> Tensor:
        return F.nn.group_norm(x, self.num_groups, self.affine, self.weight, self.bias, self.eps)


class InstanceNorm(_Norm):
    """Normalizes every channel of every sample of (N, C, ...). weight, bias: (num_channels,)."""

    _repr_facts = "channels={0.num_channels}, eps={0.eps}, affine={0.affine}"

    def __init__(
        self, num_channels: int, eps: float = 1e-05, affine: bool = True, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.num_channels = num_channels
        self.eps = eps
        self._make_affine(affine, (num_channels,))

    def forward(self, x: Tensor) -> Tensor:
        return F.nn.instance_norm(x, self.affine, self.weight, self.bias, self.eps)


class LayerNorm(_Norm):
    """Normalizes over the last axes, whose sizes are ``normalized_shape`` (an int for the last one).

    weight, bias: of shape normalized_shape.
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
        return F.nn.layer_norm(
            x, self.normalized_shape, self.affine, self.weight, self.bias, self.eps
        )


class GeneralNorm(_Norm):
    """Normalizes over any axes: ``normalized_axis`` (int or several), of sizes ``normalized_shape``.

    weight, bias: of shape normalized_shape, which affine=True therefore needs (AssertionError).
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
        return F.nn.general_norm(
            x, self.normalized_axis, self.affine, self.weight, self.bias, self.eps
        )


def _as_shape(sizes: int | Sequence[int]) -> tuple[int, ...]:
    given: Any = sizes
    return (int(given),) if np.ndim(given) == 0 else tuple(int(size) for size in given)
