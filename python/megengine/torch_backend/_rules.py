"""The rules of torch's optimizers on our tensors: one step turns a parameter, its gradient and its
states into new ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from .. import functional as F
from ..tensor import Tensor

Group = dict[str, Any]  # a param group of an optimizer
States = dict[str, Any]  # torch's tensors, by name


class Rule(NamedTuple):
    """states: returns their names for a group. counts: whether they count steps. numbers: returns
    those that change from call to call, from the group and the states of a parameter.

    update: (parameter, gradient, states in that order, numbers) -> (new parameter, new states).
    """

    states: Callable[[Group], Sequence[str]]
    counts: bool
    numbers: Callable[[Group, States], Sequence[float]]
    update: Callable[[Group, Tensor, Tensor, Sequence[Tensor], Sequence[Tensor]], tuple[Tensor, Sequence[Tensor]]]


def _sgd(group: Group, p: Tensor, grad: Tensor, states: Sequence[Tensor], numbers: Sequence[Tensor]) -> tuple[Tensor, Sequence[Tensor]]:
    rate, fresh = numbers
    grad = -grad if group["maximize"] else grad
    if group["weight_decay"]:
        grad = grad + p * group["weight_decay"]
    if not states:
        return p - grad * rate, ()
    buffer = states[0] * group["momentum"] + grad * fresh
    return p - (grad + buffer * group["momentum"] if group["nesterov"] else buffer) * rate, (buffer,)


def _adam(group: Group, p: Tensor, grad: Tensor, states: Sequence[Tensor], numbers: Sequence[Tensor]) -> tuple[Tensor, Sequence[Tensor]]:
    step, root, kept = numbers
    first, second = group["betas"]
    grad = -grad if group["maximize"] else grad
    if group["decoupled_weight_decay"]:
        p = p * kept
    elif group["weight_decay"]:
        grad = grad + p * group["weight_decay"]
    mean, square, *largest = states
    mean = mean + (grad - mean) * (1 - first)
    square = square * second + grad * grad * (1 - second)
    largest = [F.maximum(each, square) for each in largest]
    return p - mean / (F.sqrt((largest or [square])[0]) / root + group["eps"]) * step, (mean, square, *largest)


def _adam_numbers(group: Group, states: States) -> Sequence[float]:
    count, rate, (first, second) = float(states["step"]) + 1 if states else 1.0, float(group["lr"]), group["betas"]
    return rate / (1 - first**count), math.sqrt(1 - second**count), 1 - rate * group["weight_decay"]


_ADAM = Rule(lambda group: ["exp_avg", "exp_avg_sq", *["max_exp_avg_sq"] * group["amsgrad"]], True, _adam_numbers, _adam)
RULES: dict[type, Rule] = {
    torch.optim.SGD: Rule(
        lambda group: ["momentum_buffer"] * bool(group["momentum"]),
        False,
        lambda group, states: (float(group["lr"]), 1.0 if states.get("momentum_buffer") is None else 1.0 - group["dampening"]),
        _sgd,
    ),
    torch.optim.Adam: _ADAM,
    torch.optim.AdamW: _ADAM,
}


def clipped(gradients: Sequence[Tensor], max_norm: float) -> list[Tensor]:
    """Scales all gradients if their norm is too large, by torch's formula, which makes all NaN if
    one is.
    """
    norms = F.stack([F.sqrt(F.sum(F.square(each.astype("float32")))) for each in gradients])
    factor = max_norm / (F.sqrt(F.sum(F.square(norms))) + 1e-6)
    factor = F.where(factor >= 1, F.ones_like(factor), factor)
    return [each * factor.astype(each.dtype) for each in gradients]
