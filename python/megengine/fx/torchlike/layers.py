"""Layers with the parameters of torch's, under the names that they have there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ... import functional as F
from ... import module as M
from ...core import ops
from ...tensor import Tensor
from .elementwise import prelu
from .networks import attended, embedding, embedding_bag


class LeakyReLU(M.LeakyReLU):
    """The layer whose slope at 0 is that of negative numbers, as torch has it."""

    def forward(self, inputs: Tensor) -> Tensor:
        return ops.left_leaky_relu(inputs, negative_slope=float(self.negative_slope))


class PReLU(M.PReLU):
    """The layer whose slope at 0 is that of negative numbers, as torch has it."""

    def forward(self, inputs: Tensor) -> Tensor:
        return prelu(inputs, self.weight.reshape(-1))


class Functional(M.Module):
    """``function(inputs..., **tensors, **settings)`` as a layer.

    tensors: argument name -> Tensor; they are attributes of the layer, under the same names.
    """

    def __init__(
        self, function: Callable[..., Any], settings: Mapping[str, Any], tensors: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__()
        self.function = function
        self.settings = dict(settings)
        self.tensor_names = tuple(tensors or ())
        for name, tensor in (tensors or {}).items():
            setattr(self, name, tensor)

    def forward(self, *inputs: Any) -> Any:
        tensors = {name: getattr(self, name) for name in self.tensor_names}
        return self.function(*inputs, **tensors, **self.settings)

    def _module_info_string(self) -> str:
        return ", ".join([self.function.__name__, *(f"{k}={v}" for k, v in self.settings.items())])


class Embedding(M.Embedding):
    """Rows of a table, whose indices do not count from its end."""

    def forward(self, inputs: Tensor) -> Tensor:
        return embedding(inputs, self.weight, self.padding_idx, sparse=self.sparse)


class EmbeddingBag(M.EmbeddingBag):
    """Reduced rows of a table, whose indices do not count from its end."""

    include_last_offset = False

    def forward(self, inputs: Tensor, offsets: Tensor | None = None, per_sample_weights: Tensor | None = None) -> Tensor:
        given = {"mode": self.mode, "per_sample_weights": per_sample_weights, "padding_idx": self.padding_idx, "sparse": self.sparse}
        return embedding_bag(inputs, self.weight, offsets, include_last_offset=self.include_last_offset, **given)


class MultiheadAttention(M.Module):
    """Attention of ``num_heads`` heads between projections.

    in_proj_weight (3 embed, embed), or q_proj_weight, k_proj_weight and v_proj_weight where key and value have
    sizes of their own; in_proj_bias (3 embed,) or None; out_proj: a Linear. Masks are bool (true is hidden) or added.
    """

    def __init__(self, embed_dim: int, num_heads: int, dropout: float, batch_first: bool) -> None:
        super().__init__()
        self.embed_dim, self.num_heads = embed_dim, num_heads
        self.dropout, self.batch_first = dropout, batch_first
        self.in_proj_weight = self.q_proj_weight = self.k_proj_weight = self.v_proj_weight = None
        self.in_proj_bias: Tensor | None = None
        self.out_proj: Any = None

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Returns (result, attention weights or None)."""
        batched = query.ndim == 3
        inputs = [x if batched else F.expand_dims(x, 0) for x in (query, key, value)]
        if batched and not self.batch_first:
            inputs = [F.swapaxes(x, 0, 1) for x in inputs]
        q, k, v = (self._heads(x, *own) for x, own in zip(inputs, self._projections(), strict=True))
        mask = self._mask(q, k, key_padding_mask, attn_mask)
        if need_weights:
            y, weights = self._with_weights(q, k, v, mask, average_attn_weights)
        else:
            dropout = self.dropout if self.training else 0.0
            y, weights = F.scaled_dot_product_attention(q, k, v, mask, dropout), None
        n, heads, length, size = y._tuple_shape
        y = self.out_proj(F.transpose(y, (0, 2, 1, 3)).reshape(n, length, heads * size))
        if not batched:
            return y[0], weights if weights is None else weights[0]
        return y if self.batch_first else F.swapaxes(y, 0, 1), weights

    def _projections(self) -> list[tuple[Tensor, Tensor | None]]:
        """Returns (weight, bias) for query, key and value."""
        weights: list[Any] = [self.q_proj_weight, self.k_proj_weight, self.v_proj_weight]
        if self.in_proj_weight is not None:
            weights = list(F.split(self.in_proj_weight, 3))
        biases: list[Any] = [None] * 3
        if self.in_proj_bias is not None:
            biases = list(F.split(self.in_proj_bias, 3))
        return list(zip(weights, biases, strict=True))

    def _heads(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """[n, heads, length, size]"""
        x = F.linear(x, weight, bias)
        n, length, size = x._tuple_shape
        x = x.reshape(n, length, self.num_heads, size // self.num_heads)
        return F.transpose(x, (0, 2, 1, 3))

    def _mask(self, q: Tensor, k: Tensor, padding: Tensor | None, mask: Tensor | None) -> Tensor | None:
        """Returns the numbers that are added to the scores."""
        (n, heads, length, _), keys = q._tuple_shape, k._tuple_shape[2]
        added = None
        if mask is not None:
            added = _additive(mask, q)
            if mask.ndim == 3:
                added = added.reshape(n, heads, length, keys)
        if padding is not None:
            hidden = _additive(padding, q).reshape(n, 1, 1, keys)
            added = hidden if added is None else added + hidden
        return added

    def _with_weights(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, mean: bool) -> tuple[Any, ...]:
        scores = F.matmul(q * q._tuple_shape[-1] ** -0.5, k, transpose_b=True)
        dropout = self.dropout if self.training else 0.0
        y, weights = attended(scores if mask is None else scores + mask, v, dropout)
        return y, F.mean(weights, axis=1) if mean else weights

    def _module_info_string(self) -> str:
        return f"{self.embed_dim}, {self.num_heads}, batch_first={self.batch_first}"


def _additive(mask: Tensor, like: Tensor) -> Tensor:
    """Turns a bool mask, true where hidden, into numbers that are added to the scores."""
    if mask.dtype != np.bool_:
        return mask
    hidden = F.full((), -np.inf, dtype=like.dtype.name)
    return F.where(mask, hidden, F.zeros((), dtype=like.dtype.name))
