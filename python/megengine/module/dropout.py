"""Dropout: Srivastava et al. 2014, "Dropout: A Simple Way to Prevent Neural Networks from Overfitting"."""

from __future__ import annotations

from typing import Any

from .. import functional as F
from ..tensor import Tensor
from .module import Module

__all__ = ["Dropout", "Dropout2d"]


class Dropout(Module):
    """Zeroes elements at random in training and scales the others so that the mean stays.

    Parameters
    ----------
    drop_prob : float
        Probability of each element to become 0, in [0, 1); the others are multiplied by 1 / (1 -
        drop_prob).
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.

    Raises
    ------
    ValueError
        For another drop_prob.

    See Also
    --------
    Dropout2d : Drops whole channels.
    functional.dropout : The function.

    Notes
    -----
    In `eval` mode inputs pass unchanged.

    References
    ----------
    Srivastava et al. 2014, "Dropout: A Simple Way to Prevent Neural Networks from Overfitting".

    Examples
    --------
    >>> import megengine as mge, megengine.module as M
    >>> drop = M.Dropout(0.5)
    >>> sorted(set(drop(mge.functional.ones((1000,))).tolist()))
    [0.0, 2.0]
    >>> drop.eval()(mge.functional.ones((2,))).tolist()
    [1.0, 1.0]
    """

    _repr_facts = "drop_prob={0.drop_prob}"

    def __init__(self, drop_prob: float = 0.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if isinstance(drop_prob, str) or not 0 <= drop_prob < 1:
            raise ValueError(f"{type(self).__name__}: drop_prob must lie in [0, 1), got {drop_prob!r}")
        self.drop_prob = drop_prob

    def forward(self, inputs: Tensor) -> Tensor:
        """Returns ``inputs`` (any shape, float dtype) with elements dropped in training mode.

        Parameters
        ----------
        inputs : Tensor
            Any shape, float dtype.

        Returns
        -------
        Tensor
            The result, of the same shape and dtype.

        Raises
        ------
        AssertionError
            For a drop_prob outside [0, 1).
        """
        if not self.training:
            return inputs
        return F.dropout(inputs, self.drop_prob, training=True)


class Dropout2d(Dropout):
    """Zeroes whole channels of (N, C, ...) at random in training and scales the others.

    Parameters
    ----------
    drop_prob : float
        Probability of each channel to become 0, in [0, 1); ValueError for another one.
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.

    References
    ----------
    Tompson et al. 2015, "Efficient Object Localization Using Convolutional Networks".

    Examples
    --------
    >>> import megengine as mge, megengine.module as M
    >>> y = M.Dropout2d(0.5)(mge.functional.ones((1, 100, 2, 2)))
    >>> sorted(set(y.sum(axis=(0, 2, 3)).tolist()))  # all of a channel, or nothing
    [0.0, 8.0]
    """

    def forward(self, inputs: Tensor) -> Tensor:
        """Returns ``inputs`` (N, C, ...) with channels dropped in training mode.

        Parameters
        ----------
        inputs : Tensor
            Tensor of shape (N, C, ...), float dtype.

        Returns
        -------
        Tensor
            The result, of the same shape and dtype.

        Raises
        ------
        ValueError
            For inputs without channels.
        """
        if not self.training:
            return inputs
        return F.dropout2d(inputs, self.drop_prob, training=True)
