"""Activation layers."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import functional as F
from ..tensor import Parameter, Tensor
from .module import Module

__all__ = ["GELU", "LeakyReLU", "PReLU", "ReLU", "Sigmoid", "SiLU", "Softmax"]


class Softmax(Module):
    """Turns scores into probabilities: ``exp(x) / sum(exp(x))`` along one axis.

    Parameters
    ----------
    axis : int or None
        The axis that sums to 1. None: axis 0 of 0-, 1- and 3-D inputs, otherwise axis 1.
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.

    Examples
    --------
    >>> import megengine as mge, megengine.module as M
    >>> M.Softmax(axis=-1)(mge.Tensor([[0.0, 0.0], [3.0, 3.0]])).tolist()
    [[0.5, 0.5], [0.5, 0.5]]
    """

    _repr_facts = "axis={0.axis}"

    def __init__(self, axis: int | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.axis = axis

    def forward(self, inputs: Tensor) -> Tensor:
        """Returns the softmax of ``inputs`` (any shape, float dtype): same shape and dtype.

        Parameters
        ----------
        inputs : Tensor
            Any shape, float dtype.

        Returns
        -------
        Tensor
            The result, of the same shape and dtype.
        """
        return F.softmax(inputs, self.axis)


class Sigmoid(Module):
    """Applies the logistic function ``1 / (1 + exp(-x))`` elementwise.

    Parameters
    ----------
    name : str or None
        Name of the module in dumped graphs; None takes the name of its attribute.

    Examples
    --------
    >>> import megengine as mge, megengine.module as M
    >>> [round(y, 3) for y in M.Sigmoid()(mge.Tensor([-200.0, 0.0, 2.0])).tolist()]
    [0.0, 0.5, 0.881]
    """

    def forward(self, inputs: Tensor) -> Tensor:
        """Returns the sigmoid of ``inputs`` (any shape, float dtype): same shape and dtype.

        Parameters
        ----------
        inputs : Tensor
            Any shape, float dtype.

        Returns
        -------
        Tensor
            The result, of the same shape and dtype.
        """
        return F.nn.sigmoid(inputs)


class SiLU(Module):
    """Applies ``x * sigmoid(x)`` elementwise, also known as swish.

    Parameters
    ----------
    name : str or None
        Name of the module in dumped graphs; None takes the name of its attribute.

    References
    ----------
    Elfwing et al. 2018, "Sigmoid-Weighted Linear Units for Neural Network Function Approximation in
    Reinforcement Learning".

    Examples
    --------
    >>> import megengine as mge, megengine.module as M
    >>> [round(y, 3) for y in M.SiLU()(mge.Tensor([-1.0, 0.0, 100.0])).tolist()]
    [-0.269, 0.0, 100.0]
    """

    def forward(self, inputs: Tensor) -> Tensor:
        """Returns the SiLU of ``inputs`` (any shape, float dtype): same shape and dtype.

        Parameters
        ----------
        inputs : Tensor
            Any shape, float dtype.

        Returns
        -------
        Tensor
            The result, of the same shape and dtype.
        """
        return F.silu(inputs)


class GELU(Module):
    """Applies ``x * Phi(x)`` elementwise, Phi the distribution function of the standard normal.

    This is the exact form with the error function, not the tanh approximation.

    Parameters
    ----------
    name : str or None
        Name of the module in dumped graphs; None takes the name of its attribute.

    References
    ----------
    Hendrycks & Gimpel 2016, "Gaussian Error Linear Units (GELUs)".

    Examples
    --------
    >>> import megengine as mge, megengine.module as M
    >>> [round(y, 3) for y in M.GELU()(mge.Tensor([-1.0, 0.0, 1.0])).tolist()]
    [-0.159, 0.0, 0.841]
    """

    def forward(self, inputs: Tensor) -> Tensor:
        """Returns the GELU of ``inputs`` (any shape, float dtype): same shape and dtype.

        Parameters
        ----------
        inputs : Tensor
            Any shape, float dtype.

        Returns
        -------
        Tensor
            The result, of the same shape and dtype.
        """
        return F.gelu(inputs)


class ReLU(Module):
    """Applies ``max(x, 0)`` elementwise.

    Parameters
    ----------
    name : str or None
        Name of the module in dumped graphs; None takes the name of its attribute.

    See Also
    --------
    LeakyReLU : Keeps a part of negative elements.
    PReLU : Learns that part.
    functional.relu : The function.

    Examples
    --------
    >>> import megengine as mge, megengine.module as M
    >>> M.ReLU()(mge.Tensor([-2.0, 3.0])).tolist()
    [0.0, 3.0]
    """

    def forward(self, x: Tensor) -> Tensor:
        """Returns ``max(x, 0)`` for ``x`` of any shape: same shape and dtype.

        Parameters
        ----------
        x : Tensor
            Tensor of any shape and dtype.

        Returns
        -------
        Tensor
            The result, of the same shape and dtype.
        """
        return F.nn.relu(x)


class PReLU(Module):
    """Applies ``max(x, 0) + weight * min(x, 0)``, whose slope ``weight`` is learned.

    Parameters
    ----------
    num_parameters : int
        1 for a single slope, of shape (1,); the number of channels C for one slope per channel, of
        shape (1, C, 1, 1).
    init : float
        Value that every slope has at first.
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.

    References
    ----------
    He et al. 2015, "Delving Deep into Rectifiers".

    Examples
    --------
    >>> import megengine as mge, megengine.module as M
    >>> M.PReLU()(mge.Tensor([-4.0, 4.0])).tolist()
    [-1.0, 4.0]
    """

    _repr_facts = "num_parameters={0.num_parameters}"

    def __init__(self, num_parameters: int = 1, init: float = 0.25, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.num_parameters = num_parameters
        shape = (1,) if num_parameters == 1 else (1, num_parameters, 1, 1)
        self.weight = Parameter(np.full(shape, init, np.float32))

    def forward(self, inputs: Tensor) -> Tensor:
        """Returns the result for ``inputs``: any shape, or (N, C, ...) with one slope per channel.

        Parameters
        ----------
        inputs : Tensor
            Any shape, or (N, C, ...) with one slope per channel.

        Returns
        -------
        Tensor
            The result, of the same shape and dtype.

        Raises
        ------
        ValueError
            When axis 1 does not have ``num_parameters`` channels.
        """
        slope: Tensor = self.weight
        if self.num_parameters > 1:
            rank = inputs.ndim
            if rank < 2 or inputs._tuple_shape[1] != self.num_parameters:
                raise ValueError(
                    f"PReLU: the layer has {self.num_parameters} channels, "
                    f"which axis 1 of an input of shape {inputs._tuple_shape} does not have"
                )
            if rank != 4:
                slope = slope.reshape(1, self.num_parameters, *(1,) * (rank - 2))
        return F.prelu(inputs, slope)


class LeakyReLU(Module):
    """Applies ``max(x, 0) + negative_slope * min(x, 0)`` elementwise.

    Parameters
    ----------
    negative_slope : float
        Factor of negative elements, a fixed number; `PReLU` learns it.
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.

    See Also
    --------
    PReLU : Learns the slope.
    functional.leaky_relu : The function.

    Examples
    --------
    >>> import megengine as mge, megengine.module as M
    >>> M.LeakyReLU(negative_slope=0.5)(mge.Tensor([-4.0, 4.0])).tolist()
    [-2.0, 4.0]
    """

    _repr_facts = "negative_slope={0.negative_slope}"

    def __init__(self, negative_slope: float = 0.01, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.negative_slope = negative_slope

    def forward(self, inputs: Tensor) -> Tensor:
        """Returns the result for ``inputs`` (any shape, float dtype): same shape and dtype.

        Parameters
        ----------
        inputs : Tensor
            Any shape, float dtype.

        Returns
        -------
        Tensor
            The result, of the same shape and dtype.
        """
        return F.leaky_relu(inputs, self.negative_slope)
