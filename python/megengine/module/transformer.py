"""Transformer layers and their stacks: Vaswani et al. 2017, "Attention Is All You Need".

Inputs are (N, length, d_model). Masks are those of `MultiHeadAttention`: bool, where True hides a position, or numbers added to the scores.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from .. import functional as F
from ..tensor import Tensor
from .dropout import Dropout
from .linear import Linear
from .module import Module
from .multiheadattn import MultiHeadAttention
from .normalization import LayerNorm

__all__ = ["Transformer", "TransformerDecoder", "TransformerDecoderLayer", "TransformerEncoder", "TransformerEncoderLayer"]

_Activation = str | Callable[[Tensor], Tensor]
_ACTIVATIONS = {"relu": F.relu, "gelu": F.gelu}


class _TransformerLayer(Module):
    """Base of the layers of encoders and decoders: self-attention, a network of two linear maps,
    and the sums around both.
    """

    _repr_facts = "norm_first={0.norm_first}"
    self_attn: Any  # parts, which conversions replace by others with the same arguments
    linear1: Any
    linear2: Any
    dropout: Any
    activation: Callable[[Tensor], Tensor]

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int,
        dropout: float,
        activation: _Activation,
        layer_norm_eps: float,
        norm_first: bool,
        parts: int,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if isinstance(activation, str):
            if activation not in _ACTIVATIONS:
                raise ValueError(f"{type(self).__name__}: activation {activation!r} is not one of {', '.join(_ACTIVATIONS)}\n  fix: give a function such as F.silu")
            activation = _ACTIVATIONS[activation]
        self.norm_first = norm_first
        self.activation = activation
        self.self_attn = MultiHeadAttention(d_model, nhead, dropout)
        self.linear1 = Linear(d_model, dim_feedforward)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model)
        for part in range(1, parts + 1):
            setattr(self, f"norm{part}", LayerNorm(d_model, layer_norm_eps))
            setattr(self, f"dropout{part}", Dropout(dropout))

    def _added(self, x: Tensor, part: int, work: Callable[[Tensor], Tensor]) -> Tensor:
        """Adds the result of part number ``part`` to ``x``, with normalization before or after."""
        norm, dropout = getattr(self, f"norm{part}"), getattr(self, f"dropout{part}")
        return x + dropout(work(norm(x))) if self.norm_first else norm(x + dropout(work(x)))

    def _network(self, x: Tensor) -> Tensor:
        return self.linear2(self.dropout(self.activation(self.linear1(x))))


def _attended(attention: Any, x: Tensor, other: Tensor, mask: Tensor | None, padding: Tensor | None, is_causal: bool) -> Tensor:
    return attention(x, other, other, key_padding_mask=padding, attn_mask=mask, need_weights=False, is_causal=is_causal)[0]


class TransformerEncoderLayer(_TransformerLayer):
    """Applies attention of a sequence to itself, then a network of two linear maps for each
    position.

    Parameters
    ----------
    d_model : int
        Number of features of a position.
    nhead : int
        Number of heads, which must divide d_model.
    dim_feedforward : int
        Number of features between the two linear maps.
    dropout : float
        Probability of dropping attention weights, and elements in the network and behind each part.
    activation : str or callable
        Function between the linear maps: "relu", "gelu" or a callable.
    layer_norm_eps : float
        Number that `LayerNorm` adds to the variance.
    norm_first : bool
        Whether each part normalizes its input, instead of its result.
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.

    Raises
    ------
    ValueError
        Unless nhead divides d_model, and for another name of an activation.

    References
    ----------
    Vaswani et al. 2017, "Attention Is All You Need"; Xiong et al. 2020, "On Layer Normalization in the Transformer
    Architecture" (norm_first).

    Examples
    --------
    >>> import megengine as mge, megengine.module as M
    >>> layer = M.TransformerEncoderLayer(d_model=8, nhead=2, dim_feedforward=16)
    >>> layer(mge.functional.ones((3, 5, 8)), is_causal=True).shape
    (3, 5, 8)
    """

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: _Activation = "relu",
        layer_norm_eps: float = 1e-5,
        norm_first: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, norm_first, 2, **kwargs)

    def forward(
        self,
        src: Tensor,
        src_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        """Returns ``src`` (N, L, d_model) as the layer encodes it.

        Parameters
        ----------
        src : Tensor
            Source sequences, float dtype, with d_model features.
        src_mask : Tensor or None
            Positions that a position does not see, (L, L) or (N * nhead, L, L): bool, or numbers
            added to the scores.
        src_key_padding_mask : Tensor or None
            Positions that no position sees, (N, L): bool, or numbers added to the scores.
        is_causal : bool
            Whether a position sees only the positions up to its own.

        Returns
        -------
        Tensor
            (N, L, d_model).
        """
        x = self._added(src, 1, lambda x: _attended(self.self_attn, x, x, src_mask, src_key_padding_mask, is_causal))
        return self._added(x, 2, self._network)


class TransformerDecoderLayer(_TransformerLayer):
    """Applies attention of a sequence to itself, attention to the result of an encoder, then a
    network.

    Parameters
    ----------
    d_model, nhead, dim_feedforward : int
        Number of features of a position, number of heads, which must divide it, and features
        between the two linear maps.
    dropout : float
        Probability of dropping attention weights, and elements in the network and behind each part.
    activation : str or callable
        Function between the linear maps: "relu", "gelu" or a callable.
    layer_norm_eps : float
        Number that `LayerNorm` adds to the variance.
    norm_first : bool
        Whether each part normalizes its input, instead of its result.
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.

    References
    ----------
    Vaswani et al. 2017, "Attention Is All You Need".

    Examples
    --------
    >>> import megengine as mge, megengine.module as M
    >>> layer = M.TransformerDecoderLayer(d_model=8, nhead=2, dim_feedforward=16)
    >>> memory = mge.functional.ones((3, 7, 8))
    >>> layer(mge.functional.ones((3, 5, 8)), memory, tgt_is_causal=True).shape
    (3, 5, 8)
    """

    multihead_attn: Any

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: _Activation = "relu",
        layer_norm_eps: float = 1e-5,
        norm_first: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, norm_first, 3, **kwargs)
        self.multihead_attn = MultiHeadAttention(d_model, nhead, dropout)

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
        """Returns ``tgt`` (N, T, d_model) as the layer decodes it.

        Parameters
        ----------
        tgt : Tensor
            Target sequences, float dtype, with d_model features.
        memory : Tensor
            (N, S, d_model), from an encoder.
        tgt_mask : Tensor or None
            Target positions that a target position does not see, (T, T) or (N * nhead, T, T): bool,
            or numbers added to the scores.
        memory_mask : Tensor or None
            Memory positions that a target position does not see, (T, S) or (N * nhead, T, S): bool,
            or numbers added to the scores.
        tgt_key_padding_mask : Tensor or None
            Target positions that no position sees, (N, T): bool, or numbers added to the scores.
        memory_key_padding_mask : Tensor or None
            Memory positions that no position sees, (N, S): bool, or numbers added to the scores.
        tgt_is_causal, memory_is_causal : bool
            Whether a position sees only the positions up to its own, of the target and of the
            memory.

        Returns
        -------
        Tensor
            (N, T, d_model).
        """
        x = self._added(tgt, 1, lambda x: _attended(self.self_attn, x, x, tgt_mask, tgt_key_padding_mask, tgt_is_causal))
        x = self._added(x, 2, lambda x: _attended(self.multihead_attn, x, memory, memory_mask, memory_key_padding_mask, memory_is_causal))
        return self._added(x, 3, self._network)


class _Stack(Module):
    """``layers`` one after the other, then ``norm``, if any."""

    def __init__(self, layer: Module, num_layers: int, norm: Module | None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if num_layers < 1:
            raise ValueError(f"{type(self).__name__}: num_layers={num_layers}; give at least 1")
        self.layers = [copy.deepcopy(layer) for _ in range(num_layers)]
        self.norm = norm

    def _run(self, x: Tensor, *others: Any) -> Tensor:
        for layer in self.layers:
            x = layer(x, *others)
        return x if self.norm is None else self.norm(x)


class TransformerEncoder(_Stack):
    """Applies a stack of encoder layers.

    Parameters
    ----------
    encoder_layer : Module
        A `TransformerEncoderLayer`, of which the stack has copies; they begin with its values.
    num_layers : int
        Number of layers in the stack.
    norm : Module or None
        Module behind the last layer, such as a `LayerNorm`; None for none.
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.

    Raises
    ------
    ValueError
        For a number below 1.

    Examples
    --------
    >>> import megengine as mge, megengine.module as M
    >>> encoder = M.TransformerEncoder(M.TransformerEncoderLayer(8, 2, 16), 3)
    >>> encoder(mge.functional.ones((3, 5, 8))).shape, len(encoder.layers)
    ((3, 5, 8), 3)
    """

    def __init__(self, encoder_layer: Module, num_layers: int, norm: Module | None = None, **kwargs: Any) -> None:
        super().__init__(encoder_layer, num_layers, norm, **kwargs)

    def forward(
        self,
        src: Tensor,
        mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        """Returns ``src`` (N, L, d_model) as all layers encode it; each gets the masks.

        Parameters
        ----------
        src : Tensor
            Source sequences, float dtype, with d_model features.
        mask, src_key_padding_mask : Tensor or None
            Positions that a position does not see, (L, L) or (N * nhead, L, L); and positions that
            no position sees, (N, L). Bool, or numbers added to the scores.
        is_causal : bool
            Whether a position sees only the positions up to its own.

        Returns
        -------
        Tensor
            (N, L, d_model).
        """
        return self._run(src, mask, src_key_padding_mask, bool(is_causal))


class TransformerDecoder(_Stack):
    """Applies a stack of decoder layers.

    Parameters
    ----------
    decoder_layer : Module
        A `TransformerDecoderLayer`, of which the stack has copies; they begin with its values.
    num_layers : int
        Number of layers in the stack.
    norm : Module or None
        Module behind the last layer, such as a `LayerNorm`; None for none.
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.

    Raises
    ------
    ValueError
        For a number below 1.

    Examples
    --------
    >>> import megengine as mge, megengine.module as M
    >>> decoder = M.TransformerDecoder(M.TransformerDecoderLayer(8, 2, 16), 2)
    >>> decoder(mge.functional.ones((3, 5, 8)), mge.functional.ones((3, 7, 8))).shape
    (3, 5, 8)
    """

    def __init__(self, decoder_layer: Module, num_layers: int, norm: Module | None = None, **kwargs: Any) -> None:
        super().__init__(decoder_layer, num_layers, norm, **kwargs)

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
        """Returns ``tgt`` (N, T, d_model) as all layers decode it; each gets the memory and the masks.

        Parameters
        ----------
        tgt : Tensor
            Target sequences, float dtype, with d_model features.
        memory : Tensor
            (N, S, d_model), from an encoder.
        tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask : Tensor or None
            Positions that a position does not see, (T, T) and (T, S), or with N * nhead in front;
            and positions that no position sees, (N, T) and (N, S). Bool, or numbers added to the
            scores.
        tgt_is_causal, memory_is_causal : bool
            Whether a position sees only the positions up to its own, of the target and of the
            memory.

        Returns
        -------
        Tensor
            (N, T, d_model).
        """
        masks = tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask
        return self._run(tgt, memory, *masks, bool(tgt_is_causal), bool(memory_is_causal))


class Transformer(Module):
    """Encodes one sequence, and decodes another one with attention to the result of the encoder.

    Parameters
    ----------
    d_model, nhead : int
        Number of features of a position, and number of heads, which must divide it.
    num_encoder_layers, num_decoder_layers : int
        Number of layers of encoder and decoder; a `LayerNorm` follows the last layer of each.
    dim_feedforward : int
        Number of features between the two linear maps.
    dropout : float
        Probability of dropping attention weights, and elements in the network and behind each part.
    activation : str or callable
        Function between the linear maps: "relu", "gelu" or a callable.
    layer_norm_eps : float
        Number that `LayerNorm` adds to the variance.
    norm_first : bool
        Whether each part normalizes its input, instead of its result.
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.

    References
    ----------
    Vaswani et al. 2017, "Attention Is All You Need".

    Examples
    --------
    >>> import megengine as mge, megengine.module as M
    >>> net = M.Transformer(8, 2, num_encoder_layers=1, num_decoder_layers=1, dim_feedforward=16)
    >>> net(mge.functional.ones((3, 7, 8)), mge.functional.ones((3, 5, 8)), tgt_is_causal=True).shape
    (3, 5, 8)
    """

    encoder: Any
    decoder: Any

    def __init__(
        self,
        d_model: int,
        nhead: int,
        num_encoder_layers: int = 6,
        num_decoder_layers: int = 6,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: _Activation = "relu",
        layer_norm_eps: float = 1e-5,
        norm_first: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        settings = (d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, norm_first)
        norms = (LayerNorm(d_model, layer_norm_eps) for _ in range(2))
        self.encoder = TransformerEncoder(TransformerEncoderLayer(*settings), num_encoder_layers, next(norms))
        self.decoder = TransformerDecoder(TransformerDecoderLayer(*settings), num_decoder_layers, next(norms))

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
        src_is_causal: bool = False,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """Returns ``tgt`` (N, T, d_model) as the decoder gives it for ``src`` (N, S, d_model).

        Parameters
        ----------
        src : Tensor
            Source sequences, float dtype, with d_model features.
        tgt : Tensor
            Target sequences, float dtype, with d_model features.
        src_mask, tgt_mask, memory_mask : Tensor or None
            Positions that a position does not see, (S, S), (T, T) and (T, S): bool, or numbers
            added to the scores.
        src_key_padding_mask, tgt_key_padding_mask, memory_key_padding_mask : Tensor or None
            Positions that no position sees, (N, S), (N, T) and (N, S): bool, or numbers added to
            the scores.
        src_is_causal, tgt_is_causal, memory_is_causal : bool
            Whether a position sees only the positions up to its own, in the encoder, in the
            decoder, and from the decoder to the memory.

        Returns
        -------
        Tensor
            (N, T, d_model).
        """
        memory = self.encoder(src, src_mask, src_key_padding_mask, src_is_causal)
        masks = tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask
        return self.decoder(tgt, memory, *masks, tgt_is_causal, memory_is_causal)
