"""Dropout: Srivastava et al. 2014, "Dropout: A Simple Way to Prevent Neural Networks from Overfitting"."""

from __future__ import annotations

from typing import Any

from .. import functional as F
from ..tensor import Tensor
from .module import Module

__all__ = ["Dropout"]


class Dropout(Module):
    """Zeroes elements with probability ``drop_prob`` in [0, 1) and scales the others by 1 / (1 - drop_prob).

    Identity in eval mode.
    """

    _repr_facts = "drop_prob={0.drop_prob}"

    def __init__(self, drop_prob: float = 0.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.drop_prob = drop_prob

    def forward(self, inputs: Tensor) -> Tensor:
        if not self.training:
            return inputs
        return F.dropout(inputs, self.drop_prob, training=True)
