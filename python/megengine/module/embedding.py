"""Table of vectors, looked up by index."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import functional as F
from ..tensor import Parameter, Tensor
from . import init
from .module import Module

__all__ = ["Embedding"]


class Embedding(Module):
    """Rows of ``weight`` by integer index: (...) to (..., embedding_dim).

    weight: (num_embeddings, embedding_dim), standard normal at first, or a copy of initial_weight.
    freeze: the rows are not trained. padding_idx, max_norm and norm_type are not supported: ValueError.
    ValueError for an initial_weight of another shape.
    """

    _repr_facts = "{0.num_embeddings}, {0.embedding_dim}"

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float | None = None,
        initial_weight: Any = None,
        freeze: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        _refuse(padding_idx=padding_idx, max_norm=max_norm, norm_type=norm_type)
        self.padding_idx = padding_idx
        self.max_norm = max_norm
        self.norm_type = norm_type
        self.num_embeddings = num_embeddings
        self.embedding_dim = embedding_dim
        self.freeze = freeze
        shape = (num_embeddings, embedding_dim)
        if initial_weight is None:
            self.weight = Parameter(np.zeros(shape, np.float32))
            self.reset_parameters()
            return
        given = tuple(getattr(initial_weight, "_tuple_shape", np.shape(initial_weight)))
        if given != shape:
            raise ValueError(f"Embedding: initial_weight has shape {given}, the table has {shape}")
        self.weight = Parameter(initial_weight)

    def reset_parameters(self) -> None:
        """Draw new initial values."""
        init.normal_(self.weight)

    def forward(self, inputs: Tensor) -> Tensor:
        weight = self.weight.detach() if self.freeze else self.weight
        return F.nn.embedding(inputs, weight)

    @classmethod
    def from_pretrained(
        cls,
        embeddings: Tensor,
        freeze: bool = True,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float | None = None,
    ) -> Embedding:
        """A module with the given table (num_embeddings, embedding_dim). ValueError unless it is 2-D."""
        shape = tuple(getattr(embeddings, "_tuple_shape", np.shape(embeddings)))
        if len(shape) != 2:
            raise ValueError(f"Embedding.from_pretrained: a 2-D table is wanted, got shape {shape}")
        return cls(
            *shape,
            initial_weight=embeddings,
            padding_idx=padding_idx,
            max_norm=max_norm,
            norm_type=norm_type,
            freeze=freeze,
        )


def _refuse(**options: Any) -> None:
    for name, value in options.items():
        if value is not None:
            raise ValueError(f"Embedding: {name}={value!r} is not supported; leave it out")
