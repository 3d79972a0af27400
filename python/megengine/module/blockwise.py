"""Layers whose weights lie in blocks of 4 or 8 bits, and whose arithmetic is float."""

from __future__ import annotations

from typing import Any, Protocol, Self

import numpy as np

from ..functional import block_weights
from ..tensor import Parameter, Tensor
from ._structure import with_state_of
from .embedding import Embedding
from .linear import Linear
from .module import Module

__all__ = ["BlockwiseEmbedding", "BlockwiseLinear"]


def _zeros(rows: int, columns: int, bits: int, group: int) -> Tensor:
    """Makes blocks of zeros without making a float array first."""
    row = block_weights.quantize_blocks(np.zeros((1, columns), np.float32), bits, group)
    return Tensor(np.repeat(row.numpy(), rows, axis=0))


_IN_FILES = {4: "Q4_0", 8: "Q8_0"}


class StoredBlocks(Protocol):
    """Blocks of a file: a `serialization.QuantizedBlocks`."""

    format: str

    def as_tensor(self) -> Tensor:
        """The bytes of the blocks."""


def _as_tensor(layer: str, blocks: Tensor | StoredBlocks, bits: int) -> Tensor:
    """Raises ValueError for a file's blocks of another format, whose bytes may look the same."""
    if isinstance(blocks, Tensor):
        return blocks
    if blocks.format != _IN_FILES.get(bits):
        known = " and ".join(f"{name} ({bits} bits)" for bits, name in _IN_FILES.items())
        raise ValueError(
            f"{layer}: a layer with blocks of {bits} bits does not read {blocks.format}\n  why: of a file's formats, {known} are such blocks\n"
            "  fix: quantize_blocks(blocks.dequantize(), bits, group) rounds the values once more"
        )
    return blocks.as_tensor()


def _group_of(cls: type[Module], blocks: Tensor, bits: int) -> int:
    """Returns the number of weights of a block. ValueError for tensors that are not blocks."""
    group = (blocks.shape[-1] - 2) * 8 // bits if bits in (4, 8) and blocks.ndim == 3 else 0
    if blocks.dtype != np.uint8 or group not in block_weights.GROUPS or 2 + group * bits // 8 != blocks.shape[-1]:
        raise ValueError(
            f"{cls.__name__}: blocks of {bits} bits are uint8 [rows, blocks, 2 + group * bits / 8] with a group of 32, 64 or 128; "
            f"got {blocks.dtype} {tuple(blocks.shape)}"
        )
    return group


class _OfBlocks(Module):
    """A layer whose ``weight`` is blocks, and takes those of a file as they are (_state.load)."""

    bits: int

    def _read_stored(self, blocks: StoredBlocks) -> Tensor:
        return _as_tensor(type(self).__name__, blocks, self.bits)


class BlockwiseLinear(_OfBlocks):
    """Computes ``y = x @ w.T + bias`` of weights in blocks of 4 or 8 bits, each with a float16
    scale (`functional.quantized.quantize_blocks`).

    With 4 bits and blocks of 32 a weight takes 4.5 bits: a seventh of float32's memory, and for few
    rows (text that is written token by token) of its time. The layer is not trained: gradients
    reach ``x`` and ``bias`` only.

    Parameters
    ----------
    in_features, out_features : int
        Extent of the last axis before and after. ``group`` divides ``in_features``.
    bias : bool
        Whether to add a bias.
    bits : int
        Bits of a weight, 4 or 8.
    group : int
        Weights of a block: 32, 64 or 128.
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.

    Raises
    ------
    ValueError
        For other bits or groups, and a group that does not divide ``in_features``.

    See Also
    --------
    WeightOnlyLinear : Has int8 weights and a scale for each output feature.
    quantization.quantize_weights : Makes such layers of trained ones.

    Notes
    -----
    ``weight`` is uint8, (out_features, in_features / group, 2 + group * bits / 8), and stands for
    zeros at first.

    Examples
    --------
    >>> import megengine.functional as F, megengine.module as M
    >>> layer = M.quantized.BlockwiseLinear.from_float_module(M.Linear(64, 2), bits=4, group=32)
    >>> layer.weight.shape, layer(F.ones((8, 5, 64))).shape
    ((2, 2, 18), (8, 5, 2))
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        bits: int = 4,
        group: int = 32,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.in_features, self.out_features = in_features, out_features
        self.bits, self.group = bits, group
        self.weight = _zeros(out_features, in_features, bits, group)
        self.bias = Parameter(np.zeros(out_features, np.float32)) if bias else None

    @classmethod
    def from_float_module(cls, linear: Linear, bits: int = 4, group: int = 32) -> Self:
        """Returns the layer with the rounded weights of ``linear``, and the same bias.

        Parameters
        ----------
        linear : Linear
            The trained layer, whose weight is rounded.
        bits : int
            Bits of a weight, 4 or 8.
        group : int
            Weights of a block: 32, 64 or 128.

        Returns
        -------
        Self
            The new layer.

        Raises
        ------
        ValueError
            If ``group`` does not divide the layer's ``in_features``, if a weight is not finite, or
            if the layer has a ``forward`` of its own.
        """
        made = with_state_of(linear, cls)
        del vars(made)["compute_mode"]  # sums are float32 here
        made.bits, made.group = bits, group
        made.weight = block_weights.quantize_blocks(linear.weight, bits, group)
        return made

    @classmethod
    def from_blocks(cls, blocks: Tensor | StoredBlocks, bias: Tensor | None = None, bits: int = 4) -> Self:
        """Returns a layer that reads ``blocks`` where they are, as those of a mapped file.

        Parameters
        ----------
        blocks : Tensor or QuantizedBlocks
            The weights, uint8, (out_features, in_features / group, 2 + group * bits / 8); or those
            of a GGUF file, Q4_0 or Q8_0.
        bias : Tensor or None
            What is added, (out_features,); None adds nothing.
        bits : int
            Bits of a weight, 4 or 8.

        Returns
        -------
        Self
            The new layer.

        Raises
        ------
        ValueError
            For blocks of another shape or dtype.
        """
        blocks = _as_tensor(cls.__name__, blocks, bits)
        group = _group_of(cls, blocks, bits)
        made = cls(blocks.shape[1] * group, 0, bias=False, bits=bits, group=group)
        made.out_features = blocks.shape[0]
        made.weight = blocks
        made.bias = None if bias is None else Parameter(bias)
        return made

    def forward(self, x: Tensor) -> Tensor:
        """Returns ``x @ w.T + bias`` for ``x`` (..., in_features): (..., out_features).

        Parameters
        ----------
        x : Tensor
            Tensor of shape (..., in_features), float dtype.

        Returns
        -------
        Tensor
            (..., out_features), of the dtype of ``x``.
        """
        return block_weights.linear_of_blocks(x, self.weight, self.bias, self.bits)

    def _module_info_string(self) -> str:
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}, "
            f"bits={self.bits}, group={self.group}"
        )


class BlockwiseEmbedding(_OfBlocks):
    """Looks up rows of a table in blocks of 4 or 8 bits, each with a float16 scale; the rows that
    are looked up become float32. The table is not trained.

    Parameters
    ----------
    num_embeddings, embedding_dim : int
        Rows and columns of the table. ``group`` divides ``embedding_dim``.
    bits : int
        Bits of a number, 4 or 8.
    group : int
        Numbers of a block: 32, 64 or 128.
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.

    Raises
    ------
    ValueError
        For other bits or groups, and a group that does not divide ``embedding_dim``.

    See Also
    --------
    BlockwiseLinear : Multiplies by such a table.

    Notes
    -----
    ``weight`` is uint8, (num_embeddings, embedding_dim / group, 2 + group * bits / 8), and stands
    for zeros at first.

    Examples
    --------
    >>> import megengine as mge, megengine.module as M
    >>> table = M.quantized.BlockwiseEmbedding.from_float_module(M.Embedding(10, 32), bits=8)
    >>> table.weight.shape, table(mge.Tensor([2, 0])).shape
    ((10, 1, 34), (2, 32))
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        bits: int = 8,
        group: int = 32,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.bits, self.group = bits, group
        self.weight = _zeros(num_embeddings, embedding_dim, bits, group)

    @classmethod
    def from_float_module(cls, embedding: Embedding, bits: int = 8, group: int = 32) -> Self:
        """Returns the layer with the rounded table of ``embedding``.

        Parameters
        ----------
        embedding : Embedding
            The trained layer, whose table is rounded.
        bits : int
            Bits of a number, 4 or 8.
        group : int
            Numbers of a block: 32, 64 or 128.

        Returns
        -------
        Self
            The new layer.

        Raises
        ------
        ValueError
            If ``group`` does not divide the layer's ``embedding_dim``, if a number is not finite,
            or if the layer has a ``forward`` of its own.
        """
        made = with_state_of(embedding, cls)
        made.bits, made.group = bits, group
        made.weight = block_weights.quantize_blocks(embedding.weight, bits, group)
        return made

    @classmethod
    def from_blocks(cls, blocks: Tensor | StoredBlocks, bits: int = 8) -> Self:
        """Returns a layer that reads ``blocks`` where they are, as those of a mapped file.

        Parameters
        ----------
        blocks : Tensor or QuantizedBlocks
            The table, uint8, (num_embeddings, embedding_dim / group, 2 + group * bits / 8); or that
            of a GGUF file, Q4_0 or Q8_0.
        bits : int
            Bits of a number, 4 or 8.

        Returns
        -------
        Self
            The new layer.

        Raises
        ------
        ValueError
            For blocks of another shape or dtype.
        """
        blocks = _as_tensor(cls.__name__, blocks, bits)
        group = _group_of(cls, blocks, bits)
        made = cls(0, blocks.shape[1] * group, bits=bits, group=group)
        made.num_embeddings, made.weight = blocks.shape[0], blocks
        return made

    def forward(self, inputs: Tensor) -> Tensor:
        """Returns the rows at ``inputs``: inputs.shape + (embedding_dim,).

        Parameters
        ----------
        inputs : Tensor
            Any shape, integers; negative ones count from the end.

        Returns
        -------
        Tensor
            The shape of ``inputs`` and then (embedding_dim,), float32.

        Raises
        ------
        IndexError
            For an index outside the table.
        """
        return block_weights.dequantize_blocks(self.weight[inputs], self.bits)

    def _module_info_string(self) -> str:
        return f"{self.num_embeddings}, {self.embedding_dim}, bits={self.bits}, group={self.group}"
