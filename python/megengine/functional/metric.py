"""Measures of a model's results."""

from collections.abc import Iterable
from typing import overload

import numpy as np

from ..core import apply_const, ops
from ..core.tensor.array_method import require_tensors
from ..core.tensor.indexing import as_places
from ..tensor import Tensor

__all__ = ["topk_accuracy"]


@overload
def topk_accuracy(logits: Tensor, target: Tensor, topk: int = 1) -> Tensor: ...
@overload
def topk_accuracy(logits: Tensor, target: Tensor, topk: Iterable[int]) -> list[Tensor]: ...
def topk_accuracy(
    logits: Tensor, target: Tensor, topk: int | Iterable[int] = 1
) -> Tensor | list[Tensor]:
    """Computes the share of samples whose class is among the ``topk`` highest scores.

    Parameters
    ----------
    logits : Tensor
        Scores of the classes, [n, classes].
    target : Tensor
        Index of the true class of each sample, [n].
    topk : int or iterable of int
        How many of the highest scores count; several numbers give several results.

    Returns
    -------
    Tensor or list of Tensor
        A 0-d float32 tensor, or a list of them where topk is a sequence; without a gradient.

    Raises
    ------
    ValueError
        For a topk above the number of classes.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> scores = Tensor([[0.1, 0.7, 0.2], [0.8, 0.05, 0.15]])
    >>> [x.item() for x in F.metric.topk_accuracy(scores, Tensor([1, 2]), topk=(1, 2))]
    [0.5, 1.0]
    """
    require_tensors("topk_accuracy", logits, target)
    wanted = (topk,) if isinstance(topk, int) else tuple(topk)
    classes = logits._tuple_shape[1]
    if max(wanted) > classes:
        raise ValueError(f"topk_accuracy: top {max(wanted)} of only {classes} classes")
    _, indices = ops.topk(logits.detach(), k=max(wanted), axis=1, descending=True)
    hits = ops.equal(indices, ops.reshape(as_places(target), shape=(logits._tuple_shape[0], 1)))
    positions = apply_const(np.arange(max(wanted), dtype=np.int32))
    rank = ops.reduce_min(ops.where(hits, positions, classes), axes=(1,), keepdims=False)
    accuracies = [
        ops.reduce_mean(ops.cast(rank < k, dtype="float32"), axes=(0,), keepdims=False)
        for k in wanted
    ]
    return accuracies[0] if isinstance(topk, int) else accuracies
