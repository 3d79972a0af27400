"""Learning rate in steps."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import Any

from .lr_scheduler import LRScheduler
from .optimizer import Optimizer

__all__ = ["MultiStepLR"]


class MultiStepLR(LRScheduler):
    """Multiplies the learning rates by ``gamma`` at given epochs.

    Parameters
    ----------
    optimizer : Optimizer
        Optimizer whose learning rates are set.
    milestones : iterable of int
        The epochs, in rising order.
    gamma : float
        Factor of the learning rates at each milestone.
    current_epoch : int
        Epoch to start from: -1 for a new training; a later one resumes. See `LRScheduler`.

    Raises
    ------
    ValueError
        For epochs in another order.

    See Also
    --------
    StepLR : Multiplies after equal numbers of epochs.

    Examples
    --------
    >>> import megengine as mge, megengine.optimizer as optim
    >>> opt = optim.SGD([mge.Parameter([1.0])], lr=8.0)
    >>> schedule, rates = optim.MultiStepLR(opt, milestones=[2, 3], gamma=0.5), []
    >>> for epoch in range(4):
    ...     rates.append(opt.param_groups[0]["lr"])
    ...     schedule.step()
    >>> rates
    [8.0, 8.0, 4.0, 2.0]
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
            raise ValueError(f"Milestones should be a list of increasing integers. Got {milestones}")
        self.milestones = milestones
        self.gamma = gamma
        super().__init__(optimizer, current_epoch)

    def state_dict(self) -> dict[str, Any]:
        """Returns a dict of milestones, gamma and current_epoch.

        Returns
        -------
        dict of str
            Entries by their names.
        """
        return {name: getattr(self, name) for name in ("milestones", "gamma", "current_epoch")}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes over the state that `state_dict` returned; the next `step` goes on from there.

        Parameters
        ----------
        state_dict : dict of str
            Dict that `state_dict` returned.

        Raises
        ------
        KeyError
            For missing entries.
        """
        for name in ("milestones", "gamma", "current_epoch"):
            setattr(self, name, state_dict[name])

    def get_lr(self) -> list[float]:
        """Returns the learning rate of each group in ``current_epoch``.

        Returns
        -------
        list of float
            One rate for each group.
        """
        factor = self.gamma ** bisect_right(self.milestones, self.current_epoch)
        return [base * factor for base in self.base_lrs]
