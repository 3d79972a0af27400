"""Losses. ``reduction`` is "mean", "sum" or "none"; other words raise ValueError."""

import warnings as _warnings
from typing import TYPE_CHECKING as _TYPE_CHECKING

import numpy as np

from .. import _words
from ..core import ops as _ops
from ..core.tensor import products as _products
from ..core.tensor.amp import to_high as _to_high
from ..core.tensor.array_method import require_tensors as _require_tensors
from ..core.tensor.indexing import as_places as _as_places
from ..core.tensor.shapes import normalize_axis as _normalize_axis
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
from ._loss_parts import reduced as _reduced
from ._loss_parts import warn_of_broadcast as _warn_of_broadcast

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
        Predicted values, of any shape and dtype.
    label : Tensor or number
        True values. The shapes broadcast; a warning says so if they differ.
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

    See Also
    --------
    square_loss : The squared error.
    smooth_l1_loss : A parabola where the error is small.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> pred, label = Tensor([1.0, 2.0]), Tensor([1.0, 5.0])
    >>> F.loss.l1_loss(pred, label).item()
    1.5
    >>> F.loss.l1_loss(pred, label, reduction="none").numpy()
    array([0., 3.], dtype=float32)
    """
    _warn_of_broadcast("l1_loss", pred, label)
    return _reduced(_ops.abs(_ops.sub(pred, label)), reduction)


def square_loss(pred: Tensor, label: _Operand, reduction: str = "mean") -> Tensor:
    """Computes the squared error ``(pred - label) ** 2``.

    Parameters
    ----------
    pred : Tensor
        Predicted values, of any shape and dtype.
    label : Tensor or number
        True values. The shapes broadcast; a warning says so if they differ.
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

    See Also
    --------
    l1_loss : The absolute error.
    huber_loss : A line where the error is large.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.loss.square_loss(Tensor([1.0, 2.0]), Tensor([1.0, 5.0])).item()
    4.5
    """
    _warn_of_broadcast("square_loss", pred, label)
    given = [each for each in (pred, label) if isinstance(each, Tensor)]
    found, wanted = (_products.as_reals(each) if isinstance(each, Tensor) else each for each in (pred, label))
    return _products.of_reals(_reduced(_ops.square(_ops.sub(found, wanted)), reduction), *given)


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
        Axis of ``pred`` that has the classes.
    with_logits : bool
        Whether ``pred`` holds logits; False means probabilities.
    label_smooth : float
        Share s in [0, 1] of the label that goes to all classes evenly: ``-(1 - s) * log p[label] -
        s * mean(log p)``.
    reduction : str
        "mean", "sum" or "none". The mean divides by the sum of the labels' weights, without those
        that are ignored.
    ignore_index : int or None
        Label whose loss is 0; it need not be a class.
    weight : Tensor or None
        Factor of the loss of each class, [classes]; None is 1. The loss of a label is multiplied by
        ``weight[label]``, each class's part of label_smooth by the weight of that class.

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

    See Also
    --------
    nll_loss : Takes logarithms of probabilities.
    binary_cross_entropy : Has two classes, and a probability as a label.
    module.CrossEntropyLoss : The layer.

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
    logp = _ops.log_softmax(pred, axis=axis) if with_logits else _ops.log(pred)
    return _likelihood(logp, label, axis, label_smooth, reduction, ignore_index, weight, "cross_entropy")


def nll_loss(
    pred: Tensor,
    label: Tensor | np.ndarray,
    axis: int = 1,
    reduction: str = "mean",
    ignore_index: int | None = None,
    weight: Tensor | None = None,
) -> Tensor:
    """Computes ``-pred[label]``, the negative log-likelihood: the `cross_entropy` of logarithms
    that `logsoftmax` returns.

    Parameters
    ----------
    pred : Tensor
        [n, classes, ...], logarithms of probabilities.
    label : Tensor or numpy.ndarray
        Class indices, a tensor or an array of integers of pred's shape without ``axis``; floats are
        cut to integers, with a warning.
    axis : int
        Axis of ``pred`` that has the classes.
    reduction : str
        "mean", "sum" or "none". The mean divides by the sum of the labels' weights, without those
        that are ignored.
    ignore_index : int or None
        Label whose loss is 0; it need not be a class.
    weight : Tensor or None
        Factor of the loss of each class, [classes]; None is 1.

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
    """Returns the axis of the classes, counted from the front, and the labels as places. ValueError
    for shapes that do not fit.
    """
    if isinstance(label, np.ndarray):
        label = Tensor(label)
    _require_tensors(op, pred, label)
    shape = pred._tuple_shape
    if axis < 0 or axis >= len(shape):
        axis = _normalize_axis(axis, len(shape), op)
    if label._tuple_shape != shape[:axis] + shape[axis + 1 :]:
        raise ValueError(
            f"{op}: label has shape {list(label._tuple_shape)}, pred {list(shape)}\n"
            f"  fix: label must be pred's shape without axis {axis}, of class indices"
        )
    if label._dtype_name.startswith(("float", "bfloat")):
        _warnings.warn(
            f"{op}: labels are class indices, so {label._dtype_name} labels are truncated to integers; "
            "pass label.astype('int32')",
            stacklevel=3,
        )
    return axis, _as_places(label)


def _likelihood(
    logp: Tensor, label: Tensor, axis: int, label_smooth: float, reduction: str, ignore_index: int | None, weight: Tensor | None, op: str
) -> Tensor:
    shape = logp._tuple_shape
    counted = None
    if ignore_index is not None:
        counted = _ops.not_equal(label, ignore_index)
        label = _ops.where(counted, label, 0)
    label = _ops.checked_label(label, classes=shape[axis], op=op)
    if weight is not None:
        logp = _ops.mul(logp, _of_classes(weight, shape, axis, op))
    index = _ops.reshape(label, shape=shape[:axis] + (1,) + shape[axis + 1 :])
    loss = _ops.neg(_ops.reshape(_ops.gather(logp, index, axis=axis), shape=label._tuple_shape))
    if label_smooth:
        mean = _ops.reduce_mean(logp, axes=(axis,), keepdims=False)
        loss = _ops.sub(_ops.mul(loss, 1 - label_smooth), _ops.mul(mean, label_smooth))
    if weight is None and counted is None:
        return _reduced(loss, reduction)
    shares = _ops.full(shape=(), value=1.0, dtype=loss._dtype_name, device=loss) if weight is None else _ops.index_get(weight, label, axes=(0,))
    if counted is not None:
        shares, loss = _ops.where(counted, shares, 0.0), _ops.where(counted, loss, 0.0)
    total = _reduced(loss, "sum" if reduction == "mean" else reduction)
    return _ops.true_div(total, _reduced(shares, "sum")) if reduction == "mean" else total


def _of_classes(weight: Tensor, shape: tuple[int, ...], axis: int, op: str) -> Tensor:
    """Returns weights of classes in a shape that broadcasts to predictions."""
    _require_tensors(op, weight)
    if weight._tuple_shape != (shape[axis],):
        raise ValueError(f"{op}: weight has shape {list(weight._tuple_shape)} for {shape[axis]} classes")
    return _ops.reshape(weight, shape=(shape[axis],) + (1,) * (len(shape) - axis - 1))


def binary_cross_entropy(
    pred: Tensor, label: _Operand, with_logits: bool = True, reduction: str = "mean"
) -> Tensor:
    """Computes ``-(label * log p + (1 - label) * log(1 - p))``, where p is the sigmoid of ``pred``.

    Parameters
    ----------
    pred : Tensor
        Logits of any shape and value, or probabilities unless with_logits.
    label : Tensor or number
        True values in [0, 1], whose shape broadcasts with that of ``pred``; a warning says so if
        they differ.
    with_logits : bool
        Whether ``pred`` holds logits; False means probabilities, for which ``0 * log(0)`` is 0.
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

    See Also
    --------
    cross_entropy : Has any number of classes.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> pred, label = Tensor([0.0, 200.0]), Tensor([1.0, 0.0])
    >>> F.loss.binary_cross_entropy(pred, label, reduction="none").numpy().round(4)
    array([  0.6931, 200.    ], dtype=float32)
    """
    _warn_of_broadcast("binary_cross_entropy", pred, label)
    pred = _to_high(pred)
    if with_logits:  # softplus(x) - x * label: the same, finite for every x
        return _reduced(_ops.sub(_ops.softplus(pred), _ops.mul(pred, label)), reduction)
    positive = _times_log(label, pred)
    negative = _times_log(_ops.sub(1.0, label), _ops.sub(1.0, pred))
    return _reduced(_ops.neg(_ops.add(positive, negative)), reduction)


def _times_log(x: _Operand, y: Tensor) -> Tensor:
    """Computes x * log(y), and 0 where x is 0: a certain prediction that is right costs nothing."""
    is_zero = _ops.equal(x, 0.0)
    return _ops.where(is_zero, 0.0, _ops.mul(x, _ops.log(_ops.where(is_zero, 1.0, y))))


def hinge_loss(pred: Tensor, label: Tensor, norm: str = "L1", reduction: str = "mean") -> Tensor:
    """Computes ``max(0, 1 - pred * label)``, summed over the classes (axis 1).

    Parameters
    ----------
    pred : Tensor
        Scores of the classes, [n, classes].
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
    _warn_of_broadcast("hinge_loss", pred, label)
    loss = _ops.relu(_ops.sub(1.0, _ops.mul(pred, label)))
    if norm == "L2":
        loss = _ops.square(loss)
    return _reduced(_ops.reduce_sum(loss, axes=(1,), keepdims=False), reduction)


if not _TYPE_CHECKING:
    __getattr__ = _words.module_getattr(__name__, "F")
