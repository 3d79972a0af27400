"""Learning-rate schedules whose rates follow from the epoch, and one that follows a measured value."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from ..tensor import Tensor
from .lr_scheduler import LRScheduler
from .optimizer import Optimizer

__all__ = [
    "CosineAnnealingLR",
    "CosineAnnealingWarmRestarts",
    "ExponentialLR",
    "LambdaLR",
    "OneCycleLR",
    "ReduceLROnPlateau",
    "StepLR",
]


class LambdaLR(LRScheduler):
    """Multiplies the initial learning rates by a function of the epoch.

    Parameters
    ----------
    optimizer : Optimizer
        Optimizer whose learning rates are set.
    lr_lambda : callable or sequence of callable
        Function that returns the factor of an epoch; a sequence has one function for each group.
    current_epoch : int
        Epoch to start from: -1 for a new training; a later one resumes. See `LRScheduler`.

    Raises
    ------
    ValueError
        Unless a sequence has as many functions as there are groups.

    Notes
    -----
    The state dict leaves out the functions.

    Examples
    --------
    >>> import megengine as mge, megengine.optimizer as optim
    >>> opt = optim.SGD([mge.Parameter([1.0])], lr=8.0)
    >>> schedule = optim.LambdaLR(opt, lambda epoch: 1 / (1 + epoch))
    >>> schedule.step()
    >>> opt.param_groups[0]["lr"]
    4.0
    """

    def __init__(
        self,
        optimizer: Optimizer,
        lr_lambda: Callable[[int], float] | Sequence[Callable[[int], float]],
        current_epoch: int = -1,
    ) -> None:
        groups = len(optimizer.param_groups)
        self.lr_lambdas = [lr_lambda] * groups if callable(lr_lambda) else list(lr_lambda)
        if len(self.lr_lambdas) != groups:
            raise ValueError(
                f"LambdaLR: {len(self.lr_lambdas)} functions for {groups} groups\n"
                "  fix: pass one function, or one for each group"
            )
        super().__init__(optimizer, current_epoch)

    def state_dict(self) -> dict[str, Any]:
        """Returns a dict of all attributes but the optimizer and the functions.

        Returns
        -------
        dict of str
            The attributes by their names.
        """
        return {name: value for name, value in super().state_dict().items() if name != "lr_lambdas"}

    def get_lr(self) -> list[float]:
        """Returns the learning rate of each group in ``current_epoch``.

        Returns
        -------
        list of float
            One rate for each group.
        """
        factors = [factor(self.current_epoch) for factor in self.lr_lambdas]
        return [base * factor for base, factor in zip(self.base_lrs, factors, strict=True)]


class StepLR(LRScheduler):
    """Multiplies the learning rates by ``gamma`` every ``step_size`` epochs.

    Parameters
    ----------
    optimizer : Optimizer
        Optimizer whose learning rates are set.
    step_size : int
        Epochs between two steps, at least 1.
    gamma : float
        Factor of the learning rates after each ``step_size`` epochs.
    current_epoch : int
        Epoch to start from: -1 for a new training; a later one resumes. See `LRScheduler`.

    Raises
    ------
    ValueError
        For a step_size below 1.

    See Also
    --------
    MultiStepLR : Multiplies at given epochs.
    ExponentialLR : Multiplies every epoch.

    Examples
    --------
    >>> import megengine as mge, megengine.optimizer as optim
    >>> opt = optim.SGD([mge.Parameter([1.0])], lr=8.0)
    >>> schedule, rates = optim.StepLR(opt, step_size=2, gamma=0.5), []
    >>> for epoch in range(5):
    ...     rates.append(opt.param_groups[0]["lr"])
    ...     schedule.step()
    >>> rates
    [8.0, 8.0, 4.0, 4.0, 2.0]
    """

    def __init__(
        self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, current_epoch: int = -1
    ) -> None:
        self.step_size = _at_least_1(step_size, "StepLR: step_size")
        self.gamma = gamma
        super().__init__(optimizer, current_epoch)

    def get_lr(self) -> list[float]:
        """Returns the learning rate of each group in ``current_epoch``.

        Returns
        -------
        list of float
            One rate for each group.
        """
        factor = self.gamma ** (self.current_epoch // self.step_size)
        return [base * factor for base in self.base_lrs]


class ExponentialLR(LRScheduler):
    """Multiplies the learning rates by ``gamma`` every epoch.

    Parameters
    ----------
    optimizer : Optimizer
        Optimizer whose learning rates are set.
    gamma : float
        Factor of the learning rates in each epoch.
    current_epoch : int
        Epoch to start from: -1 for a new training; a later one resumes. See `LRScheduler`.

    Examples
    --------
    >>> import megengine as mge, megengine.optimizer as optim
    >>> opt = optim.SGD([mge.Parameter([1.0])], lr=8.0)
    >>> schedule = optim.ExponentialLR(opt, gamma=0.5)
    >>> schedule.step(3)
    >>> opt.param_groups[0]["lr"]
    1.0
    """

    def __init__(self, optimizer: Optimizer, gamma: float, current_epoch: int = -1) -> None:
        self.gamma = gamma
        super().__init__(optimizer, current_epoch)

    def get_lr(self) -> list[float]:
        """Returns the learning rate of each group in ``current_epoch``.

        Returns
        -------
        list of float
            One rate for each group.
        """
        return [base * self.gamma**self.current_epoch for base in self.base_lrs]


class CosineAnnealingLR(LRScheduler):
    """Lowers the learning rates along half a cosine, after a warm-up if one is asked for.

    With w epochs of warm-up, epoch e < w has the rate ``base * (e + 1) / (w + 1)``; then it is
    ``eta_min + (base - eta_min) * (1 + cos(pi * (e - w) / (T_max - w))) / 2``.

    Parameters
    ----------
    optimizer : Optimizer
        Optimizer whose learning rates are set.
    T_max : int
        The epoch that has the lowest rate; the warm-up is part of it.
    eta_min : float
        Lowest learning rate, that of epoch ``T_max``.
    warmup : int
        Epochs in which the rate rises to the initial one; fewer than T_max.
    current_epoch : int
        Epoch to start from: -1 for a new training; a later one resumes. See `LRScheduler`.

    Raises
    ------
    ValueError
        For a T_max below 1, or a warm-up that is negative or leaves no epoch.

    See Also
    --------
    CosineAnnealingWarmRestarts : Begins again and again.
    OneCycleLR : Raises the rates first.

    Notes
    -----
    After T_max the rate rises again, as in PyTorch. An epoch may also be a single step of training.

    References
    ----------
    Loshchilov and Hutter 2017, "SGDR: Stochastic Gradient Descent with Warm Restarts".

    Examples
    --------
    >>> import megengine as mge, megengine.optimizer as optim
    >>> opt = optim.SGD([mge.Parameter([1.0])], lr=8.0)
    >>> schedule, rates = optim.CosineAnnealingLR(opt, T_max=5, warmup=3), []
    >>> for epoch in range(6):
    ...     rates.append(round(opt.param_groups[0]["lr"], 3))
    ...     schedule.step()
    >>> rates
    [2.0, 4.0, 6.0, 8.0, 4.0, 0.0]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        T_max: int,
        eta_min: float = 0.0,
        warmup: int = 0,
        current_epoch: int = -1,
    ) -> None:
        self.T_max = _at_least_1(T_max, "CosineAnnealingLR: T_max")
        if not 0 <= warmup < T_max:
            raise ValueError(
                f"CosineAnnealingLR: warmup must be at least 0 and below T_max = {T_max}, got {warmup}"
            )
        self.eta_min = eta_min
        self.warmup = warmup
        super().__init__(optimizer, current_epoch)

    def get_lr(self) -> list[float]:
        """Returns the learning rate of each group in ``current_epoch``.

        Returns
        -------
        list of float
            One rate for each group.
        """
        done = self.current_epoch - self.warmup
        if done < 0:
            return [base * (self.current_epoch + 1) / (self.warmup + 1) for base in self.base_lrs]
        part = done / (self.T_max - self.warmup)
        return [_along_cosine(base, self.eta_min, part) for base in self.base_lrs]


class CosineAnnealingWarmRestarts(LRScheduler):
    """Lowers the learning rates along half a cosine, again and again from the initial ones.

    Parameters
    ----------
    optimizer : Optimizer
        Optimizer whose learning rates are set.
    T_0 : int
        Epochs until the first restart, at least 1.
    T_mult : int
        Factor of the length of each period relative to the one before, at least 1.
    eta_min : float
        Learning rate that each period falls towards.
    current_epoch : int
        Epoch to start from: -1 for a new training; a later one resumes. See `LRScheduler`.

    Raises
    ------
    ValueError
        For a T_0 or T_mult below 1.

    References
    ----------
    Loshchilov and Hutter 2017, "SGDR: Stochastic Gradient Descent with Warm Restarts".

    Examples
    --------
    >>> import megengine as mge, megengine.optimizer as optim
    >>> opt = optim.SGD([mge.Parameter([1.0])], lr=8.0)
    >>> schedule, rates = optim.CosineAnnealingWarmRestarts(opt, T_0=2, T_mult=2), []
    >>> for epoch in range(7):
    ...     rates.append(round(opt.param_groups[0]["lr"], 3))
    ...     schedule.step()
    >>> rates
    [8.0, 4.0, 8.0, 6.828, 4.0, 1.172, 8.0]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        T_0: int,
        T_mult: int = 1,
        eta_min: float = 0.0,
        current_epoch: int = -1,
    ) -> None:
        self.T_0 = _at_least_1(T_0, "CosineAnnealingWarmRestarts: T_0")
        self.T_mult = _at_least_1(T_mult, "CosineAnnealingWarmRestarts: T_mult")
        self.eta_min = eta_min
        super().__init__(optimizer, current_epoch)

    def get_lr(self) -> list[float]:
        """Returns the learning rate of each group in ``current_epoch``.

        Returns
        -------
        list of float
            One rate for each group.
        """
        done, period = self.current_epoch, self.T_0
        if self.T_mult == 1:
            done %= period
        while done >= period:
            done, period = done - period, period * self.T_mult
        return [_along_cosine(base, self.eta_min, done / period) for base in self.base_lrs]


class OneCycleLR(LRScheduler):
    """Raises the learning rates to ``max_lr``, then lowers them far below the first, along cosines.

    Parameters
    ----------
    optimizer : Optimizer
        Optimizer whose learning rates are set. Its own rates are not used, and its momentum stays
        as it is.
    max_lr : float or sequence of float
        The highest rate, or one for each group.
    total_steps : int
        Number of steps of the whole cycle, at least 2. The schedule's ``step`` is called after
        each; the call after the last step changes nothing.
    pct_start : float
        Share of the steps in which the rate rises, between 0 and 1.
    div_factor : float
        The first rate is ``max_lr / div_factor``.
    final_div_factor : float
        The last rate is the first one divided by this number.
    current_epoch : int
        Epoch to start from: -1 for a new training; a later one resumes. See `LRScheduler`.

    Raises
    ------
    ValueError
        For values out of these ranges, for a list of rates whose length is not the number of
        groups, and for a further step after the cycle.

    References
    ----------
    Smith and Topin 2018, "Super-Convergence: Very Fast Training of Neural Networks Using Large
    Learning Rates".

    Examples
    --------
    >>> import megengine as mge, megengine.optimizer as optim
    >>> opt = optim.SGD([mge.Parameter([1.0])], lr=1.0)
    >>> schedule = optim.OneCycleLR(opt, max_lr=8.0, total_steps=5, pct_start=0.6, div_factor=4.0)
    >>> rates = [opt.param_groups[0]["lr"]]
    >>> for step in range(4):
    ...     schedule.step()
    ...     rates.append(round(opt.param_groups[0]["lr"], 3))
    >>> rates
    [2.0, 5.0, 8.0, 4.0, 0.0]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        max_lr: float | Sequence[float],
        total_steps: int,
        pct_start: float = 0.3,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        current_epoch: int = -1,
    ) -> None:
        groups = len(optimizer.param_groups)
        self.max_lrs = list(max_lr) if isinstance(max_lr, Sequence) else [max_lr] * groups
        if len(self.max_lrs) != groups:
            raise ValueError(f"OneCycleLR: max_lr has {len(self.max_lrs)} rates for {groups} groups")
        if total_steps < 2:
            raise ValueError(f"OneCycleLR: total_steps must be at least 2, got {total_steps}")
        if not 0 < pct_start < 1:
            raise ValueError(f"OneCycleLR: pct_start must lie between 0 and 1, got {pct_start}")
        for name, factor in (("div_factor", div_factor), ("final_div_factor", final_div_factor)):
            if not factor > 0:
                raise ValueError(f"OneCycleLR: {name} must be above 0, got {factor}")
        self.total_steps = total_steps
        self.pct_start = pct_start
        self.div_factor = div_factor
        self.final_div_factor = final_div_factor
        super().__init__(optimizer, current_epoch)

    def get_lr(self) -> list[float]:
        """Returns the learning rate of each group in step ``current_epoch``.

        Returns
        -------
        list of float
            One rate for each group.

        Raises
        ------
        ValueError
            After the last step.
        """
        if self.current_epoch > self.total_steps:
            raise ValueError(
                f"OneCycleLR: step() is called {self.current_epoch} times in a cycle of {self.total_steps} steps\n"
                "  fix: make total_steps epochs * steps in an epoch"
            )
        last = self.total_steps - 1
        step = min(self.current_epoch, last)
        top = self.pct_start * self.total_steps - 1
        rates = []
        for high in self.max_lrs:
            first = high / self.div_factor
            if step <= top:
                rates.append(_along_cosine(first, high, step / top if top else 1.0))
            else:
                rates.append(_along_cosine(high, first / self.final_div_factor, (step - top) / (last - top)))
        return rates


class ReduceLROnPlateau(LRScheduler):
    """Lowers the learning rates if a measured value has not become better for some epochs.

    Parameters
    ----------
    optimizer : Optimizer
        Optimizer whose learning rates are set.
    mode : str
        "min": smaller values are better; "max": larger ones.
    factor : float
        Factor of the learning rates when they are lowered, at least 0 and below 1.
    patience : int
        Number of epochs without a better value that change nothing; the next one lowers the rates.
    threshold : float
        Amount by which a value must be better than the best one to count as better.
    threshold_mode : str
        "rel" makes the threshold a share of the best value; "abs" makes it a difference.
    cooldown : int
        Epochs after a change that are not counted.
    min_lr : float
        Lowest learning rate that is set.

    Raises
    ------
    ValueError
        For another mode, or a factor outside of [0, 1).

    Notes
    -----
    `LRScheduler.step` takes the epoch; here it takes the value. ``best`` and ``bad_epochs`` are
    the best value so far, and how many epochs have passed without a better one.

    Examples
    --------
    >>> import megengine as mge, megengine.optimizer as optim
    >>> opt = optim.SGD([mge.Parameter([1.0])], lr=8.0)
    >>> schedule, rates = optim.ReduceLROnPlateau(opt, factor=0.5, patience=1), []
    >>> for loss in (3.0, 2.0, 2.0, 2.0, 1.0):
    ...     schedule.step(loss)
    ...     rates.append(opt.param_groups[0]["lr"])
    >>> rates
    [8.0, 8.0, 8.0, 4.0, 4.0]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        mode: str = "min",
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        threshold_mode: str = "rel",
        cooldown: int = 0,
        min_lr: float = 0.0,
    ) -> None:
        if mode not in ("min", "max"):
            raise ValueError(f'ReduceLROnPlateau: mode must be "min" or "max", got {mode!r}')
        if threshold_mode not in ("rel", "abs"):
            raise ValueError(
                f'ReduceLROnPlateau: threshold_mode must be "rel" or "abs", got {threshold_mode!r}'
            )
        if not 0 <= factor < 1:
            raise ValueError(f"ReduceLROnPlateau: factor must be at least 0 and below 1, got {factor}")
        self.mode = mode
        self.factor = factor
        self.patience = patience
        self.threshold = threshold
        self.threshold_mode = threshold_mode
        self.cooldown = cooldown
        self.min_lr = min_lr
        self.best = math.inf if mode == "min" else -math.inf
        self.bad_epochs = 0
        self.resting = 0  # epochs left of the cooldown
        super().__init__(optimizer)

    def get_lr(self) -> list[float]:
        """Returns the learning rate of each group, lowered if the last values ask for it.

        Returns
        -------
        list of float
            One rate for each group.
        """
        rates = [group["lr"] for group in self.optimizer.param_groups]
        if self.bad_epochs <= self.patience:
            return rates
        self.resting, self.bad_epochs = self.cooldown, 0
        return [max(rate * self.factor, self.min_lr) for rate in rates]

    def step(self, metric: float | Tensor | None = None) -> None:
        """Goes to the next epoch, and lowers the rates if ``metric`` says so.

        Parameters
        ----------
        metric : float, Tensor or None
            The value of this epoch, such as the loss on held-out data; None leaves the rates.
        """
        if metric is not None:
            self._note(float(metric))
        super().step()

    def _note(self, value: float) -> None:
        margin = self.threshold * (abs(self.best) if self.threshold_mode == "rel" else 1.0)
        gain = self.best - value if self.mode == "min" else value - self.best
        if math.isinf(self.best) or gain > margin:
            self.best, self.bad_epochs = value, 0
        else:
            self.bad_epochs += 1
        if self.resting:
            self.resting, self.bad_epochs = self.resting - 1, 0


def _along_cosine(begin: float, end: float, part: float) -> float:
    return end + (begin - end) * (1 + math.cos(math.pi * part)) / 2


def _at_least_1(value: int, what: str) -> int:
    if value < 1:
        raise ValueError(f"{what} must be at least 1, got {value}")
    return value
