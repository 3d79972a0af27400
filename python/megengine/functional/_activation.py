"""Activations and softmax."""

from collections.abc import Sequence

from ..core import ops
from ..core.tensor.amp import to_high as _to_high
from ..core.tensor.array_method import require_tensors
from ..core.tensor.shapes import normalize_axes, normalize_axis
from ..tensor import Tensor
from ._docs import FLOAT, SAME
from ._docs import tells as _tells


@_tells(SAME)
def relu(x: Tensor) -> Tensor:
    """Computes the rectified linear unit ``max(x, 0)``, elementwise; NaN stays NaN.

    See Also
    --------
    leaky_relu : Keeps a part of negative elements.
    prelu : Keeps a learned part of negative elements.
    module.ReLU : The layer.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.relu(Tensor([-1.0, 0.0, 2.0])).numpy()
    array([0., 0., 2.], dtype=float32)
    """
    return ops.relu(x)


@_tells(SAME)
def relu6(x: Tensor) -> Tensor:
    """Computes ``min(max(x, 0), 6)``, elementwise.

    References
    ----------
    Howard et al., 2017, "MobileNets".

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.relu6(Tensor([-1.0, 3.0, 9.0])).numpy()
    array([0., 3., 6.], dtype=float32)
    """
    return ops.relu6(x)


@_tells(FLOAT)
def sigmoid(x: Tensor) -> Tensor:
    """Computes the logistic function ``1 / (1 + exp(-x))``, elementwise, without overflow.

    See Also
    --------
    logsigmoid : The logarithm of the sigmoid, without underflow.
    hsigmoid : A piecewise linear approximation.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.sigmoid(Tensor([-1000.0, 0.0, 1000.0])).numpy()
    array([0. , 0.5, 1. ], dtype=float32)
    """
    return ops.sigmoid(x)


@_tells(FLOAT)
def hsigmoid(x: Tensor) -> Tensor:
    """Computes the piecewise linear sigmoid ``relu6(x + 3) / 6``, elementwise.

    References
    ----------
    Howard et al., 2019, "Searching for MobileNetV3".

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.hsigmoid(Tensor([-4.0, 0.0, 3.0])).numpy()
    array([0. , 0.5, 1. ], dtype=float32)
    """
    return ops.hsigmoid(_to_high(x))


@_tells(FLOAT)
def hswish(x: Tensor) -> Tensor:
    """Computes ``x * relu6(x + 3) / 6``, elementwise, a piecewise approximation of `silu`.

    References
    ----------
    Howard et al., 2019, "Searching for MobileNetV3".

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.hswish(Tensor([-1.5, 0.0, 3.0])).numpy()
    array([-0.375,  0.   ,  3.   ], dtype=float32)
    """
    return ops.hswish(x)


@_tells(FLOAT)
def silu(x: Tensor) -> Tensor:
    """Computes ``x * sigmoid(x)``, elementwise, also called swish.

    See Also
    --------
    hswish : A piecewise approximation.
    gelu : Weighs by the normal distribution instead of the logistic function.

    References
    ----------
    Elfwing et al., 2018, "Sigmoid-Weighted Linear Units for Neural Network Function Approximation
    in Reinforcement Learning".

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.silu(Tensor([0.0, 1.0, 100.0])).numpy().round(4)
    array([  0.    ,   0.7311, 100.    ], dtype=float32)
    """
    return ops.silu(x)


@_tells(FLOAT)
def gelu(x: Tensor) -> Tensor:
    """Computes ``x * Phi(x)``, elementwise, with the exact normal distribution
    ``Phi(x) = (1 + erf(x / sqrt(2))) / 2``, not the tanh approximation.

    References
    ----------
    Hendrycks and Gimpel, 2016, "Gaussian Error Linear Units".

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.gelu(Tensor([0.0, 1.0, 100.0])).numpy().round(4)
    array([  0.    ,   0.8413, 100.    ], dtype=float32)
    """
    return ops.gelu(x)


def leaky_relu(inp: Tensor, negative_slope: float = 0.01) -> Tensor:
    """Multiplies negative elements by ``negative_slope`` and keeps the others.

    Parameters
    ----------
    inp : Tensor
        Any shape, float dtype; integers compute in float32.
    negative_slope : float
        Factor of negative elements.

    Returns
    -------
    Tensor
        The shape of ``inp`` and its dtype, float32 for integers.

    See Also
    --------
    prelu : Takes the slope as a tensor, which can be learned.
    relu : Has the slope 0.

    References
    ----------
    Maas et al., 2013, "Rectifier Nonlinearities Improve Neural Network Acoustic Models".

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.leaky_relu(Tensor([-4.0, 2.0]), 0.25).numpy()
    array([-1.,  2.], dtype=float32)
    """
    return ops.leaky_relu(inp, negative_slope=float(negative_slope))


def prelu(x: Tensor, y: Tensor) -> Tensor:
    """Multiplies negative elements of ``x`` by the slopes ``y``, which are usually learned.

    Parameters
    ----------
    x : Tensor
        Any shape, float dtype.
    y : Tensor
        Slopes whose shape broadcasts to that of ``x``, such as [1, c, 1, 1] for one slope per
        channel of images [n, c, h, w].

    Returns
    -------
    Tensor
        The shape of ``x``.

    See Also
    --------
    leaky_relu : Takes the slope as a number.
    module.PReLU : The layer, which holds the slopes.

    References
    ----------
    He et al., 2015, "Delving Deep into Rectifiers".

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.prelu(Tensor([[-4.0, 2.0], [-4.0, -2.0]]), Tensor([0.25, 0.5])).numpy()
    array([[-1.,  2.],
           [-1., -1.]], dtype=float32)
    """
    return ops.prelu(x, y)


def softplus(inp: Tensor) -> Tensor:
    """Computes the smooth ReLU ``log(1 + exp(x))``, finite for every finite ``x``.

    Parameters
    ----------
    inp : Tensor
        Any shape, float dtype; integers compute in float32.

    Returns
    -------
    Tensor
        The shape of ``inp`` and its dtype, float32 for integers.

    References
    ----------
    Dugas et al., 2000, "Incorporating Second-Order Functional Knowledge for Better Option Pricing".

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.softplus(Tensor([0.0, 100.0])).numpy().round(4)
    array([  0.6931, 100.    ], dtype=float32)
    """
    return ops.softplus(_to_high(inp))


def logsigmoid(inp: Tensor) -> Tensor:
    """Computes ``log(sigmoid(x))``, finite for every finite ``x``.

    Parameters
    ----------
    inp : Tensor
        Any shape, float dtype; integers compute in float32.

    Returns
    -------
    Tensor
        The shape of ``inp`` and its dtype, float32 for integers.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> x = Tensor([-200.0, 0.0])
    >>> F.logsigmoid(x).numpy().round(4)  # where log(sigmoid(x)) is -inf
    array([-200.    ,   -0.6931], dtype=float32)
    """
    return ops.logsigmoid(_to_high(inp))


def softmax(inp: Tensor, axis: int | Sequence[int] | None = None) -> Tensor:
    """Computes ``exp(x) / sum(exp(x))`` along ``axis``, without overflow.

    Parameters
    ----------
    inp : Tensor
        Any shape, float dtype; integers compute in float32.
    axis : int, sequence of int or None
        Axis whose probabilities sum to 1; several axes are normalized together; None means 0 for
        0-, 1- and 3-d tensors and 1 for all others.

    Returns
    -------
    Tensor
        The shape of ``inp`` and its dtype, float32 for integers.

    See Also
    --------
    log_softmax : The logarithm of the softmax, without underflow.
    functional.loss.cross_entropy : The loss of scores, which needs no softmax before it.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.softmax(Tensor([[0.0, 0.0], [1000.0, 0.0]]), axis=1).numpy()
    array([[0.5, 0.5],
           [1. , 0. ]], dtype=float32)
    """
    require_tensors("softmax", inp)
    ndim = inp.ndim
    if axis is None:
        axis = 0 if ndim in (0, 1, 3) else 1
    if ndim == 0:
        return ops.full(shape=(), value=1.0, dtype=inp.dtype.name, device=inp)
    if isinstance(axis, (list, tuple)):
        axes = normalize_axes(axis, ndim, "softmax")
        shifted = ops.exp(ops.sub(inp, ops.reduce_max(inp, axes=axes, keepdims=True)))
        return ops.true_div(shifted, ops.reduce_sum(shifted, axes=axes, keepdims=True))
    return ops.softmax(inp, axis=normalize_axis(axis, ndim, "softmax"))


def logsoftmax(inp: Tensor, axis: int | Sequence[int]) -> Tensor:
    """Computes the logarithm of `softmax` along ``axis``, ``x - logsumexp(x)``, without underflow.

    Parameters
    ----------
    inp : Tensor
        Any shape, float dtype; integers compute in float32.
    axis : int or sequence of int
        Axis whose probabilities sum to 1; several axes are normalized together.

    Returns
    -------
    Tensor
        The shape of ``inp`` and its dtype, float32 for integers.

    See Also
    --------
    softmax : The probabilities themselves.
    functional.loss.nll_loss : The loss of these logarithms.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.logsoftmax(Tensor([[0.0, 1000.0]]), axis=1).numpy()  # log(softmax(x)) has -inf
    array([[-1000.,     0.]], dtype=float32)
    """
    require_tensors("logsoftmax", inp)
    inp = _to_high(inp)
    if isinstance(axis, (list, tuple)):
        return ops.sub(inp, logsumexp(inp, axis, keepdims=True))
    return ops.log_softmax(inp, axis=normalize_axis(axis, inp.ndim, "logsoftmax"))


def logsumexp(inp: Tensor, axis: int | Sequence[int], keepdims: bool = False) -> Tensor:
    """Computes ``log(sum(exp(x)))`` along ``axis``, shifted by the largest finite element, so that
    nothing overflows.

    Parameters
    ----------
    inp : Tensor
        Any shape, float dtype; integers compute in float32.
    axis : int or sequence of int
        One axis or several; negative ones count from the end.
    keepdims : bool
        Whether the reduced axes stay in the result with size 1.

    Returns
    -------
    Tensor
        The shape of ``inp`` without ``axis``.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.logsumexp(Tensor([[1000.0, 1000.0]]), axis=1).numpy().round(2)
    array([1000.69], dtype=float32)
    """
    require_tensors("logsumexp", inp)
    inp = _to_high(inp)
    axes = normalize_axes(axis, inp.ndim, "logsumexp")
    shift = ops.reduce_max(inp.detach(), axes=axes, keepdims=True)
    shift = ops.where(
        ops.isfinite(shift), shift, ops.full(shape=(), value=0.0, dtype=shift.dtype.name, device=shift)
    )
    total = ops.reduce_sum(ops.exp(ops.sub(inp, shift)), axes=axes, keepdims=True)
    y = ops.add(ops.log(total), shift)
    if keepdims:
        return y
    return ops.reshape(y, shape=tuple(n for a, n in enumerate(y._tuple_shape) if a not in axes))
