"""Activation layers that have no parameters: exponential units, gates, piecewise and logarithmic ones."""

from __future__ import annotations

from typing import Any

from .. import functional as F
from ..tensor import Tensor
from .module import Module

__all__ = [
    "CELU", "ELU", "GLU", "Hardsigmoid", "Hardswish", "LogSigmoid", "LogSoftmax", "Mish", "ReLU6", "SELU", "Softplus", "Tanh",
]  # fmt: skip


class _Activation(Module):
    """Base of activations; subclasses define ``_function``."""

    def forward(self, inputs: Tensor) -> Tensor:
        """Returns the function of ``inputs`` (any shape, float dtype).

        Parameters
        ----------
        inputs : Tensor
            Any shape, float dtype.

        Returns
        -------
        Tensor
            Of the same dtype, and but for `GLU` of the same shape.
        """
        return self._function(inputs)

    def _function(self, x: Tensor) -> Tensor:
        raise TypeError(f"{type(self).__name__} does not define _function(x)")


class Tanh(_Activation):
    """Applies the hyperbolic tangent elementwise.

    Parameters
    ----------
    name : str or None
        Name of the module in dumped graphs; None takes the name of its attribute.

    Examples
    --------
    >>> import megengine as mge, megengine.module as M
    >>> [round(y, 3) for y in M.Tanh()(mge.Tensor([-100.0, 0.0, 1.0])).tolist()]
    [-1.0, 0.0, 0.762]
    """

    def _function(self, x: Tensor) -> Tensor:
        return F.tanh(x)


class ELU(_Activation):
    """Applies ``x`` where it is positive and ``alpha * (exp(x) - 1)`` elsewhere.

    Parameters
    ----------
    alpha : float
        The result tends to -alpha.
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.

    References
    ----------
    Clevert et al. 2016, "Fast and Accurate Deep Network Learning by Exponential Linear Units".

    Examples
    --------
    >>> import megengine as mge, megengine.module as M
    >>> M.ELU(0.5)(mge.Tensor([-1000.0, 2.0])).tolist()
    [-0.5, 2.0]
    """

    _repr_facts = "alpha={0.alpha}"

    def __init__(self, alpha: float = 1.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.alpha = alpha

    def _function(self, x: Tensor) -> Tensor:
        return F.elu(x, self.alpha)


class CELU(_Activation):
    """Applies ``x`` where it is positive and ``alpha * (exp(x / alpha) - 1)`` elsewhere.

    Parameters
    ----------
    alpha : float
        The result tends to -alpha; the slope at 0 is 1 for each.
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.

    References
    ----------
    Barron 2017, "Continuously Differentiable Exponential Linear Units".

    Examples
    --------
    >>> import megengine as mge, megengine.module as M
    >>> M.CELU(0.5)(mge.Tensor([-1000.0, 2.0])).tolist()
    [-0.5, 2.0]
    """

    _repr_facts = "alpha={0.alpha}"

    def __init__(self, alpha: float = 1.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.alpha = alpha

    def _function(self, x: Tensor) -> Tensor:
        return F.celu(x, self.alpha)


class SELU(_Activation):
    """Applies ``1.0507 * elu(x, 1.6733)`` elementwise, which keeps mean 0 and variance 1.

    Parameters
    ----------
    name : str or None
        Name of the module in dumped graphs; None takes the name of its attribute.

    References
    ----------
    Klambauer et al. 2017, "Self-Normalizing Neural Networks".

    Examples
    --------
    >>> import megengine as mge, megengine.module as M
    >>> [round(y, 3) for y in M.SELU()(mge.Tensor([-1000.0, 1.0])).tolist()]
    [-1.758, 1.051]
    """

    def _function(self, x: Tensor) -> Tensor:
        return F.selu(x)


class Mish(_Activation):
    """Applies ``x * tanh(softplus(x))`` elementwise.

    Parameters
    ----------
    name : str or None
        Name of the module in dumped graphs; None takes the name of its attribute.

    References
    ----------
    Misra 2020, "Mish: A Self Regularized Non-Monotonic Activation Function".

    Examples
    --------
    >>> import megengine as mge, megengine.module as M
    >>> [round(y, 3) for y in M.Mish()(mge.Tensor([-1.0, 0.0, 100.0])).tolist()]
    [-0.303, 0.0, 100.0]
    """

    def _function(self, x: Tensor) -> Tensor:
        return F.mish(x)


class ReLU6(_Activation):
    """Applies ``min(max(x, 0), 6)`` elementwise.

    Parameters
    ----------
    name : str or None
        Name of the module in dumped graphs; None takes the name of its attribute.

    References
    ----------
    Howard et al. 2017, "MobileNets".

    Examples
    --------
    >>> import megengine as mge, megengine.module as M
    >>> M.ReLU6()(mge.Tensor([-2.0, 3.0, 9.0])).tolist()
    [0.0, 3.0, 6.0]
    """

    def _function(self, x: Tensor) -> Tensor:
        return F.relu6(x)


class Hardswish(_Activation):
    """Applies ``x * relu6(x + 3) / 6`` elementwise, a piecewise approximation of `SiLU`.

    Parameters
    ----------
    name : str or None
        Name of the module in dumped graphs; None takes the name of its attribute.

    References
    ----------
    Howard et al. 2019, "Searching for MobileNetV3".

    Examples
    --------
    >>> import megengine as mge, megengine.module as M
    >>> M.Hardswish()(mge.Tensor([-1.5, 0.0, 3.0])).tolist()
    [-0.375, 0.0, 3.0]
    """

    def _function(self, x: Tensor) -> Tensor:
        return F.hswish(x)


class Hardsigmoid(_Activation):
    """Applies ``relu6(x + 3) / 6`` elementwise, a piecewise linear `Sigmoid`.

    Parameters
    ----------
    name : str or None
        Name of the module in dumped graphs; None takes the name of its attribute.

    References
    ----------
    Howard et al. 2019, "Searching for MobileNetV3".

    Examples
    --------
    >>> import megengine as mge, megengine.module as M
    >>> M.Hardsigmoid()(mge.Tensor([-4.0, 0.0, 3.0])).tolist()
    [0.0, 0.5, 1.0]
    """

    def _function(self, x: Tensor) -> Tensor:
        return F.hsigmoid(x)


class Softplus(_Activation):
    """Applies the smooth ReLU ``log(1 + exp(x))`` elementwise, without overflow.

    Parameters
    ----------
    name : str or None
        Name of the module in dumped graphs; None takes the name of its attribute.

    References
    ----------
    Dugas et al. 2000, "Incorporating Second-Order Functional Knowledge for Better Option Pricing".

    Examples
    --------
    >>> import megengine as mge, megengine.module as M
    >>> [round(y, 3) for y in M.Softplus()(mge.Tensor([0.0, 100.0])).tolist()]
    [0.693, 100.0]
    """

    def _function(self, x: Tensor) -> Tensor:
        return F.softplus(x)


class LogSigmoid(_Activation):
    """Applies ``log(sigmoid(x))`` elementwise, finite for every finite x.

    Parameters
    ----------
    name : str or None
        Name of the module in dumped graphs; None takes the name of its attribute.

    Examples
    --------
    >>> import megengine as mge, megengine.module as M
    >>> [round(y, 3) for y in M.LogSigmoid()(mge.Tensor([-200.0, 0.0])).tolist()]
    [-200.0, -0.693]
    """

    def _function(self, x: Tensor) -> Tensor:
        return F.logsigmoid(x)


class LogSoftmax(_Activation):
    """Applies the logarithm of `Softmax`, without underflow.

    Parameters
    ----------
    axis : int
        The axis whose exponentials sum to 1.
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.

    Examples
    --------
    >>> import megengine as mge, megengine.module as M
    >>> M.LogSoftmax(axis=1)(mge.Tensor([[0.0, 1000.0]])).tolist()
    [[-1000.0, 0.0]]
    """

    _repr_facts = "axis={0.axis}"

    def __init__(self, axis: int = -1, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.axis = axis

    def _function(self, x: Tensor) -> Tensor:
        return F.logsoftmax(x, self.axis)


class GLU(_Activation):
    """Applies ``a * sigmoid(b)`` to the first half a and the second half b of an axis, which is halved.

    Parameters
    ----------
    axis : int
        The axis of values and their gates, of an even extent.
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.

    References
    ----------
    Dauphin et al. 2017, "Language Modeling with Gated Convolutional Networks".

    Examples
    --------
    >>> import megengine as mge, megengine.module as M
    >>> M.GLU()(mge.Tensor([[4.0, 8.0, 0.0, 1000.0]])).tolist()
    [[2.0, 8.0]]
    """

    _repr_facts = "axis={0.axis}"

    def __init__(self, axis: int = -1, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.axis = axis

    def _function(self, x: Tensor) -> Tensor:
        return F.glu(x, self.axis)
