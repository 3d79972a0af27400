"""Connectionist temporal classification (Graves et al., 2006), by the forward recursion in log
space.
"""

import math

import numpy as np
from numpy.typing import ArrayLike

from ..core import apply_const, ops
from ..core.tensor.shapes import taken
from ..tensor import Tensor

_SMALLEST = 1.1754944e-38  # the smallest normal float32: less probable than that is nothing
_NEVER = -1e30  # log of a probability 0 that stays finite under additions


def ctc_loss(
    pred: Tensor,
    pred_lengths: ArrayLike,
    label: ArrayLike,
    label_lengths: ArrayLike,
    blank: int = 0,
    reduction: str = "mean",
) -> Tensor:
    """Computes the connectionist temporal classification loss: the negative log likelihood of label
    sequences, summed over all their alignments with the frames.

    Parameters
    ----------
    pred : Tensor
        [time, batch, classes], probabilities (not logits), float32.
    pred_lengths : array_like
        [batch], integers: the frames of each sequence, at most time.
    label : array_like
        [batch, longest], class indices, or all labels one after the other in 1-d.
    label_lengths : array_like
        [batch], integers.
    blank : int
        The class that stands for no label.
    reduction : str
        "mean" divides each loss by its label length and averages over the batch; "sum" adds the
        losses; "none" keeps them.

    Returns
    -------
    Tensor
        0-d, or [batch] for "none".

    Raises
    ------
    ValueError
        For lengths that do not fit pred, a blank outside of the classes or another reduction.

    Notes
    -----
    Lengths and labels are read on the host. A probability below 1.1754944e-38 counts as that
    number, and so does a state that the first frame cannot reach: the loss of labels that do not
    fit the frames is finite, 87 or more. A label may be the blank's class; a blank is skipped
    between labels that differ.

    References
    ----------
    Graves et al., 2006, "Connectionist Temporal Classification".

    Examples
    --------
    >>> from megengine import functional as F
    >>> pred = F.full((2, 1, 2), 0.5)  # two frames; "-a", "a-" and "aa" all read "a"
    >>> loss = F.loss.ctc_loss(pred, [2], [[1]], [1])
    >>> round(F.exp(-loss).item(), 4)
    0.75
    """
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f"reduction {reduction!r} is not one of 'mean', 'sum', 'none'")
    time, batch, classes = pred._tuple_shape
    if not 0 <= blank < classes:
        raise ValueError(f"ctc_loss: blank {blank} is not one of {classes} classes")
    lengths = _host(pred_lengths, batch, "pred_lengths")
    label_len = _host(label_lengths, batch, "label_lengths")
    if lengths.max(initial=0) > time:
        raise ValueError(f"ctc_loss: pred_lengths has {lengths.max()}, pred only {time} steps")
    extended = _with_blanks(label, label_len, blank)  # [batch, 2 * longest + 1]
    loss = ops.neg(_log_likelihood(pred, lengths, extended, label_len, blank))
    if reduction == "none":
        return loss
    if reduction == "mean":
        loss = ops.true_div(loss, apply_const(np.maximum(label_len, 1).astype(np.float32)))
        return ops.reduce_mean(loss, axes=(0,), keepdims=False)
    return ops.reduce_sum(loss, axes=(0,), keepdims=False)


def _host(values: ArrayLike, batch: int, what: str) -> np.ndarray:
    array = (
        np.asarray(values.numpy() if isinstance(values, Tensor) else values)
        .astype(np.int64)
        .reshape(-1)
    )
    if array.size != batch:
        raise ValueError(f"ctc_loss: {what} has {array.size} values for a batch of {batch}")
    return array


def _with_blanks(label: ArrayLike, label_len: np.ndarray, blank: int) -> np.ndarray:
    labels = np.asarray(label.numpy() if isinstance(label, Tensor) else label)
    longest = int(label_len.max(initial=0))
    out = np.full((len(label_len), 2 * longest + 1), blank, np.int32)
    starts = np.concatenate([[0], np.cumsum(label_len)])
    for i, n in enumerate(label_len):
        out[i, 1 : 2 * n : 2] = (
            labels[i, :n] if labels.ndim == 2 else labels[starts[i] : starts[i] + n]
        )
    return out


def _log_likelihood(
    pred: Tensor, lengths: np.ndarray, extended: np.ndarray, label_len: np.ndarray, blank: int
) -> Tensor:
    time, batch, _ = pred._tuple_shape
    states = extended.shape[1]
    # A step may skip a blank between two different labels.
    skip = np.zeros((batch, states), bool)
    skip[:, 3::2] = extended[:, 3::2] != extended[:, 1:-2:2]
    index = apply_const(np.broadcast_to(extended, (time, batch, states)).astype(np.int32))
    logp = ops.log(ops.maximum(ops.gather(pred, index, axis=2), _SMALLEST))  # [time, batch, states]
    no_skip = apply_const(np.where(skip, 0, _NEVER).astype(np.float32))
    is_begin = apply_const(np.broadcast_to(np.arange(states) < 2, (batch, states)))
    alpha = ops.where(is_begin, taken(logp, 0, 0), math.log(_SMALLEST))
    for t in range(1, time):
        stay_or_step = ops.logaddexp(alpha, _shifted(alpha, 1))
        reached = ops.logaddexp(stay_or_step, ops.add(_shifted(alpha, 2), no_skip))
        going = apply_const((t < lengths)[:, None])
        alpha = ops.where(going, ops.add(reached, taken(logp, 0, t)), alpha)
    end = apply_const(
        np.stack([2 * label_len, np.maximum(2 * label_len - 1, 0)], 1).astype(np.int32)
    )
    last = ops.gather(alpha, end, axis=1)  # [batch, 2]
    only_blank = apply_const(np.where(label_len == 0, _NEVER, 0).astype(np.float32))
    final = [taken(last, 1, k) for k in (0, 1)]
    return ops.logaddexp(final[0], ops.add(final[1], only_blank))


def _shifted(alpha: Tensor, by: int) -> Tensor:
    """alpha[:, s - by], never reached for s < by."""
    batch, states = alpha._tuple_shape
    if by >= states:
        return ops.full(shape=(batch, states), value=_NEVER, dtype="float32", device=alpha)
    kept = ops.slice(alpha, begin=(0, 0), end=(batch, states - by), step=(1, 1))
    return ops.pad(kept, before=(0, by), after=(0, 0), mode="constant", value=_NEVER)
