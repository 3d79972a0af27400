"""Tables of vectors, looked up by index, and reduced by bags."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .. import functional as F
from ..functional._index import row_of_padding
from ..tensor import Parameter, Tensor
from . import init
from .module import Module

__all__ = ["Embedding", "EmbeddingBag"]


class Embedding(Module):
    """Looks up rows of a learned table by integer index: (...) to (..., embedding_dim).

    Parameters
    ----------
    num_embeddings, embedding_dim : int
        Rows and columns of the table ``weight``.
    padding_idx : int or None
        Index of a row that starts as zeros and gets no gradient; negative numbers count from the
        end.
    max_norm, norm_type : float or None
        Must be None: other values are not supported.
    initial_weight : Tensor, array_like or None
        A table to copy, (num_embeddings, embedding_dim). None draws standard normal numbers.
    freeze : bool
        Whether the table stays as it is, without gradients.
    sparse : bool
        Whether the gradient of ``weight`` is kept as the rows that were looked up, as an
        `autodiff.RowGradient`.
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.

    Raises
    ------
    ValueError
        For a table of another shape, a padding_idx that is no row of it, and for max_norm or
        norm_type.

    See Also
    --------
    EmbeddingBag : Reduces the rows of each bag to one.
    functional.embedding : The function.

    Examples
    --------
    >>> import megengine as mge, megengine.module as M
    >>> table = M.Embedding(3, 2, initial_weight=mge.Tensor([[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]))
    >>> table(mge.Tensor([2, 0])).tolist()
    [[4.0, 5.0], [0.0, 1.0]]
    """

    _repr_facts = "{0.num_embeddings}, {0.embedding_dim}"
    sparse = False  # tables of older files are not sparse

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float | None = None,
        initial_weight: Tensor | ArrayLike | None = None,
        freeze: bool = False,
        sparse: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        _refuse(max_norm=max_norm, norm_type=norm_type)
        if padding_idx is not None:
            padding_idx = row_of_padding(padding_idx, num_embeddings, "Embedding")
        self.padding_idx = padding_idx
        self.max_norm = max_norm
        self.norm_type = norm_type
        self.num_embeddings = num_embeddings
        self.embedding_dim = embedding_dim
        self.freeze = freeze
        self.sparse = sparse
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
        """Draws new initial values from the standard normal distribution; the row of padding is zero."""
        init.normal_(self.weight)
        if self.padding_idx is not None:
            self.weight[self.padding_idx] = 0.0

    def forward(self, inputs: Tensor) -> Tensor:
        """Returns the rows at ``inputs``, integers of any shape: inputs.shape + (embedding_dim,).

        Parameters
        ----------
        inputs : Tensor
            Any shape, integers; negative ones count from the end.

        Returns
        -------
        Tensor
            The shape of ``inputs`` and then (embedding_dim,).

        Raises
        ------
        IndexError
            For an index outside the table.
        """
        weight = self.weight.detach() if self.freeze else self.weight
        return F.nn.embedding(inputs, weight, self.padding_idx, sparse=self.sparse)

    @classmethod
    def from_pretrained(
        cls,
        embeddings: Tensor,
        freeze: bool = True,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float | None = None,
        sparse: bool = False,
    ) -> Embedding:
        """Returns a module with a copy of the table ``embeddings`` (num_embeddings, embedding_dim).

        Parameters
        ----------
        embeddings : Tensor
            The table, (num_embeddings, embedding_dim); it is copied.
        freeze : bool
            Whether the table stays as it is, without gradients.
        padding_idx : int or None
            Index of a row that gets no gradient; the row keeps its values.
        max_norm, norm_type : float or None
            Must be None: other values are not supported.
        sparse : bool
            Whether the gradient of ``weight`` is kept as the rows that were looked up, as an
            `autodiff.RowGradient`.

        Returns
        -------
        Embedding
            The module.

        Raises
        ------
        ValueError
            Unless the table is 2-D, and as for the class.
        """
        shape = tuple(getattr(embeddings, "_tuple_shape", np.shape(embeddings)))
        if len(shape) != 2:
            raise ValueError(f"Embedding.from_pretrained: the table must be 2-D, got shape {shape}")
        return cls(
            *shape,
            initial_weight=embeddings,
            padding_idx=padding_idx,
            max_norm=max_norm,
            norm_type=norm_type,
            freeze=freeze,
            sparse=sparse,
        )


class EmbeddingBag(Embedding):
    """Looks up rows of a learned table and reduces those of each bag to one: (bags, size) to (bags, embedding_dim).

    Parameters
    ----------
    num_embeddings, embedding_dim : int
        Rows and columns of the table ``weight``.
    mode : str
        How the rows of a bag become one: "sum", "mean" or "max".
    padding_idx : int or None
        Row that starts as zeros and gets no gradient; bags leave it out. Negative numbers count
        from the end.
    initial_weight : Tensor, array_like or None
        A table to copy, (num_embeddings, embedding_dim); None draws standard normal numbers.
    freeze, sparse : bool
        Whether the table stays as it is, and whether its gradient is kept as the rows that were
        looked up, as an `autodiff.RowGradient`.
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.

    Raises
    ------
    ValueError
        For another mode, and as for `Embedding`.

    Examples
    --------
    >>> import megengine as mge, megengine.module as M
    >>> bag = M.EmbeddingBag(3, 2, initial_weight=mge.Tensor([[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]))
    >>> bag(mge.Tensor([[0, 2], [1, 1]])).tolist()
    [[2.0, 3.0], [2.0, 3.0]]
    """

    _repr_facts = "{0.num_embeddings}, {0.embedding_dim}, mode={0.mode}"

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        mode: str = "mean",
        padding_idx: int | None = None,
        initial_weight: Tensor | ArrayLike | None = None,
        freeze: bool = False,
        sparse: bool = False,
        **kwargs: Any,
    ) -> None:
        if mode not in ("sum", "mean", "max"):
            raise ValueError(f"EmbeddingBag: mode {mode!r} is not one of sum, mean, max")
        super().__init__(num_embeddings, embedding_dim, padding_idx, initial_weight=initial_weight, freeze=freeze, sparse=sparse, **kwargs)
        self.mode = mode

    def forward(
        self, inputs: Tensor, offsets: Tensor | None = None, per_sample_weights: Tensor | None = None
    ) -> Tensor:
        """Returns the sum, mean or maximum of the rows of each bag.

        Parameters
        ----------
        inputs : Tensor
            Integers: (bags, size), or (count,) with offsets.
        offsets : Tensor or None
            Index at which each bag begins: (bags,), integers.
        per_sample_weights : Tensor or None
            Factor of each row, of the shape of ``inputs``; only for the mode "sum".

        Returns
        -------
        Tensor
            (bags, embedding_dim); 0 for a bag without indices.

        Raises
        ------
        IndexError
            For an index outside the table.
        ValueError
            For shapes that do not fit.
        """
        weight = self.weight.detach() if self.freeze else self.weight
        return F.embedding_bag(inputs, weight, offsets, self.mode, per_sample_weights, self.padding_idx, self.sparse)


def _refuse(**options: Any) -> None:
    for name, value in options.items():
        if value is not None:
            raise ValueError(f"Embedding: {name}={value!r} is not supported; leave it out")
