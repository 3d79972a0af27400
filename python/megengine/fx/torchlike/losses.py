"""Losses with the arguments of torch's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ... import functional as F
from ...core import ops
from ...functional._loss_parts import reduced, warn_of_broadcast
from ...tensor import Tensor
from .._intercept import wrap

_REDUCTIONS = ("none", "mean", "sum")  # exported programs have their indices


def _reduction(name: Any) -> Any:
    return _REDUCTIONS[name] if isinstance(name, int) else name


def _refuse(weight: Any) -> None:
    if weight is not None:
        raise ValueError("weight is not supported; multiply the losses of reduction='none'")


def _of_two(function: Callable[..., Any]) -> Callable[..., Any]:
    """A loss without further arguments."""

    def loss(input, target, size_average=None, reduce=None, reduction="mean", weight=None):
        _refuse(weight)
        return function(input, target, reduction=_reduction(reduction))

    return loss


def _exported_of_two(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda input, target, reduction=1: function(input, target, reduction=_reduction(reduction))


def cross_entropy(input, target, weight=None, size_average=None, ignore_index=-100, reduce=None, reduction="mean", label_smoothing=0.0):
    given = {"label_smooth": label_smoothing, "ignore_index": ignore_index, "weight": weight}
    return F.loss.cross_entropy(input, target, reduction=_reduction(reduction), **given)


def nll_loss(input, target, weight=None, size_average=None, ignore_index=-100, reduce=None, reduction="mean"):
    return F.loss.nll_loss(input, target, reduction=_reduction(reduction), ignore_index=ignore_index, weight=weight)


def kl_div(input, target, size_average=None, reduce=None, reduction="mean", log_target=False):
    return F.loss.kl_div(input, target, _reduction(reduction), log_target)


@wrap
def l1_loss(input: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """Computes the absolute error; its gradient is 0 where the error is 0."""
    warn_of_broadcast("l1_loss", input, target)
    return reduced(ops.even_abs(input - target), reduction)


def smooth_l1_loss(input, target, size_average=None, reduce=None, reduction="mean", beta=1.0):
    if beta == 0:
        return l1_loss(input, target, _reduction(reduction))
    return F.loss.smooth_l1_loss(input, target, _reduction(reduction), beta)


def huber_loss(input, target, reduction="mean", delta=1.0, weight=None):
    _refuse(weight)
    return F.loss.huber_loss(input, target, _reduction(reduction), delta)


def cosine_embedding_loss(input1, input2, target, margin=0.0, size_average=None, reduce=None, reduction="mean"):
    return F.loss.cosine_embedding_loss(input1, input2, target, margin, _reduction(reduction))


def triplet_margin_loss(anchor, positive, negative, margin=1.0, p=2.0, eps=1e-6, swap=False, size_average=None, reduce=None, reduction="mean"):
    return F.loss.triplet_margin_loss(anchor, positive, negative, margin, p, eps, swap, _reduction(reduction))


FUNCTIONS = {
    "mse_loss": _of_two(F.loss.square_loss), "l1_loss": _of_two(l1_loss), "cross_entropy": cross_entropy, "kl_div": kl_div, "nll_loss": nll_loss, "smooth_l1_loss": smooth_l1_loss,
    "huber_loss": huber_loss, "cosine_embedding_loss": cosine_embedding_loss, "triplet_margin_loss": triplet_margin_loss,
}  # fmt: skip
OPERATORS = {  # exported programs lack the arguments of older releases
    "mse_loss": _exported_of_two(F.loss.square_loss), "l1_loss": _exported_of_two(l1_loss),
    "kl_div": lambda input, target, reduction=1, log_target=False: kl_div(input, target, reduction=reduction, log_target=log_target),
    "smooth_l1_loss": lambda input, target, reduction=1, beta=1.0: smooth_l1_loss(input, target, reduction=reduction, beta=beta),
    "huber_loss": lambda input, target, reduction=1, delta=1.0: huber_loss(input, target, reduction, delta),
}  # fmt: skip
