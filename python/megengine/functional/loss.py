"""Losses. ``reduction`` is "mean", "sum" or "none"; others are a ValueError."""

import numpy as np

from ..core import ops
from ..core.tensor.amp import to_high as _to_high
from ..core.tensor.array_method import require_tensors
from ..core.tensor.shapes import normalize_axis
from ..tensor import Tensor
from ._ctc import ctc_loss

__all__ = [
    "l1_loss",
    "square_loss",
    "cross_entropy",
    "binary_cross_entropy",
    "hinge_loss",
    "ctc_loss",
]


def _reduce(loss: Tensor, reduction: str) -> Tensor:
    if reduction == "mean":
        return ops.reduce_mean(loss, axes=tuple(range(loss.ndim)), keepdims=False)
    if reduction == "sum":
        return ops.reduce_sum(loss, axes=tuple(range(loss.ndim)), keepdims=False)
    if reduction == "none":
        return loss
    raise ValueError(f"reduction {reduction!r} is not one of 'mean', 'sum', 'none'")


def l1_loss(pred: Tensor, label: Tensor, reduction: str = "mean") -> Tensor:
    """``|pred - label|``."""
    return _reduce(ops.abs(ops.sub(pred, label)), reduction)


def square_loss(pred: Tensor, label: Tensor, reduction: str = "mean") -> Tensor:
    """``(pred - label) ** 2``."""
    return _reduce(ops.square(ops.sub(pred, label)), reduction)


def cross_entropy(
    pred: Tensor,
    label: Tensor | np.ndarray,
    axis: int = 1,
    with_logits: bool = True,
    label_smooth: float = 0,
    reduction: str = "mean",
) -> Tensor:
    """``-log p[label]``, p the softmax of ``pred`` along ``axis`` (or ``pred`` itself without
    logits).

    label: integers (a tensor or an array), pred's shape without ``axis``. label_smooth s mixes in the mean over classes:
    ``-(1 - s) * log p[label] - s * mean(log p)``.
    >>> from megengine import Tensor
    >>> round(cross_entropy(Tensor([[0.0, 0.0]]), Tensor([1])).item(), 4)
    0.6931
    """
    if isinstance(label, np.ndarray):
        label = Tensor(label)
    require_tensors("cross_entropy", pred, label)
    shape = pred._tuple_shape
    if axis < 0 or axis >= len(shape):
        axis = normalize_axis(axis, len(shape), "cross_entropy")
    if label.ndim != len(shape) - 1:
        raise ValueError(
            f"cross_entropy: label has shape {list(label._tuple_shape)}, pred {list(shape)}\n"
            f"  fix: label must be pred's shape without axis {axis}, of class indices"
        )
    pred = _to_high(pred)
    logp = ops.log_softmax(pred, axis=axis) if with_logits else ops.log(pred)
    outer = shape[:axis] + (1,) + shape[axis + 1 :]
    index = ops.reshape(
        label if label.dtype.name == "int32" else ops.cast(label, dtype="int32"), shape=outer
    )
    loss = ops.neg(
        ops.reshape(ops.gather(logp, index, axis=axis), shape=shape[:axis] + shape[axis + 1 :])
    )
    if label_smooth:
        mean = ops.reduce_mean(logp, axes=(axis,), keepdims=False)
        loss = ops.sub(ops.mul(loss, 1 - label_smooth), ops.mul(mean, label_smooth))
    return _reduce(loss, reduction)


def binary_cross_entropy(
    pred: Tensor, label: Tensor, with_logits: bool = True, reduction: str = "mean"
) -> Tensor:
    """``-(label * log p + (1 - label) * log(1 - p))``, p the sigmoid of ``pred`` (or ``pred``
    without logits).
    """
    pred = _to_high(pred)
    if with_logits:  # softplus(x) - x * label: the same, finite for every x
        return _reduce(ops.sub(ops.softplus(pred), ops.mul(pred, label)), reduction)
    positive = ops.mul(label, ops.log(pred))
    negative = ops.mul(ops.sub(1.0, label), ops.log(ops.sub(1.0, pred)))
    return _reduce(ops.neg(ops.add(positive, negative)), reduction)


def hinge_loss(pred: Tensor, label: Tensor, norm: str = "L1", reduction: str = "mean") -> Tensor:
    """``max(0, 1 - pred * label)``, squared for norm "L2", summed over axis 1. label: +1 and -1."""
    if norm not in ("L1", "L2"):
        raise ValueError(f"hinge_loss: norm {norm!r} is neither 'L1' nor 'L2'")
    loss = ops.relu(ops.sub(1.0, ops.mul(pred, label)))
    if norm == "L2":
        loss = ops.square(loss)
    return _reduce(ops.reduce_sum(loss, axes=(1,), keepdims=False), reduction)
