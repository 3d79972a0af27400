"""ATen operators of CTC: likelihoods of labels over all their alignments with the frames, and the gradient.

Graves et al. 2006, "Connectionist Temporal Classification", with the names of its equations: alpha is of what was read up to a
frame, beta of what follows. A state is a label, or the blank before or behind it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from .. import functional as F
from ..core import ops
from ..functional._ctc import padded, with_fillers
from ..tensor import Tensor
from ._forms import Unsupported


def _lengths(given: Any) -> tuple[Tensor, int | None]:
    """The lengths as a tensor, and the largest where it is known."""
    if isinstance(given, Tensor):
        return given.astype("int32"), None
    return Tensor(np.asarray(given, np.int32)), max(given, default=0)


def _moved(x: Tensor, by: int) -> Tensor:
    """``x[:, s - by]``, and -inf where there is none."""
    states = x._tuple_shape[1]
    by = max(-states, min(by, states))
    kept = x[:, : states - by] if by > 0 else x[:, -by:]
    nothing = F.full((x._tuple_shape[0], abs(by)), -math.inf)
    return F.concat([nothing, kept] if by > 0 else [kept, nothing], axis=1)


class _States:
    """The states of each sequence of a batch, and their probabilities at each frame."""

    def __init__(self, scores: Tensor, labels: Tensor, frames: Any, counts: Any, blank: int) -> None:
        if scores.dtype != np.float32:
            raise Unsupported(f"of {scores.dtype}")
        self.frames, _ = _lengths(frames)
        self.counts, longest = _lengths(counts)
        longest = labels._tuple_shape[-1] if longest is None else longest
        self.classes = with_fillers(blank, padded(labels.astype("int32"), self.counts, longest, blank))
        time, (batch, count) = scores._tuple_shape[0], self.classes._tuple_shape
        self.index = F.broadcast_to(self.classes, (time, batch, count))
        self.scores = ops.gather(scores, self.index, axis=2)
        self.time = F.arange(time, dtype="int32")
        # what a label that differs from the last one reaches past the blank
        same = self.classes[:, 2:] == self.classes[:, : count - 2]
        never = F.full((batch, min(count, 2)), -math.inf)
        self.skip = F.concat([never, F.where(same, F.full((), -math.inf), F.zeros(()))], axis=1) if count > 2 else never
        place = F.arange(count, dtype="int32")
        end = F.expand_dims(2 * self.counts, 1)
        self.is_last = (place == end) | (place == end - 1)
        self.first = F.broadcast_to(F.where(place == 0, F.zeros(()), F.full((), -math.inf)), (batch, count))

    def alpha(self) -> Tensor:
        """[time, batch, states]"""

        def step(alpha: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
            alpha = F.logaddexp(F.logaddexp(alpha, _moved(alpha, 1)), _moved(alpha, 2) + self.skip) + scores
            return alpha, alpha

        found: Tensor = F.scan(step, self.first, self.scores)[1]
        return found

    def beta(self) -> Tensor:
        """[time, batch, states]"""
        ahead = _moved(self.skip, -2)

        def step(beta: Tensor, given: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
            scores, now = given
            before = F.logaddexp(F.logaddexp(beta, _moved(beta, -1)), _moved(beta, -2) + ahead)
            begun = F.where(self.is_last, F.zeros(()), F.full((), -math.inf))
            beta = F.where(F.expand_dims(self.frames, 1) == now + 1, begun, before) + scores
            return beta, beta

        none = F.full(self.first._tuple_shape, -math.inf)
        found: Tensor = F.scan(step, none, (self.scores, self.time), reverse=True)[1]
        return found


def ctc_loss(scores: Tensor, labels: Tensor, frames: Any, counts: Any, blank: int = 0, zero_infinity: bool = False) -> tuple[Tensor, Tensor]:
    """(the losses, alpha with the batch in front)."""
    states = _States(scores, labels, frames, counts, blank)
    alpha = states.alpha()
    is_end = F.expand_dims(states.time, 1) == states.frames - 1
    last = F.max(F.where(F.expand_dims(is_end, 2), alpha, F.full((), -math.inf)), axis=0)
    last = F.where(F.expand_dims(states.frames, 1) == 0, states.first, last)
    losses = -F.logsumexp(F.where(states.is_last, last, F.full((), -math.inf)), axis=1)
    return losses, F.swapaxes(alpha, 0, 1)


def ctc_loss_backward(
    dy: Tensor, scores: Tensor, labels: Tensor, frames: Any, counts: Any, losses: Tensor, alpha: Tensor, blank: int, zero_infinity: bool = False
) -> Tensor:
    """The gradient is that of the logits, as torch has it: log_softmax's gradient leaves it as it is."""
    states = _States(scores, labels, frames, counts, blank)
    together = F.swapaxes(alpha, 0, 1) + states.beta() - states.scores + F.expand_dims(losses, 1)
    weights = F.where(states.scores == -math.inf, F.zeros(()), F.exp(together))
    read = ops.scatter_add(F.zeros(scores._tuple_shape), states.index, weights, axis=2)
    grad = (F.exp(scores) - read) * F.expand_dims(dy, 1)
    if zero_infinity:
        grad = F.where(F.expand_dims(losses == math.inf, 1), F.zeros(()), grad)
    is_read = F.expand_dims(states.time, 1) < states.frames
    return F.where(F.expand_dims(is_read, 2), grad, F.zeros(()))


ROWS: dict[str, Callable[..., Any]] = {"_ctc_loss": ctc_loss, "_ctc_loss_backward": ctc_loss_backward}
