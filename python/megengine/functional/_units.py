"""Activations with an exponential branch, and gates."""

from ..core import ops
from ..core.tensor.amp import to_high as _to_high
from ..core.tensor.array_method import require_tensors
from ..core.tensor.shapes import cut, normalize_axis
from ..tensor import Tensor
from ._docs import FLOAT
from ._docs import tells as _tells


def elu(inp: Tensor, alpha: float = 1.0) -> Tensor:
    """Computes ``x`` where it is positive and ``alpha * (exp(x) - 1)`` elsewhere.

    Parameters
    ----------
    inp : Tensor
        Any shape, float dtype; integers compute in float32.
    alpha : float
        Scale of negative values; the result tends to -alpha.

    Returns
    -------
    Tensor
        The shape of ``inp`` and its dtype, float32 for integers.

    References
    ----------
    Clevert et al., 2016, "Fast and Accurate Deep Network Learning by Exponential Linear Units".

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.elu(Tensor([-1000.0, 0.0, 2.0]), alpha=0.5).numpy()
    array([-0.5,  0. ,  2. ], dtype=float32)
    """
    return ops.elu(_to_high(inp), alpha=float(alpha))


def celu(inp: Tensor, alpha: float = 1.0) -> Tensor:
    """Computes ``x`` where it is positive and ``alpha * (exp(x / alpha) - 1)`` elsewhere: an `elu`
    whose slope at 0 is 1 for every ``alpha``.

    Parameters
    ----------
    inp : Tensor
        Any shape, float dtype; integers compute in float32.
    alpha : float
        Scale of negative values, not 0; the result tends to -alpha.

    Returns
    -------
    Tensor
        The shape of ``inp`` and its dtype, float32 for integers.

    Raises
    ------
    ValueError
        For an alpha of 0.

    References
    ----------
    Barron, 2017, "Continuously Differentiable Exponential Linear Units".

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.celu(Tensor([-1000.0, 0.0, 2.0]), alpha=0.5).numpy()
    array([-0.5,  0. ,  2. ], dtype=float32)
    """
    if alpha == 0:
        raise ValueError("celu: alpha is 0, by which x is divided\n  fix: use relu")
    return ops.celu(_to_high(inp), alpha=float(alpha))


@_tells(FLOAT)
def selu(x: Tensor) -> Tensor:
    """Computes ``1.0507 * elu(x, 1.6733)``, elementwise, which keeps mean 0 and variance 1 from
    layer to layer.

    References
    ----------
    Klambauer et al., 2017, "Self-Normalizing Neural Networks", equation 14 for both numbers.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.selu(Tensor([-1000.0, 0.0, 1.0])).numpy().round(4)
    array([-1.7581,  0.    ,  1.0507], dtype=float32)
    """
    return ops.selu(_to_high(x))


@_tells(FLOAT)
def mish(x: Tensor) -> Tensor:
    """Computes ``x * tanh(softplus(x))``, elementwise.

    References
    ----------
    Misra, 2020, "Mish: A Self Regularized Non-Monotonic Activation Function".

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.mish(Tensor([-1.0, 0.0, 100.0])).numpy().round(4)
    array([ -0.3034,   0.    , 100.    ], dtype=float32)
    """
    return ops.mish(_to_high(x))


def glu(inp: Tensor, axis: int = -1) -> Tensor:
    """Computes ``a * sigmoid(b)`` of the first half a and the second half b along ``axis``.

    Parameters
    ----------
    inp : Tensor
        Any shape with an even extent along ``axis``, float dtype.
    axis : int
        Axis of ``inp``; negative numbers count from the end.

    Returns
    -------
    Tensor
        The shape of ``inp`` with half of that extent.

    Raises
    ------
    ValueError
        For an odd extent.

    References
    ----------
    Dauphin et al., 2017, "Language Modeling with Gated Convolutional Networks".

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.glu(Tensor([[4.0, 8.0, 0.0, 1000.0]])).numpy()
    array([[2., 8.]], dtype=float32)
    """
    require_tensors("glu", inp)
    axis = normalize_axis(axis, inp.ndim, "glu")
    extent = inp._tuple_shape[axis]
    if extent % 2:
        raise ValueError(f"glu: axis {axis} of inp has {extent} elements, which cannot be halved\n  fix: give an even number: values and their gates")
    return ops.mul(cut(inp, axis, 0, extent // 2), ops.sigmoid(cut(inp, axis, extent // 2, extent)))

