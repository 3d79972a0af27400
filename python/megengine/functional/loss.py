"""Losses. ``reduction`` is "mean", "sum" or "none"; others are a ValueError."""

import warnings as _warnings
from typing import TYPE_CHECKING as _TYPE_CHECKING

import numpy as np

from .. import _words
from ..core import ops
from ..core.tensor import products
from ..core.tensor.amp import to_high as _to_high
from ..core.tensor.array_method import require_tensors
from ..core.tensor.indexing import as_places
from ..core.tensor.shapes import normalize_axis
from ..tensor import Tensor
from ._ctc import ctc_loss
from ._distances import (
    cosine_embedding_loss,
    huber_loss,
    kl_div,
    smooth_l1_loss,
    triplet_margin_loss,
)
from ._docs import Operand as _Operand
from ._loss_parts import reduced, warn_of_broadcast

__all__ = [
    "l1_loss",
    "square_loss",
    "cross_entropy",
    "binary_cross_entropy",
    "hinge_loss",
    "ctc_loss",
    "cosine_embedding_loss",
    "huber_loss",
    "kl_div",
    "smooth_l1_loss",
    "nll_loss",
    "triplet_margin_loss",
]


def l1_loss(pred: Tensor, label: _Operand, reduction: str = "mean") -> Tensor:
    """Computes the absolute error ``|pred - label|``.

    Parameters
    ----------
    pred : Tensor
        Any shape.
    label : Tensor or number
        Broadcasts with pred, with a warning if a tensor's shape differs.
    reduction : str
        "mean", "sum" or "none".

    Returns
    -------
    Tensor
        0-d, or the error of each element for "none".

    Raises
    ------
    ValueError
        For another reduction.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> pred, label = Tensor([1.0, 2.0]), Tensor([1.0, 5.0])
    >>> F.loss.l1_loss(pred, label).item()
    1.5
    >>> F.loss.l1_loss(pred, label, reduction="none").numpy()
    array([0., 3.], dtype=float32)
    """
    warn_of_broadcast("l1_loss", pred, label)
    return reduced(ops.abs(ops.sub(pred, label)), reduction)


def square_loss(pred: Tensor, label: _Operand, reduction: str = "mean") -> Tensor:
    """Computes the squared error ``(pred - label) ** 2``.

    Parameters
    ----------
    pred : Tensor
        Any shape.
    label : Tensor or number
        Broadcasts with pred, with a warning if a tensor's shape differs.
    reduction : str
        "mean", "sum" or "none".

    Returns
    -------
    Tensor
        0-d, or the error of each element for "none".

    Raises
    ------
    ValueError
        For another reduction.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.loss.square_loss(Tensor([1.0, 2.0]), Tensor([1.0, 5.0])).item()
    4.5
    """
    warn_of_broadcast("square_loss", pred, label)
    given = [each for each in (pred, label) if isinstance(each, Tensor)]
    pred, label = products.as_reals(pred) if isinstance(pred, Tensor) else pred, products.as_reals(label) if isinstance(label, Tensor) else label
    return products.of_reals(reduced(ops.square(ops.sub(pred, label)), reduction), *given)


def cross_entropy(
    pred: Tensor,
    label: Tensor | np.ndarray,
    axis: int = 1,
    with_logits: bool = True,
    label_smooth: float = 0,
    reduction: str = "mean",
    ignore_index: int | None = None,
    weight: Tensor | None = None,
) -> Tensor:
    """Computes ``-log p[label]``, where p is the softmax of ``pred`` along ``axis``.

    Parameters
    ----------
    pred : Tensor
        [n, classes, ...], logits, or probabilities unless with_logits.
    label : Tensor or numpy.ndarray
        Class indices, a tensor or an array of integers of pred's shape without axis; floats are cut
        to integers, with a warning.
    axis : int
        That of the classes in ``pred``.
    with_logits : bool
        Whether ``pred`` holds logits.
    label_smooth : float
        A share s in [0, 1] that goes to all classes evenly:
        ``-(1 - s) * log p[label] - s * mean(log p)``.
    reduction : str
        "mean", "sum" or "none". The mean divides by the sum of the labels' weights, without those
        that are ignored.
    ignore_index : int or None
        A label, of a class or not, whose loss is 0.
    weight : Tensor or None
        [classes], what the loss of each class is multiplied by: ``weight[label]``, and for the
        share of label_smooth the weight of each class.

    Returns
    -------
    Tensor
        0-d, or for "none" the loss of each label.

    Raises
    ------
    ValueError
        For another reduction, a label of another rank, or weights of another shape.
    IndexError
        For a label that is not a class.

    References
    ----------
    Szegedy et al., 2016, "Rethinking the Inception Architecture for Computer Vision"
    (label_smooth).

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> pred = Tensor([[0.0, 0.0], [100.0, 0.0]])  # two samples, two classes
    >>> F.loss.cross_entropy(pred, Tensor([1, 1]), reduction="none").numpy().round(4)
    array([  0.6931, 100.    ], dtype=float32)
    """
    axis, label = _of_labels(pred, label, axis, "cross_entropy")
    if not 0 <= label_smooth <= 1:
        raise ValueError(f"cross_entropy: label_smooth {label_smooth} is not in [0, 1]")
    pred = _to_high(pred)
    logp = ops.log_softmax(pred, axis=axis) if with_logits else ops.log(pred)
    return _likelihood(logp, label, axis, label_smooth, reduction, ignore_index, weight, "cross_entropy")


def nll_loss(
    pred: Tensor,
    label: Tensor | np.ndarray,
    axis: int = 1,
    reduction: str = "mean",
    ignore_index: int | None = None,
    weight: Tensor | None = None,
) -> Tensor:
    """Computes ``-pred[label]``, the negative log-likelihood: the `cross_entropy` of what
    `logsoftmax` gives.

    Parameters
    ----------
    pred : Tensor
        [n, classes, ...], logarithms of probabilities.
    label : Tensor or numpy.ndarray
        As in `cross_entropy`.
    axis : int
        That of the classes in ``pred``.
    reduction : str
        As in `cross_entropy`.
    ignore_index : int or None
        A label, of a class or not, whose loss is 0.
    weight : Tensor or None
        [classes], what the loss of each class is multiplied by.

    Returns
    -------
    Tensor
        0-d, or for "none" the loss of each label.

    Raises
    ------
    ValueError
        For another reduction, a label of another rank, or weights of another shape.
    IndexError
        For a label that is not a class.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> pred = F.logsoftmax(Tensor([[0.0, 0.0]]), axis=1)
    >>> F.loss.nll_loss(pred, Tensor([1]), reduction="none").numpy().round(4)
    array([0.6931], dtype=float32)
    """
    axis, label = _of_labels(pred, label, axis, "nll_loss")
    return _likelihood(_to_high(pred), label, axis, 0.0, reduction, ignore_index, weight, "nll_loss")


def _of_labels(pred: Tensor, label: Tensor | np.ndarray, axis: int, op: str) -> tuple[int, Tensor]:
    """The axis of the classes, not negative, and the labels as places. ValueError for shapes that do not fit."""
    if isinstance(label, np.ndarray):
        label = Tensor(label)
    require_tensors(op, pred, label)
    shape = pred._tuple_shape
    if axis < 0 or axis >= len(shape):
        axis = normalize_axis(axis, len(shape), op)
    if label._tuple_shape != shape[:axis] + shape[axis + 1 :]:
        raise ValueError(
            f"{op}: label has shape {list(label._tuple_shape)}, pred {list(shape)}\n"
            f"  fix: label must be pred's shape without axis {axis}, of class indices"
        )
    if label.dtype.name.startswith(("float", "bfloat")):
        _warnings.warn(
            f"{op}: labels are class indices, so {label.dtype.name} labels are truncated to integers; "
            "pass label.astype('int32')",
            stacklevel=3,
        )
    return axis, as_places(label)


def _likelihood(
    logp: Tensor, label: Tensor, axis: int, label_smooth: float, reduction: str, ignore_index: int | None, weight: Tensor | None, op: str
) -> Tensor:
    shape = logp._tuple_shape
    counted = None
    if ignore_index is not None:
        counted = ops.not_equal(label, ignore_index)
        label = ops.where(counted, label, 0)
    label = ops.checked_label(label, classes=shape[axis], op=op)
    if weight is not None:
        logp = ops.mul(logp, _of_classes(weight, shape, axis, op))
    index = ops.reshape(label, shape=shape[:axis] + (1,) + shape[axis + 1 :])
    loss = ops.neg(ops.reshape(ops.gather(logp, index, axis=axis), shape=label._tuple_shape))
    if label_smooth:
        mean = ops.reduce_mean(logp, axes=(axis,), keepdims=False)
        loss = ops.sub(ops.mul(loss, 1 - label_smooth), ops.mul(mean, label_smooth))
    if weight is None and counted is None:
        return reduced(loss, reduction)
    shares = ops.full(shape=(), value=1.0, dtype=loss.dtype.name, device=loss) if weight is None else ops.index_get(weight, label, axes=(0,))
    if counted is not None:
        shares, loss = ops.where(counted, shares, 0.0), ops.where(counted, loss, 0.0)
    total = reduced(loss, "sum" if reduction == "mean" else reduction)
    return ops.true_div(total, reduced(shares, "sum")) if reduction == "mean" else total


def _of_classes(weight: Tensor, shape: tuple[int, ...], axis: int, op: str) -> Tensor:
    """Weights of classes as they broadcast to predictions."""
    require_tensors(op, weight)
    if weight._tuple_shape != (shape[axis],):
        raise ValueError(f"{op}: weight has shape {list(weight._tuple_shape)} for {shape[axis]} classes")
    return ops.reshape(weight, shape=(shape[axis],) + (1,) * (len(shape) - axis - 1))


def binary_cross_entropy(
    pred: Tensor, label: _Operand, with_logits: bool = True, reduction: str = "mean"
) -> Tensor:
    """Computes ``-(label * log p + (1 - label) * log(1 - p))``, where p is the sigmoid of ``pred``.

    Parameters
    ----------
    pred : Tensor
        Any shape: logits, for which the loss is finite whatever they are, or probabilities unless
        with_logits.
    label : Tensor or number
        In [0, 1]; broadcasts with pred, with a warning.
    with_logits : bool
        Whether ``pred`` holds logits; probabilities otherwise, with ``0 * log(0)`` as 0.
    reduction : str
        "mean", "sum" or "none".

    Returns
    -------
    Tensor
        0-d, or the loss of each element for "none".

    Raises
    ------
    ValueError
        For another reduction.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> pred, label = Tensor([0.0, 200.0]), Tensor([1.0, 0.0])
    >>> F.loss.binary_cross_entropy(pred, label, reduction="none").numpy().round(4)
    array([  0.6931, 200.    ], dtype=float32)
    """
    warn_of_broadcast("binary_cross_entropy", pred, label)
    pred = _to_high(pred)
    if with_logits:  # softplus(x) - x * label: the same, finite for every x
        return reduced(ops.sub(ops.softplus(pred), ops.mul(pred, label)), reduction)
    positive = _times_log(label, pred)
    negative = _times_log(ops.sub(1.0, label), ops.sub(1.0, pred))
    return reduced(ops.neg(ops.add(positive, negative)), reduction)


def _times_log(x: _Operand, y: Tensor) -> Tensor:
    """x * log(y), and 0 where x is 0: a certain prediction that is right costs nothing."""
    is_zero = ops.equal(x, 0.0)
    return ops.where(is_zero, 0.0, ops.mul(x, ops.log(ops.where(is_zero, 1.0, y))))


def hinge_loss(pred: Tensor, label: Tensor, norm: str = "L1", reduction: str = "mean") -> Tensor:
    """Computes ``max(0, 1 - pred * label)``, summed over the classes (axis 1).

    Parameters
    ----------
    pred : Tensor
        [n, classes], scores.
    label : Tensor
        The same shape, 1 for the true class and -1 for others.
    norm : str
        "L2" squares each term, "L1" does not.
    reduction : str
        "mean" and "sum" are over the samples; or "none".

    Returns
    -------
    Tensor
        0-d, or [n] for "none".

    Raises
    ------
    ValueError
        For another norm or reduction.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> pred, label = Tensor([[0.5, -2.0]]), Tensor([[1.0, -1.0]])
    >>> F.loss.hinge_loss(pred, label).item()  # 0.5 and 0
    0.5
    >>> F.loss.hinge_loss(pred, label, norm="L2").item()
    0.25
    """
    if norm not in ("L1", "L2"):
        raise ValueError(f"norm must be L1 or L2, hinge_loss got {norm!r}")
    warn_of_broadcast("hinge_loss", pred, label)
    loss = ops.relu(ops.sub(1.0, ops.mul(pred, label)))
    if norm == "L2":
        loss = ops.square(loss)
    return reduced(ops.reduce_sum(loss, axes=(1,), keepdims=False), reduction)


if not _TYPE_CHECKING:
    __getattr__ = _words.module_getattr(__name__, "F")
