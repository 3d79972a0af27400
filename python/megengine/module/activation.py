"""Activation layers."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import functional as F
from ..tensor import Parameter, Tensor
from .module import Module

__all__ = ["GELU", "LeakyReLU", "PReLU", "ReLU", "Sigmoid", "SiLU", "Softmax"]


class Softmax(Module):
    """exp(x) / sum(exp(x)) along ``axis``; None: axis 0 of 0-, 1- and 3-D inputs, else axis 1."""

    _repr_facts = "axis={0.axis}"

    def __init__(self, axis: int | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.axis = axis

    def forward(self, inputs: Tensor) -> Tensor:
        return F.softmax(inputs, self.axis)


class Sigmoid(Module):
    """1 / (1 + exp(-x)), elementwise."""

    def forward(self, inputs: Tensor) -> Tensor:
        return F.nn.sigmoid(inputs)


class SiLU(Module):
    """x * sigmoid(x), elementwise."""

    def forward(self, inputs: Tensor) -> Tensor:
        return F.silu(inputs)


class GELU(Module):
    """x * P(N(0, 1) <= x), the exact form, elementwise."""

    def forward(self, inputs: Tensor) -> Tensor:
        return F.gelu(inputs)


class ReLU(Module):
    """max(x, 0), elementwise."""

    def forward(self, x: Tensor) -> Tensor:
        return F.nn.relu(x)


class PReLU(Module):
    """max(x, 0) + weight * min(x, 0) with a learnt slope.

    num_parameters: 1 for one slope of shape (1,), or the number of channels C for one a channel, of shape
        (1, C, 1, 1). init: initial slope. Input: any shape; (N, C, ...) with one slope a channel.
    """

    _repr_facts = "num_parameters={0.num_parameters}"

    def __init__(self, num_parameters: int = 1, init: float = 0.25, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.num_parameters = num_parameters
        shape = (1,) if num_parameters == 1 else (1, num_parameters, 1, 1)
        self.weight = Parameter(np.full(shape, init, np.float32))

    def forward(self, inputs: Tensor) -> Tensor:
        slope: Tensor = self.weight
        if self.num_parameters > 1:
            rank = inputs.ndim
            if rank < 2 or inputs._tuple_shape[1] != self.num_parameters:
                raise ValueError(
                    f"PReLU: an input of shape {inputs._tuple_shape} has not the {self.num_parameters} "
                    "channels of the layer on axis 1"
                )
            if rank != 4:
                slope = slope.reshape(1, self.num_parameters, *(1,) * (rank - 2))
        return F.prelu(inputs, slope)


class LeakyReLU(Module):
    """max(x, 0) + negative_slope * min(x, 0), elementwise."""

    _repr_facts = "negative_slope={0.negative_slope}"

    def __init__(self, negative_slope: float = 0.01, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.negative_slope = negative_slope

    def forward(self, inputs: Tensor) -> Tensor:
        return F.leaky_relu(inputs, self.negative_slope)
