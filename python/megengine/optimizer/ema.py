"""Averages of weights."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

import numpy as np

from ..distributed._parts import own_array, whole_array, whole_shape
from ..tensor import Parameter, Tensor
from .optimizer import write

__all__ = ["EMA"]


class EMA:
    """Keeps exponential moving averages of Parameters: weights that vary less from step to step.

    ``average = decay * average + (1 - decay) * parameter``; it begins as the parameter's value.

    Parameters
    ----------
    params : iterable of Parameter
        Parameters whose running averages are kept.
    decay : float
        Weight of the old average, in [0, 1).

    Raises
    ------
    ValueError
        For no Parameters, or a decay outside of [0, 1).
    TypeError
        For anything but Parameters.

    Notes
    -----
    `update` may be called in a traced step, behind the optimizer's ``step``. Buffers, such as the
    statistics of batch norm, are not averaged.

    References
    ----------
    Polyak and Juditsky 1992, "Acceleration of Stochastic Approximation by Averaging".

    Examples
    --------
    >>> import megengine as mge, megengine.optimizer as optim
    >>> w = mge.Parameter([0.0])
    >>> ema = optim.EMA([w], decay=0.75)
    >>> w[...] = 8.0
    >>> ema.update()
    >>> with ema.applied():
    ...     print(w.item())
    2.0
    >>> w.item()
    8.0
    """

    def __init__(self, params: Iterable[Parameter], decay: float = 0.999) -> None:
        if not isinstance(params, Iterable):
            raise TypeError(f"EMA: params must be Parameters, got a {type(params).__name__}\n  fix: pass model.parameters()")
        self._params = list(params)
        for param in self._params:
            if not isinstance(param, Parameter):
                raise TypeError(f"EMA: only Parameters are averaged, got a {type(param).__name__}")
        if not self._params:
            raise ValueError("EMA: got no Parameters\n  fix: pass model.parameters()")
        if not 0 <= decay < 1:
            raise ValueError(f"EMA: decay must be at least 0 and below 1, got {decay}")
        self.decay = decay
        self._averages = [Tensor(param.numpy(), device=str(param.device)) for param in self._params]

    def update(self) -> None:
        """Moves the averages towards the Parameters' values."""
        for average, param in zip(self._averages, self._params, strict=True):
            write(average, average + (param - average) * (1 - self.decay))

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Gives the Parameters the averages as their values until the block ends."""
        own = [Tensor(param) for param in self._params]
        try:
            for param, average in zip(self._params, self._averages, strict=True):
                write(param, average)
            yield
        finally:
            for param, value in zip(self._params, own, strict=True):
                write(param, value)

    def state_dict(self) -> dict[str, list[np.ndarray]]:
        """Returns the averages.

        Returns
        -------
        dict of str
            ``{"averages": arrays}``, in the order of the Parameters.
        """
        return {"averages": [whole_array(param, average) for param, average in zip(self._params, self._averages, strict=True)]}

    def load_state_dict(self, state: Mapping[str, list[np.ndarray]]) -> None:
        """Takes over the averages that `state_dict` returned.

        Parameters
        ----------
        state : mapping of str
            Mapping that `state_dict` of an EMA of equal Parameters returned.

        Raises
        ------
        ValueError
            When numbers or shapes differ; then nothing changes.
        """
        arrays = [np.asarray(array) for array in state["averages"]]
        have, want = [array.shape for array in arrays], [whole_shape(param) for param in self._params]
        if have != want:
            wrong = next((i for i, (a, b) in enumerate(zip(have, want, strict=False)) if a != b), min(len(have), len(want)))
            raise ValueError(
                f"EMA.load_state_dict: {len(have)} averages for {len(want)} Parameters; the first that differs is number {wrong}\n"
                "  fix: make the EMA with the Parameters, in the order, of the one that was saved"
            )
        for average, param, array in zip(self._averages, self._params, arrays, strict=True):
            write(average, Tensor(own_array(param, array), device=str(average.device)))
