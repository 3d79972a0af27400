"""Connectionist temporal classification (Graves et al., 2006), by the forward recursion in log
space.
"""

import math

import numpy as np
from numpy.typing import ArrayLike

from .._core import is_tracing
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
        Number of frames of each sequence, at most time: [batch], integers.
    label : array_like
        [batch, longest], class indices (those behind a length are ignored), or all labels one after
        the other in 1-d.
    label_lengths : array_like
        Number of labels of each sequence: [batch], integers.
    blank : int
        Class that stands for no label.
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
        For lengths that do not fit pred or label, a blank outside of the classes or another
        reduction.
    TypeError
        For lengths and labels that are not integers.

    Notes
    -----
    Lengths and labels that are Tensors are inputs of a traced function: each call may have others.
    A traced function does not check them, and for 1-d labels each sequence takes memory for the
    labels of all sequences.

    A probability below 1.1754944e-38 counts as that number, and so does that of a state that the
    first frame cannot reach. So the loss of labels that do not fit the frames is finite, 87 or
    more. A label may be the blank's class; a blank is skipped between labels that differ.

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
        raise ValueError(f"{reduction} is not a valid value for reduction\n  fix: use 'mean', 'sum' or 'none'")
    time, batch, classes = pred._tuple_shape
    if not 0 <= blank < classes:
        raise ValueError(f"ctc_loss: blank {blank} is not one of {classes} classes")
    longest = _longest(pred_lengths, label, label_lengths, time)
    lengths = _lengths(pred_lengths, batch, "pred_lengths")
    label_len = _lengths(label_lengths, batch, "label_lengths")
    labels = padded(_integers(label, "label"), label_len, longest, blank)
    loss = ops.neg(_log_likelihood(pred, lengths, labels, label_len, blank))
    if reduction == "none":
        return loss
    if reduction == "mean":
        loss = ops.true_div(loss, ops.cast(ops.maximum(label_len, 1), dtype="float32"))
        return ops.reduce_mean(loss, axes=(0,), keepdims=False)
    return ops.reduce_sum(loss, axes=(0,), keepdims=False)


def _known(values: ArrayLike) -> np.ndarray | None:
    """Returns the values if reading them does not make them constants of a trace."""
    if isinstance(values, Tensor):
        return None if is_tracing() else values.numpy().reshape(-1)
    return np.asarray(values).reshape(-1)


def _longest(pred_lengths: ArrayLike, label: ArrayLike, label_lengths: ArrayLike, time: int) -> int:
    """Returns the most labels that a sequence may have: the largest length if it is known, else all
    places.
    """
    shape = np.shape(label) if not isinstance(label, Tensor) else label._tuple_shape
    room = shape[-1] if shape else 0
    frames, counts = _known(pred_lengths), _known(label_lengths)
    if frames is not None and frames.size and not 0 <= frames.min() <= frames.max() <= time:
        bad = frames.min() if frames.min() < 0 else frames.max()
        raise ValueError(f"ctc_loss: pred_lengths has {bad}, pred only {time} steps")
    if counts is None:
        return room
    used = counts.max(initial=0) if len(shape) == 2 else counts.sum()
    if counts.min(initial=0) < 0 or used > room:
        raise ValueError(f"ctc_loss: label_lengths {counts.tolist()} do not fit a label of shape {list(shape)}")
    return int(counts.max(initial=0))


def _integers(values: ArrayLike, what: str) -> Tensor:
    """Casts to int32; host data become a constant of a trace."""
    tensor = values if isinstance(values, Tensor) else apply_const(np.asarray(values, None if np.size(values) else np.int32))
    if tensor.dtype.kind not in "iu":
        raise TypeError(f"ctc_loss: {what} is {tensor.dtype}, not integers")
    return tensor if tensor.dtype == np.int32 else ops.cast(tensor, dtype="int32")


def _lengths(values: ArrayLike, batch: int, what: str) -> Tensor:
    lengths = _integers(values, what)
    if lengths.size != batch:
        raise ValueError(f"ctc_loss: {what} has {lengths.size} values for a batch of {batch}")
    return ops.reshape(lengths, shape=(batch,))


def padded(label: Tensor, label_len: Tensor, longest: int, blank: int) -> Tensor:
    """Returns [batch, longest]: the labels of each sequence, then blanks."""
    batch, places = label_len._tuple_shape[0], apply_const(np.arange(longest, dtype=np.int32)[None])
    if label.ndim == 1:
        starts = ops.reshape(ops.cumsum(label_len, axis=0, exclusive=True, reverse=False), shape=(batch, 1))
        index = ops.minimum(ops.add(starts, places), max(0, label._tuple_shape[0] - 1))
        labels = ops.index_get(label, index, axes=(0,)) if longest else ops.full(shape=(batch, 0), value=blank, dtype="int32", device=label)
    elif label.ndim == 2 and label._tuple_shape[0] == batch:
        labels = ops.slice(label, begin=(0, 0), end=(batch, longest), step=(1, 1))
    else:
        raise ValueError(f"ctc_loss: label has shape {list(label._tuple_shape)}, not [{batch}, longest] or 1-d")
    return ops.where(ops.less(places, ops.reshape(label_len, shape=(batch, 1))), labels, blank)


def with_fillers(filler: float, values: Tensor) -> Tensor:
    """Returns [batch, 2 n + 1]: filler, value, filler, value, ..., filler."""
    batch, count = values._tuple_shape
    fill = [ops.full(shape=shape, value=filler, dtype=values.dtype.name, device=values) for shape in ((batch, count, 1), (batch, 1))]
    pairs = ops.concat(fill[0], ops.reshape(values, shape=(batch, count, 1)), axis=2)
    return ops.concat(ops.reshape(pairs, shape=(batch, 2 * count)), fill[1], axis=1)


def _no_skip(labels: Tensor) -> Tensor:
    """Returns 0 for states that a step may reach past a blank, from another label; else nearly
    -inf.
    """
    batch, count = labels._tuple_shape
    if not count:
        return ops.full(shape=(batch, 0), value=_NEVER, dtype="float32", device=labels)
    earlier = ops.slice(labels, begin=(0, 0), end=(batch, count - 1), step=(1, 1))
    later = ops.slice(labels, begin=(0, 1), end=(batch, count), step=(1, 1))
    same = ops.cast(ops.equal(earlier, later), dtype="float32")
    return ops.mul(ops.pad(same, before=(0, 1), after=(0, 0), mode="constant", value=1.0), _NEVER)


def _log_likelihood(pred: Tensor, lengths: Tensor, labels: Tensor, label_len: Tensor, blank: int) -> Tensor:
    time, batch, _ = pred._tuple_shape
    extended, no_skip = with_fillers(blank, labels), with_fillers(_NEVER, _no_skip(labels))
    states = extended._tuple_shape[1]
    index = ops.broadcast_to(extended, shape=(time, batch, states))
    logp = ops.log(ops.maximum(ops.gather(pred, index, axis=2), _SMALLEST))  # [time, batch, states]
    is_begin = apply_const(np.broadcast_to(np.arange(states) < 2, (batch, states)))
    alpha = ops.where(is_begin, taken(logp, 0, 0), math.log(_SMALLEST))
    frames = ops.reshape(lengths, shape=(batch, 1))
    for t in range(1, time):
        stay_or_step = ops.logaddexp(alpha, _shifted(alpha, 1))
        reached = ops.logaddexp(stay_or_step, ops.add(_shifted(alpha, 2), no_skip))
        alpha = ops.where(ops.greater(frames, t), ops.add(reached, taken(logp, 0, t)), alpha)
    end = ops.mul(ops.reshape(label_len, shape=(batch, 1)), 2)  # the last blank; the last label stands before it
    both = ops.concat(end, ops.maximum(ops.sub(end, 1), 0), axis=1)
    last = ops.gather(alpha, both, axis=1)  # [batch, 2]
    only_blank = ops.mul(ops.cast(ops.equal(label_len, 0), dtype="float32"), _NEVER)
    final = [taken(last, 1, k) for k in (0, 1)]
    return ops.logaddexp(final[0], ops.add(final[1], only_blank))


def _shifted(alpha: Tensor, by: int) -> Tensor:
    """Returns alpha[:, s - by], with nearly -inf for s < by."""
    batch, states = alpha._tuple_shape
    if by >= states:
        return ops.full(shape=(batch, states), value=_NEVER, dtype="float32", device=alpha)
    kept = ops.slice(alpha, begin=(0, 0), end=(batch, states - by), step=(1, 1))
    return ops.pad(kept, before=(0, by), after=(0, 0), mode="constant", value=_NEVER)
