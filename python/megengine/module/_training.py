"""Finds what computes otherwise while it trains: normalizations by the batch, dropout, observers.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from .. import functional as F
from .batchnorm import _BatchNorm
from .dropout import Dropout
from .module import Module

_PROBABILITIES = (
    "dropout",
    "attn_dropout",
    "out_dropout",
)  # attributes of recurrent layers and attention


def training_part(module: Module) -> tuple[str, Module] | None:
    """Returns (path, part) of the first part of ``module`` in training mode that would give
    something else in eval mode.
    """
    for path, part in module.named_modules():
        if not part.training:
            continue
        if isinstance(part, _BatchNorm):
            differs = not part.freeze
        elif isinstance(part, Dropout):
            differs = part.drop_prob > 0
        elif getattr(part, "_watches_in_training", False):  # an observer
            differs = bool(getattr(part, "enabled", False))
        else:
            differs = any(_is_positive(getattr(part, name, 0)) for name in _PROBABILITIES)
        if differs:
            return path, part
    return None


def _is_positive(value: Any) -> bool:
    return isinstance(value, (int, float)) and value > 0


def trains(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether this call of dropout or batch normalization is one for training."""
    if function not in (F.dropout, F.batch_norm):
        return False
    bound = inspect.signature(function).bind(*args, **kwargs)
    bound.apply_defaults()
    return bound.arguments["training"] is True
