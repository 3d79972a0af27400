"""Base of learning-rate schedules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import _words
from ..core._registry import WrongKey
from .optimizer import Optimizer

__all__ = ["LRScheduler"]

if not TYPE_CHECKING:
    __getattr__ = _words.module_getattr(__name__, "optim")


class LRScheduler:
    """Base of learning-rate schedules: sets ``lr`` of every group of an optimizer once an epoch.

    Subclasses define ``get_lr``.

    Parameters
    ----------
    optimizer : Optimizer
        Optimizer whose learning rates are set.
    current_epoch : int
        Epoch to start from: -1 for a new training, which stores the groups' lr as ``initial_lr``. A
        later epoch resumes, and needs groups that have ``initial_lr``.

    Raises
    ------
    TypeError
        If it is not an `Optimizer`.
    KeyError
        For a later epoch and a group without ``initial_lr``.

    Notes
    -----
    The constructor calls `step` once, so that ``current_epoch`` is one more afterwards.
    ``base_lrs`` are the initial rates.

    Examples
    --------
    >>> import megengine as mge, megengine.optimizer as optim
    >>> class Halving(optim.LRScheduler):
    ...     def get_lr(self):
    ...         return [lr / 2**self.current_epoch for lr in self.base_lrs]
    >>> opt = optim.SGD([mge.Parameter([1.0])], lr=1.0)
    >>> schedule = Halving(opt)
    >>> schedule.step()
    >>> schedule.current_epoch, opt.param_groups[0]["lr"]
    (1, 0.5)
    """

    def __init__(self, optimizer: Optimizer, current_epoch: int = -1) -> None:
        if not isinstance(optimizer, Optimizer):
            raise TypeError(
                f"optimizer argument given to the lr_scheduler should be Optimizer, got {type(optimizer)}\n"
                "  fix: pass the optimizer of the model's parameters"
            )
        self.optimizer = optimizer
        self.current_epoch = current_epoch
        for index, group in enumerate(optimizer.param_groups):
            if current_epoch == -1:
                group.setdefault("initial_lr", group["lr"])
            elif "initial_lr" not in group:
                raise WrongKey(
                    f"LRScheduler: group {index} has no 'initial_lr', which resuming at epoch "
                    f"{current_epoch} needs; load the optimizer's state dict first"
                )
        self.base_lrs = [group["initial_lr"] for group in optimizer.param_groups]
        self.step()

    def state_dict(self) -> dict[str, Any]:
        """Returns a dict of all attributes but the optimizer.

        Returns
        -------
        dict of str
            The attributes by their names.
        """
        return {name: value for name, value in self.__dict__.items() if name != "optimizer"}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes over the state that `state_dict` returned; the next `step` goes on from there.

        Parameters
        ----------
        state_dict : dict of str
            Dict that `state_dict` returned.
        """
        self.__dict__.update(state_dict)

    def get_lr(self) -> list[float]:
        """Returns the learning rate of each group in ``current_epoch``; subclasses define it.

        Returns
        -------
        list of float
            One rate for each group.

        Raises
        ------
        TypeError
            Unless a subclass defines it.
        """
        raise TypeError(f"{type(self).__name__} does not define get_lr()")

    def step(self, epoch: int | None = None) -> None:
        """Goes to the next epoch, or to ``epoch``, and sets the learning rates.

        Parameters
        ----------
        epoch : int or None
            The epoch to go to; None means the next.
        """
        self.current_epoch = self.current_epoch + 1 if epoch is None else epoch
        for group, lr in zip(self.optimizer.param_groups, self.get_lr(), strict=False):
            group["lr"] = lr
