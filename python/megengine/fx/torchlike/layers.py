"""Layers with the parameters of torch's, under the names that they have there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ... import functional as F
from ... import module as M
from ...core import ops
from ...tensor import Tensor
from .elementwise import prelu
from .images import channel_dropout
from .networks import attended, embedding


class LeakyReLU(M.LeakyReLU):
    """Its slope at 0 is that of negative numbers."""

    def forward(self, inputs: Tensor) -> Tensor:
        return ops.left_leaky_relu(inputs, negative_slope=float(self.negative_slope))


class PReLU(M.PReLU):
    """Its slope at 0 is that of negative numbers."""

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


class ChannelDropout(M.Dropout):
    """Dropout of whole channels of (n, c, ...)."""

    def forward(self, inputs: Tensor) -> Tensor:
        return channel_dropout(inputs, self.drop_prob, self.training)


class Embedding(M.Embedding):
    """Rows of a table, whose indices do not count from its end."""

    def forward(self, inputs: Tensor) -> Tensor:
        return embedding(inputs, self.weight, self.padding_idx)


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
        """(weight, bias) for query, key and value."""
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
        """What is added to the scores."""
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
    """A bool mask, true where hidden, as what is added."""
    if mask.dtype != np.bool_:
        return mask
    hidden = F.full((), -np.inf, dtype=like.dtype.name)
    return F.where(mask, hidden, F.zeros((), dtype=like.dtype.name))


class TransformerLayer(M.Module):
    """A layer of an encoder, or with ``multihead_attn`` of a decoder: Vaswani et al. 2017.

    self_attn, multihead_attn, linear1, linear2, norm1 to norm3, dropout, dropout1 to dropout3: its parts;
    norm_first: normalize before attention and network instead of after.
    """

    if TYPE_CHECKING:  # its parts

        def __getattr__(self, name: str) -> M.Module: ...

    def __init__(self, norm_first: bool, activation: Callable[..., Any], parts: Mapping[str, M.Module]) -> None:
        super().__init__()
        self.norm_first, self.activation = norm_first, activation
        self.multihead_attn: Any = None
        for name, part in parts.items():
            setattr(self, name, part)

    def _step(self, x: Tensor, norm: M.Module, work: Callable[[Tensor], Tensor]) -> Tensor:
        return x + work(norm(x)) if self.norm_first else norm(x + work(x))

    def _attend(self, part: M.Module, x: Tensor, memory: Tensor | None, mask: Any, padding: Any) -> Tensor:
        other = x if memory is None else memory
        return part(x, other, other, padding, False, mask)[0]

    def _network(self, x: Tensor) -> Tensor:
        return self.linear2(self.dropout(self.activation(self.linear1(x))))


class TransformerEncoderLayer(TransformerLayer):
    def forward(
        self,
        src: Tensor,
        src_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        mask, padding = src_mask, src_key_padding_mask
        attend = lambda x: self.dropout1(self._attend(self.self_attn, x, None, mask, padding))  # noqa: E731
        x = self._step(src, self.norm1, attend)
        return self._step(x, self.norm2, lambda x: self.dropout2(self._network(x)))


class TransformerDecoderLayer(TransformerLayer):
    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Tensor:
        def attend_itself(x: Tensor) -> Tensor:
            return self.dropout1(self._attend(self.self_attn, x, None, tgt_mask, tgt_key_padding_mask))

        def attend_memory(x: Tensor) -> Tensor:
            return self.dropout2(
                self._attend(self.multihead_attn, x, memory, memory_mask, memory_key_padding_mask)
            )

        x = self._step(tgt, self.norm1, attend_itself)
        x = self._step(x, self.norm2, attend_memory)
        return self._step(x, self.norm3, lambda x: self.dropout3(self._network(x)))


class TransformerStack(M.Module):
    """``layers`` one after the other, then ``norm``, if any. Masks go to each of them."""

    def __init__(self, layers: list[M.Module], norm: M.Module | None) -> None:
        super().__init__()
        self.layers, self.norm = layers, norm

    def _run(self, x: Tensor, *others: Any) -> Tensor:
        for layer in self.layers:
            x = layer(x, *others)
        return x if self.norm is None else self.norm(x)


class TransformerEncoder(TransformerStack):
    def forward(
        self,
        src: Tensor,
        mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool | None = None,
    ) -> Tensor:
        return self._run(src, mask, src_key_padding_mask)


class TransformerDecoder(TransformerStack):
    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        return self._run(
            tgt, memory, tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask
        )


class Transformer(M.Module):
    """``encoder`` for the source, and ``decoder`` for the target and what the encoder makes of the source."""

    def __init__(self, encoder: M.Module, decoder: M.Module) -> None:
        super().__init__()
        self.encoder, self.decoder = encoder, decoder

    def forward(
        self,
        src: Tensor,
        tgt: Tensor,
        src_mask: Tensor | None = None,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        src_is_causal: bool | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        memory = self.encoder(src, src_mask, src_key_padding_mask)
        masks = tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask
        return self.decoder(tgt, memory, *masks)
