"""Learning rate in steps."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import Any

from .lr_scheduler import LRScheduler
from .optimizer import Optimizer

__all__ = ["MultiStepLR"]


class MultiStepLR(LRScheduler):
    """The initial lr times ``gamma`` for every milestone that the epoch has reached.

    milestones: epochs in rising order (ValueError).
    """

    def __init__(
        self,
        optimizer: Optimizer,
        milestones: Iterable[int],
        gamma: float = 0.1,
        current_epoch: int = -1,
    ) -> None:
        milestones = list(milestones)
        if milestones != sorted(milestones):
            raise ValueError(f"MultiStepLR: milestones must rise, got {milestones}")
        self.milestones = milestones
        self.gamma = gamma
        super().__init__(optimizer, current_epoch)

    def state_dict(self) -> dict[str, Any]:
        """milestones, gamma and current_epoch."""
        return {name: getattr(self, name) for name in ("milestones", "gamma", "current_epoch")}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over a `state_dict`; the next `step` goes on from there. KeyError for missing entries."""
        for name in ("milestones", "gamma", "current_epoch"):
            setattr(self, name, state_dict[name])

    def get_lr(self) -> list[float]:
        factor = self.gamma ** bisect_right(self.milestones, self.current_epoch)
        return [base * factor for base in self.base_lrs]
