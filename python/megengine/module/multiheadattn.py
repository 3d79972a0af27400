"""Multi-head attention: Vaswani et al. 2017, "Attention Is All You Need"."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .. import functional as F
from .. import random
from ..tensor import Parameter, Tensor
from . import init
from .module import Module

__all__ = ["MultiHeadAttention"]


class MultiHeadAttention(Module):
    """Attends by several heads: ``softmax(q k' / sqrt(head_dim)) v`` of each, projected back.

    Parameters
    ----------
    embed_dim : int
        Number of features of query and output.
    num_heads : int
        Number of heads, which must divide embed_dim.
    attn_dropout, out_dropout : float
        Probability of dropping an attention weight, and an element of the output.
    bias : bool
        Whether the projections add a learned bias.
    add_bias_kv : bool
        Whether to append a learned position to keys and values.
    add_zero_attn : bool
        Whether to append a position of zeros to keys and values.
    kdim, vdim : int or None
        Number of features of key and value; None takes embed_dim.
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.

    Raises
    ------
    ValueError
        Unless num_heads divides embed_dim.

    See Also
    --------
    functional.scaled_dot_product_attention : The attention alone, without projections.
    TransformerEncoderLayer : Has a network behind the attention.

    Notes
    -----
    All projections are in one 1-D Parameter ``io_weight_bias``: the weights of query, key, value
    and output, each (in, out), then their biases. Weights start as `init.xavier_uniform_` has it,
    biases at zero.

    References
    ----------
    Vaswani et al. 2017, "Attention Is All You Need".

    Examples
    --------
    >>> import megengine as mge, megengine.module as M
    >>> attend = M.MultiHeadAttention(embed_dim=8, num_heads=2)
    >>> x = mge.functional.ones((3, 5, 8))
    >>> out, weights = attend(x, x, x, need_weights=True)
    >>> out.shape, weights.shape
    ((3, 5, 8), (3, 2, 5, 5))
    """

    _flat_state = True  # MegEngine's is [1, n]

    _repr_facts = (
        "{0.embed_dim}, {0.num_heads}, attn_dropout={0.attn_dropout}, out_dropout={0.out_dropout}, "
        "bias={0.bias}, kdim={0.kdim}, vdim={0.vdim}"
    )

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        attn_dropout: float = 0.0,
        out_dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if embed_dim <= 0 or num_heads <= 0 or embed_dim % num_heads:
            raise ValueError(
                f"MultiHeadAttention: num_heads={num_heads} must divide embed_dim={embed_dim}, both above 0"
            )
        self.embed_dim = embed_dim
        self.kdim = embed_dim if kdim is None else kdim
        self.vdim = embed_dim if vdim is None else vdim
        self.add_bias_kv = add_bias_kv
        self.add_zero_attn = add_zero_attn
        self.num_heads = num_heads
        self.attn_dropout = attn_dropout
        self.out_dropout = out_dropout
        self.head_dim = embed_dim // num_heads
        self.bias = bias
        self.weight_bias_len = sum(rows * embed_dim for rows in self._rows())
        self.weight_bias_len += 4 * embed_dim if bias else 0
        self.io_weight_bias = Parameter(np.zeros(self.weight_bias_len, np.float32))
        extra = (1, 1, embed_dim)
        self.bias_k = Parameter(np.zeros(extra, np.float32)) if add_bias_kv else None
        self.bias_v = Parameter(np.zeros(extra, np.float32)) if add_bias_kv else None
        self.reset_parameters()

    def _rows(self) -> tuple[int, int, int, int]:
        """Returns the input sizes of the four projections."""
        return self.embed_dim, self.kdim, self.vdim, self.embed_dim

    def reset_parameters(self) -> None:
        """Draws new initial values: weights uniform as by `init.xavier_uniform_`, biases zero."""
        if init._is_skipped():
            for parameter in self.parameters():
                init._leave(parameter)
            return
        parts = []
        for rows in self._rows():
            bound = math.sqrt(6.0 / (rows + self.embed_dim))
            parts.append(random.uniform(-bound, bound, size=(rows * self.embed_dim,)))
        if self.bias:
            parts.append(F.zeros(4 * self.embed_dim))
        self.io_weight_bias[...] = F.concat(parts, 0)
        if self.bias_k is not None and self.bias_v is not None:
            std = math.sqrt(1.0 / self.embed_dim)
            self.bias_k[...] = random.normal(0.0, std, size=(1, 1, self.embed_dim))
            self.bias_v[...] = random.normal(0.0, std, size=(1, 1, self.embed_dim))

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        attn_mask: Tensor | None = None,
        need_weights: bool = False,
        average_attn_weights: bool = False,
        is_causal: bool = False,
        maybe_cudnn_style_mask: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Attends to ``value`` by how ``query`` fits ``key``.

        Parameters
        ----------
        query : Tensor
            Tensor of shape (N, L, embed_dim), or without N; then key and value have no N either.
        key : Tensor
            Tensor of shape (N, S, kdim).
        value : Tensor
            Tensor of shape (N, S, vdim).
        key_padding_mask : Tensor or None
            Mask (N, S): bool, where True hides a position, or numbers added to the scores.
        attn_mask : Tensor or None
            Mask (L, S) or (N * num_heads, L, S): bool, where True hides a position, or numbers
            added to the scores.
        need_weights : bool
            Whether to return the attention weights, too.
        average_attn_weights : bool
            Whether the returned weights are means over the heads.
        is_causal : bool
            Whether a query sees only the positions up to its own.
        maybe_cudnn_style_mask : bool
            Whether masks may be short: an attn_mask (2, L) has the first key that each query sees
            and the first that it no longer sees, and row 1 of a key_padding_mask (2, N) counts the
            valid keys.

        Returns
        -------
        output : Tensor
            (N, L, embed_dim).
        weights : Tensor or None
            (N, num_heads, L, S), or (N, L, S) for means; None unless need_weights.
        """
        size = self.embed_dim
        return F.multi_head_attention(
            query,
            key,
            value,
            size,
            self.num_heads,
            self.attn_dropout,
            self.out_dropout,
            self.io_weight_bias,
            qproj_size=size,
            kproj_size=size,
            vproj_size=size,
            oproj_size=size,
            qbias=self.bias,
            kbias=self.bias,
            vbias=self.bias,
            obias=self.bias,
            bias_k=self.bias_k,
            bias_v=self.bias_v,
            add_zero_attn=self.add_zero_attn,
            key_padding_mask=key_padding_mask,
            attn_mask=attn_mask,
            need_weights=need_weights,
            average_attn_weights=average_attn_weights,
            is_causal=is_causal,
            maybe_cudnn_style_mask=maybe_cudnn_style_mask,
            training=self.training,
        )
